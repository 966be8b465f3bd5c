"""mlx-lm: the rope that its models make of rope_parameters, one position a call."""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

from case import Case, Rotate, by_step

PACKAGE = "mlx-lm"
BY_STEP = True


def make(case: Case) -> Rotate:
    rope = initialize_rope(
        case.rotary_dim,
        case.base,
        case.layout != "half",
        scaling_config=case.rope,
        max_position_embeddings=case.max_position_embeddings,
    )
    return by_step(lambda x, position: rope(mx.array(x)[None, :, None], offset=position)[0, :, 0])


VARIANTS = {"": make}
