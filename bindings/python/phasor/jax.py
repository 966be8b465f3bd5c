"""Phasor for JAX: rotation in pure JAX by exact rows of cos and sin, with its gradient.

    y = phasor.jax.rotate(x, spec, positions)          # inside jit, grad and vmap too, on any device of JAX

Rows come from C++ on the CPU: when positions are known (NumPy, a list, an offset) they are constants of the trace; traced
positions index tables of float32 (see cos_sin). A rotation is linear in x: its backward pass is the transposed rotation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _pure
from ._core import RopeSpec

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("phasor.jax: JAX is missing (" + str(error) + "); run: pip install jax") from error

if TYPE_CHECKING:
    from ._core import Layout, Order


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _rotate_by(x: Any, cos: Any, sin: Any, how: _pure.How) -> Any:
    return _pure.turned(_LIBRARY, x, cos, sin, how)


def _forward(x: Any, cos: Any, sin: Any, how: _pure.How) -> Any:
    return _rotate_by(x, cos, sin, how), (x, cos, sin)


def _backward(how: _pure.How, kept: Any, grad: Any) -> Any:
    x, cos, sin = kept
    d_x = _rotate_by(grad, cos, sin, replace(how, transpose=not how.transpose))
    # Linear in cos and sin as well; XLA drops what is not used.
    _, of_rows = jax.vjp(lambda c, s: _pure.turned(_LIBRARY, x, c, s, how), cos, sin)
    return (d_x, *of_rows(grad))


_rotate_by.defvjp(_forward, _backward)

_LIBRARY = _pure.Library(
    xp=jnp,
    array=jnp.asarray,
    type_name=lambda dtype: str(jnp.dtype(dtype).name),
    known=lambda positions: None if isinstance(positions, jax.core.Tracer) else np.asarray(positions),
    rotate_by=_rotate_by,
)


def cos_sin(
    spec: RopeSpec,
    positions: Any,
    *,
    context: int | None = None,
    length: int | None = None,
    dtype: Any = np.float32,
) -> tuple[Any, Any]:
    """cos and sin times the amplitude, [..., pairs] each, as JAX arrays.

    positions: an int n (0 .. n - 1), or numbers [...], or [axes, ...] if the spec has axes: any that are known, computed
    in float64 and rounded once. Positions that jit traces must be integers of a spec with one axis, and need `length`: rows 0 .. length - 1
    become a constant of the compiled function, and a position outside gives NaN.
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

    The bounds are those of phasor.rotate: 2 epsilons of float32 of the pair's length (3 of float64 for float64), then one
    rounding to x's type.
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
    traced ones need length (see cos_sin). role: which of the two x is, for xPos.
    """
    how: Any = {"transpose": transpose, "role": role, "context": context, "length": length, "order": order}
    return _pure.rotate(_LIBRARY, x, spec, positions, **how)


__all__ = ["cos_sin", "rotate", "rotate_by"]
