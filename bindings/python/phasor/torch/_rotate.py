"""Rotation with gradients: phasor.rotate, rotate_qk and rotate_by for tensors that may require grad, and cos_sin.

A rotation is linear in x: its backward pass is a rotation too, so derivatives of every order work. In eager mode it is
an autograd.Function, which costs a few microseconds; what follows the calls of torch (torch.compile, modes) sees a
custom op with the same gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd import Function

from .. import _core
from .._core import RopeSpec
from ._common import amplitude_of, direct, needs_grad, refusal, require_readable, require_no_grad, spec_of, spec_text
from ._rotation_ops import cos_sin_op, rotate_by_op, rotate_op

if TYPE_CHECKING:
    from .._core import Angles, Layout, Order

Positions: TypeAlias = "Tensor | int | None"
Role: TypeAlias = Literal["query", "key"]

_OTHER_ROLE: dict[str, Role] = {"query": "key", "key": "query"}


def _direction(where: str, inverse: bool, transpose: bool) -> str:
    if inverse and transpose:
        raise refusal("invalid_argument", f"{where}: inverse and transpose cannot be combined")
    return "inverse" if inverse else "transpose" if transpose else "forward"


def _detached(x: Tensor) -> Tensor:
    return x.detach() if x.requires_grad else x


def _rows_of(where: str, positions: Positions) -> Tensor | None:
    """The positions if they are a tensor, which then has no gradient."""
    if not isinstance(positions, Tensor):
        return None
    require_readable(where, positions=positions)
    if torch.is_grad_enabled():
        require_no_grad(where, positions=positions)
    return positions


def rotate(
    x: Tensor,
    spec: RopeSpec,
    positions: Positions = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
    role: Role = "query",
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
) -> Tensor:
    """RoFormer (34): rotates every pair of x by the angle of its token's position, with gradients of every order.

    x [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]; order="heads_first" swaps tokens and heads;
    bfloat16, float16, float32 or float64. positions: None (0, 1, ...), an int (that offset), or a tensor of integers
    or floats [tokens], [batch, tokens] or [axes, batch, tokens]; positions have no gradient.
    Keeps one graph under torch.compile (op phasor::rotate). CPU tensors only.
    """
    rows = _rows_of("rotate", positions)
    if not direct(x, rows):
        require_readable("rotate", x=x)
        offset = positions if isinstance(positions, int) else 0
        direction = _direction("rotate", inverse, transpose)
        return rotate_op(x, rows, spec_text(spec), offset, direction, role, context, order, angles, threads)
    if needs_grad(x):
        direction = _direction("rotate", inverse, transpose)
        return _applied(_Rotate, x, positions, spec, direction, role, context, order, angles, threads)
    return _core.rotate(
        _detached(x),
        spec,
        positions if rows is None else _detached(rows),
        inverse=inverse,
        transpose=transpose,
        role=role,
        context=context,
        order=order,
        angles=angles,
        threads=threads,
    )


def _applied(function: type[Function], *arguments: object) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _rotate_back(
    grad: Tensor,
    positions: Positions,
    spec: RopeSpec,
    direction: str,
    role: Role,
    context: int | None,
    order: Order,
    angles: Angles,
    threads: int,
) -> Tensor:
    """The gradient of rotate(): the transpose of the rotation."""
    inverse, transpose = direction == "inverse", direction == "forward"
    if inverse:
        # (1/a) R^T has the transpose (1/a) R: the forward rotation over a^2. xPos multiplies a query by g, so its
        # inverse divides by g, as the forward rotation of a key does.
        role = _OTHER_ROLE[role]
    d_x = rotate(
        grad,
        spec,
        positions,
        transpose=transpose,
        role=role,
        context=context,
        order=order,
        angles=angles,
        threads=threads,
    )
    return d_x / amplitude_of(spec_text(spec), context) ** 2 if inverse else d_x


def _keep_positions(ctx: Any, positions: Positions) -> None:
    ctx.offset = None if isinstance(positions, Tensor) else positions
    if isinstance(positions, Tensor):
        ctx.save_for_backward(positions)


def _kept_positions(ctx: Any) -> Positions:
    return ctx.saved_tensors[0] if ctx.saved_tensors else ctx.offset


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Positions, *choices: Any) -> Tensor:
        _keep_positions(ctx, positions)
        ctx.choices = choices
        spec, direction, role, context, order, angles, threads = choices
        return _core.rotate(
            x.detach(),
            spec,
            positions,
            inverse=direction == "inverse",
            transpose=direction == "transpose",
            role=role,
            context=context,
            order=order,
            angles=angles,
            threads=threads,
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return (_rotate_back(grads[0], _kept_positions(ctx), *ctx.choices), *(None,) * 8)


def _rotate_op_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, positions, spec, offset, *choices = inputs
    _keep_positions(ctx, offset if positions is None else positions)
    ctx.choices = (spec_of(spec), *choices)


def _rotate_op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (_rotate_back(grad, _kept_positions(ctx), *ctx.choices), *(None,) * 9)


rotate_op.register_autograd(_rotate_op_backward, setup_context=_rotate_op_keep)


def rotate_qk(
    q: Tensor,
    k: Tensor,
    spec: RopeSpec,
    positions: Positions = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
) -> tuple[Tensor, Tensor]:
    """rotate() of queries and keys at the same positions; each has its own number of heads."""
    rows = _rows_of("rotate_qk", positions)
    if not direct(q, k, rows) or needs_grad(q, k):
        choices: dict[str, Any] = {"inverse": inverse, "transpose": transpose, "context": context}
        choices |= {"order": order, "angles": angles, "threads": threads}
        return rotate(q, spec, positions, role="query", **choices), rotate(k, spec, positions, role="key", **choices)
    return _core.rotate_qk(
        _detached(q),
        _detached(k),
        spec,
        positions if rows is None else _detached(rows),
        inverse=inverse,
        transpose=transpose,
        context=context,
        order=order,
        angles=angles,
        threads=threads,
    )


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
    if not direct(x, cos, sin):
        require_readable("rotate_by", x=x, cos=cos, sin=sin)
        return rotate_by_op(x, cos, sin, layout, transpose, rotary_offset, order, threads)
    if needs_grad(x, cos, sin):
        return _applied(_RotateBy, x, cos, sin, layout, transpose, rotary_offset, order, threads)
    return _turned_by(x, cos, sin, layout, transpose, rotary_offset, order, threads)


def _turned_by(
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
        _detached(x),
        _detached(cos),
        _detached(sin),
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
        return _turned_by(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _rotate_by_backward(ctx, grads[0])


rotate_by_op.register_autograd(_rotate_by_backward, setup_context=_rotate_by_keep)


def rotate_by_(
    x: Tensor, cos: Tensor, sin: Tensor, *, layout: Layout, order: Order = "tokens_first", threads: int = 0
) -> Tensor:
    """rotate_by() written to x, as write() does; without a copy if no gradient is needed."""
    if not direct(x, cos, sin) or needs_grad(x, cos, sin) or x.stride(-1) != 1:
        # cos and sin need the numbers that x had.
        source = x.clone() if needs_grad(cos, sin) else x
        return write(x, rotate_by(source, cos, sin, layout=layout, order=order, threads=threads))
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos.squeeze(0), sin.squeeze(0)
    bare = _detached(x)
    _turned_by(bare, cos, sin, layout, False, 0, order, threads, out=bare)
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
    return cast(Tensor, _applied(_Write, x, numbers))


class _Write(Function):
    """(x, numbers) -> x with the numbers in it; the gradient goes to `numbers` alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: Tensor) -> Tensor:
        # A view shares its version with its siblings: if it counted, torch would refuse to use them.
        (x if x.is_leaf else x.data).copy_(numbers)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0]


def cos_sin(
    spec: RopeSpec,
    positions: Tensor | int,
    *,
    context: int | None = None,
    dtype: torch.dtype = torch.float32,
    angles: Angles = "exact",
) -> tuple[Tensor, Tensor]:
    """cos and sin times the amplitude, [..., pairs] each, for positions [...], or [axes, ...] if the spec has axes.

    An int n means the positions 0 .. n - 1. dtype: any floating-point type; cos and sin are computed in float64 and
    rounded. Keeps one graph under torch.compile (op phasor::cos_sin). Positions have no gradient.
    """
    rows = torch.arange(positions) if isinstance(positions, int) else positions
    require_readable("cos_sin", positions=rows)
    require_no_grad("cos_sin", positions=rows)
    at = None if context is None else torch.tensor(context)
    return cos_sin_op(rows, at, spec_text(spec), "pairs", dtype, angles)


__all__ = ["cos_sin", "rotate", "rotate_by", "rotate_qk"]
