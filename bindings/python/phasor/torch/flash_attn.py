"""flash-attn's rotary functions and module, under their names, on the CPU and on any device of torch.

What is rotated in place may require grad: use the result, which has the gradient. (A leaf, and a view that came
from chunk or unbind, cannot have it themselves.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ._device import by_torch
from ._common import exact_or_own, needs_grad, refusal, require_readable, shape_text
from ._rotate_by import rotate_by, rotate_by_, write

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
    inplace writes x and returns it, or an alias of it that has the gradient; with gradients that costs one copy.
    Raises Error for positions after the last row of cos; the original does not rotate them if offsets are a tensor.
    The values of tensors on another device than the CPU are not read: there torch's gather meets a row that is missing.
    """
    if not by_torch(x, cos, sin):
        require_readable("apply_rotary_emb", x=x, cos=cos, sin=sin)
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
    q, k, v = _parts(qkv, num_heads_q)
    keeps_graph = needs_grad(qkv, cos, sin, cos_k, sin_k)
    cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
    if cos_k.shape != cos.shape:
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb_qkv_: cos_k must have the shape of cos, got {shape_text(cos_k)} and {shape_text(cos)}",
        )
    _check("apply_rotary_emb_qkv_", k, cos_k, sin_k, 4)
    q = apply_rotary_emb(q, cos, sin, interleaved, not keeps_graph, seqlen_offsets)
    k = apply_rotary_emb(k, cos_k, sin_k, interleaved, not keeps_graph, seqlen_offsets)
    if not keeps_graph:
        return qkv
    return write(qkv, torch.stack((q, k, v), 2) if qkv.dim() == 5 else torch.cat((q, k, v), 2))


