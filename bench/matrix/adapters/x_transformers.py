"""x-transformers: RotaryEmbedding and apply_rotary_pos_emb."""

from __future__ import annotations

import numpy as np
import torch
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

from case import Case, Floats, Positions, Rotate, leading

PACKAGE = "x-transformers"


def make(case: Case) -> Rotate:
    case.needs("default", "linear")
    factor = case.factor if case.rope_type == "linear" else 1.0
    rotary = RotaryEmbedding(case.rotary_dim, base=case.base, interpolation_factor=factor)

    def rotate(x: Floats, positions: Positions) -> Floats:
        heads = torch.from_numpy(np.array(x)).transpose(0, 1)[None]
        with torch.no_grad():
            frequencies, scale = rotary(torch.from_numpy(positions))
            y = apply_rotary_pos_emb(heads, frequencies, scale)
        return np.asarray(y[0].transpose(0, 1))

    return leading(case, rotate)


VARIANTS = {"": make}
