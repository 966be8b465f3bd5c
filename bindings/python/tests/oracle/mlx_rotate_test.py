"""phasor.mlx: golden cases, compile, grad and vmap on the CPU, and what is refused."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import phasor
import phasor.mlx as pm
import pytest
from golden_rope import TURNS, Turn

SPEC = phasor.RopeSpec(16, layout="interleaved", rotary_dim=8, rotary_offset=2)
GROWN = phasor.RopeSpec(16, layout="half", xpos={"scale_base": 512, "gamma": 0.4})
X = np.random.default_rng(0).standard_normal((2, 5, 3, 16)).astype(np.float32)
AT = np.asarray([4, 0, 63, 7, 7])


def numbers(array: Any) -> np.ndarray[Any, Any]:
    """NumPy has no bfloat16."""
    return np.asarray(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array).astype(np.float64)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.name)
def test_golden_cases(turn: Turn) -> None:
    x = mx.array(turn.x).astype(getattr(mx, turn.dtype))

    def rotated(x: Any) -> Any:
        how: Any = {"transpose": turn.transpose, "role": turn.role}
        return pm.rotate(x, turn.spec, turn.positions, order="heads_first", **how)

    for function in (rotated, mx.compile(rotated)):
        turn.check(numbers(function(x)))


def test_gradients_are_the_transposed_rotation() -> None:
    def loss(x: Any, positions: Any) -> Any:
        return (pm.rotate(x, SPEC, positions, length=64) ** 3).sum()

    rotated = phasor.rotate(X, SPEC, AT)
    expected = phasor.rotate(3 * rotated**2, SPEC, AT, transpose=True)
    for function in (mx.grad(loss), mx.compile(mx.grad(loss))):
        np.testing.assert_allclose(function(mx.array(X), mx.array(AT)), expected, rtol=2e-6, atol=2e-6)


def test_a_second_derivative() -> None:
    """The loss |R x|^4 / 4 along a line: its second derivative along x is 3 |x|^4, with 1 = |R|."""
    full = phasor.RopeSpec(16, layout="half")
    x = mx.array(X)

    def loss(t: Any) -> Any:
        return ((pm.rotate(x * t, full, AT) ** 2).sum() ** 2) / 4

    second = mx.grad(mx.grad(loss))(mx.array(1.0))
    np.testing.assert_allclose(float(second), 3 * float((X.astype(np.float64) ** 2).sum()) ** 2, rtol=1e-5)


def test_cos_and_sin_get_gradients() -> None:
    cos, sin = pm.cos_sin(SPEC, 5)
    w = mx.array(X)

    def ours(x: Any, cos: Any, sin: Any) -> Any:
        return (pm.rotate_by(x, cos, sin, layout="interleaved", rotary_offset=2) ** 2 * w).sum()

    def plain(x: Any, cos: Any, sin: Any) -> Any:
        a, b, c, s = x[..., 2:10:2], x[..., 3:10:2], cos[:, None], sin[:, None]
        turned = mx.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
        return (mx.concatenate([x[..., :2], turned, x[..., 10:]], -1) ** 2 * w).sum()

    for a, b in zip(*(mx.grad(f, argnums=(0, 1, 2))(w, cos, sin) for f in (ours, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_same_numbers_as_the_kernels_of_the_cpu(dtype: str) -> None:
    epsilon = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 0.0}[dtype]
    for layout in ("half", "interleaved", "interleaved_to_half"):
        spec = phasor.RopeSpec(16, layout=layout, scaling={"type": "linear", "factor": 3.0})  # type: ignore[arg-type]
        x = mx.array(X).astype(getattr(mx, dtype))
        got = mx.vmap(lambda row, spec=spec: pm.rotate(row, spec, 1_000_000))(x)
        assert got.dtype == x.dtype
        exact = phasor.rotate(numbers(x), spec, 1_000_000)
        bound = ((1e-15 if dtype == "float64" else 3e-7) + epsilon) * np.abs(exact).max()
        np.testing.assert_allclose(numbers(got), exact, rtol=0, atol=bound)


def test_rows_of_far_positions_are_exact() -> None:
    cos, sin = pm.cos_sin(SPEC, mx.array([131071, 16777215]))
    angles = np.asarray([[131071.0], [16777215.0]]) * SPEC.frequencies()[0]
    for got, exact in ((cos, np.cos(angles)), (sin, np.sin(angles))):
        np.testing.assert_allclose(got, exact, rtol=0, atol=7e-8)


@pytest.mark.parametrize("role", ["query", "key"])
def test_traced_positions_of_xpos(role: Any) -> None:
    rotated = mx.compile(lambda x, at: pm.rotate(x, GROWN, at, role=role, length=64))(mx.array(X), mx.array(AT))
    np.testing.assert_allclose(rotated, phasor.rotate(X, GROWN, AT, role=role), rtol=0, atol=2e-6)


def test_a_traced_position_outside_the_table_is_nan() -> None:
    cos, _ = mx.compile(lambda at: pm.cos_sin(SPEC, at, length=8))(mx.array([7, 8, -1]))
    assert np.isfinite(cos[0]).all() and np.isnan(cos[1:]).all()


def test_what_is_refused() -> None:
    calls: dict[str, Any] = {
        "length None": lambda: mx.compile(lambda at: pm.cos_sin(SPEC, at))(mx.arange(3)),
        "value": lambda: pm.rotate(X, GROWN, role="value"),  # type: ignore[arg-type]
        "layout": lambda: pm.rotate(X, phasor.RopeSpec(16)),
        "int32": lambda: pm.rotate(X.astype(np.int32), SPEC),
        "8": lambda: pm.rotate(X[..., :8], SPEC),
        "4, 8": lambda: pm.rotate_by(X, np.ones((4, 8)), np.ones((4, 8)), layout="half"),
    }
    for values, call in calls.items():
        with pytest.raises(phasor.Error, match=values):
            call()
