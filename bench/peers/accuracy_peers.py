"""How far cos and sin of other libraries are from the exact values, at positions of long contexts.

    python bench/peers/accuracy_peers.py [--positions 4095 131071 1048575 16000000] [--json]

128 features, base 500000, as in Llama 3. A figure is the largest error over the 64 pairs, of cos or sin. The exact
values come from mpmath (40 digits; torch installs it). transformers is its LlamaRotaryEmbedding as it is made, and after
`model.to(torch.bfloat16)` has rounded its frequencies; rotary-embedding-torch gives angles, whose cos and sin are taken
in float64. A library that cannot be imported is left out by name.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Callable

import mpmath
import numpy as np
import numpy.typing as npt

import phasor
from timing import left_out

DIM, BASE = 128, 500000.0
Values = npt.NDArray[np.float64]  # [2, pairs]: cos and sin of one position
Engine = Callable[[int], Values]


def exact(position: int) -> Values:
    with mpmath.workdps(40):
        angles = [position * mpmath.power(BASE, mpmath.mpf(-2 * i) / DIM) for i in range(DIM // 2)]
        return np.array([[float(function(a)) for a in angles] for function in (mpmath.cos, mpmath.sin)])


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def engines() -> dict[str, Engine]:
    spec = phasor.RopeSpec(DIM, base=BASE, layout="half")
    found: dict[str, Engine] = {
        f"phasor {phasor.__version__}": lambda p: np.stack(phasor.cos_sin(spec, np.array([p])))[:, 0].astype(float)
    }
    try:
        import torch
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        def llama(dtype: torch.dtype) -> Engine:
            config = LlamaConfig(
                hidden_size=32 * DIM,
                num_attention_heads=32,
                rope_parameters={"rope_type": "default", "rope_theta": BASE},
            )
            module = LlamaRotaryEmbedding(config).to(dtype)

            def values(position: int) -> Values:
                with torch.no_grad():
                    both = module(torch.zeros(1, 1, 1), torch.tensor([[position]]))
                return np.stack([x[0, 0, : DIM // 2].double().numpy() for x in both])

            return values

        found[version("transformers")] = llama(torch.float32)
        found[version("transformers") + ", frequencies in bfloat16"] = llama(torch.bfloat16)
    except ImportError as error:
        left_out("transformers", error)
    try:
        import torch
        from rotary_embedding_torch import RotaryEmbedding

        rotary = RotaryEmbedding(dim=DIM, theta=BASE)

        def of_angles(position: int) -> Values:
            angles = rotary(torch.tensor([float(position)]))[0, ::2].detach().double().numpy()
            return np.stack([np.cos(angles), np.sin(angles)])

        found[version("rotary-embedding-torch")] = of_angles
    except ImportError as error:
        left_out("rotary-embedding-torch", error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, nargs="+", default=[4095, 131071, 1048575, 16000000])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    truth = {p: exact(p) for p in arguments.positions}
    rows = [
        {"engine": name, "position": p, "largest_error": float(np.abs(engine(p) - truth[p]).max())}
        for name, engine in engines().items()
        for p in arguments.positions
    ]
    if arguments.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    print(f"{'largest error of cos and sin at':50}" + "".join(f"{p:>12}" for p in arguments.positions))
    for name in dict.fromkeys(row["engine"] for row in rows):
        errors = [row["largest_error"] for row in rows if row["engine"] == name]
        print(f"{name:50}" + "".join(f"{e:12.1e}" for e in errors))


if __name__ == "__main__":
    main()
