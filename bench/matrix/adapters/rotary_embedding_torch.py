"""rotary-embedding-torch: RotaryEmbedding.rotate_queries_or_keys, one position a call."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding

from case import Case, Rotate, by_step, leading

PACKAGE = "rotary-embedding-torch"
BY_STEP = True


def make(case: Case) -> Rotate:
    case.needs("default", "linear")
    factor = case.factor if case.rope_type == "linear" else 1.0
    rotary = RotaryEmbedding(dim=case.rotary_dim, theta=case.base, interpolate_factor=factor)

    def rotate(x, position):
        with torch.no_grad():
            y = rotary.rotate_queries_or_keys(torch.from_numpy(x)[None, :, None], offset=position)
        return y[0, :, 0].numpy()

    return leading(case, by_step(rotate))


VARIANTS = {"": make}
