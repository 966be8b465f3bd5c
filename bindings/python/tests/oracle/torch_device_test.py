"""phasor.torch on other devices: their path forced on CPU tensors, and meta, against golden values and the CPU's kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import phasor
import phasor.torch as pt
import pytest
import torch
from compared import randn
from golden_rope import TURNS, Turn
from phasor.torch import _device, _device_rotate
from torch import Tensor
from torch_patch_test import IDS, logits, make

SPECS = {
    "half": phasor.RopeSpec(16, layout="half"),
    "interleaved, partial": phasor.RopeSpec(16, layout="interleaved", rotary_dim=8, rotary_offset=2),
    "interleaved_to_half": phasor.RopeSpec(16, layout="interleaved_to_half"),
    "yarn": phasor.RopeSpec(
        16, layout="half", scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    ),
    "xpos": phasor.RopeSpec(16, layout="interleaved", xpos={"scale_base": 512, "gamma": 0.4}),
    "dynamic": phasor.RopeSpec(
        16, layout="half", max_position_embeddings=64, scaling={"type": "dynamic", "factor": 2.0}
    ),
}
PLACES: dict[str, Any] = {
    "0, 1, ...": None,
    "an offset": 100_000,
    "integers": torch.tensor([3, 1, 131_071, 16_777_216, -70]),
    "a batch": torch.tensor([[0, 1, 2, 3, 4], [9, 8, 7, 6, 5]], dtype=torch.int32),
    "fractions": torch.tensor([0.5, 1.25, -3.0, 1e6, 2.0]),
}


def close(got: Tensor, expected: Tensor) -> None:
    """Two results that each keep the bound; 16-bit types may then round to neighbours."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    step = 2 * _device_rotate.ROTATE_ERROR[wide] * torch.finfo(wide).eps
    narrow = 0.0 if got.dtype == wide else torch.finfo(got.dtype).eps
    longest = expected.double().abs().amax(-1, keepdim=True) * 2**0.5
    assert ((got.double() - expected.double()).abs() <= step * longest + narrow * expected.double().abs()).all()


@pytest.mark.parametrize("widest", ["float64", "float32"])
@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.name)
def test_golden_cases(turn: Turn, widest: Any) -> None:
    x = torch.from_numpy(turn.x.copy()).to(getattr(torch, turn.dtype)).requires_grad_()
    positions = torch.from_numpy(turn.positions.copy())
    with _device.forced(widest):
        y = pt.rotate(x, turn.spec, positions, role=turn.role, transpose=turn.transpose, order="heads_first")  # type: ignore[arg-type]
        # The transpose of the transpose: the gradient is the rotation with the other sign.
        (back,) = torch.autograd.grad(y, x, y.detach())
    turn.check(y.detach().double().numpy())
    close(back, pt.rotate(y.detach(), turn.spec, positions, role=turn.role, transpose=not turn.transpose, order="heads_first"))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SPECS)
def test_same_numbers_as_the_kernels_of_the_cpu(name: str, dtype: torch.dtype) -> None:
    spec = SPECS[name]
    for place, positions in PLACES.items():
        if name == "xpos" and place not in ("0, 1, ...", "a batch"):
            continue  # its growth overflows at long positions
        for choices in ({}, {"inverse": True}, {"transpose": True, "role": "key"}, {"order": "heads_first"}):
            x = randn(2, 5, 3, 16, dtype=dtype)
            x = x.transpose(1, 2) if "order" in choices else x
            with _device.forced():
                got = pt.rotate(x, spec, positions, **choices)  # type: ignore[arg-type]
            close(got, pt.rotate(x, spec, positions, **choices))  # type: ignore[arg-type]


def test_queries_and_keys_share_rows_and_xpos_does_not() -> None:
    q, k = randn(2, 5, 4, 16), randn(2, 5, 2, 16, seed=1)
    for spec in (SPECS["yarn"], SPECS["xpos"]):
        with _device.forced():
            got = pt.rotate_qk(q, k, spec, 7)
        for a, b in zip(got, pt.rotate_qk(q, k, spec, 7), strict=True):
            close(a, b)


