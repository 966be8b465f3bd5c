"""Rotation by given cos and sin with gradients, and in place; see _rotate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from .. import _core
from ._common import applied, detached, direct, folded, needs_grad, require_readable, spread, transformed, without
from ._device import by_torch
from ._device_rotate import turned
from ._rotation_ops import rotate_by_op

if TYPE_CHECKING:
    from .._core import Layout, Order


def rotate_by(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: Layout,
    transpose: bool = False,
    rotary_offset: int = 0,
    order: Order = "tokens_first",
    threads: int = 0,
) -> Tensor:
    """Rotates x by the given cos and sin, [tokens, pairs] or [batch, tokens, pairs], with gradients for all three.

    Features [rotary_offset, rotary_offset + 2 pairs) of each head are rotated, the rest are copied. A batch of 1 in cos
    and sin is used for every batch row of x. The gradient of cos and sin is the sum over heads.
    """
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos.squeeze(0), sin.squeeze(0)
    if by_torch(x, cos, sin):
        return turned("rotate_by", x, cos, sin, layout, transpose, rotary_offset, order)
    if not direct(x, cos, sin):
        if transformed():
            return applied(_TransformedRotateBy, x, cos, sin, layout, transpose, rotary_offset, order, threads)
        require_readable("rotate_by", x=x, cos=cos, sin=sin)
        return rotate_by_op(x, cos, sin, layout, transpose, rotary_offset, order, threads)
    if needs_grad(x, cos, sin):
        return applied(_RotateBy, x, cos, sin, layout, transpose, rotary_offset, order, threads)
    return _rotated_by(x, cos, sin, layout, transpose, rotary_offset, order, threads)


def _rotated_by(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: Layout,
    transpose: bool,
    rotary_offset: int,
    order: Order,
    threads: int,
    out: Tensor | None = None,
) -> Tensor:
    return _core.rotate_by(
        detached(x),
        detached(cos),
        detached(sin),
        layout=layout,
        transpose=transpose,
        rotary_offset=rotary_offset,
        order=order,
        threads=threads,
        out=out,
    )


def _pair_members(x: Tensor, layout: str, first: int, pairs: int) -> tuple[Tensor, Tensor]:
    if layout == "half":
        return x[..., first : first + pairs], x[..., first + pairs : first + 2 * pairs]
    return x[..., first : first + 2 * pairs : 2], x[..., first + 1 : first + 2 * pairs : 2]


def _rotate_by_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor | None) -> None:
    x, cos, sin, *choices = inputs
    # x is saved only if cos or sin needs a gradient.
    table_needs = cos.requires_grad or sin.requires_grad
    ctx.save_for_backward(x if table_needs else None, cos, sin)
    ctx.choices = choices


def _rotate_by_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, cos, sin = ctx.saved_tensors
    layout, transpose, rotary_offset, order, threads = ctx.choices
    d_x = d_cos = d_sin = None
    if ctx.needs_input_grad[0]:
        d_x = rotate_by(
            grad,
            cos,
            sin,
            layout=layout,
            transpose=not transpose,
            rotary_offset=rotary_offset,
            order=order,
            threads=threads,
        )
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


class _RotateBy(Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _rotate_by_keep(ctx, inputs, None)
        return _rotated_by(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _rotate_by_backward(ctx, grads[0])


class _TransformedRotateBy(_RotateBy):
    """For torch.func and forward gradients."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:  # type: ignore[override]
        x, cos, sin, *choices = inputs
        return _rotated_by(x.detach(), cos.detach(), sin.detach(), *choices)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, cos, sin, *choices = inputs
        ctx.save_for_backward(x, cos, sin)
        ctx.save_for_forward(x, cos, sin)
        ctx.choices = choices

    @staticmethod
    def jvp(ctx: Any, d_x: Tensor | None, d_cos: Tensor | None, d_sin: Tensor | None, *rest: Any) -> Any:
        x, cos, sin = ctx.saved_tensors
        d_x = torch.zeros_like(x) if d_x is None else d_x
        total = applied(_TransformedRotateBy, d_x, cos, sin, *ctx.choices)
        if d_cos is not None or d_sin is not None:
            d_cos = torch.zeros_like(cos) if d_cos is None else d_cos
            d_sin = torch.zeros_like(sin) if d_sin is None else d_sin
            first, width = ctx.choices[2], 2 * cos.shape[-1]
            # Linear in cos and sin as well; what is not rotated does not depend on them.
            rotated = applied(_TransformedRotateBy, x, d_cos, d_sin, *ctx.choices)[..., first : first + width]
            total = total + torch.nn.functional.pad(rotated, (first, x.shape[-1] - first - width))
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, cos: Tensor, sin: Tensor, *choices: Any) -> Any:
        inner = folded(x, in_dims[0], info.batch_size)
        if in_dims[1] is not None or in_dims[2] is not None or cos.dim() == 3:
            tables = [spread(part, axis, info.batch_size) for part, axis in ((cos, in_dims[1]), (sin, in_dims[2]))]
            batch = inner.shape[0] // info.batch_size
            cos, sin = (
                (part if part.dim() == 4 else part.unsqueeze(1)).expand(-1, batch, -1, -1).flatten(0, 1).contiguous()
                for part in tables
            )
        rotated = applied(_TransformedRotateBy, inner, cos, sin, *choices)
        return rotated.reshape(info.batch_size, *without(x, in_dims[0])), 0


rotate_by_op.register_autograd(_rotate_by_backward, setup_context=_rotate_by_keep)


def rotate_by_(
    x: Tensor, cos: Tensor, sin: Tensor, *, layout: Layout, order: Order = "tokens_first", threads: int = 0
) -> Tensor:
    """rotate_by() written to x, as write() does; without a copy if no gradient is needed."""
    if by_torch(x, cos, sin) or not direct(x, cos, sin) or needs_grad(x, cos, sin) or x.stride(-1) != 1:
        # cos and sin need the numbers that x had.
        source = x.clone() if needs_grad(cos, sin) else x
        return write(x, rotate_by(source, cos, sin, layout=layout, order=order, threads=threads))
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos.squeeze(0), sin.squeeze(0)
    bare = detached(x)
    _rotated_by(bare, cos, sin, layout, False, 0, order, threads, out=bare)
    return x


def write(x: Tensor, numbers: Tensor) -> Tensor:
    """Writes numbers to x and returns x, now with the history of `numbers`.

    torch cannot record that for a leaf that requires grad, nor for a view that is one of several (chunk, unbind), belongs
    to a leaf or comes from a custom function. Then the result is an alias of x that has the gradient, as in flash-attn,
    and x keeps its own history.
    """
    if not needs_grad(x):
        return x.copy_(numbers)
    if x.is_leaf:
        return _write_alias(x, numbers)
    if torch.compiler.is_compiling():
        return x.copy_(numbers)
    try:
        return x.copy_(numbers)  # refused before anything is written
    except RuntimeError:
        return _write_alias(x, numbers)


@torch.compiler.disable
def _write_alias(x: Tensor, numbers: Tensor) -> Tensor:
    return cast(Tensor, applied(_Write, x, numbers))


class _Write(Function):
    """(x, numbers) -> x with the numbers in it; the gradient goes to `numbers` alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: Tensor) -> Tensor:
        # A view shares its version with its siblings: if it counted, torch would refuse to use them, and the result of
        # a slice that was written before.
        (x if x.is_leaf else x.data).copy_(numbers)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0]


__all__ = ["rotate_by", "rotate_by_", "write"]
