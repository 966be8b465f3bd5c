"""ONNX's own node tests for RotaryEmbedding and Attention, run through phasor.onnx.Backend; and phasor.onnx.check."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import phasor

onnx = pytest.importorskip("onnx")

import onnx.backend.test.loader  # noqa: E402
import onnx.backend.test.runner  # noqa: E402
import onnx.helper  # noqa: E402
import onnx.numpy_helper  # noqa: E402
from onnx import TensorProto  # noqa: E402

import phasor.onnx  # noqa: E402

# Tests that the backend refuses, each with the reason: none.
UNSUPPORTED: dict[str, str] = {}


def node_tests() -> list[Any]:
    """Those whose model is one of our nodes; the "_expanded" ones spell the same node out in smaller operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx makes the inputs of all its operators here
        cases = onnx.backend.test.loader.load_model_tests(kind="node")
    ours = re.compile(r"test_(rotary_embedding|attention)(_|$)")
    return [case for case in cases if ours.match(case.name) and not case.name.endswith("_expanded")]


CASES = node_tests()


def test_there_are_tests_of_both_operators() -> None:
    operators = [case.model.graph.node[0].op_type for case in CASES]
    assert operators.count("RotaryEmbedding") >= 8 and operators.count("Attention") >= 60
    assert UNSUPPORTED.keys() <= {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node(case: Any) -> None:
    if case.name in UNSUPPORTED:
        with pytest.raises(phasor.Error):
            phasor.onnx.Backend.prepare(case.model)
        return
    prepared = phasor.onnx.Backend.prepare(case.model)
    for inputs, expected in case.data_sets:
        outputs = prepared.run(inputs)
        # The comparison and the tolerances are ONNX's.
        onnx.backend.test.runner.Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol)


def random_attention(random: np.random.Generator) -> tuple[Any, list[Any]]:
    """An Attention-25 node with a random choice of everything it has, and inputs for it."""
    batch, key_heads, group, dim, value_dim = (int(random.integers(1, 4)) for _ in range(5))
    queries, fresh = (int(random.integers(1, 7)) for _ in range(2))
    heads, kind = key_heads * group, random.choice(["plain", "past", "lengths"])
    past = int(random.integers(1, 5)) if kind == "past" else 0
    dtype: type[np.floating[Any]] = np.float32 if random.random() < 0.5 else np.float64
    flat = random.random() < 0.3

    def tensor(heads: int, tokens: int, dim: int, *, flat: bool = flat) -> Any:
        shape = (batch, tokens, heads * dim) if flat else (batch, heads, tokens, dim)
        return random.standard_normal(shape).astype(dtype)

    keys = past + fresh
    inputs: list[Any] = [
        tensor(heads, queries, dim),
        tensor(key_heads, fresh, dim),
        tensor(key_heads, fresh, value_dim),
    ]
    mask_shape = [(queries, keys), (heads, queries, keys), (batch, 1, queries, keys)][random.integers(3)]
    # Phasor keeps additive masks in float32: such values, whatever the type.
    masks = [None, random.random(mask_shape) < 0.7, random.standard_normal(mask_shape, dtype=np.float32).astype(dtype)]
    inputs.append(masks[random.integers(3)])
    inputs += (
        [tensor(key_heads, past, dim, flat=False), tensor(key_heads, past, value_dim, flat=False)]
        if past
        else [None] * 2
    )
    inputs.append(random.integers(1, keys + 1, batch) if kind == "lengths" else None)
    attributes: dict[str, Any] = {
        "is_causal": int(random.integers(2)),
        "left_window_size": int(random.integers(-1, 4)),
        "right_window_size": int(random.integers(-1, 4)),
        "qk_matmul_output_mode": int(random.choice([2, 3])),
    }
    attributes |= {"q_num_heads": heads, "kv_num_heads": key_heads} if flat else {}
    # A square: the reference takes its root in float32.
    attributes |= {"scale": 0.25} if random.random() < 0.5 else {}
    attributes |= {"softcap": 2.0} if random.random() < 0.5 else {}
    names = ["q", "k", "v", "mask", "past_key", "past_value", "lengths"]
    node = onnx.helper.make_node(
        "Attention",
        [name if value is not None else "" for name, value in zip(names, inputs, strict=True)],
        ["y", *(["present_key", "present_value"] if past else ["", ""]), "scores"],
        **attributes,
    )
    return node, inputs


