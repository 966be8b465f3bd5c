"""Phasor for JAX: rotation in pure JAX by exact rows of cos and sin, with its gradient.

    y = phasor.jax.rotate(x, spec, positions)          # inside jit, grad and vmap too, on any device of JAX

Rows come from C++ on the CPU: when positions are known (NumPy, a list, an offset) they are constants of the trace; traced
positions index tables of float32 (see cos_sin). A rotation is linear in x: its backward pass is the transposed rotation.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._core import Error, RopeSpec

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("phasor.jax: JAX is missing (" + str(error) + "); run: pip install jax") from error

if TYPE_CHECKING:
    from ._core import Layout, Order

# layout: (how pairs are read, how they are written)
_READ_WRITTEN = {
    "half": ("half", "half"),
    "interleaved": ("interleaved", "interleaved"),
    "interleaved_to_half": ("interleaved", "half"),
}
_FLOATS = ("bfloat16", "float16", "float32", "float64")


def _refusal(code: Any, text: str) -> Error:
    error = Error(text)
    error.code = code
    return error


@lru_cache(maxsize=16)
def _table(spec: RopeSpec, length: int, context: int | None, dtype: str) -> tuple[Any, Any]:
    cos, sin = _core.cos_sin(spec, length, context=context, dtype=dtype)  # type: ignore[arg-type]
    nothing = np.full_like(cos[:1], np.nan)
    return np.concatenate((cos, nothing)), np.concatenate((sin, nothing))


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
    wide = "float64" if np.dtype(dtype) == np.float64 else "float32"
    if not isinstance(positions, jax.core.Tracer):
        known = positions if isinstance(positions, int) else np.asarray(positions)
        return tuple(jnp.asarray(rows, dtype) for rows in _core.cos_sin(spec, known, context=context, dtype=wide))  # type: ignore[arg-type,return-value]
    if length is None or spec.axes != 1 or not jnp.issubdtype(positions.dtype, jnp.integer):
        raise _refusal(
            "unsupported",
            "cos_sin: positions that are traced must be integers [...] of a spec with one axis, with length=, got "
            f"{positions.dtype}{list(positions.shape)}, {spec.axes} axes and length {length}",
        )
    if spec.depends_on_context and context is None:
        raise _refusal("invalid_argument", "cos_sin: context is missing: the spec depends on it, and positions are traced")
    row = jnp.where((positions >= 0) & (positions < length), positions, length)
    return tuple(jnp.asarray(rows, dtype)[row] for rows in _table(spec, length, context, wide))  # type: ignore[return-value]


def _turned(x: Any, cos: Any, sin: Any, layout: str, transpose: bool, first: int, order: str) -> Any:
    read, written = _READ_WRITTEN[layout][:: -1 if transpose else 1]
    pairs = cos.shape[-1]
    wide = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    heads = -3 if order == "heads_first" else -2
    c, s = (jnp.expand_dims(rows.astype(wide), heads) for rows in (cos, sin))
    s = -s if transpose else s
    part = x[..., first : first + 2 * pairs].astype(wide)
    a, b = (part[..., :pairs], part[..., pairs:]) if read == "half" else (part[..., ::2], part[..., 1::2])
    both = (a * c - b * s, b * c + a * s)  # RoFormer (34)
    if written == "half":
        joined = jnp.concatenate(both, -1)
    else:
        joined = jnp.stack(both, -1).reshape(part.shape)
    return jnp.concatenate((x[..., :first], joined.astype(x.dtype), x[..., first + 2 * pairs :]), -1)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5, 6))
def _rotate_by(x: Any, cos: Any, sin: Any, layout: str, transpose: bool, first: int, order: str) -> Any:
    return _turned(x, cos, sin, layout, transpose, first, order)


def _forward(x: Any, cos: Any, sin: Any, *how: Any) -> Any:
    return _turned(x, cos, sin, *how), (x, cos, sin)


def _backward(layout: str, transpose: bool, first: int, order: str, kept: Any, grad: Any) -> Any:
    x, cos, sin = kept
    d_x = _rotate_by(grad, cos, sin, layout, not transpose, first, order)
    # Linear in cos and sin as well; XLA drops what is not used.
    _, of_rows = jax.vjp(lambda c, s: _turned(x, c, s, layout, transpose, first, order), cos, sin)
    return (d_x, *of_rows(grad))


_rotate_by.defvjp(_forward, _backward)


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
    x, cos, sin = (jnp.asarray(array) for array in (x, cos, sin))
    if str(x.dtype) not in _FLOATS:
        raise _refusal("unsupported", f"rotate_by: x must be {', '.join(_FLOATS)}, got {x.dtype}")
    if layout not in _READ_WRITTEN or order not in ("tokens_first", "heads_first"):
        raise _refusal("invalid_argument", f"rotate_by: layout and order must be known, got {layout} and {order}")
    tokens = x.shape[-2 if order == "heads_first" else -3] if x.ndim in (3, 4) else -1
    fits = cos.shape == sin.shape and cos.ndim in (2, 3) and cos.shape[-2] == tokens
    fits = fits and (cos.ndim == 2 or (x.ndim == 4 and cos.shape[0] in (1, x.shape[0])))
    if not fits or rotary_offset < 0 or rotary_offset + 2 * cos.shape[-1] > x.shape[-1]:
        raise _refusal(
            "shape_mismatch",
            "rotate_by: cos and sin must be [tokens, pairs] or [batch, tokens, pairs] of x, got "
            f"{list(cos.shape)} and {list(sin.shape)} for {list(x.shape)} from feature {rotary_offset}",
        )
    return _rotate_by(x, cos, sin, layout, transpose, rotary_offset, order)


def rotate(
    x: Any,
    spec: RopeSpec,
    positions: Any = None,
    *,
    transpose: bool = False,
    context: int | None = None,
    length: int | None = None,
    order: Order = "tokens_first",
) -> Any:
    """RoFormer (34): rotates every pair of x by the angle of its token's position, with its gradient.

    positions: None (0, 1, ...), an int (that offset), or numbers [tokens], [batch, tokens] or [axes, batch, tokens];
    traced ones need length (see cos_sin). xPos and an axis for each half of a head are not supported here.
    """
    x = jnp.asarray(x)
    plain = spec.to_dict()
    if plain.get("xpos") is not None or plain.get("axial") == "per_half_head":
        raise _refusal("unsupported", f"rotate: xPos and axial per_half_head are not supported in phasor.jax, got {spec!r}")
    if spec.layout is None:
        raise _refusal("invalid_argument", "rotate: the spec has no layout: half or interleaved must be chosen")
    if x.ndim not in (3, 4) or x.shape[-1] != spec.head_dim:
        text = f"rotate: x must be [batch, tokens, heads, {spec.head_dim}] or the same without batch, got {list(x.shape)}"
        raise _refusal("shape_mismatch", text)
    if positions is None or isinstance(positions, int):
        tokens = x.shape[-2 if order == "heads_first" else -3]
        positions = np.arange(tokens) + (positions or 0)
        positions = positions if spec.axes == 1 else np.broadcast_to(positions, (spec.axes, tokens))
    wide = np.float64 if x.dtype == np.float64 else np.float32
    cos, sin = cos_sin(spec, positions, context=context, length=length, dtype=wide)
    how: Any = {"layout": spec.layout, "transpose": transpose, "rotary_offset": spec.rotary_offset, "order": order}
    return rotate_by(x, cos, sin, **how)


__all__ = ["cos_sin", "rotate", "rotate_by"]
