"""JAX arrays through phasor: read without a copy, and returned as JAX arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import phasor
import pytest

SPEC = phasor.RopeSpec(8, layout="half")


def array(dtype: str = "float32") -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 3, 8)), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rotation_gives_a_jax_array(dtype: str) -> None:
    x = array(dtype)
    rotated = phasor.rotate(x, SPEC, 7)
    assert isinstance(rotated, jax.Array) and rotated.dtype == x.dtype and rotated.shape == x.shape
    exact = phasor.rotate(np.asarray(x, dtype=np.float64), SPEC, 7)
    bound = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(rotated, dtype=np.float64), exact, rtol=bound, atol=bound)
    back = phasor.rotate(rotated, SPEC, jnp.arange(7, 12), inverse=True)
    np.testing.assert_allclose(np.asarray(back, np.float64), np.asarray(x, np.float64), rtol=4 * bound, atol=4 * bound)


def test_attention_gives_a_jax_array() -> None:
    x = array()
    out = phasor.attention(x, x, x, encoding=SPEC, causal=True)
    assert isinstance(out, jax.Array)
    numpy = np.asarray(x)
    np.testing.assert_array_equal(np.asarray(out), phasor.attention(numpy, numpy, numpy, encoding=SPEC, causal=True))


def test_a_jax_array_is_never_written() -> None:
    x = array()
    before = np.array(x)
    with pytest.raises(phasor.Error, match="JAX|read-only"):
        phasor.rotate(x, SPEC, 7, out=x)
    np.testing.assert_array_equal(np.asarray(x), before)


def test_rows_of_cos_and_sin_may_be_jax_arrays() -> None:
    x = array()
    angles = jnp.arange(5.0)[:, None] * jnp.ones(4)
    rotated = phasor.rotate_by(x, jnp.cos(angles), jnp.sin(angles), layout="half")
    first = np.asarray(x)[0, 1, 0]
    c, s = np.cos(1.0), np.sin(1.0)
    np.testing.assert_allclose(np.asarray(rotated)[0, 1, 0, :4], first[:4] * c - first[4:] * s, rtol=1e-5, atol=1e-6)
