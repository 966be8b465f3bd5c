"""phasor.jax: golden cases, jit, grad and vmap on the CPU, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import phasor
import phasor.jax as pj
import pytest
from golden_rope import TURNS, Turn

SPEC = phasor.RopeSpec(16, layout="interleaved", rotary_dim=8, rotary_offset=2)
X = np.random.default_rng(0).standard_normal((2, 5, 3, 16)).astype(np.float32)
GROWN = phasor.RopeSpec(16, layout="half", xpos={"scale_base": 512, "gamma": 0.4})


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.name)
def test_golden_cases(turn: Turn) -> None:
    x = jnp.asarray(turn.x, turn.dtype)

    def rotated(x: Any) -> Any:
        how: Any = {"transpose": turn.transpose, "role": turn.role}
        return pj.rotate(x, turn.spec, turn.positions, order="heads_first", **how)

    turn.check(np.asarray(jax.jit(rotated)(x), np.float64))


def test_gradients_are_the_transposed_rotation() -> None:
    def loss(x: Any, positions: Any) -> Any:
        return (pj.rotate(x, SPEC, positions, length=64) ** 3).sum()

    positions = jnp.asarray([4, 0, 63, 7, 7])
    gradient = jax.jit(jax.grad(loss))(jnp.asarray(X), positions)
    rotated = phasor.rotate(X, SPEC, np.asarray(positions))
    expected = phasor.rotate(3 * rotated**2, SPEC, np.asarray(positions), transpose=True)
    np.testing.assert_allclose(gradient, expected, rtol=2e-6, atol=2e-6)


def test_cos_and_sin_get_gradients() -> None:
    cos, sin = pj.cos_sin(SPEC, 5)

    def ours(x: Any, cos: Any, sin: Any) -> Any:
        return (pj.rotate_by(x, cos, sin, layout="interleaved", rotary_offset=2) ** 2 * X).sum()

    def plain(x: Any, cos: Any, sin: Any) -> Any:
        z = jax.lax.complex(x[..., 2:10:2], x[..., 3:10:2]) * jax.lax.complex(cos, sin)[:, None]
        turned = jnp.stack((z.real, z.imag), -1).reshape(*z.shape[:-1], 8)
        return (jnp.concatenate((x[..., :2], turned, x[..., 10:]), -1) ** 2 * X).sum()

    for a, b in zip(*(jax.grad(f, argnums=(0, 1, 2))(jnp.asarray(X), cos, sin) for f in (ours, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_same_numbers_as_the_kernels_of_the_cpu(dtype: str) -> None:
    for layout in ("half", "interleaved", "interleaved_to_half"):
        spec = phasor.RopeSpec(16, layout=layout, scaling={"type": "linear", "factor": 3.0})  # type: ignore[arg-type]
        x = jnp.asarray(X, dtype)
        got = jax.vmap(lambda row, spec=spec: pj.rotate(row, spec, 1_000_000))(x)
        exact = phasor.rotate(np.asarray(x, np.float64), spec, 1_000_000)
        bound = (3e-7 + (0.0 if dtype == "float32" else float(jnp.finfo(dtype).eps))) * np.abs(exact).max()
        np.testing.assert_allclose(np.asarray(got, np.float64), exact, rtol=0, atol=bound)


def test_a_traced_position_outside_the_table_is_nan() -> None:
    cos, _ = jax.jit(lambda at: pj.cos_sin(SPEC, at, length=8))(jnp.asarray([7, 8, -1]))
    assert np.isfinite(cos[0]).all() and np.isnan(cos[1:]).all()


@pytest.mark.parametrize("role", ["query", "key"])
def test_traced_positions_of_xpos(role: Any) -> None:
    positions = np.asarray([4, 0, 63, 7, 7])
    rotated = jax.jit(lambda x, at: pj.rotate(x, GROWN, at, role=role, length=64))(jnp.asarray(X), jnp.asarray(positions))
    np.testing.assert_allclose(rotated, phasor.rotate(X, GROWN, positions, role=role), rtol=0, atol=2e-6)


def test_what_is_refused() -> None:
    calls: dict[str, Any] = {
        "length None": lambda: jax.jit(lambda at: pj.cos_sin(SPEC, at))(jnp.arange(3)),
        "value": lambda: pj.rotate(X, GROWN, role="value"),  # type: ignore[arg-type]
        "layout": lambda: pj.rotate(X, phasor.RopeSpec(16)),
        "int32": lambda: pj.rotate(X.astype(np.int32), SPEC),
        "8": lambda: pj.rotate(X[..., :8], SPEC),
        "4, 8": lambda: pj.rotate_by(X, np.ones((4, 8)), np.ones((4, 8)), layout="half"),
    }
    for values, call in calls.items():
        with pytest.raises(phasor.Error, match=values):
            call()
