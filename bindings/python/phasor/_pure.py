"""Rotation by the operations of an array library, on exact rows of C++: what phasor.jax and phasor.mlx share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import _core
from ._core import Error, RopeSpec

# layout: (how pairs are read, how they are written)
_READ_WRITTEN = {
    "half": ("half", "half"),
    "interleaved": ("interleaved", "interleaved"),
    "interleaved_to_half": ("interleaved", "half"),
}
_FLOATS = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True)
class Library:
    """An array library: its functions, and what differs in their names."""

    xp: Any  # expand_dims, concatenate, stack, where, issubdtype and the types by their names
    array: Callable[..., Any]  # (values) or (values, dtype)
    type_name: Callable[[Any], str]  # of a dtype
    known: Callable[[Any], Any]  # positions as a NumPy array; None if they are traced
    rotate_by: Callable[..., Any]  # turned() with its gradient


@dataclass(frozen=True)
class How:
    """The settings of a rotation. blocks: parts of the rotated features that are rotated on their own, each with its pairs."""

    layout: str
    transpose: bool
    first: int
    order: str
    blocks: int = 1


def refusal(code: Any, text: str) -> Error:
    error = Error(text)
    error.code = code
    return error


# Rows -------------------------------------------------------------------------------------------------------------


def _host_rows(spec: RopeSpec, positions: Any, context: int | None, wide: Any, role: str) -> tuple[Any, Any]:
    """Rows of C++ for positions [...], or [axes, ...]; a role, query or key, multiplies in the growth of xPos."""
    if not role:
        return _core.cos_sin(spec, positions, context=context, dtype=wide)
    # A rotated (1, 0) is (g cos, g sin).
    shape, pairs, first = positions.shape[spec.axes > 1 :], spec.rotary_dim // 2, spec.rotary_offset
    unit = np.zeros((int(np.prod(shape)), 1, spec.head_dim), wide)
    unit[..., first : first + pairs] = 1
    flat = positions.reshape(-1) if spec.axes == 1 else positions.reshape(spec.axes, -1)
    given: Any = {"role": role, "context": context}
    turned = _core.rotate(unit, spec.replace(layout="half"), flat, **given)[:, 0]
    cos, sin = (turned[:, at : at + pairs].reshape(*shape, pairs) for at in (first, first + pairs))
    return cos, sin


@lru_cache(maxsize=16)
def _table(spec: RopeSpec, length: int, context: int | None, wide: str, role: str) -> tuple[Any, Any]:
    """Rows 0 .. length - 1, and one of NaN."""
    cos, sin = _host_rows(spec, np.arange(length), context, wide, role)
    nothing = np.full_like(cos[:1], np.nan)
    return np.concatenate((cos, nothing)), np.concatenate((sin, nothing))


def cos_sin(
    library: Library,
    spec: RopeSpec,
    positions: Any,
    *,
    context: int | None,
    length: int | None,
    dtype: Any,
    role: str = "",
) -> tuple[Any, Any]:
    xp = library.xp
    wide = "float64" if library.type_name(dtype) == "float64" else "float32"
    known = np.arange(positions) if isinstance(positions, int) else library.known(positions)
    if known is not None:
        cos, sin = _host_rows(spec, known, context, wide, role)
        return library.array(cos, dtype), library.array(sin, dtype)
    if length is None or spec.axes != 1 or not xp.issubdtype(positions.dtype, xp.integer):
        raise refusal(
            "unsupported",
            "cos_sin: positions that are traced must be integers [...] of a spec with one axis, with length=, got "
            f"{library.type_name(positions.dtype)}{list(positions.shape)}, {spec.axes} axes and length {length}",
        )
    if spec.depends_on_context and context is None:
        raise refusal("invalid_argument", "cos_sin: context is missing: the spec depends on it, and positions are traced")
    row = xp.where((positions >= 0) & (positions < length), positions, length)
    cos, sin = (library.array(rows, dtype)[row] for rows in _table(spec, length, context, wide, role))
    return cos, sin


# Rotation ---------------------------------------------------------------------------------------------------------


def turned(library: Library, x: Any, cos: Any, sin: Any, how: How) -> Any:
    xp = library.xp
    read, written = _READ_WRITTEN[how.layout][:: -1 if how.transpose else 1]
    pairs, first = cos.shape[-1], how.first
    wide = xp.float64 if library.type_name(x.dtype) == "float64" else xp.float32
    c, s = (xp.expand_dims(rows.astype(wide), -3 if how.order == "heads_first" else -2) for rows in (cos, sin))
    s = -s if how.transpose else s
    part = x[..., first : first + 2 * pairs].astype(wide)
    shape = part.shape
    if how.blocks > 1:
        c, s = (rows.reshape(*rows.shape[:-1], how.blocks, -1) for rows in (c, s))
        part = part.reshape(*shape[:-1], how.blocks, -1)
    half = pairs // how.blocks
    a, b = (part[..., :half], part[..., half:]) if read == "half" else (part[..., ::2], part[..., 1::2])
    both = [a * c - b * s, b * c + a * s]  # RoFormer (34)
    joined = xp.concatenate(both, -1) if written == "half" else xp.stack(both, -1)
    joined = joined.reshape(shape).astype(x.dtype)
    return xp.concatenate([x[..., :first], joined, x[..., first + 2 * pairs :]], -1)


def rotate_by(library: Library, x: Any, cos: Any, sin: Any, how: How) -> Any:
    x, cos, sin = (library.array(array) for array in (x, cos, sin))
    if library.type_name(x.dtype) not in _FLOATS:
        raise refusal("unsupported", f"rotate_by: x must be {', '.join(_FLOATS)}, got {library.type_name(x.dtype)}")
    if how.layout not in _READ_WRITTEN or how.order not in ("tokens_first", "heads_first"):
        raise refusal("invalid_argument", f"rotate_by: layout and order must be known, got {how.layout} and {how.order}")
    tokens = x.shape[-2 if how.order == "heads_first" else -3] if x.ndim in (3, 4) else -1
    fits = cos.shape == sin.shape and cos.ndim in (2, 3) and cos.shape[-2] == tokens
    fits = fits and (cos.ndim == 2 or (x.ndim == 4 and cos.shape[0] in (1, x.shape[0])))
    if not fits or how.first < 0 or how.first + 2 * cos.shape[-1] > x.shape[-1]:
        raise refusal(
            "shape_mismatch",
            "rotate_by: cos and sin must be [tokens, pairs] or [batch, tokens, pairs] of x, got "
            f"{list(cos.shape)} and {list(sin.shape)} for {list(x.shape)} from feature {how.first}",
        )
    return library.rotate_by(x, cos, sin, how)


def rotate(
    library: Library,
    x: Any,
    spec: RopeSpec,
    positions: Any,
    *,
    transpose: bool,
    role: str,
    context: int | None,
    length: int | None,
    order: str,
) -> Any:
    x = library.array(x)
    if spec.layout is None:
        raise refusal("invalid_argument", "rotate: the spec has no layout: half or interleaved must be chosen")
    if role not in ("query", "key"):
        raise refusal("invalid_argument", f"rotate: role must be query or key, got {role}")
    if x.ndim not in (3, 4) or x.shape[-1] != spec.head_dim:
        text = f"rotate: x must be [batch, tokens, heads, {spec.head_dim}] or the same without batch, got {list(x.shape)}"
        raise refusal("shape_mismatch", text)
    if positions is None or isinstance(positions, int):
        tokens = x.shape[-2 if order == "heads_first" else -3]
        positions = np.arange(tokens) + (positions or 0)
        positions = positions if spec.axes == 1 else np.broadcast_to(positions, (spec.axes, tokens))
    plain = spec.to_dict()
    wide = library.xp.float64 if library.type_name(x.dtype) == "float64" else library.xp.float32
    grown = role if plain.get("xpos") is not None else ""
    rows = cos_sin(library, spec, positions, context=context, length=length, dtype=wide, role=grown)
    blocks = 2 if plain.get("axial") == "per_half_head" else 1
    return rotate_by(library, x, *rows, How(spec.layout, transpose, spec.rotary_offset, order, blocks))


__all__ = ["How", "Library", "cos_sin", "refusal", "rotate", "rotate_by", "turned"]
