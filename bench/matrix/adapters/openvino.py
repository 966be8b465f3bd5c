"""OpenVINO, CPU plugin: the operations of an exported Llama; angles are float32 positions times float32 frequencies."""

from __future__ import annotations

import numpy as np
import openvino
from openvino import opset13 as ops

from case import Case, Floats, Positions, Refused, Rotate

PACKAGE = "openvino"


def make(case: Case) -> Rotate:
    if case.layout != "half" or case.rotary_dim != case.head_dim:
        raise Refused("only the graph of Llama is measured")

    def rotate(x: Floats, positions: Positions) -> Floats:
        vectors = ops.parameter(list(x.shape), np.float32, name="x")
        places = ops.parameter([len(positions), 1, 1], np.int64, name="positions")
        frequencies = ops.constant(np.array(case.frequencies, np.float32)[None, None])
        angles = ops.multiply(ops.convert(places, "f32"), frequencies)
        scale = ops.constant(np.float32(case.amplitude))
        cos, sin = ops.multiply(ops.cos(angles), scale), ops.multiply(ops.sin(angles), scale)
        halves = ops.split(vectors, ops.constant(np.int64(2)), 2)
        a, b = halves.output(0), halves.output(1)
        y = ops.concat(
            [
                ops.subtract(ops.multiply(a, cos), ops.multiply(b, sin)),
                ops.add(ops.multiply(a, sin), ops.multiply(b, cos)),
            ],
            2,
        )
        compiled = openvino.Core().compile_model(openvino.Model([y], [vectors, places], "rotary"), "CPU")
        return np.array(compiled([x, positions[:, None, None]])[0])

    return rotate


VARIANTS = {"Multiply, Cos, Sin": make}
