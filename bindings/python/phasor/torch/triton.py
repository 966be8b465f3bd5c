"""Rotation by a Triton kernel: queries and keys in one launch, in place if asked, with gradients.

    phasor.torch.triton.enable()     # rotate, rotate_qk, rotate_by and the drop-ins use it on CUDA, ROCm and XPU
    q, k = phasor.torch.triton.rotate_qk_by(q, k, cos, sin, layout="half", rows=positions, inplace=True)

Not enabled by default: it was tested with Triton's interpreter only, never on a GPU. Importing this module does not need
triton. Inside torch.compile and torch.func, and for gradients of cos and sin, torch's own operations rotate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from ._common import applied, needs_grad, refusal, shape_text, unfollowed
from . import _device_rotate
from ._device_rotate import READ_WRITTEN, check_rotation

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if TYPE_CHECKING:
    from .._core import Layout, Order

_DEVICES = ("cuda", "xpu")  # ROCm's devices are called cuda


def enable() -> None:
    """From now on phasor.torch rotates with the kernel where it can."""
    _require_triton()
    _device_rotate.kernel = _instead


def disable() -> None:
    _device_rotate.kernel = None


def _instead(xs: tuple[Tensor, ...], cos: Tensor, sin: Tensor, *how: Any) -> tuple[Tensor, ...] | None:
    """xs, one or two tensors, rotated in one launch; None if torch's operations must do it. They were checked before."""
    if not unfollowed() or needs_grad(cos, sin) or any(x.device.type not in _DEVICES for x in (*xs, cos, sin)):
        return None
    q, k = xs if len(xs) == 2 else (xs[0], xs[0].narrow(-3 if how[3] == "heads_first" else -2, 0, 0))
    if q.dtype != k.dtype or q.dim() != k.dim():
        return None
    results: tuple[Tensor, ...] = _with_gradients(q, k, cos, sin, None, how)
    return results[: len(xs)]


def _require_triton() -> None:
    if triton is None:
        raise refusal("unsupported", "phasor.torch.triton: triton is missing; run: pip install triton")


