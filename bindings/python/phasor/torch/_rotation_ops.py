"""Custom ops of rotation: phasor::rotate, phasor::rotate_by and phasor::cos_sin, with their gradients.

A rotation is linear in x: its backward pass is a rotation too, so derivatives of every order work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from .. import _core
from ._common import amplitude_of, bare, room_like, spec_of

if TYPE_CHECKING:
    from .._core import Angles, Layout, Order

_FLIPPED = {"forward": "transpose", "transpose": "forward"}
_OTHER_ROLE = {"query": "key", "key": "query"}


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


def _rotate_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.choices = inputs[2:]


def _rotate_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (positions,) = ctx.saved_tensors
    spec, offset, direction, role, context, order, angles, threads = ctx.choices
    if direction == "inverse":
        # (1/a) R^T has the transpose (1/a) R: the forward rotation over a^2. xPos multiplies a query by g, so its
        # inverse divides by g, as the forward rotation of a key does.
        other = _OTHER_ROLE[role]
        d_x = rotate_op(grad, positions, spec, offset, "forward", other, context, order, angles, threads)
        d_x = d_x / amplitude_of(spec, context) ** 2
    else:
        d_x = rotate_op(grad, positions, spec, offset, _FLIPPED[direction], role, context, order, angles, threads)
    return (d_x, *(None,) * 9)


rotate_op.register_autograd(_rotate_backward, setup_context=_rotate_keep)


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


def _rotate_by_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, cos, sin, *choices = inputs
    # x is saved only if cos or sin needs a gradient.
    table_needs = cos.requires_grad or sin.requires_grad
    ctx.save_for_backward(x if table_needs else None, cos, sin)
    ctx.choices = choices


def _pair_members(x: Tensor, layout: str, first: int, pairs: int) -> tuple[Tensor, Tensor]:
    if layout == "half":
        return x[..., first : first + pairs], x[..., first + pairs : first + 2 * pairs]
    return x[..., first : first + 2 * pairs : 2], x[..., first + 1 : first + 2 * pairs : 2]


def _rotate_by_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, cos, sin = ctx.saved_tensors
    layout, transpose, rotary_offset, order, threads = ctx.choices
    d_x = d_cos = d_sin = None
    if ctx.needs_input_grad[0]:
        d_x = rotate_by_op(grad, cos, sin, layout, not transpose, rotary_offset, order, threads)
    if x is not None:
        read, written = layout, layout
        if layout == "interleaved_to_half":
            read, written = ("half", "interleaved") if transpose else ("interleaved", "half")
        wide = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
        pairs = cos.shape[-1]
        a, b = _pair_members(x.to(wide), read, rotary_offset, pairs)
        d_a, d_b = _pair_members(grad.to(wide), written, rotary_offset, pairs)
        head_axis = -3 if order == "heads_first" else -2
        # RoFormer (34), differentiated by its cos and sin; transpose negates sin.
        d_cos = (d_a * a + d_b * b).sum(head_axis).sum_to_size(cos.shape).to(cos.dtype)
        d_sin = (d_b * a - d_a * b).sum(head_axis).sum_to_size(sin.shape).to(sin.dtype)
        if transpose:
            d_sin = -d_sin
    return (d_x, d_cos, d_sin, *(None,) * 5)


rotate_by_op.register_autograd(_rotate_by_backward, setup_context=_rotate_by_keep)


@torch.library.custom_op("phasor::cos_sin", mutates_args=(), device_types="cpu")
def cos_sin_op(
    positions: Tensor, context: Tensor | None, spec: str, form: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of positions [..., tokens], or [axes, ..., tokens] if the spec has several axes.

    form: "pairs" [..., tokens, pairs], "halves" (each row twice, end to end) or "repeated" (each number twice).
    """
    rope = spec_of(spec)
    rows = positions.detach()
    flat = rows.reshape(-1) if rope.axes == 1 else rows.reshape(rope.axes, -1)
    wide = "float64" if dtype == torch.float64 else "float32"
    numbers = _core.cos_sin(rope, flat, context=None if context is None else int(context), dtype=cast("Any", wide))
    shape = rows.shape if rope.axes == 1 else rows.shape[1:]
    cos, sin = (torch.from_numpy(part).to(dtype).reshape(*shape, -1) for part in numbers)
    return in_form(cos, form), in_form(sin, form)


def in_form(rows: Tensor, form: str) -> Tensor:
    if form == "halves":
        return torch.cat((rows, rows), dim=-1)
    return rows.repeat_interleave(2, dim=-1) if form == "repeated" else rows


@cos_sin_op.register_fake
def _(positions: Tensor, context: Tensor | None, spec: str, form: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rope = spec_of(spec)
    shape = positions.shape if rope.axes == 1 else positions.shape[1:]
    width = rope.rotary_dim // 2 if form == "pairs" else rope.rotary_dim
    return (
        torch.empty(*shape, width, dtype=dtype, device=positions.device),
        torch.empty(*shape, width, dtype=dtype, device=positions.device),
    )
