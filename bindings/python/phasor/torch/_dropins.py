"""One function for two originals: apply_rotary_emb of LLaMA and of flash-attn."""

from __future__ import annotations

from typing import overload

from torch import Tensor

from . import flash_attn, llama
from ._common import refusal


@overload
def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor, /) -> tuple[Tensor, Tensor]: ...
@overload
def apply_rotary_emb(xq: Tensor, xk: Tensor, *, freqs_cis: Tensor) -> tuple[Tensor, Tensor]: ...
@overload
def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor: ...


def apply_rotary_emb(*args: object, **keywords: object) -> Tensor | tuple[Tensor, Tensor]:
    """LLaMA's apply_rotary_emb(xq, xk, freqs_cis) if the third argument is complex, else flash-attn's
    apply_rotary_emb(x, cos, sin, ...); see phasor.torch.llama and phasor.torch.flash_attn."""
    third = args[2] if len(args) > 2 else keywords.get("freqs_cis", keywords.get("sin"))
    if not isinstance(third, Tensor):
        raise refusal(
            "invalid_argument",
            "apply_rotary_emb: arguments must be (xq, xk, freqs_cis) or (x, cos, sin, ...), got "
            f"{type(third).__name__} as the third argument",
        )
    chosen = llama.apply_rotary_emb if third.is_complex() or "freqs_cis" in keywords else flash_attn.apply_rotary_emb
    return chosen(*args, **keywords)  # type: ignore[operator, no-any-return, arg-type]


__all__ = ["apply_rotary_emb"]
