"""Checks a whole ONNX model against Phasor: every node that rotates or attends, on the inputs that reach it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx.reference

from .._core import Error
from .arguments import Array
from .microsoft import DOMAIN
from .nodes import OPERATOR_NAMES, is_ours, run_node

Engine = Literal["reference", "onnxruntime"]

# How far two correct engines may differ, relative to the largest expected value (at least 1): rounding of the outputs,
# and for the 16-bit types rounding of every step between, which ONNX's reference does and Phasor does not.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class NodeReport:
    """The result of one node.

    It agrees if every output is within its tolerance; `difference` and `tolerance` are those of the output closest to
    its tolerance, `outputs` holds the largest |Phasor - engine| of each. `refused` is the error message if Phasor does
    not support the node.
    """

    name: str
    op: str
    difference: float
    tolerance: float
    agrees: bool
    outputs: dict[str, float] = field(default_factory=dict)
    refused: str | None = None


@dataclass(frozen=True)
class Report:
    """One NodeReport per node, in the graph's order; prints as a table."""

    nodes: list[NodeReport]
    engine: Engine

    @property
    def ok(self) -> bool:
        """Every node agrees."""
        return all(node.agrees for node in self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[NodeReport]:
        return iter(self.nodes)

    def __str__(self) -> str:
        names = max(4, *(len(node.name) for node in self.nodes))
        lines = [f"{'node':{names}}  {'operator':19}  {'difference':>10}  {'tolerance':>9}"]
        for node in self.nodes:
            verdict = "agrees" if node.agrees else f"refused: {node.refused}" if node.refused else "DIFFERS"
            lines.append(
                f"{node.name:{names}}  {node.op:19}  {node.difference:10.2e}  {node.tolerance:9.1e}  {verdict}"
            )
        agreed = sum(node.agrees for node in self.nodes)
        lines.append(f"{agreed} of {len(self.nodes)} nodes agree with {self.engine}")
        return "\n".join(lines)


def _loaded(model: onnx.ModelProto | str | os.PathLike[str] | bytes) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        loaded = model
    elif isinstance(model, bytes):
        loaded = onnx.load_model_from_string(model)
    else:
        try:
            loaded = onnx.load(os.fspath(model))
        except OSError as error:
            raise Error(f"onnx.check: cannot open {os.fspath(model)}: {error.strerror or error}") from error
    # Inlines the model's functions, so that the nodes inside are checked too.
    return onnx.inliner.inline_local_functions(loaded) if loaded.functions else loaded


def _inner_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes inside the branches and loops of a graph."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from inner.node
                yield from _inner_nodes(inner)


def _values(model: onnx.ModelProto, feeds: Mapping[str, Array], names: set[str], engine: Engine) -> dict[str, Array]:
    """The values of these names in a run of the model."""
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    known.update(feeds)
    wanted = sorted(names - known.keys())
    if engine == "reference":
        everything = onnx.reference.ReferenceEvaluator(model).run(None, dict(feeds), intermediate=True)
        assert isinstance(everything, dict)
        found: dict[str, Any] = everything
    else:
        try:
            onnxruntime = importlib.import_module("onnxruntime")
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"onnx.check: missing module {missing.name} for engine='onnxruntime'; run: pip install onnxruntime",
                name=missing.name,
            ) from missing
        extended = onnx.ModelProto()
        extended.CopyFrom(model)
        shown = {value.name for value in model.graph.output}
        extended.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in shown)
        session = onnxruntime.InferenceSession(extended.SerializeToString(), providers=["CPUExecutionProvider"])
        found = dict(zip(wanted, session.run(wanted, dict(feeds))))
    known.update({name: np.asarray(found[name]) for name in wanted})
    return known


def _difference(ours: Array, theirs: Array) -> float:
    """The largest |ours - theirs|; equal infinities agree, and two NaNs do. What is masked in ours is not compared."""
    if ours.shape != theirs.shape:
        return float("inf")
    if isinstance(ours, np.ma.MaskedArray):
        compared = ~np.ma.getmaskarray(ours)
        ours, theirs = ours.data[compared], theirs[compared]
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))


def _largest(x: Array) -> float:
    wide = np.abs(x.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=1.0))


def _check_node(node: onnx.NodeProto, name: str, values: Mapping[str, Array], tolerance: float | None) -> NodeReport:
    try:
        computed = run_node(node, [values[key] if key else None for key in node.input])
    except Error as error:
        return NodeReport(name, node.op_type, float("inf"), tolerance or 0.0, False, refused=str(error))
    differences: dict[str, float] = {}
    allowed: dict[str, float] = {}
    for key, ours in zip(node.output, computed):
        if key and ours is not None:
            theirs = values[key]
            differences[key] = _difference(ours, theirs)
            allowed[key] = tolerance if tolerance is not None else TOLERANCES[theirs.dtype.name] * _largest(theirs)
    agrees = all(differences[key] <= allowed[key] for key in differences)
    # Shows the output with the largest difference relative to its tolerance.
    worst = max(differences, key=lambda key: differences[key] / allowed[key] if allowed[key] else differences[key])
    return NodeReport(name, node.op_type, differences[worst], allowed[worst], agrees, differences)


def check(
    model: onnx.ModelProto | str | os.PathLike[str] | bytes,
    inputs: Mapping[str, object],
    *,
    tolerance: float | None = None,
    engine: Engine = "reference",
) -> Report:
    """Runs a model with ONNX's reference evaluator (or onnxruntime), and its nodes that rotate or attend again with
    Phasor on the inputs that reached them: RotaryEmbedding and Attention of ONNX, and RotaryEmbedding,
    MultiHeadAttention and GroupQueryAttention of com.microsoft, which only onnxruntime runs.

    inputs maps the graph's inputs to arrays. tolerance is the largest difference that still agrees; None takes one by
    the type of each output (float32: 1e-5 of its largest value). Functions of the model are inlined; a model without
    such nodes, or with one inside a branch or a loop, raises Error.
    """
    if engine not in ("reference", "onnxruntime"):
        raise Error(f"onnx.check: engine must be reference or onnxruntime, got {engine}")
    if tolerance is not None and not tolerance >= 0:
        raise Error(f"onnx.check: tolerance must be 0 or more, got {tolerance}")
    loaded = _loaded(model)
    inner = [node for node in _inner_nodes(loaded.graph) if is_ours(node)]
    if inner:
        raise Error(
            f"onnx.check: {inner[0].op_type} inside a branch or loop is not supported"
        )
    nodes = [node for node in loaded.graph.node if is_ours(node)]
    if not nodes:
        raise Error(f"onnx.check: the model has no node of {OPERATOR_NAMES}")
    if engine == "reference" and any(node.domain == DOMAIN for node in nodes):
        raise Error(f"onnx.check: engine must be onnxruntime for the operators of {DOMAIN}, got reference")
    constants = {tensor.name for tensor in loaded.graph.initializer}
    missing = [value.name for value in loaded.graph.input if value.name not in inputs and value.name not in constants]
    if missing:
        raise Error(f"onnx.check: missing input {', '.join(missing)}")
    feeds = {name: np.asarray(value) for name, value in inputs.items()}
    names = {key for node in nodes for key in (*node.input, *node.output) if key}
    values = _values(loaded, feeds, names, engine)
    reports = [
        _check_node(node, node.name or f"{node.op_type}_{at}", values, tolerance) for at, node in enumerate(nodes)
    ]
    return Report(reports, engine)
