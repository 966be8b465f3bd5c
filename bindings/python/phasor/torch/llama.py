"""LLaMA's functions, under their names: precompute_freqs_cis and apply_rotary_emb.

Angles are exact: computed in float64 and rounded once, while the original multiplies in float32 (off by 0.004 rad
near position 131071).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _core
from ._common import refusal, shape_text
from ._rotate_by import rotate_by


def precompute_freqs_cis(
    dim: int,
    end: int,
    theta: float = 10000.0,
    use_scaled: bool = False,
    scale_factor: float = 8.0,
    high_freq_factor: float = 4.0,
) -> Tensor:
    """e^(i m frequency) for m = 0 .. end - 1: complex64 [end, dim / 2].

    dim is the width of a head. use_scaled stretches long wavelengths as Llama 3.1 does: scale_factor and
    high_freq_factor with the original length 8192 and the low factor 1.
    """
    scaling: dict[str, object] | None = None
    if use_scaled:
        scaling = {
            "rope_type": "llama3",
            "factor": scale_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": 8192,
        }
    spec = _core.RopeSpec(dim, base=theta, layout="interleaved", scaling=scaling)
    cos, sin = _core.cos_sin(spec, end)
    return torch.complex(torch.from_numpy(cos), torch.from_numpy(sin))


def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """Rotates queries and keys, neighbouring features as pairs; each keeps its dtype.

    xq, xk [batch, tokens, heads, head_dim]; freqs_cis complex [tokens, head_dim / 2].
    """
    if not freqs_cis.is_complex() or freqs_cis.dim() != 2:
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb: freqs_cis must be complex [tokens, head_dim / 2], got {shape_text(freqs_cis)}",
        )
    cos, sin = freqs_cis.real, freqs_cis.imag
    for name, x in (("xq", xq), ("xk", xk)):
        if x.dim() != 4 or tuple(freqs_cis.shape) != (x.shape[1], x.shape[-1] // 2):
            raise refusal(
                "shape_mismatch",
                f"apply_rotary_emb: {name} must be [batch, tokens, heads, head_dim] with the tokens and pairs of "
                f"freqs_cis {shape_text(freqs_cis)}, got {shape_text(x)}",
            )
    return rotate_by(xq, cos, sin, layout="interleaved"), rotate_by(xk, cos, sin, layout="interleaved")


__all__ = ["apply_rotary_emb", "precompute_freqs_cis"]
