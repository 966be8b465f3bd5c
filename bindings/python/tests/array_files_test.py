"""The command reads the files that NumPy writes: random arrays, every type, order and way of saving."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

COMMAND = os.environ.get("PHASOR_COMMAND", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="built without the command")


def phasor(*words: str | pathlib.Path, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, *map(str, words)], input=data, capture_output=True, check=False)


def read(folder: pathlib.Path, array: str, data: bytes | None = None) -> np.ndarray:
    """An array as the command reads it: rotated at position 0, which changes nothing."""
    spec = folder / "spec.json"
    spec.write_text('{"head_dim": 4, "layout": "half"}')
    zeros = folder / "zeros.npy"
    np.save(zeros, np.zeros(3, np.int64))
    result = phasor("rotate", "--config", spec, "-i", array, "--positions", zeros, "-o", "-", data=data)
    assert result.returncode == 0, result.stderr
    (folder / "out.npy").write_bytes(result.stdout)
    return np.load(folder / "out.npy")


def equal(got: np.ndarray, wanted: np.ndarray) -> bool:
    if wanted.dtype == ml_dtypes.bfloat16:
        got = got.view(ml_dtypes.bfloat16)
    return got.dtype == wanted.dtype and np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_every_way_to_save(tmp_path: pathlib.Path, dtype: type, order: str) -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((3, 6, 4)).astype(dtype)
    x = np.asfortranarray(x) if order == "F" else x[:, ::2] if order == "strided" else x
    other = random.standard_normal(5)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "stored.npz", q=x, other=other)
    np.savez_compressed(tmp_path / "deflated.npz", other=other, q=x)
    np.savez_compressed(tmp_path / "one.npz", x)
    for array in ("x.npy", "stored.npz:q", "deflated.npz:q", "one.npz", "one.npz:arr_0"):
        assert equal(read(tmp_path, str(tmp_path / array)), x), array
    assert equal(read(tmp_path, "-:q", (tmp_path / "deflated.npz").read_bytes()), x)


def test_inspect_lists_what_numpy_lists(tmp_path: pathlib.Path) -> None:
    random = np.random.default_rng(11)
    types = [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.complex64, np.complex128]
    arrays = {f"layer.{i}/x": random.integers(0, 2, random.integers(0, 4, 3)).astype(t) for i, t in enumerate(types)}
    np.savez_compressed(tmp_path / "all.npz", **arrays)
    page = json.loads(phasor("inspect", tmp_path / "all.npz", "--json").stdout)
    listed = [(row["name"], row["type"], row["shape"]) for row in page["tensors"]]
    assert listed == [(name, str(x.dtype), list(x.shape)) for name, x in arrays.items()]


def test_large_arrays_deflate_and_inflate(tmp_path: pathlib.Path) -> None:
    x = np.zeros((3, 100_000, 4), np.float32)
    x[1, 50_000] = 3.0
    np.savez_compressed(tmp_path / "large.npz", q=x)
    assert (tmp_path / "large.npz").stat().st_size < x.nbytes / 500
    assert equal(read(tmp_path, f"{tmp_path}/large.npz:q"), x)


def test_damage_is_an_error_of_one_line(tmp_path: pathlib.Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", q=np.arange(24.0).reshape(2, 3, 4))
    good = (tmp_path / "a.npz").read_bytes()
    for cut in (1, len(good) // 2, len(good) - 1):
        result = phasor("inspect", "/dev/stdin", data=good[:cut])
        assert result.returncode == 2
        (tmp_path / "cut.npz").write_bytes(good[:cut])
        result = phasor("inspect", tmp_path / "cut.npz")
        assert result.returncode == 2 and result.stdout == b"" and result.stderr.count(b"\n") == 1
