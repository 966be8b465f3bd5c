"""Rotation with gradients: phasor.rotate and rotate_qk for tensors that may require grad, and cos_sin.

A rotation is linear in x: its backward pass is a rotation too, so derivatives of every order work. In eager mode it is
an autograd.Function, which costs a few microseconds; what follows the calls of torch (torch.compile, modes) sees a
custom op with the same gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.autograd import Function

from .. import _core
from .._core import RopeSpec
from ._common import (
    amplitude_of,
    applied,
    detached,
    direct,
    folded,
    needs_grad,
    refusal,
    require_dense,
    require_no_grad,
    require_readable,
    spec_of,
    spec_text,
    spread,
    transformed,
    without,
)
from ._device import by_torch
from ._device_rotate import rotate_by_torch
from ._rotation_ops import cos_sin_from_op, cos_sin_op, rotate_op

if TYPE_CHECKING:
    from .._core import Angles, Order

Positions: TypeAlias = "Tensor | int | None"
Choices: TypeAlias = "dict[str, Any]"  # keywords of _core.rotate


def _rows_of(positions: Positions) -> Tensor | None:
    return positions if isinstance(positions, Tensor) else None


def rotate(
    x: Tensor,
    spec: RopeSpec,
    positions: Positions = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
    role: Literal["query", "key"] = "query",
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
) -> Tensor:
    """RoFormer (34): rotates every pair of x by the angle of its token's position, with gradients of every order.

    x [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]; order="heads_first" swaps tokens and heads;
    bfloat16, float16, float32 or float64. positions: None (0, 1, ...), an int (that offset), or a tensor of integers
    or floats [tokens], [batch, tokens] or [axes, batch, tokens]; positions have no gradient.
    Keeps one graph under torch.compile: op phasor::rotate on the CPU, torch's own operations on another device.
    """
    choices: Choices = {
        "inverse": inverse,
        "transpose": transpose,
        "role": role,
        "context": context,
        "order": order,
        "angles": angles,
        "threads": threads,
    }
    rows = _rows_of(positions)
    if rows is not None and needs_grad(rows):
        require_no_grad("rotate", positions=rows)
    if by_torch(x):
        del choices["role"], choices["threads"]
        return rotate_by_torch("rotate", {role: x}, spec, positions, choices)[0]
    if direct(x, rows):
        if needs_grad(x):
            return applied(_Rotate, x, positions, spec, choices)
        return _core.rotate(detached(x), spec, positions if rows is None else detached(rows), **choices)
    if transformed():
        require_readable("rotate", positions=rows)
        return applied(_TransformedRotate, x, positions, spec, choices)
    require_readable("rotate", x=x, positions=rows)
    if inverse and transpose:
        raise refusal("invalid_argument", "rotate: inverse and transpose cannot be combined")
    direction = "inverse" if inverse else "transpose" if transpose else "forward"
    offset = positions if isinstance(positions, int) else 0
    return rotate_op(x, rows, spec_text(spec), offset, direction, role, context, order, angles, threads)


def _rotate_back(grad: Tensor, positions: Positions, spec: RopeSpec, choices: Choices) -> Tensor:
    """The gradient of rotate(): the transpose of the rotation."""
    if not choices["inverse"]:
        return rotate(grad, spec, positions, **choices | {"transpose": not choices["transpose"]})
    # (1/a) R^T has the transpose (1/a) R: the forward rotation over a^2. xPos multiplies a query by g, so its
    # inverse divides by g, as the forward rotation of a key does.
    other = "key" if choices["role"] == "query" else "query"
    rotated = rotate(grad, spec, positions, **choices | {"inverse": False, "role": other})
    return rotated / amplitude_of(spec_text(spec), choices["context"]) ** 2


def _keep_positions(ctx: Any, positions: Positions) -> None:
    ctx.offset = None if isinstance(positions, Tensor) else positions
    if isinstance(positions, Tensor):
        ctx.save_for_backward(positions)


def _kept_positions(ctx: Any) -> Positions:
    return ctx.saved_tensors[0] if ctx.saved_tensors else ctx.offset


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Positions, spec: RopeSpec, choices: Choices) -> Tensor:
        _keep_positions(ctx, positions)
        ctx.how = (spec, choices)
        return _core.rotate(x.detach(), spec, positions, **choices)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _rotate_back(grads[0], _kept_positions(ctx), *ctx.how), None, None, None


class _TransformedRotate(_Rotate):
    """For torch.func and forward gradients: with every rule, at a higher cost of a call."""

    @staticmethod
    def forward(x: Tensor, positions: Positions, spec: RopeSpec, choices: Choices) -> Tensor:  # type: ignore[override]
        return _core.rotate(x.detach(), spec, positions, **choices)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, positions, *ctx.how = inputs
        _keep_positions(ctx, positions)
        if isinstance(positions, Tensor):
            ctx.save_for_forward(positions)

    @staticmethod
    def jvp(ctx: Any, d_x: Tensor, *rest: Any) -> Any:
        return applied(_TransformedRotate, d_x, _kept_positions(ctx), *ctx.how)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, positions: Positions, *how: Any) -> Any:
        inner = folded(x, in_dims[0], info.batch_size)
        if isinstance(positions, Tensor) and (in_dims[1] is not None or positions.dim() > 1):
            rows = spread(positions, in_dims[1], info.batch_size)
            if rows.dim() == 2:  # [batch of vmap, tokens]
                rows = rows.unsqueeze(1)
            batch = inner.shape[0] // info.batch_size
            positions = rows.expand(*rows.shape[:-2], batch, -1).movedim(0, -3).flatten(-3, -2)
        rotated = applied(_TransformedRotate, inner, positions, *how)
        return rotated.reshape(info.batch_size, *without(x, in_dims[0])), 0


def _rotate_op_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, positions, spec, offset, direction, role, context, order, angles, threads = inputs
    _keep_positions(ctx, offset if positions is None else positions)
    choices: Choices = {"inverse": direction == "inverse", "transpose": direction == "transpose", "role": role}
    ctx.how = (spec_of(spec), choices | {"context": context, "order": order, "angles": angles, "threads": threads})


def _rotate_op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (_rotate_back(grad, _kept_positions(ctx), *ctx.how), *(None,) * 9)


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
    choices: Choices = {"inverse": inverse, "transpose": transpose, "context": context}
    choices |= {"order": order, "angles": angles, "threads": threads}
    rows = _rows_of(positions)
    if by_torch(q, k):
        if rows is not None:
            require_no_grad("rotate_qk", positions=rows)
        return rotate_by_torch("rotate_qk", {"query": q, "key": k}, spec, positions, choices)  # type: ignore[return-value]
    if not direct(q, k, rows) or needs_grad(q, k, rows):
        return rotate(q, spec, positions, role="query", **choices), rotate(k, spec, positions, role="key", **choices)
    return _core.rotate_qk(detached(q), detached(k), spec, positions if rows is None else detached(rows), **choices)


def cos_sin(
    spec: RopeSpec,
    positions: Tensor | int,
    *,
    context: int | None = None,
    dtype: torch.dtype = torch.float32,
    angles: Angles = "exact",
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin times the amplitude, [..., pairs] each, for positions [...], or [axes, ...] if the spec has axes.

    An int n means the positions 0 .. n - 1. dtype: any floating-point type; cos and sin are computed in float64 and
    rounded. device: where the result is; None: with the positions. Keeps one graph under torch.compile (ops
    phasor::cos_sin and phasor::cos_sin_from). Positions have no gradient.
    """
    place = None if device is None else torch.device(device)
    if isinstance(positions, int):
        if place is not None and place.type != "cpu":
            return cos_sin_from_op(0, positions, context, spec_text(spec), dtype, place, angles, "")
        positions = torch.arange(positions)
    require_dense("cos_sin", positions=positions)
    require_no_grad("cos_sin", positions=positions)
    at = None if context is None else torch.tensor(context)
    cos, sin = cos_sin_op(positions, at, spec_text(spec), "pairs", dtype, angles)
    return (cos, sin) if place is None else (cos.to(place), sin.to(place))


__all__ = ["cos_sin", "rotate", "rotate_qk"]
