"""Phasor itself."""

from __future__ import annotations

import warnings

import numpy as np

import phasor
from case import Case, Floats, Positions, Refused, Rotate

PACKAGE = "phasor"
READS_CONFIG = True


def spec_of(case: Case) -> phasor.RopeSpec:
    if case.rope_type == "listed frequencies":
        listed = {"frequencies": case.frequencies, "amplitude": case.amplitude}
        return phasor.RopeSpec(case.head_dim, layout=case.layout, **listed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that a type does not read
        return phasor.RopeSpec.from_hf(case.config, case.layer_type)


def make(case: Case) -> Rotate:
    try:
        spec = spec_of(case)
    except phasor.Error as error:
        raise Refused(str(error)) from error

    def rotate(x: Floats, positions: Positions) -> Floats:
        # Text has the same position in each row of M-RoPE.
        rows = positions if spec.axes == 1 else np.tile(positions, (spec.axes, 1, 1))
        return np.asarray(phasor.rotate(x, spec, rows, context=case.context))

    return rotate


VARIANTS = {"": make}
