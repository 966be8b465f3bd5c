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


def rotary_then_attention() -> Any:
    """x -> RotaryEmbedding -> Attention with itself, [1, 2 heads, 5, 8], cos and sin as initialisers."""
    angles = np.arange(5)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    tables = [
        onnx.numpy_helper.from_array(table.astype(np.float32), name)
        for table, name in ((np.cos(angles), "cos"), (np.sin(angles), "sin"))
    ]
    nodes = [
        onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["turned"], name="rotary"),
        onnx.helper.make_node("Mul", ["turned", "two"], ["doubled"]),
        onnx.helper.make_node("Attention", ["doubled", "turned", "x"], ["y"], name="attention", is_causal=1),
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
    monkeypatch.setattr("phasor.onnx.nodes._core.rotate_by", lambda x, cos, sin, *, layout: x)
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
    with pytest.raises(phasor.Error, match="must have RotaryEmbedding or Attention nodes, got none"):
        phasor.onnx.check(relu, {"x": np.zeros(2, np.float32)})
    with pytest.raises(phasor.Error, match="one RotaryEmbedding or Attention node, got Relu"):
        phasor.onnx.Backend.prepare(relu)
    with pytest.raises(phasor.Error, match="inputs must have an array for ids, got none"):
        phasor.onnx.check(rotary_then_attention(), {"x": np.zeros((1, 2, 5, 8), np.float32)})
    with pytest.raises(phasor.Error, match="engine must be reference or onnxruntime, got mlx"):
        phasor.onnx.check(rotary_then_attention(), layer_inputs(), engine="mlx")  # type: ignore[arg-type]
    with pytest.raises(phasor.Error, match="position_ids must lie in"):
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
