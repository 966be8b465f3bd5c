"""vLLM: get_rope and the forward_native of its module, which is torch only. The table has the length it is served with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

from case import Case, Floats, Positions, Rotate

PACKAGE = "vllm"


def parameters(case: Case) -> dict[str, Any]:
    """rope_parameters as vLLM's model classes pass them."""
    case.known()
    if case.layout == "interleaved_to_half" and case.rope_type == "yarn":
        return case.rope | {"rope_type": "deepseek_yarn"}
    if case.rope_type == "proportional":
        return dict(case.rope)
    return case.rope | {"partial_rotary_factor": case.rotary_dim / case.head_dim}


def make(case: Case, dtype: torch.dtype = torch.float32) -> Rotate:
    length = max(case.context, case.max_position_embeddings)
    with set_current_vllm_config(VllmConfig()):
        module: Any = get_rope(case.head_dim, length, case.layout == "half", parameters(case), dtype)

    def rotate(x: Floats, positions: Positions) -> Floats:
        rows = torch.from_numpy(np.array(x))
        if case.layout != "interleaved_to_half":  # DeepSeek's module takes heads apart
            rows = rows.reshape(len(x), -1)
        ids = torch.from_numpy(positions)
        if "mrope_section" in case.rope:  # text: three equal rows
            ids = ids.expand(3, -1)
        with torch.no_grad():
            y, _ = module.forward_native(ids, rows.clone(), rows.clone())
        return np.asarray(y.reshape(x.shape).float())

    return rotate


VARIANTS = {"": make, "table in bfloat16": lambda case: make(case, torch.bfloat16)}
