"""Writes a decoder of 1.1 B parameters with random weights as a GGUF file, to measure speed on a model of that size.

    python bench/peers/random_gguf.py OUT.gguf [--type q4_0]      # any name of TYPES

Shapes of a Llama: 22 layers, hidden 2048, 32 heads over 4 of keys and values, feed-forward 5632, vocabulary 49152, head
tied to the embedding. Codes are random bytes, scales are constant, norms are ones; there is no tokenizer. Needs NumPy.
"""

import argparse
import pathlib
import struct

import numpy as np

LAYERS, HIDDEN, HEADS, KEY_HEADS, WIDE, VOCABULARY = 22, 2048, 32, 4, 5632, 49152
ALIGNMENT, ROWS = 32, 1024
SPREAD = 0.02  # of the weights, about
# Number in GGUF, elements and bytes of a block, the halves of a block and their values.
TYPES = {
    "q4_0": (2, 32, 18, {0: SPREAD / 4.6}),
    "q4_1": (3, 32, 20, {0: SPREAD / 4.6, 2: -SPREAD * 7.5 / 4.6}),
    "q8_0": (8, 32, 34, {0: SPREAD / 74}),
    "q4_k": (12, 256, 144, {0: SPREAD / 150, 2: SPREAD / 20}),
    "q5_k": (13, 256, 176, {0: SPREAD / 300, 2: SPREAD / 20}),
    "q6_k": (14, 256, 210, {208: SPREAD / 1400}),
    "iq4_nl": (20, 32, 18, {0: SPREAD / 70}),
    "f16": (1, 1, 2, {}),
    "bf16": (30, 1, 2, {}),
}
F32 = 0


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def metadata():
    numbers = {"block_count": LAYERS, "context_length": 8192, "embedding_length": HIDDEN, "feed_forward_length": WIDE,
               "attention.head_count": HEADS, "attention.head_count_kv": KEY_HEADS,
               "rope.dimension_count": HIDDEN // HEADS, "vocab_size": VOCABULARY}
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
             text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab"),
             text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5),
             text("llama.rope.freq_base") + struct.pack("<If", 6, 10000.0)]
    return pairs + [text("llama." + name) + struct.pack("<II", 4, value) for name, value in numbers.items()]


def tensors():
    """Names and shapes, rows first."""
    keys = KEY_HEADS * HIDDEN // HEADS
    yield "token_embd.weight", (VOCABULARY, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        for name, shape in {"attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (keys, HIDDEN),
                            "attn_v": (keys, HIDDEN), "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,),
                            "ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN), "ffn_down": (HIDDEN, WIDE)}.items():
            yield f"blk.{layer}.{name}.weight", shape


def rows_of(kind, rows, columns, random):
    """Random rows in the type's bytes."""
    _, elements, size, halves = TYPES[kind]
    if elements == 1:
        values = random.standard_normal((rows, columns), dtype=np.float32) * SPREAD
        return values.astype(np.float16) if kind == "f16" else (values.view(np.uint32) >> 16).astype(np.uint16)
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    for offset, value in halves.items():
        blocks[:, offset:offset + 2] = np.frombuffer(np.float16(value).tobytes(), dtype=np.uint8)
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=sorted(TYPES), default="q4_0")
    arguments = parser.parse_args()
    number, elements, size, _ = TYPES[arguments.type]
    entries, offset = [], 0
    for name, shape in tensors():
        is_norm = len(shape) == 1
        count = int(np.prod(shape))
        entries.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape),
                                                F32 if is_norm else number, offset))
        offset += -(-(count * 4 if is_norm else count // elements * size) // ALIGNMENT) * ALIGNMENT
    pairs = metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(pairs)) + b"".join(pairs + entries)
    random = np.random.default_rng(1)
    with arguments.out.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, shape in tensors():
            if len(shape) == 1:
                file.write(np.ones(shape, dtype=np.float32).tobytes())
            else:
                for first in range(0, shape[0], ROWS):
                    file.write(rows_of(arguments.type, min(ROWS, shape[0] - first), shape[1], random).tobytes())
            file.write(bytes(-file.tell() % ALIGNMENT))


if __name__ == "__main__":
    main()
