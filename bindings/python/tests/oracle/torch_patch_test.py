"""patch(model): tiny random models of many families, patched against unpatched."""

from __future__ import annotations

import copy
from typing import Any

import phasor
import phasor.torch as pt
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 48
VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 262144,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 65536}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [1.0 + i for i in range(8)],
}
HEAD = {"head_dim": 16}
GROUPED = {**HEAD, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
LATENT = {
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "first_k_dense_replace": 2,
}
SECTIONS = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
ZAYA = {
    **HEAD,
    "layer_types": ["hybrid", "hybrid_sliding"],
    "sliding_window": 16,
    "num_experts": 4,
    "moe_intermediate_size": 32,
    "router_hidden_size": 16,
}
FALCON_H1 = {
    "mamba_d_ssm": 64,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
    "time_step_limit": [0.0, float("inf")],
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with llama3 scaling": {"rope_parameters": LLAMA3},
    "mistral": HEAD,
    "mixtral": {**HEAD, "num_local_experts": 2, "num_experts_per_tok": 1},
    "qwen2": {},
    "qwen2 with yarn": {"rope_parameters": YARN},
    "qwen3": HEAD,
    "gemma": HEAD,
    "gemma2": GROUPED,
    "gemma3_text": GROUPED,
    "phi3": {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32},
    "phi": {"partial_rotary_factor": 0.5},
    "gpt_neox": {"rotary_pct": 0.25},
    "glm": {**HEAD, "partial_rotary_factor": 0.5},
    "glm4": {**HEAD, "partial_rotary_factor": 0.5},
    "cohere": {},
    "cohere2": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16},
    "olmo2": {},
    "olmo3": {**GROUPED, "layer_types": ["sliding_attention", "sliding_attention"]},
    "stablelm": {"partial_rotary_factor": 0.25},
    "granite": {},
    "starcoder2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "ernie4_5": HEAD,
    "deepseek_v3": LATENT,
    "glm4_moe_lite": {**LATENT, "mlp_layer_types": ["dense", "sparse"]},
    "glm4_moe": {"partial_rotary_factor": 0.5, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "qwen3_5_text": {**HEAD, "layer_types": ["full_attention", "full_attention"], "rope_parameters": SECTIONS},
    "qwen3_5_text with the sections of its code": {
        **HEAD,
        "layer_types": ["full_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    # Its queries come with their features apart, and its config has an infinite number.
    "zaya": ZAYA,
    "falcon_h1": FALCON_H1,
    # A table of sin and cos.
    "gptj": {"rotary_dim": 8, "n_positions": 2048},
    "codegen": {"rotary_dim": 8, "n_positions": 2048, "n_ctx": 2048},
    "roformer": {"is_decoder": True, "max_position_embeddings": 512, "embedding_size": 64},
    "roformer with values": {
        "is_decoder": True, "max_position_embeddings": 512, "embedding_size": 64, "rotary_value": True,
    },
    "gpt_oss": {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
}


def make(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A random model whose attention looks at positions: query and key weights ten times the usual."""
    settings = {**SIZES, **FAMILIES.get(family, {}), **changes}
    config = AutoConfig.for_model(family.split(" ")[0], **settings)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("q_proj.", "k_proj.", "qkv_proj.", "query_key_value.", "q_b_proj.")):
                weight.mul_(10.0)
    return model


IDS = torch.randint(3, VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def logits(model: nn.Module, first: int = 0) -> Tensor:
    positions = torch.arange(first, first + TOKENS).expand(2, -1)
    result: Tensor = model(IDS, position_ids=positions, use_cache=False).logits
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_agree_and_unpatch_restores(family: str) -> None:
    model = make(family)
    before = logits(model)
    names = {name: type(part) for name, part in model.named_modules()}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert pt.patch(model) is model
    record = pt.patched(model)
    assert record is not None and record.rotary and len(record.attention) == 2
    after = logits(model)
    scale = float(before.abs().max())
    assert 0 < float((after - before).abs().max()) <= 3e-5 * scale or torch.equal(after, before)
    assert model.state_dict().keys() == state.keys()

    first = pt.patched(model)
    pt.patch(model)
    assert pt.patched(model) is first

    assert pt.unpatch(model) is model and pt.patched(model) is None
    assert torch.equal(logits(model), before)
    assert {name: type(part) for name, part in model.named_modules()} == names
    assert not any("forward" in part.__dict__ for part in model.modules())
    assert pt.unpatch(model) is model


def test_long_positions_differ_by_the_float32_angles() -> None:
    """Moving every token by the same distance must change nothing (RoFormer (16)); float32 angles do change it."""
    model = make("llama")
    drift = {}
    for state in ("original", "patched"):
        if state == "patched":
            pt.patch(model)
        near = logits(model)
        drift[state] = [float((logits(model, first) - near).abs().max()) for first in (4096, 131072 - TOKENS)]
    assert max(drift["patched"]) < 1e-5
    assert drift["original"][1] > 100 * drift["patched"][1]


@torch.no_grad()
def test_the_position_of_a_token_is_what_counts() -> None:
    model = make("llama")
    pt.patch(model)
    positions = torch.arange(TOKENS).expand(2, -1).clone()
    positions[1] += 1000
    rows = model(IDS[:1].expand(2, -1), position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=1e-4)
    positions[1, 10:] += 5
    moved = model(IDS[:1].expand(2, -1), position_ids=positions, use_cache=False).logits
    assert float((moved[0] - moved[1]).abs().max()) > 1e-2


def test_other_models_stay_as_they_are() -> None:
    model, other = make("llama"), make("llama")
    module = __import__(type(model).__module__, fromlist=["apply_rotary_pos_emb"])
    function, before = module.apply_rotary_pos_emb, logits(other)
    forward = type(model.model.layers[0].self_attn).forward
    pt.patch(model)
    assert module.apply_rotary_pos_emb is function
    assert type(model.model.layers[0].self_attn).forward is forward
    assert pt.patched(other) is None and torch.equal(logits(other), before)


def test_gradients_and_generation_agree() -> None:
    model = make("qwen3")
    results = []
    for _ in range(2):
        model.zero_grad()
        model(IDS, labels=IDS).loss.backward()
        gradient = model.model.layers[0].self_attn.q_proj.weight.grad.clone()
        text = model.generate(IDS[:1, :8], max_new_tokens=6, do_sample=False)
        results.append((gradient, text))
        pt.patch(model)
    scale = float(results[0][0].abs().max())
    assert float((results[0][0] - results[1][0]).abs().max()) < 1e-4 * scale
    assert torch.equal(results[0][1], results[1][1])


def test_a_patched_model_compiles_to_one_graph() -> None:
    torch._dynamo.reset()
    model = pt.patch(make("gemma3_text"))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        positions = torch.arange(TOKENS).expand(2, -1)
        torch.testing.assert_close(compiled(IDS, position_ids=positions, use_cache=False).logits, logits(model))
    graphs = torch._dynamo.explain(lambda ids: model(ids, use_cache=False).logits)(IDS).graphs
    targets = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert sum("phasor.rotate_by" in target for target in targets) == 4


def test_a_copy_is_patched_and_unpatched_alone() -> None:
    model = make("llama")
    before = logits(model)
    pt.patch(model)
    after = logits(model)
    copied = copy.deepcopy(model)
    assert torch.equal(logits(copied), after)
    pt.unpatch(copied)
    assert torch.equal(logits(copied), before) and torch.equal(logits(model), after)
    assert pt.patched(model) is not None


def test_narrow_models_keep_their_type() -> None:
    model = make("llama", dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16 and model.model.rotary_emb.inv_freq.dtype == torch.float32
    before = logits(model)
    after = logits(pt.patch(model))
    assert after.dtype == torch.bfloat16
    assert float((after - before).abs().max()) < 0.1 * float(before.abs().max())


def test_frequencies_that_a_cast_has_rounded_are_exact_again() -> None:
    model = make("llama").to(torch.bfloat16)
    assert model.model.rotary_emb.inv_freq.dtype == torch.bfloat16
    x, ids = torch.zeros(1), torch.arange(1000)[None]
    exact = (ids[0, :, None] * torch.from_numpy(phasor.RopeSpec.from_hf(model.config).frequencies()[0])).cos()
    assert float((model.model.rotary_emb(x, ids)[0][0, :, :8] - exact).abs().max()) > 0.1
    pt.patch(model)
    assert float((model.model.rotary_emb(x, ids)[0][0, :, :8] - exact).abs().max()) < 1e-7


def test_what_is_refused() -> None:
    with pytest.raises(phasor.Error, match="patch: .*Linear"):
        pt.patch(nn.Linear(2, 2))
    gpt2 = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("gpt2", n_embd=32, n_layer=1, n_head=2, vocab_size=VOCABULARY)
    )
    with pytest.raises(phasor.Error, match="GPT2LMHeadModel"):
        pt.patch(gpt2)
    table = make("gptj")
    table.transformer.h[1].attn.embed_positions.mul_(0.5)
    with pytest.raises(phasor.Error, match=r"h.1.attn \(GPTJAttention\) "):
        pt.patch(table)
    model = make("llama")
    model.model.rotary_emb.inv_freq.mul_(2.0)
    with pytest.raises(phasor.Error, match="cos and sin .*difference"):
        pt.patch(model)
    assert pt.patched(model) is None and not any("forward" in part.__dict__ for part in model.modules())
    plain = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    sections = make("qwen3_5_text")
    sections.model.rotary_emb.config = AutoConfig.for_model("llama", **SIZES, rope_parameters=plain)
    with pytest.raises(phasor.Error, match="mrope_section"):
        pt.patch(sections)
    whole = make("llama")
    pt.patch(whole.model)
    with pytest.raises(phasor.Error, match="unpatch"):
        pt.patch(whole)