def test_rows_of_a_device_are_exact() -> None:
    """The product of two rows in float64, rounded once: at most one float32 in ten thousand is its neighbour."""
    spec = phasor.RopeSpec(64, layout="half", amplitude=1.5)
    positions = torch.randint(-(2**24), 2**24, (2000,), generator=torch.Generator().manual_seed(0))
    for dtype, bound in ((torch.float64, 4 * 1.5 * 2.0**-52), (torch.float32, 2.0**-23)):
        with _device.forced():
            got = pt.cos_sin(spec, positions, dtype=dtype)
        for a, b in zip(got, pt.cos_sin(spec, positions, dtype=dtype), strict=True):
            assert float((a - b).abs().max()) <= bound
            assert dtype == torch.float64 or int((a != b).sum()) <= a.numel() // 10_000


def test_a_position_beyond_the_range_of_a_device_is_nan() -> None:
    far = torch.tensor([0, 2**24 + 4096, -(2**24) - 1])
    with _device.forced():
        cos, sin = pt.cos_sin(SPECS["half"], far)
    for rows in (cos, sin):
        assert rows[0].isfinite().all() and rows[1:].isnan().all()


def test_positions_on_a_device_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, x = SPECS["yarn"], randn(2, 5, 3, 16)
    with _device.forced():
        expected = pt.rotate(x, spec, torch.arange(5))  # fills the cache

        def refuse(*arguments: object, **keywords: object) -> Any:
            raise AssertionError("the device was waited for")

        for name in ("cpu", "item", "tolist", "numpy", "__int__", "__bool__", "__float__"):
            monkeypatch.setattr(Tensor, name, refuse)
        rotated = pt.rotate(x, spec, torch.arange(5))
        monkeypatch.undo()
    assert torch.equal(rotated, expected)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _device.cache.clear()
    monkeypatch.setattr(_device, "_CACHE_BYTES", 1 << 20)
    with _device.forced():
        for base in range(10_000, 10_040):
            pt.rotate(randn(1, 5, 1, 16), phasor.RopeSpec(16, layout="half", base=float(base)))
    assert 0 < _device.cache.nbytes <= 1 << 20
    _device.cache.clear()


def test_rows_made_in_inference_mode_serve_training() -> None:
    _device.cache.clear()
    x = randn(1, 5, 1, 16)
    with _device.forced():
        with torch.inference_mode():
            pt.rotate(x, SPECS["half"], torch.arange(5))
            pt.rotate(x, SPECS["half"])
        for positions in (None, torch.arange(5)):
            pt.rotate(x.clone().requires_grad_(), SPECS["half"], positions).sum().backward()


def test_meta() -> None:
    q, k = torch.empty(2, 5, 4, 16, device="meta", dtype=torch.bfloat16), torch.empty(2, 5, 2, 16, device="meta")
    for positions in (None, 3, torch.arange(5, device="meta"), torch.arange(5)):
        for got, x in zip(pt.rotate_qk(q, k, SPECS["yarn"], positions), (q, k), strict=True):
            assert got.is_meta and got.shape == x.shape and got.dtype == x.dtype
    cos, sin = pt.cos_sin(SPECS["half"], 7, device="meta", dtype=torch.float16)
    assert cos.is_meta and tuple(sin.shape) == (7, 8) and cos.dtype == torch.float16
    rotary = pt.flash_attn.RotaryEmbedding(16, device="meta")
    assert rotary(torch.empty(2, 5, 3, 4, 16, device="meta")).is_meta  # type: ignore[union-attr]
    mixed = pt.RotaryEmbedding(8).to("meta").rotate_queries_or_keys(torch.empty(2, 4, 5, 16, device="meta"))
    assert mixed.is_meta and tuple(mixed.shape) == (2, 4, 5, 16)


def test_torch_compile_keeps_one_graph_of_torch_operations() -> None:
    torch._dynamo.reset()
    spec = SPECS["yarn"]
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward  # type: ignore[no-any-return]

    def both(x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return pt.rotate(x, spec, positions), pt.rotate(x, spec, 5)

    x, positions = randn(2, 5, 3, 16).requires_grad_(), torch.tensor([4, 0, 7, 7, 90_000])
    with _device.forced():
        expected = both(x, positions)
        got = torch.compile(both, backend=backend, fullgraph=True)(x, positions)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b)
        gradients = [torch.autograd.grad(sum(y.sum() for y in ys), x)[0] for ys in (got, expected)]  # type: ignore[arg-type]
    torch.testing.assert_close(*gradients)
    assert any("cos_sin" in name for name in seen) and not any("phasor.rotate" in name for name in seen)


