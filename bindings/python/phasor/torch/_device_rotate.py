"""Rotation by torch's own operations: for tensors on any device, whatever follows the calls of torch.

Gradients of every order, forward gradients, torch.func, torch.compile and torch.export come with the operations. Numbers
are those of the CPU's kernels to the same bound: products and sums in float32 (float64 for float64), one rounding to
x's type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ._common import amplitude_of, constant, refusal, require_dense, shape_text, spec_of, spec_text, unfollowed
from ._device import grows, require_one_device, rows_from
from ._rotation_ops import cos_sin_from_op, cos_sin_op

if TYPE_CHECKING:
    from .._core import RopeSpec

# |y - exact| <= ROTATE_ERROR * epsilon * (length of the exact pair), with float32's epsilon below float64: the bounds of
# core/rotate.hpp. bfloat16 and float16: then one rounding to nearest even.
ROTATE_ERROR = {torch.float32: 2.0, torch.float64: 3.0}
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_ORDERS = ("tokens_first", "heads_first")
# layout: (how pairs are read, how they are written)
READ_WRITTEN = {
    "half": ("half", "half"),
    "interleaved": ("interleaved", "interleaved"),
    "interleaved_to_half": ("interleaved", "half"),
}

# phasor.torch.triton.enable() sets it: (tensors, cos, sin, layout, transpose, rotary_offset, order) -> the tensors rotated,
# or None.
kernel: Callable[..., tuple[Tensor, ...] | None] | None = None


def turned(
    where: str,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str,
    transpose: bool,
    rotary_offset: int,
    order: str,
    blocks: int = 1,
) -> Tensor:
    """RoFormer (34): x [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] rotated by cos and sin
    [tokens, pairs] or [batch, tokens, pairs]; order="heads_first" swaps tokens and heads.

    blocks: 2 if each half of the rotated features is rotated by itself, with its half of the pairs.
    """
    check_rotation(where, x, cos, sin, layout, rotary_offset, order)
    if kernel is not None and blocks == 1:
        launched = kernel((x,), cos, sin, layout, transpose, rotary_offset, order)
        if launched is not None:
            return launched[0]
    read, written = READ_WRITTEN[layout][:: -1 if transpose else 1]
    pairs = cos.shape[-1]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    heads = -3 if order == "heads_first" else -2
    c, s = (_split(rows.to(wide), blocks).unsqueeze(heads - 1) for rows in (cos, sin))
    if transpose:
        s = -s
    first, last = rotary_offset, rotary_offset + 2 * pairs
    part = _split(x[..., first:last].to(wide), blocks)
    if read == "half":
        a, b = part.chunk(2, dim=-1)
    else:
        a, b = part[..., ::2], part[..., 1::2]
    both = (a * c - b * s, b * c + a * s)
    joined = torch.cat(both, dim=-1) if written == "half" else torch.stack(both, dim=-1).flatten(-2)
    joined = joined.flatten(-2).to(x.dtype)
    return joined if 2 * pairs == x.shape[-1] else torch.cat((x[..., :first], joined, x[..., last:]), dim=-1)


def _split(x: Tensor, blocks: int) -> Tensor:
    return x.reshape(*x.shape[:-1], blocks, x.shape[-1] // blocks)


def _check_type(where: str, name: str, tensor: Tensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise refusal(
            "unsupported", f"{where}: {name} must be bfloat16, float16, float32 or float64, got {shape_text(tensor)}"
        )


def _check_x(where: str, x: Tensor, order: str) -> None:
    _check_type(where, "x", x)
    if order not in _ORDERS:
        raise refusal("invalid_argument", f"{where}: order must be tokens_first or heads_first, got {order}")
    if x.dim() not in (3, 4):
        text = f"{where}: x must be [batch, tokens, heads, head_dim] or [tokens, heads, head_dim], got {shape_text(x)}"
        raise refusal("shape_mismatch", text)


def check_rotation(
    where: str,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str,
    rotary_offset: int,
    order: str,
    *,
    gathers: bool = False,
) -> None:
    """Refuses what cannot be rotated; gathers: each token names its row of cos and sin [rows, pairs]."""
    require_dense(where, x=x, cos=cos, sin=sin)
    require_one_device(where, x=x, cos=cos, sin=sin)
    for name, tensor in (("cos", cos), ("sin", sin)):
        _check_type(where, name, tensor)
    if layout not in READ_WRITTEN:
        text = f"{where}: layout must be half, interleaved or interleaved_to_half, got {layout}"
        raise refusal("invalid_argument", text)
    _check_x(where, x, order)
    if cos.shape != sin.shape or cos.dim() not in (2, 3):
        raise refusal(
            "shape_mismatch",
            f"{where}: cos and sin must have the same shape, [tokens, pairs] or [batch, tokens, pairs], got "
            f"{shape_text(cos)} and {shape_text(sin)}",
        )
    tokens = x.shape[-2 if order == "heads_first" else -3]
    if gathers:
        if cos.dim() != 2:
            text = f"{where}: cos and sin must be [rows, pairs] if rows are given, got {shape_text(cos)}"
            raise refusal("shape_mismatch", text)
    elif cos.shape[-2] != tokens or (cos.dim() == 3 and (x.dim() == 3 or cos.shape[0] not in (1, x.shape[0]))):
        raise refusal(
            "shape_mismatch", f"{where}: cos and sin must have the tokens and the batch of x {shape_text(x)}, got {shape_text(cos)}"
        )
    if rotary_offset < 0 or rotary_offset + 2 * cos.shape[-1] > x.shape[-1]:
        raise refusal(
            "shape_mismatch",
            f"{where}: features {rotary_offset} .. {rotary_offset + 2 * cos.shape[-1]} must be inside x {shape_text(x)}",
        )


class _Facts(NamedTuple):
    """What a rotation needs to know of a spec, as plain values: torch.compile cannot look into the spec itself."""

    layout: str | None
    head_dim: int
    rotary_offset: int
    blocks: int
    grows: bool
    depends_on_context: bool


@lru_cache(maxsize=256)
def _read(text: str) -> _Facts:
    spec = spec_of(text)
    blocks = 2 if spec.to_dict().get("axial") == "per_half_head" else 1
    return _Facts(spec.layout, spec.head_dim, spec.rotary_offset, blocks, grows(spec), spec.depends_on_context)


@constant
def _facts(text: str) -> tuple[Any, ...]:
    return tuple(_read(text))


def _tokens(x: Tensor, order: str) -> int:
    return x.shape[-2 if order == "heads_first" else -3]


def _rows_for(
    where: str, x: Tensor, text: str, positions: Tensor | int | None, choices: dict[str, Any], role: str
) -> tuple[Tensor, Tensor]:
    """The rows of cos and sin that rotate x, [tokens, pairs] or [batch, tokens, pairs], on its device.

    Positions on the CPU, and those that count from an offset, are computed by C++ and copied; others stay on the device.
    """
    order, context, angles = choices["order"], choices["context"], choices["angles"]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    if not isinstance(positions, Tensor):
        how = (positions or 0, _tokens(x, order), context, text, wide, x.device, angles, role)
        return rows_from(*how) if unfollowed() and x.device.type != "meta" else cos_sin_from_op(*how)
    on_host = positions.device.type == "cpu"
    if not on_host:
        require_one_device(where, x=x, positions=positions)
    at = None if context is None else torch.tensor(context)
    cos, sin = cos_sin_op(positions, at, text, "pairs", wide, angles, role)
    return (cos.to(x.device), sin.to(x.device)) if on_host else (cos, sin)


def rotate_by_torch(
    where: str, tensors: dict[str, Tensor], spec: RopeSpec, positions: Tensor | int | None, choices: dict[str, Any]
) -> tuple[Tensor, ...]:
    """rotate() of each tensor on any device. tensors: by role, query or key; choices: the keywords of rotate_qk()."""
    inverse, transpose, order = choices["inverse"], choices["transpose"], choices["order"]
    text = spec_text(spec)
    facts = _Facts(*_facts(text))
    if inverse and transpose:
        raise refusal("invalid_argument", f"{where}: inverse and transpose cannot be combined")
    if facts.layout is None:
        raise refusal("invalid_argument", f"{where}: the spec has no layout: half or interleaved must be chosen")
    require_one_device(where, **tensors)
    rows: dict[object, tuple[Tensor, Tensor]] = {}
    results = []
    back = inverse or transpose
    for role, x in tensors.items():
        if role not in ("query", "key"):
            raise refusal("invalid_argument", f"{where}: role must be query or key, got {role}")
        _check_x(where, x, order)
        if x.shape[-1] != facts.head_dim:
            wrong = f"{where}: x must have the head_dim of the spec, {facts.head_dim}, got {shape_text(x)}"
            raise refusal("shape_mismatch", wrong)
        # xPos: the inverse divides by the growth, as the rotation of the other role does.
        grown = "" if not facts.grows else role if not inverse else "key" if role == "query" else "query"
        key = (grown, x.dtype == torch.float64, _tokens(x, order))
        if key not in rows:
            cos, sin = _rows_for(where, x, text, positions, choices, grown)
            if inverse:
                # (1/a) R^T, and the rows hold a cos and a sin.
                context = _context(x, facts, positions, choices)
                amplitude = amplitude_of(text, context)
                cos, sin = (cos, sin) if amplitude == 1.0 else (cos / amplitude**2, sin / amplitude**2)
            rows[key] = (cos, sin)
        results.append((x, *rows[key]))
    how = (facts.layout, back, facts.rotary_offset, order)
    if kernel is not None and facts.blocks == 1 and len(tensors) == 2 and len(rows) == 1:
        for x, cos, sin in results:
            check_rotation(where, x, cos, sin, facts.layout, facts.rotary_offset, order)
        launched = kernel(tuple(tensors.values()), *results[0][1:], *how)
        if launched is not None:
            return launched
    return tuple(turned(where, x, cos, sin, *how, facts.blocks) for x, cos, sin in results)


def _context(x: Tensor, facts: _Facts, positions: Tensor | int | None, choices: dict[str, Any]) -> int | None:
    context: int | None = choices["context"]
    if context is not None or not facts.depends_on_context:
        return context
    if isinstance(positions, Tensor):
        return int(positions.max()) + 1 if positions.numel() > 0 else None
    return (positions or 0) + _tokens(x, choices["order"])


__all__ = ["READ_WRITTEN", "ROTATE_ERROR", "check_rotation", "rotate_by_torch", "turned"]
