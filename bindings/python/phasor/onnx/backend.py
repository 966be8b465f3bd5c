"""ONNX's backend interface over Phasor, so that ONNX's own node tests can be run through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import onnx.numpy_helper

from .._core import Error
from .arguments import Array
from .microsoft import DOMAIN
from .nodes import OPERATOR_NAMES, is_ours, run_node


class BackendRep(onnx.backend.base.BackendRep):
    """A prepared model of one node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._node = graph.node[0]
        self._constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in self._constants]
        self._outputs = [value.name for value in graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The graph's outputs, for inputs in the graph's order or by name."""
        if isinstance(inputs, Mapping):
            values = dict(inputs)
        else:
            several = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            values = dict(zip(self._inputs, several))
        missing = [name for name in self._inputs if name not in values]
        if missing:
            raise Error(f"onnx: missing input {', '.join(missing)}; the inputs are {', '.join(self._inputs)}")
        values.update(self._constants)
        given = [np.asarray(values[name]) if name else None for name in self._node.input]
        found: dict[str, Array | None] = dict(zip(self._node.output, run_node(self._node, given)))
        return tuple(found[name] for name in self._outputs)


class Backend(onnx.backend.base.Backend):
    """Runs models of one node that rotates or attends (nodes.py); other models are not supported."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return len(model.graph.node) == 1 and is_ours(model.graph.node[0]) and cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """raises  for an invalid model, a device other than CPU, more than one node, another operator"""
        super().prepare(model, device, **kwargs)
        if not cls.supports_device(device):
            raise Error(f"onnx: the device must be CPU, got {device}")
        if not cls.is_compatible(model, device):
            operators = ", ".join(node.op_type for node in model.graph.node) or "no node"
            raise Error(f"onnx: the model must be one node of {OPERATOR_NAMES}, got {operators}")
        return BackendRep(model)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node's outputs; None is a missing optional input."""
        if node.domain != DOMAIN:  # whose schemas ONNX does not have
            super().run_node(node, inputs, device, outputs_info, **kwargs)
        several = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        return tuple(run_node(node, [None if value is None else np.asarray(value) for value in several]))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"
