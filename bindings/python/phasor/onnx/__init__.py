"""Checks ONNX models against Phasor: the nodes RotaryEmbedding (opset 23) and Attention (opsets 23 to 25), and those of
ONNX Runtime, com.microsoft: RotaryEmbedding, MultiHeadAttention and GroupQueryAttention.

    report = phasor.onnx.check("model.onnx", {"x": x})
    print(report)
    assert report.ok

Needs the onnx package, and onnxruntime for engine="onnxruntime".
"""

from __future__ import annotations

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"phasor.onnx: missing module {missing.name}; run: pip install onnx", name=missing.name
    ) from missing

from .backend import Backend, BackendRep
from .check import NodeReport, Report, check

__all__ = ["Backend", "BackendRep", "NodeReport", "Report", "check"]
