"""Blocks of each quantised type and what PyPI's `gguf` 0.19.0 (with numpy) makes of them.

    python make_blocks.py        writes q4_0.blocks.npy, q4_0.values.npy, ... next to itself

The bytes are random; the scales are halves of ordinary size, and among them a zero, a negative and a subnormal one.
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, quants

HERE = pathlib.Path(__file__).parent
TYPES = {  # bytes of a block, offsets of its half-precision scales
    "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q8_0": (34, [0]),
    "Q4_K": (144, [0, 2]), "Q5_K": (176, [0, 2]), "Q6_K": (210, [208]), "IQ4_NL": (18, [0]),
}
BLOCKS = 6

random = np.random.default_rng(5)
for name, (size, scales) in TYPES.items():
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for offset in scales:
        values = random.normal(0.0, 0.02, BLOCKS).astype(np.float16)
        values[:3] = np.float16(0.0), np.float16(-0.375), np.float16(3.0e-7)
        blocks[:, offset:offset + 2] = values.view(np.uint8).reshape(BLOCKS, 2)
    floats = quants.dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
    np.save(HERE / f"{name.lower()}.blocks.npy", blocks)
    np.save(HERE / f"{name.lower()}.values.npy", floats)
