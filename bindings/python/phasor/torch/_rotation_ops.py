"""Custom ops of rotation: phasor::rotate and phasor::rotate_by on the CPU (_rotate and _rotate_by have their gradients),
and the rows of every device: phasor::cos_sin and phasor::cos_sin_from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from .. import _core
from ._common import bare, new_memory_like, refusal, room_like, spec_of
from ._device import by_torch, host_rows, rows_at, rows_from

if TYPE_CHECKING:
    from .._core import Angles, Layout, Order, RopeSpec


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
    out = new_memory_like(x)
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
    out = new_memory_like(x)
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


@torch.library.custom_op("phasor::cos_sin", mutates_args=())
def cos_sin_op(
    positions: Tensor,
    context: Tensor | None,
    spec: str,
    form: str,
    dtype: torch.dtype,
    angles: str = "exact",
    role: str = "",
) -> tuple[Tensor, Tensor]:
    """cos and sin of positions [..., tokens], or [axes, ..., tokens] if the spec has several axes, on their device.

    form: "pairs" [..., tokens, pairs], "halves" (each row twice, end to end) or "repeated" (each number twice).
    role: "query" or "key" for rows with the growth of xPos.
    """
    at = None if context is None else int(context)
    if by_torch(positions):
        cos, sin = rows_at(positions, at, spec, dtype, angles, role)
    else:
        rows = host_rows(spec_of(spec), positions, at, dtype == torch.float64, angles, role)
        cos, sin = rows[0].to(dtype), rows[1].to(dtype)
    return in_form(cos, form), in_form(sin, form)


def in_form(rows: Tensor, form: str) -> Tensor:
    if form == "halves":
        return torch.cat((rows, rows), dim=-1)
    return rows.repeat_interleave(2, dim=-1) if form == "repeated" else rows


def _width(spec: RopeSpec, form: str) -> int:
    return spec.rotary_dim // 2 if form == "pairs" else spec.rotary_dim


@cos_sin_op.register_fake
def _(
    positions: Tensor, context: Tensor | None, spec: str, form: str, dtype: torch.dtype, *rest: Any
) -> tuple[Tensor, Tensor]:
    rope = spec_of(spec)
    shape = (*(positions.shape if rope.axes == 1 else positions.shape[1:]), _width(rope, form))
    return positions.new_empty(shape, dtype=dtype), positions.new_empty(shape, dtype=dtype)


@cos_sin_op.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], positions: Tensor, context: Tensor | None, spec: str, *rest: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    if in_dims[1] is not None:
        raise refusal("unsupported", "cos_sin: the context must be one number, got one for each element of vmap")
    # The axis of vmap comes before the tokens, and after the axes of the spec.
    rows = positions.movedim(in_dims[0], 0 if spec_of(spec).axes == 1 else 1)
    return cos_sin_op(rows, context, spec, *rest), (0, 0)


@torch.library.custom_op("phasor::cos_sin_from", mutates_args=())
def cos_sin_from_op(
    first: int,
    count: int,
    context: int | None,
    spec: str,
    dtype: torch.dtype,
    device: torch.device,
    angles: str,
    role: str,
) -> tuple[Tensor, Tensor]:
    """cos and sin [count, pairs] of positions first, first + 1, ..., on the device."""
    cos, sin = rows_from(first, count, context, spec, dtype, device, angles, role)
    return cos.clone(), sin.clone()  # what follows may write over them


@cos_sin_from_op.register_fake
def _(
    first: int, count: int, context: int | None, spec: str, dtype: torch.dtype, device: torch.device, *rest: Any
) -> tuple[Tensor, Tensor]:
    shape = (count, spec_of(spec).rotary_dim // 2)
    return torch.empty(shape, dtype=dtype, device=device), torch.empty(shape, dtype=dtype, device=device)
