"""fill_cos_sin_cache() on the rotary modules of vLLM and SGLang themselves, on the CPU. It needs an environment with one
of them; without, it is skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import phasor
import phasor.torch as pt
import pytest
import torch
from torch_serving_test import LENGTH, LLAMA3

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
HEAD_DIM = 64
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
ROPES: dict[str, dict[str, Any]] = {"default": {"rope_type": "default"}, "llama3": LLAMA3, "yarn": YARN}


def vllm_module(rope: dict[str, Any], dtype: torch.dtype) -> Any:
    config = pytest.importorskip("vllm.config")
    rotary = pytest.importorskip("vllm.model_executor.layers.rotary_embedding")
    with config.set_current_vllm_config(config.VllmConfig(device_config=config.DeviceConfig(device="cpu"))):
        return rotary.get_rope(HEAD_DIM, LENGTH, True, rope | {"rope_theta": 10000.0}, dtype)


def sglang_module(rope: dict[str, Any], dtype: torch.dtype) -> Any:
    rotary = pytest.importorskip("sglang.srt.layers.rotary_embedding")
    scaling = None if rope["rope_type"] == "default" else rope
    return rotary.get_rope(HEAD_DIM, HEAD_DIM, LENGTH, 10000, True, scaling, dtype)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # as the engines load a model
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("make", [vllm_module, sglang_module])
def test_an_engines_own_module_rotates_exactly(make: Callable[..., Any], rope: str, dtype: torch.dtype) -> None:
    with default_dtype(dtype):
        module = make(ROPES[rope], dtype)
    config = {
        "model_type": "llama",
        "hidden_size": 2 * HEAD_DIM,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "max_position_embeddings": LENGTH,
        "rope_theta": 10000.0,
        "rope_scaling": None if rope == "default" else ROPES[rope],
    }
    spec = phasor.RopeSpec.from_hf(config)
    positions = np.array([0, 1, 777, 4095, LENGTH - 1])
    x = np.random.default_rng(1).standard_normal((len(positions), 1, HEAD_DIM))
    rounded = torch.from_numpy(x).to(dtype)
    want = phasor.rotate(rounded.double().numpy(), spec, positions)

    def error() -> float:
        rows = rounded.reshape(len(positions), -1)
        y, _ = module.forward_native(torch.from_numpy(positions), rows.clone(), rows.clone())
        return float(np.abs(y.double().numpy().reshape(x.shape) - want).max())

    before, table = error(), module.cos_sin_cache
    assert pt.fill_cos_sin_cache(module, config) == ["cos_sin_cache"]
    assert module.cos_sin_cache.data_ptr() == table.data_ptr() and module.cos_sin_cache.dtype == table.dtype
    # float32: a rounding of the table, and those of two products and a sum. bfloat16: the table's and the result's.
    bound = 4.0 * torch.finfo(dtype).eps * float(np.abs(x).max())
    assert error() <= bound
    if dtype == torch.float32:
        assert before > 100.0 * error()
