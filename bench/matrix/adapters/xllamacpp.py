"""ggml of the wheel xllamacpp: ggml_rope_ext, called through ctypes with the arguments that llama.cpp gives it."""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import POINTER, c_bool, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

from case import Case, Floats, Positions, Refused, Rotate

PACKAGE = "xllamacpp"
F32, I32 = 0, 26
NORMAL, NEOX = 0, 2


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


def library() -> ctypes.CDLL:
    found = importlib.util.find_spec("xllamacpp")
    assert found is not None and found.origin is not None
    ggml = ctypes.CDLL(str(next(Path(found.origin).parent.glob("xllamacpp*.so"))))
    signatures = {
        "ggml_init": (c_void_p, [InitParams]),
        "ggml_free": (None, [c_void_p]),
        "ggml_new_tensor": (c_void_p, [c_void_p, c_int, c_int, POINTER(c_int64)]),
        "ggml_get_data": (c_void_p, [c_void_p]),
        "ggml_rope_ext": (c_void_p, [c_void_p] * 4 + [c_int] * 3 + [c_float] * 6),
        "ggml_new_graph": (c_void_p, [c_void_p]),
        "ggml_build_forward_expand": (None, [c_void_p, c_void_p]),
        "ggml_graph_compute_with_ctx": (c_int, [c_void_p, c_void_p, c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml


GGML = library()


def tensor(context: int, values: np.ndarray) -> int:
    sizes = (c_int64 * values.ndim)(*reversed(values.shape))
    made = GGML.ggml_new_tensor(context, F32 if values.dtype == np.float32 else I32, values.ndim, sizes)
    ctypes.memmove(GGML.ggml_get_data(made), values.ctypes.data, values.nbytes)
    return made


def make(case: Case) -> Rotate:
    case.needs("default", "linear", "llama3", "longrope", "proportional", "yarn", "listed frequencies")
    rope, scale, extrapolation, factors, amplitude = case.rope, 1.0, 0.0, None, 1.0
    if case.rope_type == "linear":
        scale = 1.0 / case.factor
    elif case.rope_type == "yarn":
        if "mscale" in rope:
            raise Refused("mscale is not an argument of ggml_rope_ext")
        scale, extrapolation = 1.0 / case.factor, 1.0
    elif case.rope_type != "default":  # the file holds factors that divide the frequencies
        plain = case.base ** (-np.arange(0, case.rotary_dim, 2) / case.rotary_dim)
        with np.errstate(divide="ignore"):
            factors = np.minimum(plain / np.array(case.frequencies), 1e30).astype(np.float32)
        amplitude = case.amplitude

    def rotate(x: Floats, positions: Positions) -> Floats:
        if positions.max() > np.iinfo(np.int32).max:
            raise Refused("positions are int32")
        context = GGML.ggml_init(InitParams(4 * x.nbytes + (1 << 22), None, False))
        try:
            y = GGML.ggml_rope_ext(
                context,
                tensor(context, x),
                tensor(context, positions.astype(np.int32)),
                None if factors is None else tensor(context, factors),
                case.rotary_dim,
                NEOX if case.layout == "half" else NORMAL,
                int(rope.get("original_max_position_embeddings", 0)),
                case.base,
                scale,
                extrapolation,
                amplitude,
                float(rope.get("beta_fast", 32.0)),
                float(rope.get("beta_slow", 1.0)),
            )
            graph = GGML.ggml_new_graph(context)
            GGML.ggml_build_forward_expand(graph, y)
            if GGML.ggml_graph_compute_with_ctx(context, graph, 1) != 0:
                raise RuntimeError("ggml_graph_compute_with_ctx failed")
            out = np.empty_like(x)
            ctypes.memmove(out.ctypes.data, GGML.ggml_get_data(y), out.nbytes)
            return out
        finally:
            GGML.ggml_free(context)

    return rotate


VARIANTS = {"ggml_rope_ext": make}