def test_random_nodes_agree_with_the_reference() -> None:
    for seed in range(120):
        node, inputs = random_attention(np.random.default_rng(seed))
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if value is not None}
        values = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), None)
            for name, value in feeds.items()
        ]
        outputs = [
            onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name
        ]
        graph = onnx.helper.make_graph([node], "node", values, outputs)
        report = phasor.onnx.check(
            onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)]), feeds
        )
        assert report.ok, f"seed {seed}: {node}\n{report}"


def rotary_then_attention() -> Any:
    """x -> RotaryEmbedding -> Attention with itself, [1, 2 heads, 5, 8], cos and sin as initialisers."""
    angles = np.arange(5)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    tables = [
        onnx.numpy_helper.from_array(table.astype(np.float32), name)
        for table, name in ((np.cos(angles), "cos"), (np.sin(angles), "sin"))
    ]
    nodes = [
        onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["rotated"], name="rotary"),
        onnx.helper.make_node("Mul", ["rotated", "two"], ["doubled"]),
        onnx.helper.make_node("Attention", ["doubled", "rotated", "x"], ["y"], name="attention", is_causal=1),
    ]
    two = onnx.numpy_helper.from_array(np.array([2], dtype=np.float32), "two")
    graph = onnx.helper.make_graph(
        nodes,
        "layer",
        [
            onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 8]),
            onnx.helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5]),
        ],
        [onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 5, 8])],
        [*tables, two],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11)


def layer_inputs() -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 8), dtype=np.float32)
    return {"x": x, "ids": np.arange(5)[None]}


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
def test_check_finds_both_nodes_and_they_agree(engine: Any, tmp_path: Any) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model = rotary_then_attention()
    report = phasor.onnx.check(model, layer_inputs(), engine=engine)
    assert report.ok and [(node.name, node.op) for node in report] == [
        ("rotary", "RotaryEmbedding"),
        ("attention", "Attention"),
    ]
    assert all(node.difference < 1e-6 < node.tolerance for node in report)
    assert f"2 of 2 nodes agree with {engine}" in str(report) and "rotary" in str(report)
    path = tmp_path / "layer.onnx"
    onnx.save(model, path)
    assert phasor.onnx.check(path, layer_inputs(), engine=engine) == report


def test_check_tells_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    report = phasor.onnx.check(rotary_then_attention(), layer_inputs(), tolerance=0.0)
    # Rounded differently by the two: a tolerance of nothing is passed.
    assert not report.ok and "DIFFERS" in str(report)
    monkeypatch.setattr("phasor.onnx.rotating._core.rotate_by", lambda x, cos, sin, *, layout: x)
    broken = phasor.onnx.check(rotary_then_attention(), layer_inputs())
    assert [node.agrees for node in broken] == [False, True] and broken.nodes[0].difference > 0.1


def test_check_and_backend_refuse() -> None:
    relu = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "relu",
            [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        )
    )
    with pytest.raises(phasor.Error, match="RotaryEmbedding, ai.onnx.Attention"):
        phasor.onnx.check(relu, {"x": np.zeros(2, np.float32)})
    with pytest.raises(phasor.Error, match="Relu"):
        phasor.onnx.Backend.prepare(relu)
    with pytest.raises(phasor.Error, match="ids"):
        phasor.onnx.check(rotary_then_attention(), {"x": np.zeros((1, 2, 5, 8), np.float32)})
    with pytest.raises(phasor.Error, match="engine .*mlx"):
        phasor.onnx.check(rotary_then_attention(), layer_inputs(), engine="mlx")  # type: ignore[arg-type]
    with pytest.raises(phasor.Error, match="position_ids "):
        node = onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"])
        x, cos = np.zeros((1, 2, 5, 8), np.float32), np.zeros((4, 4), np.float32)
        phasor.onnx.Backend.run_node(node, [x, cos, cos, np.arange(5)[None]])
    assert not phasor.onnx.Backend.supports_device("CUDA")


def test_a_node_that_phasor_refuses_is_in_the_report() -> None:
    model = rotary_then_attention()
    model.graph.node[2].op_type = "Attention"
    model.graph.node[2].attribute.append(onnx.helper.make_attribute("softcap", float("nan")))
    report = phasor.onnx.check(model, layer_inputs())
    assert [node.agrees for node in report] == [True, False] and "refused" in str(report)
