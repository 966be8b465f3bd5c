"""keras-hub: layers.RotaryEmbedding, with Keras on torch."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras_hub
import numpy as np
import torch

from case import Case, Floats, Positions, Rotate, leading

PACKAGE = "keras-hub"


def make(case: Case) -> Rotate:
    case.needs("default", "linear")
    factor = case.factor if case.rope_type == "linear" else 1.0
    layer = keras_hub.layers.RotaryEmbedding(max_wavelength=case.base, scaling_factor=factor)

    def rotate(x: Floats, positions: Positions) -> Floats:
        with torch.no_grad():
            y = layer(torch.from_numpy(np.array(x))[None], positions=torch.from_numpy(positions))
        return np.asarray(y[0].cpu())

    return leading(case, rotate)


VARIANTS = {"": make}
