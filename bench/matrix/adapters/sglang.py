"""SGLang: get_rope and the forward_native of its module, which is torch only, served with the length asked for."""

from __future__ import annotations

import os

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"

from typing import Any

import torch
from sglang.srt.layers.rotary_embedding import factory, get_rope

from case import Case, Rotate
from serving import rotation_of

PACKAGE = "sglang"


def scaling(case: Case) -> dict[str, Any] | None:
    """rope_scaling as SGLang's model classes pass it."""
    case.known()
    if case.rope_type == "default" and "mrope_section" not in case.rope:
        return None
    if case.layout == "interleaved_to_half" and case.rope_type == "yarn":
        return case.rope | {"rope_type": "deepseek_yarn"}
    return dict(case.rope)


def module_of(case: Case) -> Any:
    length = max(case.context, case.max_position_embeddings)
    factory._ROPE_DICT.clear()  # it keeps every table that was made
    base = int(case.base)
    part = float(case.rope["partial_rotary_factor"]) if case.rope_type == "proportional" else 1.0
    return get_rope(
        case.head_dim,
        case.rotary_dim,
        length,
        base,
        case.layout == "half",
        scaling(case),
        torch.float32,
        partial_rotary_factor=part,
    )


def make(case: Case) -> Rotate:
    return rotation_of(lambda: module_of(case), case)


VARIANTS = {"": make}
