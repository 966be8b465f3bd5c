"""Models of transformers that do not rotate: tables, buckets and slopes as explain() says, against the weights of the models."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import phasor
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.utils import logging

logging.set_verbosity_error()

# Names of tables of absolute positions, and what may stand in their names without being one.
ABSOLUTE = re.compile(r"(position_embeddings?|wpe|embed_positions|pos_emb(ed)?|positions_embed|pos_encoding)(\.weights?)?$")
NOT_TEXT = re.compile(r"(x|y|h|w|box|row|col|query|visual|mid|shared_image)_?pos")
# Of the model types below, those whose weights have such a table, or another that is compared.
COMPARED = 55

TABLES = [
    "albert", "aimv2_vision_model", "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt", "blenderbot",
    "blenderbot-small", "camembert", "chinese_clip_vision_model", "clip_text_model", "clip_vision_model", "convbert", "ctrl",
    "data2vec-text", "decision_transformer", "deit", "dinov2", "dinov2_with_registers", "distilbert", "dpt", "electra", "ernie", "flaubert",
    "fnet", "fsmt", "gpt2", "gpt_bigcode", "gpt_neo", "ibert", "idefics3_vision", "ijepa", "imagegpt", "internvl_vision", "led",
    "longformer", "lxmert", "m2m_100", "marian", "markuplm", "mbart", "megatron-bert", "mobilebert", "mra", "mvp", "nllb-moe",
    "nystromformer", "openai-gpt", "opt", "pegasus", "plbart", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "siglip_vision_model",
    "smolvlm_vision", "speech_to_text", "splinter", "squeezebert", "tapas", "timesformer", "vit", "vit_mae", "vit_msn", "voxtral_encoder",
    "whisper", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod", "yoso",
]  # fmt: skip


@cache
def answer(model_type: str) -> dict[str, Any]:
    return phasor.explain({**CONFIG_MAPPING[model_type]().to_dict(), "model_type": model_type})


def encodings(model_type: str) -> Iterator[dict[str, Any]]:
    for layer in answer(model_type)["layers"]:
        yield from layer["positions"]


def weights(model_type: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        model = AutoModel.from_config(CONFIG_MAPPING[model_type]())
    return {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def rows_of(model_type: str) -> set[int]:
    found = set()
    for name, shape in weights(model_type).items():
        if ABSOLUTE.search(name) and not NOT_TEXT.search(name) and len(shape) > 1:
            found.add(shape[-2])
    return found


def test_tables_have_the_rows_of_the_weights() -> None:
    wrong, compared = {}, 0
    for model_type in TABLES:
        rows = rows_of(model_type)
        if not rows:
            continue
        said = set()
        for encoding in encodings(model_type):
            numbers = encoding["parameters"]
            if encoding["encoding"] == "learned_absolute":
                said.add(numbers["rows"])
            elif encoding["encoding"] == "sinusoidal":
                # Fairseq's tables have two rows more than positions.
                said |= {numbers["positions"], numbers["positions"] + 2}
        compared += 1
        if not rows <= said:
            wrong[model_type] = (rows, said)
    assert wrong == {}
    assert compared >= COMPARED


@pytest.mark.parametrize("model_type", ["t5", "mt5", "umt5", "longt5", "switch_transformers", "mpnet", "wavlm"])
def test_buckets_have_the_shape_of_the_weights(model_type: str) -> None:
    shapes = {shape for name, shape in weights(model_type).items() if re.search(r"relative_attention_bias\.weight$|rel_attn_embed", name)}
    biases = [encoding["parameters"] for encoding in encodings(model_type) if encoding["encoding"] == "t5"]
    assert biases
    assert shapes == {(bias["buckets"], bias["heads"]) for bias in biases}
    layers = sum(len(layer["layers"]) for layer in answer(model_type)["layers"])
    tables = sum(bool(re.search(r"relative_attention_bias\.weight$|rel_attn_embed", name)) for name in weights(model_type))
    assert (tables == layers) == (biases[0]["table"] == "one per layer")


@pytest.mark.parametrize(("heads", "max_bias"), [(8, 8), (12, 8), (112, 8), (40, 16)])
def test_slopes_are_those_of_the_models(heads: int, max_bias: int) -> None:
    def slopes(config: dict[str, Any]) -> list[float]:
        return phasor.explain(config)["layers"][0]["positions"][0]["parameters"]["slopes"]

    if max_bias == 8:
        want = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        assert slopes({"model_type": "bloom", "n_head": heads, "n_layer": 1}) == pytest.approx(want.tolist(), rel=1e-6)
    want = build_mpt_alibi_tensor(heads, 2, alibi_bias_max=max_bias)[:, 0, 0]
    ours = slopes({"model_type": "mpt", "n_heads": heads, "n_layers": 1, "attn_config": {"alibi_bias_max": max_bias}})
    assert ours == pytest.approx((-want).tolist(), rel=1e-6)


def test_relative_rows_have_the_shape_of_the_weights() -> None:
    config = CONFIG_MAPPING["deberta-v2"](relative_attention=True, position_buckets=256, pos_att_type=["c2p", "p2c"], num_hidden_layers=1)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    rows = next(p.shape[0] for name, p in model.named_parameters() if name.endswith("rel_embeddings.weight"))
    layer = phasor.explain(config.to_dict())["layers"][0]
    assert layer["positions"][0]["parameters"]["rows"] == rows
    assert layer["softmax_scale"] == pytest.approx(1 / math.sqrt(3 * layer["head_dim"]))
    swin = next(shape[0] for name, shape in weights("swin").items() if name.endswith("relative_position_bias_table"))
    assert next(encodings("swin"))["parameters"]["rows"] == swin
    beit = CONFIG_MAPPING["beit"](use_relative_position_bias=True, num_hidden_layers=1)
    with torch.device("meta"):
        table = next(p for name, p in AutoModel.from_config(beit).named_parameters() if name.endswith("bias_table"))
    assert phasor.explain(beit.to_dict())["layers"][0]["positions"][0]["parameters"]["rows"] == table.shape[0]
