"""flash-attn's rotary functions, under their names, on the CPU: apply_rotary_emb and its in-place relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._common import refusal, require_cpu, shape_text
from ._rotate import rotate_by, rotate_by_

if TYPE_CHECKING:
    from .._core import Layout


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Rotates the first rotary_dim features of x; gradients reach x, cos and sin.

    x [batch, tokens, heads, head_dim], or packed [total, heads, head_dim] with cu_seqlens [sequences + 1] and
    max_seqlen; cos, sin [rows, rotary_dim / 2]. Sequence b starts at row seqlen_offsets (an int, or [batch] integers).
    inplace writes x and returns it; with gradients that costs one copy.
    Raises Error for positions after the last row of cos; the original does not rotate them if offsets are a tensor.
    """
    require_cpu("apply_rotary_emb", x=x, cos=cos, sin=sin)
    _check("apply_rotary_emb", x, cos, sin, 3 if cu_seqlens is not None else 4)
    if cu_seqlens is None:
        cos, sin = _rows(cos, sin, x.shape[0], x.shape[1], seqlen_offsets)
    else:
        cos, sin = _packed_rows(cos, sin, x.shape[0], seqlen_offsets, cu_seqlens, max_seqlen)
    layout: Layout = "interleaved" if interleaved else "half"
    return rotate_by_(x, cos, sin, layout=layout) if inplace else rotate_by(x, cos, sin, layout=layout)


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Tensor | None = None,
    sin_k: Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
    num_heads_q: int | None = None,
) -> Tensor:
    """Rotates the queries and keys of qkv in place and returns it.

    qkv [batch, tokens, 3, heads, head_dim], or [batch, tokens, num_heads_q + 2 * key heads, head_dim]; cos_k and sin_k
    are used for the keys if they are given (xPos).
    """
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        q, k = qkv[:, :, 0], qkv[:, :, 1]
    elif qkv.dim() == 4 and num_heads_q is not None and (qkv.shape[2] - num_heads_q) % 2 == 0:
        keys = (qkv.shape[2] - num_heads_q) // 2
        q, k = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q : num_heads_q + keys]
    else:
        raise refusal(
            "shape_mismatch",
            "apply_rotary_emb_qkv_: qkv must be [batch, tokens, 3, heads, head_dim], or [batch, tokens, num_heads_q + "
            f"2 * key heads, head_dim] with num_heads_q, got {shape_text(qkv)} and num_heads_q {num_heads_q}",
        )
    apply_rotary_emb(q, cos, sin, interleaved, True, seqlen_offsets)
    apply_rotary_emb(
        k, cos if cos_k is None else cos_k, sin if sin_k is None else sin_k, interleaved, True, seqlen_offsets
    )
    return qkv


def apply_rotary_emb_kv_(
    kv: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, seqlen_offsets: int | Tensor = 0
) -> Tensor:
    """Rotates the keys of kv [batch, tokens, 2, heads, head_dim] in place and returns it."""
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb_kv_: kv must be [batch, tokens, 2, heads, head_dim], got {shape_text(kv)}",
        )
    apply_rotary_emb(kv[:, :, 0], cos, sin, interleaved, True, seqlen_offsets)
    return kv


def _check(where: str, x: Tensor, cos: Tensor, sin: Tensor, rank: int) -> None:
    if x.dim() != rank:
        form = "[batch, tokens, heads, head_dim]" if rank == 4 else "[total, heads, head_dim] with cu_seqlens"
        raise refusal("shape_mismatch", f"{where}: x must be {form}, got {shape_text(x)}")
    if cos.dim() != 2 or cos.shape != sin.shape:
        raise refusal(
            "shape_mismatch",
            f"{where}: cos and sin must both be [rows, rotary_dim / 2], got {shape_text(cos)} and {shape_text(sin)}",
        )


def _rows(cos: Tensor, sin: Tensor, batch: int, tokens: int, seqlen_offsets: int | Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(seqlen_offsets, Tensor):
        _check_offsets(seqlen_offsets, batch)
        rows = seqlen_offsets[:, None] + torch.arange(tokens)
        _check_rows(rows, cos)
        return cos[rows], sin[rows]
    last = seqlen_offsets + tokens
    if seqlen_offsets < 0 or last > cos.shape[0]:
        raise refusal(
            "out_of_range",
            f"apply_rotary_emb: cos must have a row for every position, got {cos.shape[0]} rows for positions "
            f"{seqlen_offsets} .. {last - 1}",
        )
    return cos[seqlen_offsets:last], sin[seqlen_offsets:last]


def _packed_rows(
    cos: Tensor,
    sin: Tensor,
    total: int,
    seqlen_offsets: int | Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int | None,
) -> tuple[Tensor, Tensor]:
    if max_seqlen is None:
        raise refusal("invalid_argument", "apply_rotary_emb: max_seqlen is missing: cu_seqlens needs it")
    if not torch.compiler.is_compiling():
        ends = cu_seqlens.tolist()
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != total or sorted(ends) != ends:
            raise refusal(
                "shape_mismatch",
                f"apply_rotary_emb: cu_seqlens must increase from 0 to the {total} tokens of x, got {ends}",
            )
        longest = max(last - first for first, last in zip(ends, ends[1:], strict=False))
        if longest > max_seqlen:
            raise refusal(
                "out_of_range",
                f"apply_rotary_emb: max_seqlen must be at least {longest}, the longest sequence, got {max_seqlen}",
            )
    tokens = torch.arange(total)
    sequence = torch.bucketize(tokens, cu_seqlens[1:].to(torch.int64), right=True)
    rows = tokens - cu_seqlens[sequence]
    if isinstance(seqlen_offsets, Tensor):
        _check_offsets(seqlen_offsets, cu_seqlens.shape[0] - 1)
        rows = rows + seqlen_offsets[sequence]
    else:
        rows = rows + seqlen_offsets
    _check_rows(rows, cos)
    return cos[rows], sin[rows]


def _check_offsets(seqlen_offsets: Tensor, batch: int) -> None:
    if tuple(seqlen_offsets.shape) != (batch,) or seqlen_offsets.dtype not in (torch.int32, torch.int64):
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb: seqlen_offsets must be an int or [{batch}] int32 or int64, got "
            f"{shape_text(seqlen_offsets)}",
        )


def _check_rows(rows: Tensor, cos: Tensor) -> None:
    if torch.compiler.is_compiling() or rows.numel() == 0:
        return
    first, last = (int(end) for end in torch.aminmax(rows))
    if first < 0 or last >= cos.shape[0]:
        raise refusal(
            "out_of_range",
            f"apply_rotary_emb: cos must have a row for every position, got {cos.shape[0]} rows for positions "
            f"{first} .. {last}",
        )


__all__ = ["apply_rotary_emb", "apply_rotary_emb_func", "apply_rotary_emb_kv_", "apply_rotary_emb_qkv_"]
