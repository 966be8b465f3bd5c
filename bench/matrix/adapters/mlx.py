"""MLX: mlx.core.fast.rope, one position a call."""

from __future__ import annotations

import mlx.core as mx

from case import Case, Rotate, by_step

PACKAGE = "mlx"
BY_STEP = True


def make(case: Case) -> Rotate:
    case.needs("default", "linear")
    scale = 1.0 / case.factor if case.rope_type == "linear" else 1.0

    def rotate(x, position):
        return mx.fast.rope(
            mx.array(x)[None, :, None],
            case.rotary_dim,
            traditional=case.layout != "half",
            base=case.base,
            scale=scale,
            offset=position,
        )[0, :, 0]

    return by_step(rotate)


VARIANTS = {"": make}
