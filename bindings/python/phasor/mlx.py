"""Phasor for MLX: rotation by MLX's operations and exact rows of cos and sin, with its gradient.

    y = phasor.mlx.rotate(x, spec, positions)          # inside mx.compile, mx.grad and mx.vmap too, on any device of MLX

Rows come from C++ on the CPU: when positions are known (NumPy, a list, an offset, an MLX array outside of a
transformation) they are constants; those of a compiled or mapped function index a table (see cos_sin).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _pure
from ._core import RopeSpec

try:
    import mlx.core as mx
except ImportError as error:
    raise ImportError("phasor.mlx: MLX is missing (" + str(error) + "); run: pip install mlx") from error

if TYPE_CHECKING:
    from ._core import Layout, Order


def _known(positions: Any) -> Any:
    try:
        return np.asarray(positions)
    except ValueError:
        if isinstance(positions, mx.array):  # MLX refuses to read an array inside compile() and vmap()
            return None
        raise


def _rotate_by(x: Any, cos: Any, sin: Any, how: _pure.How) -> Any:
    def turn(x: Any, cos: Any, sin: Any) -> Any:
        return _pure.turned(_LIBRARY, x, cos, sin, how)

    rotate = mx.custom_function(turn)

    @rotate.vjp
    def backward(primals: Any, grad: Any, _: Any) -> Any:
        x, cos, sin = primals
        d_x = _rotate_by(grad, cos, sin, replace(how, transpose=not how.transpose))
        # Linear in cos and sin as well; MLX computes only what is used.
        _, of_rows = mx.vjp(lambda c, s: turn(x, c, s), [cos, sin], [grad])
        return (d_x, *of_rows)

    return rotate(x, cos, sin)


_LIBRARY = _pure.Library(
    xp=mx,
    array=mx.array,
    type_name=lambda dtype: str(dtype).removeprefix("mlx.core."),
    known=_known,
    rotate_by=_rotate_by,
)


def cos_sin(
    spec: RopeSpec,
    positions: Any,
    *,
    context: int | None = None,
    length: int | None = None,
    dtype: Any = mx.float32,
) -> tuple[Any, Any]:
    """cos and sin times the amplitude, [..., pairs] each, as MLX arrays.

    positions: an int n (0 .. n - 1), or numbers [...], or [axes, ...] if the spec has axes: any that are known, computed
    in float64 and rounded once. Positions inside mx.compile and mx.vmap must be integers of a spec with one axis, and need
    `length`: rows 0 .. length - 1 become a constant of the function, and a position outside gives NaN.
    """
    return _pure.cos_sin(_LIBRARY, spec, positions, context=context, length=length, dtype=dtype)


def rotate_by(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    layout: Layout,
    transpose: bool = False,
    rotary_offset: int = 0,
    order: Order = "tokens_first",
) -> Any:
    """Rotates x [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] (order="heads_first" swaps tokens and heads) by
    cos and sin [tokens, pairs] or [batch, tokens, pairs], with gradients for all three.

    The bounds are those of phasor.rotate: 2 epsilons of float32 of the pair's length (3 of float64 for float64, which MLX
    has on the CPU), then one rounding to x's type.
    """
    return _pure.rotate_by(_LIBRARY, x, cos, sin, _pure.How(layout, transpose, rotary_offset, order))


def rotate(
    x: Any,
    spec: RopeSpec,
    positions: Any = None,
    *,
    transpose: bool = False,
    role: Literal["query", "key"] = "query",
    context: int | None = None,
    length: int | None = None,
    order: Order = "tokens_first",
) -> Any:
    """RoFormer (34): rotates every pair of x by the angle of its token's position, with its gradient.

    positions: None (0, 1, ...), an int (that offset), or numbers [tokens], [batch, tokens] or [axes, batch, tokens];
    those inside mx.compile and mx.vmap need length (see cos_sin). role: which of the two x is, for xPos.
    """
    how: Any = {"transpose": transpose, "role": role, "context": context, "length": length, "order": order}
    return _pure.rotate(_LIBRARY, x, spec, positions, **how)


__all__ = ["cos_sin", "rotate", "rotate_by"]
