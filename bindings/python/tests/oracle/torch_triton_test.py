"""The Triton kernel in Triton's interpreter, on CPU tensors: golden cases, gradients, in place, packed sequences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import phasor
import phasor.torch as pt
import pytest
import torch
from compared import randn
from golden_rope import TURNS, Turn
from phasor.torch import _device, _device_rotate
from phasor.torch import triton as ours
from torch import Tensor

pytest.importorskip("triton")
SPEC = phasor.RopeSpec(16, layout="half")


@pytest.fixture(autouse=True)
def _kernel_on_cpu_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CPU tensors take the path of other devices, and the kernel there; it must have been launched."""
    launches = 0
    launch = ours._launch

    def counted(*arguments: Any) -> None:
        nonlocal launches
        launches += 1
        launch(*arguments)

    monkeypatch.setattr(ours, "_DEVICES", ("cpu",))
    monkeypatch.setattr(ours, "_launch", counted)
    ours.enable()
    with _device.forced():
        yield
    ours.disable()
    assert launches > 0


@pytest.mark.parametrize(
    "turn", [turn for turn in TURNS if "gemma4" not in turn.name], ids=lambda turn: turn.name
)  # gemma4 rotates each half of a head by itself: torch's operations do that
def test_golden_cases(turn: Turn) -> None:
    x = torch.from_numpy(turn.x.copy()).to(getattr(torch, turn.dtype)).requires_grad_()
    positions = torch.from_numpy(turn.positions.copy())
    how: Any = {"role": turn.role, "order": "heads_first"}
    y = pt.rotate(x, turn.spec, positions, transpose=turn.transpose, **how)
    (back,) = torch.autograd.grad(y, x, y.detach())
    ours.disable()
    if turn.dtype == "bfloat16":  # the interpreter truncates where a GPU rounds
        near(y.detach(), pt.rotate(x.detach(), turn.spec, positions, transpose=turn.transpose, **how))
    else:
        turn.check(y.detach().double().numpy())
    near(back, pt.rotate(y.detach(), turn.spec, positions, transpose=not turn.transpose, **how))


def near(got: Tensor, expected: Tensor) -> None:
    """Two results that each keep the bound; 16-bit types may then round to neighbours."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    step = 2 * _device_rotate.ROTATE_ERROR[wide] * torch.finfo(wide).eps
    narrow = 0.0 if got.dtype == wide else torch.finfo(got.dtype).eps
    length = expected.double().abs().amax() * 2**0.5
    assert ((got.double() - expected.double()).abs() <= step * length + narrow * expected.double().abs()).all()


LAYOUTS = ["half", "interleaved", "interleaved_to_half"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["tokens_first", "heads_first"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_and_keys_in_one_launch(layout: Any, order: Any, dtype: torch.dtype) -> None:
    """Partial, with strides, each with its own heads; forward, and backward by the transpose."""
    q, k = randn(2, 5, 3, 20, dtype=dtype)[..., 1:-1], randn(2, 5, 1, 18, seed=1, dtype=dtype)
    cos, sin = randn(2, 5, 6, seed=2), randn(2, 5, 6, seed=3)
    if order == "heads_first":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    leaves = [x.detach().clone().requires_grad_() for x in (q, k)]
    given: Any = {"layout": layout, "rotary_offset": 4, "order": order}
    for transpose in (False, True):
        got = ours.rotate_qk_by(*leaves, cos, sin, transpose=transpose, **given)
        gradients = torch.autograd.grad(got, leaves, [x.detach() * 2 for x in leaves])
        ours.disable()
        for a, gradient, x in zip(got, gradients, (q, k), strict=True):
            near(a, pt.rotate_by(x, cos, sin, transpose=transpose, **given))
            near(gradient, pt.rotate_by(x * 2, cos, sin, transpose=not transpose, **given))
        strided = ours.rotate_qk_by(q, k, cos, sin, transpose=transpose, **given)
        for a, b in zip(strided, got, strict=True):
            assert torch.equal(a, b)
        ours.enable()


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_in_place_with_packed_sequences(layout: Any) -> None:
    """Sequences of 3, 1 and 4 tokens: each token names its row of the table."""
    rows = torch.tensor([0, 1, 2, 7, 0, 1, 2, 3])
    cos, sin = pt.cos_sin(SPEC, 8)
    q, k = randn(8, 3, 20), randn(8, 2, 20, seed=1)
    expected = [pt.rotate_by(x, cos[rows], sin[rows], layout=layout, rotary_offset=2) for x in (q, k)]
    places = q.data_ptr(), k.data_ptr()
    got = ours.rotate_qk_by(q, k, cos, sin, layout=layout, rotary_offset=2, rows=rows, inplace=True)
    assert (got[0].data_ptr(), got[1].data_ptr()) == places and got[0] is q
    for a, b in zip((q, k), expected, strict=True):
        near(a, b)


def test_rows_of_a_batch_and_rows_that_are_missing() -> None:
    cos, sin = pt.cos_sin(SPEC, 6)
    q, k = randn(2, 3, 2, 16), randn(2, 3, 1, 16, seed=1)
    rows = torch.tensor([[0, 5, 6], [2, -1, 4]])
    got = ours.rotate_qk_by(q, k, cos, sin, layout="half", rows=rows)
    inside = (rows >= 0) & (rows < 6)
    safe = rows.clamp(0, 5)
    for y, x in zip(got, (q, k), strict=True):
        assert y[~inside].isnan().all()
        near(y[inside], pt.rotate_by(x, cos[safe], sin[safe], layout="half")[inside])


def test_rotate_qk_is_one_launch_and_twice_differentiable(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = (randn(1, 4, 2, 16, seed=seed).double().requires_grad_() for seed in (0, 1))
    seen: list[int] = []
    before = ours._launch
    monkeypatch.setattr(ours, "_launch", lambda *arguments: (seen.append(1), before(*arguments))[1])
    pt.rotate_qk(q, k, SPEC, torch.tensor([3, 0, 9, 70_000]))
    assert seen == [1]
    assert torch.autograd.gradcheck(lambda q, k: pt.rotate_qk(q, k, SPEC, 3), (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: pt.rotate_qk(q, k, SPEC, 3), (q, k))


def test_what_is_refused() -> None:
    q, k = randn(1, 4, 2, 16), randn(1, 4, 1, 16)
    cos, sin = pt.cos_sin(SPEC, 4)
    pt.rotate_qk(q, k, SPEC)
    calls: dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]] = {
        "bfloat16": ((q, k.bfloat16(), cos, sin), {}),
        "rows": ((q, k, cos, sin), {"rows": torch.arange(3)}),
        "rows must be integers": ((q, k, cos, sin), {"rows": torch.ones(4)}),
        "same batch": ((q, k.expand(2, 4, 1, 16), cos, sin), {}),
        "grad": ((q.clone().requires_grad_(), k, cos, sin), {"inplace": True}),
        "in place": ((q, k, cos, sin), {"inplace": True, "layout": "interleaved_to_half"}),
        "no gradient": ((q, k, cos.clone().requires_grad_(), sin), {}),
        "float": ((q.long(), k.long(), cos, sin), {}),
    }
    for values, (tensors, choices) in calls.items():
        with pytest.raises(phasor.Error, match=values):
            ours.rotate_qk_by(*tensors, **{"layout": "half", **choices})  # type: ignore[arg-type]
