"""The drop-ins against the originals from PyPI: LLaMA, transformers, flash-attn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional, Tuple

import einops
import phasor
import phasor.torch as pt
import pytest
import torch
from compared import near, randn, same_gradients
from phasor.torch import flash_attn, hf, llama
from torch import Tensor
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config, Qwen2VLTextConfig
from transformers.models.cohere import modeling_cohere
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.glm import modeling_glm
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen2_vl import modeling_qwen2_vl

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


# LLaMA ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def meta(functions_of: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    names = ["apply_scaling", "precompute_freqs_cis", "reshape_for_broadcast", "apply_rotary_emb"]
    scope = {"torch": torch, "math": math, "Tuple": Tuple, "Optional": Optional}
    return functions_of("llama_models/llama3/model.py", names, scope)


@pytest.mark.parametrize("use_scaled", [False, True])
def test_llama_tables(meta: dict[str, Any], use_scaled: bool) -> None:
    ours = pt.precompute_freqs_cis(128, 4096, 500000.0, use_scaled)
    theirs = meta["precompute_freqs_cis"](128, 4096, 500000.0, use_scaled)
    assert ours.dtype == torch.complex64 and ours.shape == (4096, 64)
    assert float((ours[:64] - theirs[:64]).abs().max()) < 1e-5
    # Ours is the rounded truth; the original's angles carry a rounding of half a step at each position.
    spec = phasor.RopeSpec(128, base=500000.0, layout="interleaved")
    if not use_scaled:
        exact = torch.arange(4096, dtype=torch.float64)[:, None] * torch.from_numpy(spec.frequencies()[0])
        assert float((ours.to(torch.complex128) - torch.polar(torch.ones_like(exact), exact)).abs().max()) < 1e-7
        assert float((theirs.to(torch.complex128) - torch.polar(torch.ones_like(exact), exact)).abs().max()) > 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
def test_llama_rotation(meta: dict[str, Any], dtype: torch.dtype) -> None:
    q, k = randn(2, 9, 4, 16, dtype=dtype), randn(2, 9, 2, 16, seed=1, dtype=dtype)
    table = llama.precompute_freqs_cis(16, 20)[3:12]
    for apply in (llama.apply_rotary_emb, pt.apply_rotary_emb):
        for ours, theirs in zip(apply(q, k, table), meta["apply_rotary_emb"](q, k, table), strict=True):
            near(ours, theirs)
    named = pt.apply_rotary_emb(q, k, freqs_cis=table)
    assert torch.equal(named[0], llama.apply_rotary_emb(q, k, table)[0])
    if dtype == torch.float32:
        same_gradients(
            lambda q, k: pt.apply_rotary_emb(q, k, table), lambda q, k: meta["apply_rotary_emb"](q, k, table), q, k
        )


def test_llama4_takes_its_factors(functions_of: Callable[..., dict[str, Any]]) -> None:
    names = ["apply_scaling", "precompute_freqs_cis"]
    theirs = functions_of("llama_models/llama4/model.py", names, {"torch": torch, "math": math})
    arguments = (128, 32, 500000.0, True, 16.0, 2.0)
    ours = llama.precompute_freqs_cis(*arguments)
    assert float((ours - theirs["precompute_freqs_cis"](*arguments)).abs().max()) < 1e-5


def test_llama_refuses_another_table() -> None:
    q = randn(1, 4, 2, 8)
    with pytest.raises(phasor.Error, match="xq "):
        llama.apply_rotary_emb(q, q, llama.precompute_freqs_cis(8, 5))
    with pytest.raises(phasor.Error, match="freqs_cis "):
        llama.apply_rotary_emb(q, q, randn(4, 4))


# transformers -----------------------------------------------------------------------------------------------------


def tables(
    tokens: int, dim: int, *, repeated: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    angles = torch.arange(tokens)[None, :, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    wide = angles.repeat_interleave(2, -1) if repeated else torch.cat((angles, angles), -1)
    return wide.cos().to(dtype), wide.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unsqueeze_dim", [1, 2])
def test_hf_rotation(dtype: torch.dtype, unsqueeze_dim: int) -> None:
    q, k = randn(2, 4, 7, 16, dtype=dtype), randn(2, 2, 7, 16, seed=1, dtype=dtype)
    if unsqueeze_dim == 2:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    cos, sin = tables(7, 16, dtype=dtype)
    near(hf.rotate_half(q), modeling_llama.rotate_half(q), 0)
    theirs = modeling_llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)
    for rest in ((unsqueeze_dim,), (None, unsqueeze_dim)):
        for a, b in zip(pt.apply_rotary_pos_emb(q, k, cos, sin, *rest), theirs, strict=True):
            near(a, b, 8)  # the original rounds three times in the narrow type
    if dtype == torch.float32:
        same_gradients(
            lambda q, k: hf.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim),
            lambda q, k: modeling_llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim),
            q,
            k,
        )


def test_hf_forms_of_other_files() -> None:
    q, k = randn(1, 4, 7, 16), randn(1, 2, 7, 16, seed=1)
    narrow, full, repeated = tables(7, 8), tables(7, 16), tables(7, 16, repeated=True)
    cases: list[tuple[Any, tuple[Tensor, Tensor], dict[str, Any]]] = [
        (modeling_phi3.apply_rotary_pos_emb, narrow, {}),
        (modeling_glm.apply_rotary_pos_emb, narrow, {"layout": "interleaved"}),
        (modeling_cohere.apply_rotary_pos_emb, repeated, {"layout": "interleaved", "form": "repeated"}),
        (modeling_deepseek_v3.apply_rotary_pos_emb_interleave, full, {"layout": "interleaved_to_half"}),
    ]
    for original, (cos, sin), choices in cases:
        ours = hf.apply_rotary_pos_emb(q, k, cos, sin, **choices)
        for a, b in zip(ours, original(q, k, cos, sin), strict=True):
            near(a, b)


def test_hf_tables_by_position_ids_as_in_older_versions() -> None:
    q, k = randn(2, 4, 3, 16), randn(2, 4, 3, 16, seed=1)
    cos, sin = (table[0] for table in tables(20, 16))
    ids = torch.tensor([[0, 1, 2], [9, 10, 11]])
    expected = modeling_llama.apply_rotary_pos_emb(q, k, cos[ids], sin[ids])
    for form in ((cos, sin), (cos[None, None], sin[None, None])):
        for a, b in zip(hf.apply_rotary_pos_emb(q, k, *form, ids), expected, strict=True):
            near(a, b)


def llama_config(**rope: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": 10000.0, **rope},
    )


def same_tables(config: Any, original: torch.nn.Module, ids: Tensor, bound: float = 2e-5) -> None:
    ours = hf.PhasorRotaryEmbedding(config)
    for dtype in (torch.float32, torch.bfloat16):
        for a, b in zip(
            ours(torch.zeros(1, dtype=dtype), ids), original(torch.zeros(1, dtype=dtype), ids), strict=True
        ):
            assert a.dtype == b.dtype == dtype and a.shape == b.shape
            torch.testing.assert_close(a, b, rtol=0, atol=bound if dtype == torch.float32 else 0.01)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_hf_module(rope: dict[str, Any]) -> None:
    config = llama_config(**rope)
    same_tables(config, modeling_llama.LlamaRotaryEmbedding(config), torch.arange(40).reshape(2, 20))


def test_hf_module_grows_and_falls_back_with_dynamic_scaling() -> None:
    config = llama_config(rope_type="dynamic", factor=2.0)
    ours, theirs = hf.PhasorRotaryEmbedding(config), modeling_llama.LlamaRotaryEmbedding(config)
    x = torch.zeros(1)
    for length in (10, 64, 65, 200, 100, 64, 63, 70, 5):
        ids = torch.arange(length)[None]
        for a, b in zip(ours(x, ids), theirs(x, ids), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-4)
    assert not ours.state_dict()


def test_hf_module_switches_lists_with_longrope() -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0 + i for i in range(8)]}
    config = Phi3Config(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=128,
        original_max_position_embeddings=32,
        pad_token_id=0,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors},
    )
    theirs = modeling_phi3.Phi3RotaryEmbedding(config)
    for length in (10, 32, 33, 100, 8):
        same_tables(config, theirs, torch.arange(length)[None])


def test_hf_module_reads_three_rows_of_positions() -> None:
    config = Qwen2VLTextConfig(
        hidden_size=64,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
    )
    theirs = modeling_qwen2_vl.Qwen2VLRotaryEmbedding(config)
    ids = torch.stack([torch.arange(10).reshape(2, 5) * scale for scale in (1, 2, 3)])
    same_tables(config, theirs, ids)
    same_tables(config, theirs, torch.arange(5)[None].expand(3, 1, 5))


def test_hf_module_has_frequencies_and_scaling_to_read() -> None:
    yarn = llama_config(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
    dynamic = llama_config(rope_type="dynamic", factor=2.0)
    for config in (llama_config(rope_type="default"), yarn, dynamic):
        ours, theirs = hf.PhasorRotaryEmbedding(config), modeling_llama.LlamaRotaryEmbedding(config)
        for module in (ours, theirs):
            module(torch.zeros(1), torch.arange(80)[None])
        torch.testing.assert_close(ours.inv_freq, theirs.inv_freq)
        assert ours.attention_scaling == pytest.approx(theirs.attention_scaling) and not ours.state_dict()
    config = Gemma3TextConfig(num_hidden_layers=6)
    ours, theirs = hf.PhasorRotaryEmbedding(config), modeling_gemma3.Gemma3RotaryEmbedding(config)
    for name in ("full_attention_inv_freq", "sliding_attention_inv_freq"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    assert ours.full_attention_attention_scaling == 1.0 and not hasattr(ours, "inv_freq")


def test_hf_module_is_exact_at_long_positions() -> None:
    config = llama_config(rope_type="default")
    ids = torch.tensor([[131071]])
    exact = 131071 * torch.from_numpy(phasor.RopeSpec.from_hf(config).frequencies()[0])
    errors = [
        float((module(torch.zeros(1), ids)[0][0, 0, :8].double() - exact.cos()).abs().max())
        for module in (hf.PhasorRotaryEmbedding(config), modeling_llama.LlamaRotaryEmbedding(config))
    ]
    assert errors[0] < 1e-7
    assert errors[1] > 1e-4


# flash-attn -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flash(functions_of: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    scope = {"torch": torch, "rearrange": einops.rearrange, "repeat": einops.repeat}
    return functions_of("flash_attn/layers/rotary.py", ["rotate_half", "apply_rotary_emb_torch"], scope)


def rows(count: int, pairs: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    angles = randn(count, pairs, seed=5)
    return angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_flash_attn_rotation(flash: dict[str, Any], interleaved: bool, dtype: torch.dtype) -> None:
    original = flash["apply_rotary_emb_torch"]
    x = randn(3, 6, 2, 16, dtype=dtype)
    cos, sin = rows(20, 6, dtype)
    expected = original(x, cos[4:10], sin[4:10], interleaved)
    near(pt.apply_rotary_emb(x, cos, sin, interleaved, False, 4), expected, 8)
    starts = torch.tensor([0, 14, 3])
    batches = [
        original(x[b : b + 1], cos[s : s + 6], sin[s : s + 6], interleaved) for b, s in enumerate(starts.tolist())
    ]
    ours = flash_attn.apply_rotary_emb(x, cos, sin, interleaved=interleaved, seqlen_offsets=starts.to(torch.int32))
    near(ours, torch.cat(batches), 8)
    written = x.clone()
    assert flash_attn.apply_rotary_emb(written, cos, sin, interleaved, inplace=True, seqlen_offsets=4) is written
    near(written, expected, 8)


def test_flash_attn_packed(flash: dict[str, Any]) -> None:
    x, ends = randn(11, 2, 16), [0, 4, 4, 11]
    cos, sin = rows(12, 8)
    for offsets in (0, torch.tensor([2, 0, 5])):
        starts = [offsets] * 3 if isinstance(offsets, int) else offsets.tolist()
        parts = [
            flash["apply_rotary_emb_torch"](x[a:b][None], cos[s : s + b - a], sin[s : s + b - a])[0]
            for a, b, s in zip(ends, ends[1:], starts)
        ]
        ours = flash_attn.apply_rotary_emb(
            x, cos, sin, seqlen_offsets=offsets, cu_seqlens=torch.tensor(ends, dtype=torch.int32), max_seqlen=7
        )
        near(ours, torch.cat(parts))


def test_flash_attn_gradients(flash: dict[str, Any]) -> None:
    x = randn(2, 5, 3, 8)
    cos, sin = rows(5, 4)
    same_gradients(flash_attn.apply_rotary_emb, flash["apply_rotary_emb_torch"], x, cos, sin)

    def in_place(x: Tensor) -> Tensor:
        return flash_attn.apply_rotary_emb(x * 1.0, cos, sin, inplace=True)

    same_gradients(in_place, lambda x: flash["apply_rotary_emb_torch"](x, cos, sin), x)


def test_flash_attn_qkv_and_kv(flash: dict[str, Any]) -> None:
    original = flash["apply_rotary_emb_torch"]
    (cos, sin), (cos_k, sin_k) = rows(5, 4), (2 * part for part in rows(5, 4))
    qkv = randn(2, 5, 3, 2, 8)
    expected = torch.stack(
        (original(qkv[:, :, 0], cos, sin), original(qkv[:, :, 1], cos_k, sin_k), qkv[:, :, 2]), dim=2
    )
    ours = qkv.clone()
    assert flash_attn.apply_rotary_emb_qkv_(ours, cos, sin, cos_k, sin_k) is ours
    near(ours, expected)
    grouped = randn(2, 5, 4 + 2 * 1, 8)
    rotated = flash_attn.apply_rotary_emb_qkv_(grouped.clone(), cos, sin, interleaved=True, num_heads_q=4)
    near(rotated, torch.cat((original(grouped[:, :, :5], cos, sin, True), grouped[:, :, 5:]), dim=2))
    kv = randn(2, 5, 2, 2, 8)
    near(
        flash_attn.apply_rotary_emb_kv_(kv.clone(), cos, sin),
        torch.stack((original(kv[:, :, 0], cos, sin), kv[:, :, 1]), dim=2),
    )
    same_gradients(
        lambda qkv: flash_attn.apply_rotary_emb_qkv_(qkv * 1.0, cos, sin),
        lambda qkv: torch.stack((original(qkv[:, :, 0], cos, sin), original(qkv[:, :, 1], cos, sin), qkv[:, :, 2]), 2),
        qkv,
    )


def test_flash_attn_refusals() -> None:
    x = randn(2, 5, 3, 8)
    cos, sin = rows(6, 4)
    with pytest.raises(phasor.Error, match="6 rows .*2 .. 6"):
        flash_attn.apply_rotary_emb(x, cos, sin, seqlen_offsets=2)
    with pytest.raises(phasor.Error, match="6 rows .*0 .. 7"):
        flash_attn.apply_rotary_emb(x, cos, sin, seqlen_offsets=torch.tensor([0, 3]))
    with pytest.raises(phasor.Error, match="cu_seqlens .*5 tokens"):
        flash_attn.apply_rotary_emb(x[0], cos, sin, cu_seqlens=torch.tensor([0, 4]), max_seqlen=5)
    with pytest.raises(phasor.Error, match="max_seqlen"):
        flash_attn.apply_rotary_emb(x[0], cos, sin, cu_seqlens=torch.tensor([0, 5]))
    with pytest.raises(phasor.Error, match="third argument"):
        pt.apply_rotary_emb(x, cos)  # type: ignore[call-overload]
