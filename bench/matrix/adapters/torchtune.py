"""torchtune: its rotary modules, which index a table of all positions."""

from __future__ import annotations

import numpy as np
import torch
from torchtune.models.llama3_1._position_embeddings import Llama3ScaledRoPE
from torchtune.models.qwen2._positional_embeddings import Qwen2RotaryPositionalEmbeddings
from torchtune.modules import RotaryPositionalEmbeddings

from case import Case, Floats, Rotate, leading
from rows import Rows, by_rows

PACKAGE = "torchtune"


def module_of(case: Case) -> torch.nn.Module:
    case.needs("default", "llama3")
    width, length, base = case.rotary_dim, case.context, case.base
    if case.rope_type == "llama3":
        rope = case.rope
        return Llama3ScaledRoPE(
            width,
            max_seq_len=length,
            base=int(base),
            scale_factor=rope["factor"],
            low_freq_factor=rope["low_freq_factor"],
            high_freq_factor=rope["high_freq_factor"],
            old_context_len=rope["original_max_position_embeddings"],
        )
    kind = Qwen2RotaryPositionalEmbeddings if case.layout == "half" else RotaryPositionalEmbeddings
    return kind(width, max_seq_len=length, base=base)


def make(case: Case) -> Rotate:
    def rotate(x: Floats, asked: Rows) -> Floats:
        module = module_of(case)
        with torch.no_grad():
            y = module(torch.from_numpy(np.array(x))[None], input_pos=asked.indices[None])
        return np.asarray(y[0])

    return leading(case, by_rows(case, rotate))


VARIANTS = {"": make}
