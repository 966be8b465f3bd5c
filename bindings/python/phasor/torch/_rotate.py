"""Rotation with gradients: phasor.rotate, rotate_qk and rotate_by for tensors that may require grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from torch import Tensor

from .. import _core
from .._core import RopeSpec
from ._common import direct, refusal, require_cpu, require_no_grad, spec_text
from ._rotation_ops import rotate_by_op, rotate_op

if TYPE_CHECKING:
    from .._core import Angles, Layout, Order

Positions: TypeAlias = "Tensor | int | None"


def _direction(where: str, inverse: bool, transpose: bool) -> str:
    if inverse and transpose:
        raise refusal("invalid_argument", f"{where}: inverse and transpose cannot be combined")
    return "inverse" if inverse else "transpose" if transpose else "forward"


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
    Keeps one graph under torch.compile (op phasor::rotate). CPU tensors only.
    """
    if direct(x) and (not isinstance(positions, Tensor) or direct(positions)):
        return _core.rotate(
            x.detach() if x.requires_grad else x,
            spec,
            positions,
            inverse=inverse,
            transpose=transpose,
            role=role,
            context=context,
            order=order,
            angles=angles,
            threads=threads,
        )
    require_cpu("rotate", x=x)
    offset, rows = _offset_and_rows("rotate", positions)
    direction = _direction("rotate", inverse, transpose)
    return rotate_op(x, rows, spec_text(spec), offset, direction, role, context, order, angles, threads)


def _offset_and_rows(where: str, positions: Positions) -> tuple[int, Tensor | None]:
    if isinstance(positions, Tensor):
        require_cpu(where, positions=positions)
        require_no_grad(where, positions=positions)
        return 0, positions
    return (0 if positions is None else positions), None


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
    if direct(q, k) and (not isinstance(positions, Tensor) or direct(positions)):
        return _core.rotate_qk(
            q.detach() if q.requires_grad else q,
            k.detach() if k.requires_grad else k,
            spec,
            positions,
            inverse=inverse,
            transpose=transpose,
            context=context,
            order=order,
            angles=angles,
            threads=threads,
        )
    require_cpu("rotate_qk", q=q, k=k)
    offset, rows = _offset_and_rows("rotate_qk", positions)
    direction = _direction("rotate_qk", inverse, transpose)
    text = spec_text(spec)
    return (
        rotate_op(q, rows, text, offset, direction, "query", context, order, angles, threads),
        rotate_op(k, rows, text, offset, direction, "key", context, order, angles, threads),
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
    if direct(x, cos, sin):
        return _core.rotate_by(
            x.detach() if x.requires_grad else x,
            cos.detach() if cos.requires_grad else cos,
            sin.detach() if sin.requires_grad else sin,
            layout=layout,
            transpose=transpose,
            rotary_offset=rotary_offset,
            order=order,
            threads=threads,
        )
    require_cpu("rotate_by", x=x, cos=cos, sin=sin)
    return rotate_by_op(x, cos, sin, layout, transpose, rotary_offset, order, threads)


def rotate_by_(
    x: Tensor, cos: Tensor, sin: Tensor, *, layout: Layout, order: Order = "tokens_first", threads: int = 0
) -> Tensor:
    """rotate_by() written to x; without a copy if no gradient is needed."""
    if direct(x, cos, sin) and x.stride(-1) == 1:
        if cos.dim() == 3 and cos.shape[0] == 1:
            cos, sin = cos.squeeze(0), sin.squeeze(0)
        bare_x = x.detach()
        _core.rotate_by(bare_x, cos.detach(), sin.detach(), layout=layout, order=order, threads=threads, out=bare_x)
        return x
    return x.copy_(rotate_by(x, cos, sin, layout=layout, order=order, threads=threads))


__all__ = ["rotate", "rotate_by", "rotate_qk"]
