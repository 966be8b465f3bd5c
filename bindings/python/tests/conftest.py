"""What the tests share: the golden folder, exact angles by another form, and how memory is watched."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from golden_cases import GOLDEN


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """The folder of golden cases."""
    return GOLDEN


@pytest.fixture
def rotated() -> Callable[..., npt.NDArray[np.float64]]:
    """RoFormer (12): pairs as complex numbers times exp(i m theta), in float64."""

    def rotated(x, positions, frequencies, layout, amplitude=1.0):
        x = np.asarray(x, np.float64)
        pairs = len(frequencies)
        if layout == "half":
            z = x[..., :pairs] + 1j * x[..., pairs : 2 * pairs]
        else:
            z = x[..., 0 : 2 * pairs : 2] + 1j * x[..., 1 : 2 * pairs : 2]
        # [tokens] or [batch, tokens] -> broadcast to heads and pairs
        angles = np.asarray(positions, np.longdouble)[..., None, None] * np.asarray(frequencies)
        z = amplitude * z * (np.cos(angles).astype(np.float64) + 1j * np.sin(angles).astype(np.float64))
        y = x.copy()
        if layout == "half":
            y[..., :pairs], y[..., pairs : 2 * pairs] = z.real, z.imag
        else:
            y[..., 0 : 2 * pairs : 2], y[..., 1 : 2 * pairs : 2] = z.real, z.imag
        return y

    return rotated


@pytest.fixture
def peak_rise() -> Callable[[Callable[[], object]], int]:
    """Bytes by which the process's peak memory rises over what it held before, while a call runs."""

    def measure(call):
        def field(name):
            text = pathlib.Path("/proc/self/status").read_text()
            return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M).group(1)) * 1024

        try:
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held
        except OSError as error:
            pytest.skip(f"the peak of memory cannot be reset here: {error}")
        before = field("VmRSS")
        call()
        return field("VmHWM") - before

    return measure
