"""Phasor for PyTorch: gradients, custom ops that torch.compile keeps in one graph, and drop-ins.

rotate, rotate_qk, rotate_by, attention and linear_attention are those of phasor, with gradients; cos_sin has tensors.
phasor.torch.llama, .hf, .flash_attn and .rotary_embedding_torch have the names of each original; patch() replaces the
rotary part of a transformers model, patch_on_load() that of each one it loads. phasor.torch.parallel has attention over the ranks of torch.distributed. Tensors of
bfloat16, float16, float32 and float64: rotation on any device of torch, attention on the CPU.
"""

from __future__ import annotations

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("phasor.torch: PyTorch is missing (" + str(error) + "); run: pip install torch") from error

from . import flash_attn, hf, llama, rotary_embedding_torch
from ._attention import attention, linear_attention
from ._rotate import cos_sin, rotate, rotate_qk
from ._rotate_by import rotate_by
from ._dropins import apply_rotary_emb
from .hf import PhasorRotaryEmbedding, apply_rotary_pos_emb, rotate_half
from .llama import precompute_freqs_cis
from ._patch import patch, patched, unpatch
from ._patch_on_load import patch_on_load
from ._serving import fill_cos_sin_cache
from .rotary_embedding_torch import RotaryEmbedding

__all__ = [
    "PhasorRotaryEmbedding",
    "RotaryEmbedding",
    "apply_rotary_emb",
    "apply_rotary_pos_emb",
    "attention",
    "cos_sin",
    "fill_cos_sin_cache",
    "flash_attn",
    "hf",
    "linear_attention",
    "llama",
    "patch",
    "patch_on_load",
    "patched",
    "precompute_freqs_cis",
    "rotary_embedding_torch",
    "rotate",
    "rotate_by",
    "rotate_half",
    "rotate_qk",
    "unpatch",
]
