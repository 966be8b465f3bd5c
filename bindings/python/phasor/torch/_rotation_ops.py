"""Custom ops of rotation: phasor::rotate, phasor::rotate_by and phasor::cos_sin; _rotate and _rotate_by have their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from .. import _core
from ._common import bare, room_like, spec_of

if TYPE_CHECKING:
    from .._core import Angles, Layout, Order


@torch.library.custom_op("phasor::rotate", mutates_args=(), device_types="cpu")
def rotate_op(
    x: Tensor,
    positions: Tensor | None,
    spec: str,
    offset: int,
    direction: str,
    role: str,
    context: int | None,
    order: str,
    angles: str,
    threads: int,
) -> Tensor:
    out = room_like(x)
    _core.rotate(
        bare(x),
        spec_of(spec),
        offset if positions is None else positions.detach(),
        inverse=direction == "inverse",
        transpose=direction == "transpose",
        role=cast("Any", role),
        context=context,
        order=cast("Order", order),
        angles=cast("Angles", angles),
        threads=threads,
        out=out,
    )
    return out


@rotate_op.register_fake
def _(x: Tensor, *rest: Any) -> Tensor:
    return room_like(x)


@torch.library.custom_op("phasor::rotate_by", mutates_args=(), device_types="cpu")
def rotate_by_op(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str,
    transpose: bool,
    rotary_offset: int,
    order: str,
    threads: int,
) -> Tensor:
    out = room_like(x)
    _core.rotate_by(
        bare(x),
        cos.detach(),
        sin.detach(),
        layout=cast("Layout", layout),
        transpose=transpose,
        rotary_offset=rotary_offset,
        order=cast("Order", order),
        threads=threads,
        out=out,
    )
    return out


@rotate_by_op.register_fake
def _(x: Tensor, *rest: Any) -> Tensor:
    return room_like(x)


@torch.library.custom_op("phasor::cos_sin", mutates_args=(), device_types="cpu")
def cos_sin_op(
    positions: Tensor, context: Tensor | None, spec: str, form: str, dtype: torch.dtype, angles: str = "exact"
) -> tuple[Tensor, Tensor]:
    """cos and sin of positions [..., tokens], or [axes, ..., tokens] if the spec has several axes.

    form: "pairs" [..., tokens, pairs], "halves" (each row twice, end to end) or "repeated" (each number twice).
    """
    rope = spec_of(spec)
    rows = positions.detach()
    flat = rows.reshape(-1) if rope.axes == 1 else rows.reshape(rope.axes, -1)
    numbers: tuple[Tensor, Tensor] = _core.cos_sin(
        rope,
        flat,
        context=None if context is None else int(context),
        dtype="float64" if dtype == torch.float64 else "float32",
        angles=cast("Angles", angles),
    )
    shape = rows.shape if rope.axes == 1 else rows.shape[1:]
    cos, sin = (part.to(dtype).reshape(*shape, -1) for part in numbers)
    return in_form(cos, form), in_form(sin, form)


def in_form(rows: Tensor, form: str) -> Tensor:
    if form == "halves":
        return torch.cat((rows, rows), dim=-1)
    return rows.repeat_interleave(2, dim=-1) if form == "repeated" else rows


@cos_sin_op.register_fake
def _(
    positions: Tensor, context: Tensor | None, spec: str, form: str, dtype: torch.dtype, angles: str = "exact"
) -> tuple[Tensor, Tensor]:
    rope = spec_of(spec)
    shape = positions.shape if rope.axes == 1 else positions.shape[1:]
    width = rope.rotary_dim // 2 if form == "pairs" else rope.rotary_dim
    return (
        torch.empty(*shape, width, dtype=dtype, device=positions.device),
        torch.empty(*shape, width, dtype=dtype, device=positions.device),
    )
