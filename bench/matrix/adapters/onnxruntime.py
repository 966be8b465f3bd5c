"""onnxruntime: RotaryEmbedding, which is given cos and sin, and the nodes that exporters write for angles."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from case import Case, Floats, Positions, Refused, Rotate

PACKAGE = "onnxruntime"
TABLES_GIVEN = ("RotaryEmbedding, opset 23", "RotaryEmbedding, com.microsoft")


def session(nodes, inputs, domain_version: tuple[str, int], constants=()):
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "rotary",
        [helper.make_tensor_value_info(name, types[value.dtype], value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(*domain_version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def node_of(case: Case, domain: str) -> Rotate:
    """The node reads row i of the tables for token i."""

    def rotate(x: Floats, positions: Positions) -> Floats:
        cos, sin = case.cos_sin(positions)
        heads = np.ascontiguousarray(x.swapaxes(0, 1)[None])
        ids = np.arange(len(positions), dtype=np.int64)[None]
        order = ["x", "ids", "cos", "sin"] if domain else ["x", "cos", "sin", "ids"]
        node = helper.make_node(
            "RotaryEmbedding",
            order,
            ["y"],
            domain=domain,
            interleaved=int(case.layout != "half"),
            rotary_embedding_dim=case.rotary_dim if case.rotary_dim != case.head_dim else 0,
            **({"num_heads": x.shape[1]} if domain and case.rotary_dim != case.head_dim else {}),
        )
        inputs = {"x": heads, "cos": cos, "sin": sin, "ids": ids}
        return session([node], inputs, (domain or "com.microsoft", 1)).run(None, inputs)[0][0].swapaxes(0, 1)

    return rotate


def graph_of(case: Case) -> Rotate:
    """Angles as exporters write Llama: float32 positions times float32 frequencies, then Cos and Sin."""
    if case.layout != "half" or case.rotary_dim != case.head_dim:
        raise Refused("only the graph of Llama is measured")
    pairs = case.rotary_dim // 2
    constants = [
        helper.make_tensor("frequencies", TensorProto.FLOAT, [1, pairs], np.array(case.frequencies, np.float32)),
        helper.make_tensor("amplitude", TensorProto.FLOAT, [1], [case.amplitude]),
        helper.make_tensor("split", TensorProto.INT64, [2], [pairs, pairs]),
        helper.make_tensor("heads", TensorProto.INT64, [1], [1]),
    ]
    nodes = [
        helper.make_node("Cast", ["positions"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "frequencies"], ["angles"]),
    ]
    for name in ("Cos", "Sin"):
        nodes += [
            helper.make_node(name, ["angles"], [f"{name}_unit"]),
            helper.make_node("Mul", [f"{name}_unit", "amplitude"], [f"{name}_scaled"]),
            helper.make_node("Unsqueeze", [f"{name}_scaled", "heads"], [name]),
        ]
    nodes += [
        helper.make_node("Split", ["x", "split"], ["a", "b"], axis=-1),
        helper.make_node("Mul", ["a", "Cos"], ["a_cos"]),
        helper.make_node("Mul", ["b", "Sin"], ["b_sin"]),
        helper.make_node("Mul", ["a", "Sin"], ["a_sin"]),
        helper.make_node("Mul", ["b", "Cos"], ["b_cos"]),
        helper.make_node("Sub", ["a_cos", "b_sin"], ["first"]),
        helper.make_node("Add", ["a_sin", "b_cos"], ["second"]),
        helper.make_node("Concat", ["first", "second"], ["y"], axis=-1),
    ]

    def rotate(x: Floats, positions: Positions) -> Floats:
        inputs = {"x": x, "positions": positions[:, None]}
        return session(nodes, inputs, ("com.microsoft", 1), constants).run(None, inputs)[0]

    return rotate


VARIANTS = {
    "RotaryEmbedding, opset 23": lambda case: node_of(case, ""),
    "RotaryEmbedding, com.microsoft": lambda case: node_of(case, "com.microsoft"),
    "Mul, Cos, Sin": graph_of,
}
