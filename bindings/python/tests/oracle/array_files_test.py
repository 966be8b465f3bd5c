"""The command reads the files that torch writes: views of every kind, and no code."""

from __future__ import annotations

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch

COMMAND = os.environ.get("PHASOR_COMMAND", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="built without the command")


def read(folder: pathlib.Path, array: str, tokens: int) -> np.ndarray:
    """An array as the command reads it: rotated at position 0, which changes nothing."""
    spec = folder / "spec.json"
    spec.write_text('{"head_dim": 4, "layout": "half"}')
    zeros = folder / "zeros.npy"
    np.save(zeros, np.zeros(tokens, np.int64))
    out = folder / "out.npy"
    result = subprocess.run([COMMAND, "rotate", "--config", str(spec), "-i", array, "--positions", str(zeros), "-o", str(out)],
                            capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    return np.load(out)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_views(tmp_path: pathlib.Path, dtype: torch.dtype, protocol: int) -> None:
    torch.manual_seed(3)
    x = torch.randn(6, 5, 8).to(dtype)
    views = {
        "whole": x[..., :4].contiguous(),
        "slice": x[1:4, :, 2:6],
        "step": x[::2, 1:, ::2],
        "permuted": x[:, :4].permute(0, 2, 1),
        "expanded": x[:1, :, :4].expand(7, 5, 4),
        "nested": {"list": [x[0, :, :4][None], (x[5, :, 4:][None],)]},
        "parameter": torch.nn.Parameter(x[..., 4:]),
    }
    torch.save(views, tmp_path / "views.pt", pickle_protocol=protocol)
    flat = {k: v for k, v in views.items() if isinstance(v, torch.Tensor)}
    flat["nested.list.0"] = x[0, :, :4][None]
    flat["nested.list.1.0"] = x[5, :, 4:][None]
    for name, wanted in flat.items():
        got = torch.from_numpy(read(tmp_path, f"{tmp_path}/views.pt:{name}", wanted.shape[0]).view(np.uint8).copy())
        assert torch.equal(got.view(dtype).reshape(wanted.shape), wanted.detach()), name


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_no_code_is_run(tmp_path: pathlib.Path) -> None:
    torch.save({"q": torch.ones(2), "x": Harmful()}, tmp_path / "bad.pt")
    result = subprocess.run([COMMAND, "inspect", "bad.pt"], cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 2 and b"mkdir" in result.stderr
    assert not (tmp_path / "harm").exists()
