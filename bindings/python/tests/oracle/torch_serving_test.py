"""fill_cos_sin_cache(): modules that keep their tables as those of vLLM and SGLang do, [positions, cos | sin]."""

from __future__ import annotations

from typing import Any

import numpy as np
import phasor
import phasor.torch as pt
import pytest
import torch
from torch import Tensor, nn

PAIRS = 8
LENGTH = 140_000
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": LENGTH,
    "rope_theta": 10000.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def float32_table(spec: phasor.RopeSpec, length: int, context: int | None = None) -> Tensor:
    """cos | sin by angles of float32, as the engines compute them."""
    frequencies, amplitude = spec.frequencies(context)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
    return torch.from_numpy(np.concatenate((np.cos(angles), np.sin(angles)), -1) * np.float32(amplitude))


class Rotary(nn.Module):
    """The buffer of the engines, not their code."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("cos_sin_cache", table, persistent=False)


def model_of(*rotary: nn.Module) -> nn.Module:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Module() for _ in rotary])
    for layer, part in zip(model.layers, rotary, strict=True):
        layer.rotary_emb = part
    return model


def check(table: Tensor, spec: phasor.RopeSpec, context: int | None = None) -> None:
    frequencies, amplitude = spec.frequencies(context)
    angles = np.arange(len(table))[:, None] * frequencies
    exact = torch.from_numpy(np.concatenate((np.cos(angles), np.sin(angles)), -1) * amplitude)
    half_unit = torch.finfo(table.dtype).eps / (4 if amplitude <= 1.0 else 2)
    assert float((table.double() - exact).abs().max()) <= 1.01 * half_unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scaling", [None, LLAMA3, {"rope_type": "dynamic", "factor": 2.0}])
def test_tables_become_exact_in_place(dtype: torch.dtype, scaling: dict[str, Any] | None) -> None:
    config = {**CONFIG, "rope_scaling": scaling}
    if scaling is not None and scaling["rope_type"] == "dynamic":
        config["max_position_embeddings"] = 4096
    spec = phasor.RopeSpec.from_hf(config)
    context = LENGTH if spec.depends_on_context else None
    shared = Rotary(float32_table(spec, LENGTH, context).to(dtype))
    storage = shared.cos_sin_cache.data_ptr()
    with pytest.raises(AssertionError):
        check(shared.cos_sin_cache, spec, context)
    names = pt.fill_cos_sin_cache(model_of(shared, Rotary(shared.cos_sin_cache)), config)
    assert names == ["layers.0.rotary_emb.cos_sin_cache", "layers.1.rotary_emb.cos_sin_cache"]
    assert shared.cos_sin_cache.data_ptr() == storage and shared.cos_sin_cache.dtype == dtype
    check(shared.cos_sin_cache, spec, context)


def test_layers_that_differ_get_each_their_own() -> None:
    kinds = {"sliding_attention": 10000.0, "full_attention": 1e6}
    config = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "max_position_embeddings": LENGTH,
        "layer_types": list(kinds),
        "rope_parameters": {name: {"rope_type": "default", "rope_theta": base} for name, base in kinds.items()},
    }
    specs = [phasor.RopeSpec.from_hf(config, name) for name in kinds]
    model = model_of(*(Rotary(float32_table(spec, 4096).to(torch.bfloat16)) for spec in specs))
    pt.fill_cos_sin_cache(model, config)
    for layer, spec in zip(model.layers, specs, strict=True):
        check(layer.rotary_emb.cos_sin_cache, spec)


def test_longrope_has_two_lists_in_one_table() -> None:
    trained = 4096
    scaling = {"rope_type": "longrope", "short_factor": [1.0] * PAIRS, "long_factor": [1.0 + i for i in range(PAIRS)]}
    config = {**CONFIG, "model_type": "phi3", "rope_scaling": scaling, "original_max_position_embeddings": trained}
    spec = phasor.RopeSpec.from_hf(config)
    tables = float32_table(spec, trained, trained), float32_table(spec, LENGTH, trained + 1)
    part = nn.Module()
    part.original_max_position_embeddings = trained
    part.register_buffer("long_short_cos_sin_cache", torch.cat(tables), persistent=False)
    assert len(pt.fill_cos_sin_cache(part, config)) == 2
    check(part.long_short_cos_sin_cache[:trained], spec, trained)
    check(part.long_short_cos_sin_cache[trained:], spec, trained + 1)


def test_rows_of_mrope_are_those_of_one_axis() -> None:
    scaling = {"rope_type": "default", "mrope_section": [4, 2, 2]}
    config = {**CONFIG, "model_type": "qwen2_vl", "rope_scaling": scaling}
    spec = phasor.RopeSpec.from_hf(config)
    assert spec.axes == 3
    part = Rotary(float32_table(spec, LENGTH))
    pt.fill_cos_sin_cache(part, config)
    check(part.cos_sin_cache, spec)


def test_what_is_refused() -> None:
    spec = phasor.RopeSpec.from_hf(CONFIG)
    with pytest.raises(phasor.Error, match="Linear has no buffer cos_sin_cache"):
        pt.fill_cos_sin_cache(nn.Linear(2, 2), CONFIG)
    good, other = Rotary(float32_table(spec, 2048)), Rotary(float32_table(spec.replace(base=500000.0), 2048).bfloat16())
    before = good.cos_sin_cache.clone()
    with pytest.raises(phasor.Error, match="layers.1.rotary_emb.cos_sin_cache .*difference"):
        pt.fill_cos_sin_cache(model_of(good, other), CONFIG)
    assert torch.equal(good.cos_sin_cache, before)
    with pytest.raises(phasor.Error, match="2048, 12"):
        pt.fill_cos_sin_cache(Rotary(torch.zeros(2048, 12)), CONFIG)
    with pytest.raises(phasor.Error, match="meta"):
        pt.fill_cos_sin_cache(Rotary(torch.zeros(2048, 16, device="meta")), CONFIG)
