"""transformers, any version from 4.30: the rotary module and the function of the model that the config names."""

from __future__ import annotations

import copy
import importlib
import inspect
from types import ModuleType
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING

from case import Case, Floats, Refused, Rotate
from rows import Rows, by_rows

PACKAGE = "transformers"
READS_CONFIG = True


def config_of(case: Case) -> Any:
    members = dict(case.config)
    model_type = members.pop("model_type")
    if model_type not in CONFIG_MAPPING:
        raise Refused(f"no model type {model_type}")
    return CONFIG_MAPPING[model_type](**members)


def rotary_of(modeling: ModuleType, config: Any, case: Case) -> Any:
    """The rotary module as the model makes it."""
    kinds = [
        kind
        for name, kind in vars(modeling).items()
        if inspect.isclass(kind) and kind.__module__ == modeling.__name__
        if name.endswith("RotaryEmbedding") and "Vision" not in name
    ]
    for kind in kinds:
        if "config" in inspect.signature(kind.__init__).parameters:
            return kind(config)
    if not kinds:
        raise Refused(f"no rotary module in {modeling.__name__.rpartition('.')[2]}")
    # Before 4.43 the attention made it; one head is enough of it.
    small = copy.deepcopy(config)
    small.hidden_size = case.head_dim
    small.num_attention_heads = small.num_key_value_heads = 1
    for name, kind in vars(modeling).items():
        if inspect.isclass(kind) and name.endswith("Attention") and kind.__module__ == modeling.__name__:
            indexed = "layer_idx" in inspect.signature(kind.__init__).parameters
            return (kind(small, layer_idx=0) if indexed else kind(small)).rotary_emb
    raise Refused("no attention that makes a rotary module")


def local_config(config: Any, case: Case) -> Any:
    """The config of one kind of layers, as models with several bases make it."""
    if "layer_rope_theta" in case.config:
        config = copy.deepcopy(config)
        config.rope_parameters["rope_theta"] = case.base
    # Gemma 3 of transformers 4 keeps the base of its sliding layers under a key of its own.
    if case.layer_type == "sliding_attention" and hasattr(config, "rope_local_base_freq"):
        config = copy.deepcopy(config)
        config.rope_theta, config.rope_scaling = config.rope_local_base_freq, {"rope_type": "default"}
    return config


def tables(rotary: Any, x: torch.Tensor, asked: Rows, case: Case) -> Any:
    """cos and sin [1, tokens, width] of the module, as the model calls it."""
    names = inspect.signature(type(rotary).forward).parameters
    if "position_ids" not in names:
        cos, sin = rotary(x, seq_len=case.context)
        width = cos.shape[-1]
        return tuple(table.reshape(-1, width)[asked.indices][None] for table in (cos, sin))
    ids = asked.positions[None]
    if "mrope_section" in case.rope:  # text: three equal rows
        ids = ids[None].expand(3, 1, -1)
    if "layer_type" in names:
        return rotary(x, ids, layer_type=case.layer_type)
    return rotary(x, ids)


def required(function: Any, name: str) -> bool:
    return inspect.signature(function).parameters[name].default is inspect.Parameter.empty


def apply_of(modeling: ModuleType, config: Any, case: Case) -> Any:
    """The model's function: (x, cos, sin) -> y."""
    if getattr(config, "rope_interleave", False) and hasattr(modeling, "apply_rotary_pos_emb_interleave"):
        function = modeling.apply_rotary_pos_emb_interleave
    elif "mrope_section" in case.rope and hasattr(modeling, "apply_multimodal_rotary_pos_emb"):
        section = config.rope_scaling["mrope_section"]  # as the attention of transformers 4 reads it
        multimodal = modeling.apply_multimodal_rotary_pos_emb
        return lambda x, cos, sin: multimodal(x, x, cos, sin, section)[0]
    else:
        function = modeling.apply_rotary_pos_emb
    names = list(inspect.signature(function).parameters)
    if names[:3] == ["x", "cos", "sin"]:
        return function
    if names[0] != "q":
        raise Refused(f"apply_rotary_pos_emb takes {', '.join(names)}")
    if "position_ids" in names and "unsqueeze_dim" not in names:  # 4.30: tables of all positions
        return lambda x, cos, sin: function(x, x, cos[:, None], sin[:, None], torch.arange(x.shape[2])[None])[0]
    if names[4:5] == ["position_ids"] and required(function, "position_ids"):  # later 4.x: the same without heads
        return lambda x, cos, sin: function(x, x, cos[0], sin[0], torch.arange(x.shape[2])[None])[0]
    return lambda x, cos, sin: function(x, x, cos, sin)[0]


def gptj(modeling: ModuleType, case: Case) -> Rotate:
    """GPT-J rotates by a table of sin and cos, interleaved."""

    def rotate(x: Floats, asked: Rows) -> Floats:
        table = modeling.create_sinusoidal_positions(case.context, case.rotary_dim)[asked.indices][None]
        sin, cos = torch.split(table, case.rotary_dim // 2, dim=-1)
        y = torch.from_numpy(np.array(x))[None]
        y[..., : case.rotary_dim] = modeling.apply_rotary_pos_emb(y[..., : case.rotary_dim].clone(), sin, cos)
        return y[0].numpy()

    return by_rows(case, rotate)


def make(case: Case, dtype: torch.dtype = torch.float32) -> Rotate:
    case.known()
    config = config_of(case)
    modeling = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    if hasattr(modeling, "create_sinusoidal_positions"):
        return gptj(modeling, case)
    apply = apply_of(modeling, config, case)

    def rotate(x: Floats, asked: Rows) -> Floats:
        rotary = rotary_of(modeling, local_config(config, case), case).to(dtype)
        heads = torch.from_numpy(np.array(x)).transpose(0, 1)[None]
        with torch.no_grad():
            cos, sin = tables(rotary, heads, asked, case)
            width = case.rotary_dim if 2 * cos.shape[-1] == case.rotary_dim else cos.shape[-1]
            turned = apply(heads[..., :width].contiguous(), cos, sin)
        return np.asarray(torch.cat((turned, heads[..., width:]), -1)[0].transpose(0, 1).float())

    return by_rows(case, rotate)


VARIANTS = {"": make, "after model.to(bfloat16)": lambda case: make(case, torch.bfloat16)}
