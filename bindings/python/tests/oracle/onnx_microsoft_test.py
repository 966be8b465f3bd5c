"""The operators of ONNX Runtime: nodes of com.microsoft, run by onnxruntime and by Phasor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import phasor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx.helper  # noqa: E402

import phasor.onnx  # noqa: E402

Array = Any
BATCH, TOKENS, HEADS, KEY_HEADS, DIM = 2, 6, 4, 2, 16


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def tables(positions: int, pairs: int) -> tuple[Array, Array]:
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def node_of(op: str, inputs: dict[str, Array | None], outputs: list[str], **attributes: Any) -> Any:
    names = [name if value is not None else "" for name, value in inputs.items()]
    return onnx.helper.make_node(op, names, outputs, name="node", domain="com.microsoft", **attributes)


def check(op: str, inputs: dict[str, Array | None], outputs: list[str], **attributes: Any) -> Any:
    """Phasor's report of a model of one node."""
    given = {name: value for name, value in inputs.items() if value is not None}
    graph = onnx.helper.make_graph(
        [node_of(op, inputs, outputs, **attributes)],
        "graph",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return phasor.onnx.check(model, given, engine="onnxruntime")


def agree(op: str, inputs: dict[str, Array | None], outputs: list[str], **attributes: Any) -> None:
    report = check(op, inputs, outputs, **attributes)
    assert report.ok and report.nodes[0].op == op, f"{attributes}\n{report}"
    assert set(report.nodes[0].outputs) == {name for name in outputs if name}
    assert report.nodes[0].difference < 2e-6


def refuse(op: str, inputs: dict[str, Array | None], *values: str, **attributes: Any) -> None:
    with pytest.raises(phasor.Error) as caught:
        phasor.onnx.Backend.run_node(node_of(op, inputs, ["y"], **attributes), list(inputs.values()))
    assert all(value in str(caught.value) for value in (op, *values)), caught.value


IDS = np.array([[3, 4, 5, 6, 7, 0], [0, 1, 9, 2, 3, 19]])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("ids", [IDS, np.array([4]), np.array(4)], ids=["per token", "first", "scalar"])
def test_rotary_embedding(interleaved: int, ids: Array) -> None:
    cos, sin = tables(20, DIM // 2)
    flat = {"x": normal(BATCH, TOKENS, 3 * DIM), "ids": ids, "cos": cos, "sin": sin}
    agree("RotaryEmbedding", flat, ["y"], interleaved=interleaved)
    agree("RotaryEmbedding", flat | {"x": normal(BATCH, 3, TOKENS, DIM)}, ["y"], interleaved=interleaved)
    # Some features of a head only.
    cos, sin = tables(20, DIM // 4)
    attributes = {"interleaved": interleaved, "num_heads": 3, "rotary_embedding_dim": DIM // 2}
    partial = flat | {"cos": cos, "sin": sin}
    agree("RotaryEmbedding", partial, ["y"], **attributes)
    agree("RotaryEmbedding", partial | {"x": normal(BATCH, 3, TOKENS, DIM)}, ["y"], **attributes)


def test_rotary_embedding_in_half_precision() -> None:
    cos, sin = tables(20, DIM // 2)
    x = normal(BATCH, TOKENS, 3 * DIM).astype(np.float16)
    given = {"x": x, "ids": IDS, "cos": cos.astype(np.float16), "sin": sin.astype(np.float16)}
    assert check("RotaryEmbedding", given, ["y"]).ok


def test_rotary_embedding_refuses() -> None:
    cos, sin = tables(20, DIM // 2)
    given: dict[str, Array | None] = {"x": normal(BATCH, TOKENS, 3 * DIM), "ids": IDS, "cos": cos, "sin": sin}
    refuse("RotaryEmbedding", given, "scale", "2.0", scale=2.0)
    refuse("RotaryEmbedding", given, "is_packed_batching", "1", is_packed_batching=1)
    refuse("RotaryEmbedding", given, "num_heads", "2", num_heads=2)
    refuse("RotaryEmbedding", given, "rotary_embedding_dim", "8", rotary_embedding_dim=8)
    # onnxruntime reads a table that is too wide with the wrong stride.
    refuse("RotaryEmbedding", given, "cos_cache", "4", "8", num_heads=3, rotary_embedding_dim=8)
    refuse("RotaryEmbedding", given, "angle", angle=1)
    with pytest.raises(phasor.Error, match="20.*21"):
        phasor.onnx.Backend.run_node(
            node_of("RotaryEmbedding", given, ["y"]), list((given | {"ids": IDS + 2}).values())
        )


def multi_head(keys: int, **more: Array | None) -> dict[str, Array | None]:
    width = HEADS * DIM
    given = {"q": normal(BATCH, TOKENS, width), "k": normal(BATCH, keys, width, seed=1)}
    given["v"] = normal(BATCH, keys, width, seed=2)
    inputs: dict[str, Array | None] = given | dict.fromkeys(("bias", "padding", "added", "past_key", "past_value"))
    return inputs | more


def test_multi_head_attention() -> None:
    op, width = "MultiHeadAttention", HEADS * DIM
    agree(op, multi_head(7), ["y"], num_heads=HEADS)
    agree(op, multi_head(7), ["y"], num_heads=HEADS, scale=0.3)
    agree(op, multi_head(TOKENS), ["y"], num_heads=HEADS, unidirectional=1)
    agree(op, multi_head(7, bias=normal(3 * width)), ["y"], num_heads=HEADS)
    # Keys and values of a cross-attention: the bias of the query alone is added.
    heads_first = {name: normal(BATCH, HEADS, 7, DIM, seed=seed) for seed, name in enumerate("kv", 1)}
    agree(op, multi_head(7, **heads_first, bias=normal(3 * width)), ["y"], num_heads=HEADS)
    refuse(op, multi_head(7, **heads_first, bias=normal(5)), "bias", f"[{3 * width}]", "[5]", num_heads=HEADS)
    agree(op, multi_head(7, v=normal(BATCH, 7, HEADS * 8)), ["y"], num_heads=HEADS)
    four = {"k": normal(BATCH, HEADS, 7, DIM), "v": normal(BATCH, HEADS, 7, DIM, seed=3)}
    agree(op, multi_head(7, **four), ["y"], num_heads=HEADS)


def test_multi_head_attention_with_masks() -> None:
    op, random = "MultiHeadAttention", np.random.default_rng(4)
    rows = (random.random((BATCH, 7)) < 0.6).astype(np.int32)
    rows[:, 3] = 1
    pairs = (random.random((BATCH, TOKENS, 7)) < 0.6).astype(np.int32)
    pairs[0, 2] = 0  # sees no key: not compared
    for padding in (np.array([4, 7], np.int32), rows, pairs):
        agree(op, multi_head(7, padding=padding), ["y"], num_heads=HEADS)
        agree(op, multi_head(7, padding=padding), ["y"], num_heads=HEADS, mask_filter_value=-3.0)
        agree(op, multi_head(7, padding=padding, added=normal(1, HEADS, TOKENS, 7)), ["y"], num_heads=HEADS)
    for shape in ((1, 1), (BATCH, 1), (1, HEADS), (BATCH, HEADS)):
        agree(op, multi_head(7, added=normal(*shape, TOKENS, 7)), ["y"], num_heads=HEADS)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_past(unidirectional: int) -> None:
    past = {name: normal(BATCH, HEADS, 5, DIM, seed=at) for at, name in enumerate(("past_key", "past_value"))}
    padding = np.ones((BATCH, 5 + TOKENS), np.int32)
    padding[0, :2] = 0
    outputs = ["y", "present_key", "present_value"]
    for more in ({}, {"padding": padding}):
        given = multi_head(TOKENS, **past, **more)
        agree("MultiHeadAttention", given, outputs, num_heads=HEADS, unidirectional=unidirectional)


def test_multi_head_attention_refuses() -> None:
    op = "MultiHeadAttention"
    refuse(op, multi_head(7), "query", "64", "7", num_heads=7)
    refuse(op, multi_head(7, q=normal(BATCH, 7, HEADS, 3, DIM)), "query", "[2, 7, 4, 3, 16]", num_heads=HEADS)
    refuse(op, multi_head(7), "unidirectional", "7", num_heads=HEADS, unidirectional=1)
    refuse(op, multi_head(7, padding=np.ones(8, np.int32)), "key_padding_mask", "[8]", num_heads=HEADS)
    refuse(op, multi_head(7, added=normal(1, 1, TOKENS, 6)), "attention_bias", "[1, 1, 6, 6]", num_heads=HEADS)
    refuse(op, multi_head(7, past_key=normal(BATCH, HEADS, 5, DIM)), "past_value", num_heads=HEADS)
    shared = multi_head(7) | {"past_sequence_length": np.array([4], np.int32)}
    refuse(op, shared, "past_sequence_length", "[1]", num_heads=HEADS)
    refuse(op, multi_head(7, bias=normal(5)), "bias", "[5]", num_heads=HEADS)


def group_query(tokens: int, total: int, lengths: list[int], **more: Array | None) -> dict[str, Array | None]:
    batch = len(lengths)
    inputs: dict[str, Array | None] = {
        "q": normal(batch, tokens, HEADS * DIM),
        "k": normal(batch, tokens, KEY_HEADS * DIM, seed=1),
        "v": normal(batch, tokens, KEY_HEADS * DIM, seed=2),
        "past_key": None,
        "past_value": None,
        "seqlens_k": np.array(lengths, np.int32) - 1,
        "total": np.array([total], np.int32),
    }
    inputs |= dict.fromkeys(("cos", "sin", "ids", "added", "sink"))
    return inputs | more


def with_past(capacity: int, batch: int = BATCH) -> dict[str, Array]:
    shape = (batch, KEY_HEADS, capacity, DIM)
    return {"past_key": normal(*shape, seed=3), "past_value": normal(*shape, seed=4)}


GQA = "GroupQueryAttention"
CACHED = ["y", "present_key", "present_value"]
SIZES = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS}
ROTARY = dict(zip(("cos", "sin"), tables(40, DIM // 2)))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_group_query_attention_rotates(interleaved: int) -> None:
    attributes = SIZES | {"do_rotary": 1, "rotary_interleaved": interleaved}
    for lengths in ([6, 6], [4, 6]):  # a prompt, also padded on the right
        agree(GQA, group_query(6, 6, lengths, **ROTARY), CACHED, **attributes)
        ids = np.array([[3, 4, 5, 6, 7, 8], [10, 12, 14, 16, 18, 20]])
        agree(GQA, group_query(6, 6, lengths, ids=ids, **ROTARY), CACHED, **attributes)
    for lengths in ([6, 6], [3, 6]):  # the next token
        for capacity in (5, 11):
            given = group_query(1, 6, lengths, **ROTARY, **with_past(capacity))
            agree(GQA, given, CACHED, **attributes)
            agree(GQA, given | {"ids": np.array([[9], [2]])}, CACHED, **attributes)
    given = group_query(3, 8, [8], **ROTARY, **with_past(5, batch=1))  # some more tokens
    agree(GQA, given, CACHED, **attributes)
    agree(GQA, given | {"ids": np.array([[9, 3, 4]])}, CACHED, **attributes)


def test_group_query_attention_with_part_of_a_head_rotated() -> None:
    cos, sin = tables(40, 8)
    wide = {
        "q": normal(BATCH, 6, HEADS * 32),
        "k": normal(BATCH, 6, KEY_HEADS * 32, seed=1),
        "v": normal(BATCH, 6, KEY_HEADS * 32, seed=2),
    }
    agree(GQA, group_query(6, 6, [6, 6], **wide, cos=cos, sin=sin), CACHED, **SIZES, do_rotary=1)


def test_group_query_attention_packed() -> None:
    given = group_query(6, 6, [6, 6], **ROTARY)
    packed = np.concatenate([given[name] for name in "qkv"], axis=2)
    agree(GQA, given | {"q": packed, "k": None, "v": None}, CACHED, **SIZES, do_rotary=1)


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"scale": 0.2},
        {"softcap": 1.5},
        {"local_window_size": 2},
        {"local_window_size": 3, "softcap": 2.0},
        {"smooth_softmax": 1},
        {"causal": 0},
    ],
    ids=str,
)
def test_group_query_attention_choices(choice: dict[str, Any]) -> None:
    agree(GQA, group_query(6, 6, [6, 6]), CACHED, **SIZES, **choice)
    agree(GQA, group_query(6, 6, [4, 6]), CACHED, **SIZES, **choice)
    agree(GQA, group_query(6, 6, [6, 6], added=normal(1, 1, 6, 6)), CACHED, **SIZES, **choice)
    agree(GQA, group_query(1, 6, [3, 6], **with_past(5)), CACHED, **SIZES, **choice)
    if "smooth_softmax" not in choice:
        agree(GQA, group_query(6, 6, [6, 6], sink=normal(HEADS)), CACHED, **SIZES, **choice)


def test_group_query_attention_refuses() -> None:
    given = group_query(6, 6, [6, 6])
    refuse(GQA, given, "kv_num_heads", "4", "3", num_heads=4, kv_num_heads=3)
    refuse(GQA, given, "qk_output", "2", **SIZES, qk_output=2)
    refuse(GQA, given, "sliding_window_cache", "1", **SIZES, sliding_window_cache=1)
    refuse(GQA, given, "k_quant_type", "PER_TENSOR", **SIZES, k_quant_type="PER_TENSOR")
    refuse(GQA, given, "kv_cache_bit_width", "8", **SIZES, kv_cache_bit_width=8)
    refuse(GQA, given, "local_window_size", "0", **SIZES, local_window_size=0)
    refuse(GQA, given, "cos_cache", **SIZES, do_rotary=1)
    refuse(GQA, given | {"k": None}, "key", "value", **SIZES)
    refuse(GQA, group_query(1, 6, [6, 6]), "past_key", "6", **SIZES)
    refuse(GQA, group_query(6, 6, [6, 7]), "seqlens_k", "[5, 6]", **SIZES)
    refuse(GQA, group_query(1, 6, [6, 6], **with_past(4)), "past_key", "5", "4", **SIZES)
    refuse(GQA, given | {"sink": normal(3)}, "head_sink", "[3]", **SIZES)
    norm = given | {"k_scale": None, "v_scale": None, "q_norm_weight": normal(DIM)}
    refuse(GQA, norm, "q_norm_weight", "[16]", **SIZES)


def test_check_needs_onnxruntime_for_them() -> None:
    given = group_query(6, 6, [6, 6])
    node = node_of(GQA, given, ["y"], **SIZES)
    graph = onnx.helper.make_graph([node], "graph", [], [])
    with pytest.raises(phasor.Error, match="onnxruntime .*com.microsoft"):
        phasor.onnx.check(onnx.helper.make_model(graph), {})
