"""ONNX models against Phasor: the nodes RotaryEmbedding (opset 23) and Attention (opsets 23 to 25).

    report = phasor.onnx.check("model.onnx", {"x": x})
    print(report)
    assert report.ok

Needs the onnx package, and onnxruntime where it is asked for by name.
"""

from __future__ import annotations

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"phasor.onnx: onnx must be installed (pip install onnx), got no module {missing.name}", name=missing.name
    ) from missing

from .backend import Backend, BackendRep
from .check import NodeReport, Report, check

__all__ = ["Backend", "BackendRep", "NodeReport", "Report", "check"]