def _parts(qkv: Tensor, num_heads_q: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the queries, keys and values."""
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        return qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    if qkv.dim() == 4 and num_heads_q is not None and (qkv.shape[2] - num_heads_q) % 2 == 0:
        keys = (qkv.shape[2] - num_heads_q) // 2
        return (
            qkv[:, :, :num_heads_q],
            qkv[:, :, num_heads_q : num_heads_q + keys],
            qkv[:, :, num_heads_q + keys :],
        )
    raise refusal(
        "shape_mismatch",
        "apply_rotary_emb_qkv_: qkv must be [batch, tokens, 3, heads, head_dim], or [batch, tokens, num_heads_q + "
        f"2 * key heads, head_dim] with num_heads_q, got {shape_text(qkv)} and num_heads_q {num_heads_q}",
    )


def apply_rotary_emb_kv_(
    kv: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, seqlen_offsets: int | Tensor = 0
) -> Tensor:
    """Rotates the keys of kv [batch, tokens, 2, heads, head_dim] in place and returns it."""
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb_kv_: kv must be [batch, tokens, 2, heads, head_dim], got {shape_text(kv)}",
        )
    keeps_graph = needs_grad(kv, cos, sin)
    k = apply_rotary_emb(kv[:, :, 0], cos, sin, interleaved, not keeps_graph, seqlen_offsets)
    return write(kv, torch.stack((k, kv[:, :, 1]), 2)) if keeps_graph else kv


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
        rows = seqlen_offsets[:, None] + torch.arange(tokens, device=cos.device)
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
    if not torch.compiler.is_compiling() and cu_seqlens.is_cpu:
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
    tokens = torch.arange(total, device=cu_seqlens.device)
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
    if torch.compiler.is_compiling() or not rows.is_cpu or rows.numel() == 0:
        return
    first, last = (int(end) for end in torch.aminmax(rows))
    if first < 0 or last >= cos.shape[0]:
        raise refusal(
            "out_of_range",
            f"apply_rotary_emb: cos must have a row for every position, got {cos.shape[0]} rows for positions "
            f"{first} .. {last}",
        )


def _state(buffer: Tensor | None) -> tuple[int, int]:
    """A buffer that was loaded or replaced since is another tensor, or has another version."""
    return id(buffer), 0 if buffer is None or buffer.is_inference() else buffer._version


class RotaryEmbedding(nn.Module):
    """flash-attn's rotary module: forward() rotates queries and keys in place.

    dim: the rotated features of a head. base: the 10000 under the power. interleaved: neighbours are pairs, else the two
    halves. scale_base (xPos; 512 in its paper): queries grow and keys shrink with the position, centred at half of the
    longest length so far. Angles are exact: float64, rounded once to cos and sin in the dtype of the queries; so
    pos_idx_in_fp32, which newer versions do not have, changes nothing (a device in its place is taken as the device).
    inv_freq may be replaced: other frequencies are used as they are.
    """

    inv_freq: Tensor
    scale: Tensor | None

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        pos_idx_in_fp32: bool | torch.device | str | None = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        device = device if isinstance(pos_idx_in_fp32, bool) else pos_idx_in_fp32
        if dim <= 0 or dim % 2 != 0:
            raise refusal("invalid_argument", f"RotaryEmbedding: dim must be even and above 0, got {dim}")
        self.dim = dim
        self.base = float(base)
        self.interleaved = interleaved
        self.scale_base = scale_base
        even = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu")
        # Plain attributes: model.half() must not round them.
        self._exact = self.base ** (-even / dim)
        self._exact_scale = (even + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("inv_freq", self._exact.to(device, torch.float32), persistent=False)
        scale = None if scale_base is None else self._exact_scale.to(device, torch.float32)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._made_of: tuple[object, ...] = ()
        self._cos_cached: Tensor | None = None
        self._sin_cached: Tensor | None = None
        self._cos_k_cached: Tensor | None = None
        self._sin_k_cached: Tensor | None = None

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: int | Tensor = 0,
        cu_seqlens: Tensor | int | None = None,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Rotates in place and returns qkv, or (q, kv) if kv is given.

        qkv [batch, tokens, 3, heads, head_dim], or [batch, tokens, num_heads_q + 2 * key heads, head_dim]; with kv
        [batch, tokens, 2, key heads, head_dim] it is q alone, [batch, tokens, heads, head_dim]. With cu_seqlens
        [sequences + 1] the tensors are packed: [total, ...] instead of [batch, tokens, ...]. Sequence b starts at
        position seqlen_offset (an int, or [batch] integers). max_seqlen: the positions to prepare; without it, as many
        as the call needs. An int in the place of cu_seqlens is max_seqlen, and the next one num_heads_q, as in the
        versions without cu_seqlens.
        """
        if isinstance(cu_seqlens, int):
            cu_seqlens, max_seqlen, num_heads_q = None, cu_seqlens, max_seqlen if num_heads_q is None else num_heads_q
        cos, sin, cos_k, sin_k = self._tables(qkv, seqlen_offset, cu_seqlens, max_seqlen)
        if cu_seqlens is not None:
            longest = cos.shape[0] if max_seqlen is None else max_seqlen
            cos, sin = _packed_rows(cos, sin, qkv.shape[0], seqlen_offset, cu_seqlens, longest)
            if cos_k is not None and sin_k is not None:
                cos_k, sin_k = _packed_rows(cos_k, sin_k, qkv.shape[0], seqlen_offset, cu_seqlens, longest)
            # One row of the batch holds all sequences: each token has its own row of cos and sin.
            qkv, kv, seqlen_offset = qkv.unsqueeze(0), None if kv is None else kv.unsqueeze(0), 0
        results: list[Tensor] = []
        if kv is None:
            results.append(
                apply_rotary_emb_qkv_(qkv, cos, sin, cos_k, sin_k, self.interleaved, seqlen_offset, num_heads_q)
            )
        else:
            results.append(apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset))
            keys = (cos, sin) if cos_k is None or sin_k is None else (cos_k, sin_k)
            results.append(apply_rotary_emb_kv_(kv, *keys, self.interleaved, seqlen_offset))
        if cu_seqlens is not None:
            results = [result.squeeze(0) for result in results]
        return results[0] if kv is None else (results[0], results[1])

    def _tables(
        self, qkv: Tensor, seqlen_offset: int | Tensor, cu_seqlens: Tensor | None, max_seqlen: int | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        needed = max_seqlen
        if needed is None:
            tokens = qkv.shape[1] if cu_seqlens is None else int(cu_seqlens.diff().max())
            needed = tokens + int(seqlen_offset.max() if isinstance(seqlen_offset, Tensor) else seqlen_offset)
        self._update_cos_sin_cache(needed, qkv.dtype, qkv.device)
        assert self._cos_cached is not None and self._sin_cached is not None
        return self._cos_cached, self._sin_cached, self._cos_k_cached, self._sin_k_cached

    @torch.no_grad()
    def _update_cos_sin_cache(self, seqlen: int, dtype: torch.dtype, device: torch.device | None = None) -> None:
        of_inference = self._cos_cached is not None and self._cos_cached.is_inference() and self.training
        made_of = (_state(self.inv_freq), _state(self.scale), self.scale_base, dtype, device)
        if seqlen <= self._seq_len_cached and made_of == self._made_of and not of_inference:
            return
        positions = torch.arange(seqlen, dtype=torch.float64, device="cpu")
        angles = positions[:, None] * exact_or_own(self._exact, self.inv_freq)
        cos, sin = angles.cos(), angles.sin()
        self._cos_k_cached = self._sin_k_cached = None
        if self.scale is not None and self.scale_base is not None:
            growth = exact_or_own(self._exact_scale, self.scale) ** (
                (positions - seqlen // 2) / self.scale_base
            ).unsqueeze(-1)
            self._cos_k_cached, self._sin_k_cached = (cos / growth).to(device, dtype), (sin / growth).to(device, dtype)
            cos, sin = cos * growth, sin * growth
        self._cos_cached, self._sin_cached = cos.to(device, dtype), sin.to(device, dtype)
        self._seq_len_cached, self._made_of = seqlen, made_of


__all__ = [
    "RotaryEmbedding",
    "apply_rotary_emb",
    "apply_rotary_emb_func",
    "apply_rotary_emb_kv_",
    "apply_rotary_emb_qkv_",
]