if triton is not None:
    # Constants of the kernel are spelled in capitals. A program rotates up to HEADS heads of one token, each whole, so that
    # a pair is read and written by one program: x and out may be the same memory.

    @triton.jit  # type: ignore[untyped-decorator]
    def _tile(  # type: ignore[no-untyped-def]
        x, out, cos, sin, first_head, heads, x_head, out_head, x_dim, out_dim, offset, dim,
        PAIRS: tl.constexpr, BLOCK: tl.constexpr, DIM_BLOCK: tl.constexpr, HEADS: tl.constexpr,
        READ_HALF: tl.constexpr, WRITE_HALF: tl.constexpr, COPIES: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        head = first_head + tl.arange(0, HEADS)[:, None]
        pair = tl.arange(0, BLOCK)[None, :]
        inside = (head < heads) & (pair < PAIRS)
        if READ_HALF:
            read_a, read_b = pair, pair + PAIRS
        else:
            read_a, read_b = 2 * pair, 2 * pair + 1
        if WRITE_HALF:
            write_a, write_b = pair, pair + PAIRS
        else:
            write_a, write_b = 2 * pair, 2 * pair + 1
        from_head, to_head = x + head * x_head, out + head * out_head
        a = tl.load(from_head + (offset + read_a) * x_dim, mask=inside, other=0.0).to(WIDE)
        b = tl.load(from_head + (offset + read_b) * x_dim, mask=inside, other=0.0).to(WIDE)
        # RoFormer (34)
        tl.store(to_head + (offset + write_a) * out_dim, (a * cos - b * sin).to(out.dtype.element_ty), mask=inside)
        tl.store(to_head + (offset + write_b) * out_dim, (b * cos + a * sin).to(out.dtype.element_ty), mask=inside)
        if COPIES:
            feature = tl.arange(0, DIM_BLOCK)[None, :]
            rest = (head < heads) & (feature < dim) & ((feature < offset) | (feature >= offset + 2 * PAIRS))
            tl.store(to_head + feature * out_dim, tl.load(from_head + feature * x_dim, mask=rest, other=0.0), mask=rest)

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        q, k, q_out, k_out, cos, sin, rows,
        tokens, q_heads, k_heads, dim, offset, table_rows, sign,
        q_batch, q_token, q_head, q_dim, k_batch, k_token, k_head, k_dim,
        qo_batch, qo_token, qo_head, qo_dim, ko_batch, ko_token, ko_head, ko_dim,
        cos_batch, cos_row, cos_pair, sin_batch, sin_row, sin_pair, rows_batch, rows_token,
        PAIRS: tl.constexpr, BLOCK: tl.constexpr, DIM_BLOCK: tl.constexpr, HEADS: tl.constexpr,
        READ_HALF: tl.constexpr, WRITE_HALF: tl.constexpr, COPIES: tl.constexpr, GATHERS: tl.constexpr,
        WIDE: tl.constexpr,
    ):  # fmt: skip
        batch = (tl.program_id(0) // tokens).to(tl.int64)
        token = (tl.program_id(0) % tokens).to(tl.int64)
        row = token
        if GATHERS:
            row = tl.load(rows + batch * rows_batch + token * rows_token).to(tl.int64)
        pair = tl.arange(0, BLOCK)[None, :]
        at = row + tl.zeros((1, BLOCK), tl.int64)
        there = (pair < PAIRS) & (at >= 0) & (at < table_rows)
        # A row that the table does not have gives NaN: the value cannot be refused here.
        c = tl.load(cos + batch * cos_batch + at * cos_row + pair * cos_pair, mask=there, other=float("nan")).to(WIDE)
        s = tl.load(sin + batch * sin_batch + at * sin_row + pair * sin_pair, mask=there, other=float("nan")).to(WIDE)
        s = s * sign
        q_programs = tl.cdiv(q_heads, HEADS)
        block = tl.program_id(1)
        if block < q_programs:
            _tile(
                q + batch * q_batch + token * q_token, q_out + batch * qo_batch + token * qo_token, c, s,
                block * HEADS, q_heads, q_head, qo_head, q_dim, qo_dim, offset, dim,
                PAIRS, BLOCK, DIM_BLOCK, HEADS, READ_HALF, WRITE_HALF, COPIES, WIDE,
            )  # fmt: skip
        else:
            _tile(
                k + batch * k_batch + token * k_token, k_out + batch * ko_batch + token * ko_token, c, s,
                (block - q_programs) * HEADS, k_heads, k_head, ko_head, k_dim, ko_dim, offset, dim,
                PAIRS, BLOCK, DIM_BLOCK, HEADS, READ_HALF, WRITE_HALF, COPIES, WIDE,
            )  # fmt: skip


def _axes(x: Tensor, order: str) -> Tensor:
    """x as [batch, tokens, heads, dim]."""
    x = x if x.dim() == 4 else x.unsqueeze(0)
    return x.transpose(1, 2) if order == "heads_first" else x


def _launch(tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor, rows: Tensor | None, how: tuple[Any, ...]) -> None:
    """Rotates q to q_out and k to k_out; tensors: (q, k, q_out, k_out)."""
    layout, transpose, offset, order = how
    q, k, q_out, k_out = (_axes(x, order) for x in tensors)
    read, written = READ_WRITTEN[layout][:: -1 if transpose else 1]
    batch, tokens, q_heads, dim = q.shape
    pairs = cos.shape[-1]
    if q.numel() == 0 and k.numel() == 0:
        return
    heads = min(16, triton.next_power_of_2(max(q_heads, 1)))
    index = cos if rows is None else rows
    strides = [x.stride() for x in (q, k, q_out, k_out)]
    tables = [(x.stride(0) if x.dim() == 3 and x.shape[0] > 1 else 0, x.stride(-2), x.stride(-1)) for x in (cos, sin)]
    spans = (0, 0) if rows is None else (rows.stride(0) if rows.dim() == 2 else 0, rows.stride(-1))
    grid = (batch * tokens, triton.cdiv(q_heads, heads) + triton.cdiv(k.shape[2], heads))
    _kernel[grid](
        q, k, q_out, k_out, cos, sin, index,
        tokens, q_heads, k.shape[2], dim, offset, cos.shape[-2], -1.0 if transpose else 1.0,
        *strides[0], *strides[1], *strides[2], *strides[3], *tables[0], *tables[1], *spans,
        PAIRS=pairs, BLOCK=triton.next_power_of_2(max(pairs, 1)), DIM_BLOCK=triton.next_power_of_2(dim), HEADS=heads,
        READ_HALF=read == "half", WRITE_HALF=written == "half",
        COPIES=q.data_ptr() != q_out.data_ptr() and 2 * pairs < dim, GATHERS=rows is not None,
        WIDE=tl.float64 if q.dtype == torch.float64 else tl.float32,
    )  # fmt: skip


def _rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, rows: Tensor | None, how: tuple[Any, ...]) -> Any:
    results = torch.empty_like(q), torch.empty_like(k)
    _launch((q, k, *results), cos, sin, rows, how)
    return results


