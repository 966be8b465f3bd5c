"""Array arguments: no copies, every protocol, results of the same library."""

from __future__ import annotations

import array
import gc
import sys
import tracemalloc

import numpy as np
import pytest

import phasor
from phasor import RopeSpec

SPEC = RopeSpec(64, layout="half")


def tensor(*shape, dtype=np.float32):
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


class OnlyDlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, source, *, versioned=True, device=(1, 0)):
        self.source, self.versioned, self.device, self.calls = source, versioned, device, 0

    def __dlpack__(self, **keywords):
        self.calls += 1
        if not self.versioned and keywords:
            raise TypeError("an old producer takes no max_version")
        return self.source.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_alone_will_do(versioned):
    x = tensor(2, 5, 3, 64)
    wrapped = OnlyDlpack(x, versioned=versioned)
    got = phasor.rotate(wrapped, SPEC, 4)
    assert isinstance(got, np.ndarray) and wrapped.calls >= 1
    np.testing.assert_array_equal(got, phasor.rotate(x, SPEC, 4))


def test_dlpack_objects_are_written_in_place():
    x = tensor(2, 5, 3, 64)
    expected = phasor.rotate(x, SPEC, 4)
    wrapped = OnlyDlpack(x)
    assert phasor.rotate(wrapped, SPEC, 4, out=wrapped) is wrapped
    np.testing.assert_array_equal(x, expected)


def test_the_buffer_protocol_alone_will_do():
    flat = array.array("f", range(2 * 64))
    view = memoryview(flat).cast("B").cast("f", (2, 1, 64))
    expected = phasor.rotate(np.array(view), SPEC, 4)
    np.testing.assert_array_equal(phasor.rotate(view, SPEC, 4), expected)
    phasor.rotate(view, SPEC, 4, out=view)
    np.testing.assert_array_equal(np.array(view), expected)


def test_a_read_only_array_is_read_and_not_written():
    x = tensor(2, 5, 3, 64)
    x.flags.writeable = False
    phasor.rotate(x, SPEC)
    before = x.copy()
    with pytest.raises(phasor.Error, match="rotate: out"):
        phasor.rotate(x, SPEC, 3, out=x)
    np.testing.assert_array_equal(x, before)


def test_subclasses_of_numpy_arrays_are_read():
    x = np.ma.masked_array(tensor(1, 2, 1, 64))
    np.testing.assert_array_equal(np.asarray(phasor.rotate(x, SPEC, 3)), phasor.rotate(np.asarray(x), SPEC, 3))


def test_objects_that_are_not_arrays_are_refused():
    for thing in (None, 3.0, [1.0, 2.0], {"x": 1}, object()):
        with pytest.raises(phasor.Error, match=type(thing).__name__):
            phasor.rotate(thing, SPEC)


def test_the_error_of_a_producer_is_shown():
    class Broken:
        def __dlpack__(self, **keywords):
            raise BufferError("on another planet")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(phasor.Error, match="on another planet"):
        phasor.rotate(Broken(), SPEC)


def test_strides_of_broken_elements_are_refused():
    raw = np.zeros(1 * 2 * 1 * 65 * 4 + 4, np.uint8)
    odd = np.lib.stride_tricks.as_strided(raw[:4].view(np.float32), (2, 1, 64), (258, 258, 4))
    with pytest.raises(phasor.Error, match="258 bytes"):
        phasor.rotate(odd, SPEC)


def test_references_are_given_back():
    x, positions = tensor(1, 4, 2, 64), np.arange(4)
    out = np.empty_like(x)
    dlpack = OnlyDlpack(x)
    things = (x, positions, out, SPEC, dlpack)
    counts = [sys.getrefcount(thing) for thing in things]
    for _ in range(100):
        phasor.rotate(x, SPEC, positions, out=out)
        phasor.rotate(dlpack, SPEC, positions)
        phasor.cos_sin(SPEC, positions)
        with pytest.raises(phasor.Error):
            phasor.rotate(x, SPEC, positions[:1], out=out)
    gc.collect()
    assert [sys.getrefcount(thing) for thing in things] == counts


def test_python_allocates_the_result_and_nothing_more():
    """NumPy's allocations are counted by tracemalloc: one array out of place, none in place."""
    x = tensor(1, 512, 16, 64)
    positions = np.arange(512)
    phasor.rotate(x, SPEC, positions)
    for out, least, most in ((None, x.nbytes, x.nbytes + 8192), (x, 0, 8192)):
        tracemalloc.start()
        try:
            result = phasor.rotate(x, SPEC, positions, out=out)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert least <= peak <= most
        del result


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2], lambda x: x.transpose(0, 2, 1, 3)],
                         ids=["dense", "strided", "heads-first"])
def test_nothing_is_copied_behind_the_scenes(view, peak_rise):
    """In place, 128 MiB are rotated without the process growing: no copy in C++ either."""
    x = np.ones((1, 8192, 64, 64), np.float32)
    part = view(x)
    positions = np.arange(part.shape[1])
    phasor.rotate(part[:, :2], SPEC, positions[:2], out=part[:, :2])  # threads and tables are there from now on
    assert peak_rise(lambda: phasor.rotate(part, SPEC, positions, out=part)) < 8 * 2**20
    assert peak_rise(lambda: phasor.rotate(part, SPEC, positions)) < part.nbytes + 8 * 2**20