def test_inductor() -> None:
    torch._dynamo.reset()
    x, positions = randn(2, 5, 3, 16), torch.tensor([4, 0, 7, 7, 90_000])
    with _device.forced():
        got = torch.compile(lambda x, at: pt.rotate(x, SPECS["half"], at), fullgraph=True)(x, positions)
        close(got, pt.rotate(x, SPECS["half"], positions))


def test_torch_export() -> None:
    class Rotates(torch.nn.Module):
        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            return pt.rotate(x, SPECS["half"], positions, order="heads_first")

    x, positions = randn(2, 3, 5, 16), torch.arange(40, 45)
    with _device.forced():
        program = torch.export.export(Rotates(), (x, positions))
        assert any("phasor.cos_sin" in str(node.target) for node in program.graph.nodes)
        got = program.module()(x, positions)
        torch.testing.assert_close(got, Rotates()(x, positions))


def test_autocast_changes_no_angle() -> None:
    x = randn(2, 5, 3, 16, dtype=torch.bfloat16)
    with _device.forced():
        expected = pt.rotate(x, SPECS["half"], 90_000)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(pt.rotate(x, SPECS["half"], 90_000), expected)
            assert pt.cos_sin(SPECS["half"], torch.arange(5))[0].dtype == torch.float32


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gptj"])
def test_a_patched_model_gives_the_logits_of_the_cpu(family: str) -> None:
    model = pt.patch(make(family))
    expected = logits(model)
    with _device.forced():
        got = logits(model)
    assert float((got - expected).abs().max()) < 1e-6 * max(1.0, float(expected.abs().max()))


def test_a_model_is_patched_on_meta() -> None:
    with torch.device("meta"):
        model = make("llama")
    model = pt.patch(model)
    # transformers itself reads values of position_ids, so that the whole model does not run on meta.
    cos, sin = model.model.rotary_emb(torch.empty(1, dtype=torch.bfloat16, device="meta"), IDS.to("meta"))
    assert cos.is_meta and cos.dtype == torch.bfloat16 and sin.shape[:2] == IDS.shape
    assert pt.patched(model) is not None
    assert pt.patched(copy.deepcopy(model)) is not None


def test_what_is_refused() -> None:
    x, meta = randn(1, 5, 1, 16), torch.empty(1, 5, 1, 16, device="meta")
    spec = SPECS["half"]
    row = torch.ones(5, 8)
    calls: dict[str, Callable[[], Any]] = {
        "meta.*cpu|cpu.*meta": lambda: pt.rotate_qk(meta, x, spec),
        "cos .*meta|meta and cpu": lambda: pt.rotate_by(meta, row, row, layout="half"),
        "int64": lambda: pt.rotate(torch.empty(1, 5, 1, 16, device="meta", dtype=torch.int64), spec),
        "16.*8": lambda: pt.rotate(torch.empty(1, 5, 1, 8, device="meta"), spec),
        "positions": lambda: pt.rotate(x, spec, torch.arange(5, device="meta")),
        "inverse and transpose": lambda: pt.rotate(meta, spec, inverse=True, transpose=True),
        "no layout": lambda: pt.rotate(meta, phasor.RopeSpec(16)),
        "CPU": lambda: pt.attention(meta, meta, meta),
    }
    for values, call in calls.items():
        with pytest.raises(phasor.Error, match=values):
            call()
    with _device.forced("float32"), pytest.raises(phasor.Error, match="float64") as refused:
        pt.rotate(x.double(), spec)
    assert refused.value.code == "unsupported"
    with _device.forced():
        for wrong in (row[:4], row.expand(2, 5, 8), row[:, :1].expand(5, 9)):
            with pytest.raises(phasor.Error, match="cos and sin|features"):
                pt.rotate_by(x, wrong, wrong, layout="half")