def _with_gradients(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, rows: Tensor | None, how: tuple[Any, ...]) -> Any:
    if needs_grad(q, k):
        return applied(_Turn, q, k, cos, sin, rows, how)
    return _rotated(q.detach(), k.detach(), cos.detach(), sin.detach(), rows, how)


class _Turn(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, rows: Tensor | None, how: Any) -> Any:
        ctx.save_for_backward(cos, sin, rows)
        ctx.how = how
        return _rotated(q.detach(), k.detach(), cos, sin, rows, how)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout, transpose, *rest = ctx.how
        return (*applied(_Turn, *grads, *ctx.saved_tensors, (layout, not transpose, *rest)), None, None, None, None)


def rotate_qk_by(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: Layout,
    transpose: bool = False,
    rotary_offset: int = 0,
    order: Order = "tokens_first",
    rows: Tensor | None = None,
    inplace: bool = False,
) -> tuple[Tensor, Tensor]:
    """Rotates queries and keys by the given cos and sin in one launch, with gradients for q and k of every order.

    q, k [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] (order="heads_first" swaps tokens and heads), each
    with its own number of heads, on one device; cos, sin [tokens, pairs] or [batch, tokens, pairs]. rows: integers
    [tokens] or [batch, tokens], the row of cos and sin [rows, pairs] that each token reads: positions of packed or padded
    sequences; a row that is missing gives NaN. inplace writes q and k and returns them; they must not require grad.
    Bounds are those of phasor.torch.rotate_by.
    """
    _require_triton()
    where = "rotate_qk_by"
    if q.shape[-1] != k.shape[-1] or q.dim() != k.dim() or q.dtype != k.dtype or q.device != k.device:
        raise refusal(
            "shape_mismatch",
            f"{where}: q and k must have one head_dim, type and device, got {shape_text(q)} on {q.device} and "
            f"{shape_text(k)} on {k.device}",
        )
    for x in (q, k):
        check_rotation(where, x, cos, sin, layout, rotary_offset, order, gathers=rows is not None)
    if _axes(q, order).shape[:2] != _axes(k, order).shape[:2]:
        text = f"{where}: q and k must have the same batch and tokens, got {shape_text(q)} and {shape_text(k)}"
        raise refusal("shape_mismatch", text)
    if rows is not None:
        batch, tokens = _axes(q, order).shape[:2]
        if tuple(rows.shape) not in ((tokens,), (batch, tokens)) or rows.is_floating_point() or rows.device != q.device:
            raise refusal(
                "shape_mismatch",
                f"{where}: rows must be integers [{tokens}] or [{batch}, {tokens}] on {q.device}, got {shape_text(rows)} "
                f"on {rows.device}",
            )
    if needs_grad(cos, sin):
        raise refusal("unsupported", f"{where}: cos and sin have no gradient here: use rotate_by")
    how = (layout, transpose, rotary_offset, order)
    if not inplace:
        return _with_gradients(q, k, cos, sin, rows, how)  # type: ignore[no-any-return]
    if needs_grad(q, k):
        raise refusal("unsupported", f"{where}: inplace needs tensors without grad: leave it out, or use no_grad()")
    if layout == "interleaved_to_half":
        raise refusal("unsupported", f"{where}: interleaved_to_half cannot be rotated in place: leave out inplace")
    bare = q.detach(), k.detach()
    _launch((*bare, *bare), cos.detach(), sin.detach(), rows, how)
    return q, k


__all__ = ["disable", "enable", "rotate_qk_by"]
