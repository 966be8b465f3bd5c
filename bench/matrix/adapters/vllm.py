"""vLLM: get_rope and the forward_native of its module, which is torch only, served with the length asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import _ROPE_DICT, get_rope

from case import Case, Rotate
from serving import rotation_of

PACKAGE = "vllm"


def parameters(case: Case) -> dict[str, Any]:
    """rope_parameters as vLLM's model classes pass them."""
    case.known()
    if case.rope_type == "proportional":
        return dict(case.rope)
    own = {"rope_type": "deepseek_yarn"} if case.layout == "interleaved_to_half" and case.rope_type == "yarn" else {}
    return case.rope | {"partial_rotary_factor": case.rotary_dim / case.head_dim} | own


def module_of(case: Case, dtype: torch.dtype) -> Any:
    length = max(case.context, case.max_position_embeddings)
    _ROPE_DICT.clear()  # it keeps every table that was made
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = SimpleNamespace(max_model_len=length)  # type: ignore[assignment]
    with set_current_vllm_config(config):
        return get_rope(case.head_dim, length, case.layout == "half", parameters(case), dtype)


def make(case: Case, dtype: torch.dtype = torch.float32) -> Rotate:
    return rotation_of(lambda: module_of(case, dtype), case)


VARIANTS = {"": make, "table in bfloat16": lambda case: make(case, torch.bfloat16)}
