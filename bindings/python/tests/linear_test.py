"""linear_attention, its backward pass and its state; sinusoidal rows; the decay curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
import pytest
from golden_cases import Case, case, cases

Array = npt.NDArray[Any]
FEATURES = {"elu+1": "elu_plus_one", "softmax_exp": "softmax_exp"}


def normal(*shape: int, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def options_of(golden: Case) -> dict[str, Any]:
    spec = phasor.RopeSpec(golden.input("q").shape[-1], base=golden.json["theta"], layout=golden.json["layout"])
    return {
        "encoding": spec,
        "causal": golden.json["causal"],
        "features": FEATURES[golden.json["feature_map"]],
        "order": "heads_first",
    }


@pytest.mark.parametrize("golden", cases("linear_attention/linear_attention_*"), ids=lambda golden: golden.name)
def test_golden(golden: Case) -> None:
    out = phasor.linear_attention(*(golden.input(name) for name in "qkv"), **options_of(golden))
    golden.check("output", out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("golden", cases("gradients/linear_attention_backward*"), ids=lambda golden: golden.name)
def test_golden_backward(golden: Case, dtype: type[np.floating[Any]]) -> None:
    q, k, v, d_out = (golden.input(name).astype(dtype) for name in ("q", "k", "v", "d_output"))
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    out = phasor.linear_attention(q, k, v, **options_of(golden))
    phasor.linear_attention_backward(q, k, v, d_out, d_q=d_q, d_k=d_k, d_v=d_v, **options_of(golden))
    for name, got in {"output": out, "d_q": d_q, "d_k": d_k, "d_v": d_v}.items():
        assert got.dtype == dtype
        if dtype is np.float64:
            np.testing.assert_allclose(got, golden.truth(name), atol=1e-11, rtol=1e-11, err_msg=name)
        else:
            golden.check(name, got)


def test_without_rotation_it_is_the_quotient_of_two_sums() -> None:
    q, k, v = normal(2, 5, 4, 8), normal(2, 7, 2, 8), normal(2, 7, 2, 6)
    keep = np.arange(7)[None] < np.array([7, 4])[:, None]

    def phi(x: Array) -> Array:
        return np.where(x > 0, x + 1.0, np.exp(x.astype(np.float64)))

    weights = np.einsum("bmhd,bnhd->bhmn", phi(q), phi(np.repeat(k, 2, axis=2))) * keep[:, None, None]
    expected = np.einsum("bhmn,bnhd->bmhd", weights / weights.sum(-1, keepdims=True), np.repeat(v, 2, axis=2))
    out = phasor.linear_attention(q, k, v, key_padding=keep)
    assert out.shape == (2, 5, 4, 6)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    np.testing.assert_allclose(phasor.linear_attention(q[1], k[1], v[1], key_padding=keep[1]), expected[1], atol=1e-5)
    half = phasor.linear_attention(*(x.astype(np.float16) for x in (q, k, v)), key_padding=keep)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, expected, atol=5e-3)


def softmax_attention(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("bmhd,bnhd->bhmn", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("bhmn,bnhd->bmhd", weights / weights.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_features_approach_softmax_attention_with_rope(dtype: type[np.floating[Any]]) -> None:
    q, k, v = (0.3 * normal(1, 20, 2, 16, seed=seed, dtype=dtype) for seed in range(3))
    spec = phasor.RopeSpec(16, layout="half")
    exact = softmax_attention(*(phasor.rotate(x, spec) for x in (q, k)), v)

    def error(count: int) -> float:
        outs = [
            phasor.linear_attention(
                q, k, v, encoding=spec, features="favor", feature_count=count, seed=seed, rotates="inputs"
            )
            for seed in range(20)
        ]
        return float(np.sqrt(np.mean([(out - exact) ** 2 for out in outs])))

    assert 0.4 < error(1024) / error(256) < 0.6


def test_a_seed_is_a_result() -> None:
    x = normal(1, 5, 2, 8)
    favor: dict[str, Any] = {"features": "favor", "feature_count": 12}
    once = phasor.linear_attention(x, x, x, **favor, seed=2**64 - 1)
    np.testing.assert_array_equal(once, phasor.linear_attention(x, x, x, **favor, seed=2**64 - 1))
    assert (once != phasor.linear_attention(x, x, x, **favor)).any()
    wide = phasor.RopeSpec(12, layout="half")  # rotated features: as wide as they are
    assert (phasor.linear_attention(x, x, x, **favor, encoding=wide) != phasor.linear_attention(x, x, x, **favor)).any()


@pytest.mark.parametrize("choice", ["elu_plus_one", "softmax_exp", "favor"])
def test_streaming_equals_the_whole(choice: Any) -> None:
    q, k, v = normal(2, 23, 4, 8), normal(2, 23, 2, 8), normal(2, 23, 2, 6)
    features: Any = {"features": choice} | ({"feature_count": 20, "seed": 4} if choice == "favor" else {})
    width = features.get("feature_count", 8)
    spec = phasor.RopeSpec(width, layout="half")
    whole = phasor.linear_attention(q, k, v, encoding=spec, causal=True, **features)
    state = phasor.LinearState(2, 2, width, 6)
    size = state.nbytes
    parts = []
    for first, last in [(0, 1), (1, 9), (9, 10), (10, 23)]:
        assert state.tokens == first
        part = slice(first, last)
        parts.append(
            phasor.linear_attention(
                q[:, part], k[:, part], v[:, part], encoding=spec, causal=True, **features, state=state
            )
        )
        if first == 1:
            forked = state.fork()
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=2e-5)
    assert state.tokens == 23 and state.nbytes == size and forked.tokens == 9
    again = phasor.linear_attention(
        q[:, 9:10], k[:, 9:10], v[:, 9:10], encoding=spec, causal=True, **features, state=forked
    )
    np.testing.assert_array_equal(again, parts[2])
    state.reset()
    assert state.tokens == 0
    assert "key_heads=2" in repr(state)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"features": "relu"}, "features .*relu"),
        ({"features": "favor"}, "feature_count .*0"),
        ({"feature_count": 4}, "elu_plus_one.*feature_count.*4"),
        ({"rotates": "keys"}, "rotates .*keys"),
        ({"state": phasor.LinearState(1, 2, 8, 8), "features": "favor", "feature_count": 9}, "feature_count 9"),
        ({"encoding": phasor.RopeSpec(4, layout="half")}, "head_dim"),
        ({"k": normal(1, 6, 3, 8)}, r"\[1, 6, 4, 8\].*\[1, 6, 3, 8\]"),
        ({"key_padding": np.ones((2, 6), bool)}, r"key_padding .*\[1, 6\].*\[2, 6\]"),
        ({"state": phasor.LinearState(1, 2, 8, 8), "causal": False}, "state"),
        ({"state": phasor.LinearState(1, 2, 8, 7)}, "state.*7"),
        ({"out": np.zeros((1, 6, 4, 7), np.float32)}, r"out .*\[1, 6, 4, 8\].*\[1, 6, 4, 7\]"),
        ({"q": normal(1, 6, 4)[0]}, r"linear_attention: q .*\[6, 4\]"),
    ],
)
def test_refusals_write_nothing(changes: dict[str, Any], match: str) -> None:
    arguments: dict[str, Any] = {"q": normal(1, 6, 4, 8), "k": normal(1, 6, 2, 8), "v": normal(1, 6, 2, 8)}
    arguments |= {"causal": True, "out": np.full((1, 6, 4, 8), 3.0, np.float32)} | changes
    before = arguments["out"].copy()
    with pytest.raises(phasor.Error, match=match):
        phasor.linear_attention(**arguments)
    np.testing.assert_array_equal(arguments["out"], before)
    if "state" in arguments:
        assert arguments["state"].tokens == 0


def test_backward_refuses_gradients_of_another_shape() -> None:
    x = normal(1, 6, 2, 8)
    d_q, d_k, d_v = np.full_like(x, 3.0), np.full((1, 6, 2, 7), 3.0, np.float32), np.full_like(x, 3.0)
    with pytest.raises(phasor.Error, match="d_k"):
        phasor.linear_attention_backward(x, x, x, x, d_q=d_q, d_k=d_k, d_v=d_v)
    assert (d_q == 3.0).all() and (d_v == 3.0).all()


def test_a_state_needs_sizes() -> None:
    with pytest.raises(phasor.Error, match="LinearState"):
        phasor.LinearState(1, 0, 8, 8)


def test_sinusoidal_rows() -> None:
    positions = np.array([[0, 1, 5], [100, 1000, 7]])
    rates = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    angles = positions[..., None] * rates
    expected = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(2, 3, 8)
    rows = phasor.sinusoidal(positions, 8, dtype="float64")
    np.testing.assert_allclose(rows, expected, atol=1e-13)
    assert phasor.sinusoidal(positions, 8).dtype == np.float32
    np.testing.assert_array_equal(phasor.sinusoidal(positions, 8), rows.astype(np.float32))
    concat = phasor.sinusoidal(positions.astype(np.int32), 8, variant="concat", dtype="float64")
    np.testing.assert_allclose(concat, np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), atol=1e-13)
    np.testing.assert_array_equal(phasor.sinusoidal(3, 8), phasor.sinusoidal([0, 1, 2], 8))
    golden = case("encodings/sinusoidal_roformer")
    golden.check("table", phasor.sinusoidal(golden.json["n_positions"], golden.json["dim"], variant="concat"))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"positions": [0.5], "dim": 8}, "positions .*float64"),
        ({"positions": None, "dim": 8}, "positions .*None"),
        ({"positions": -1, "dim": 8}, "positions .*-1"),
        ({"positions": 2**70, "dim": 8}, f"positions .*{2**70}"),
        ({"positions": 3, "dim": 0}, "dim"),
        ({"positions": 3, "dim": 8, "variant": "halves"}, "variant .*halves"),
        ({"positions": 3, "dim": 8, "dtype": "float16"}, "dtype .*float16"),
    ],
)
def test_sinusoidal_refusals(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(phasor.Error, match=match):
        phasor.sinusoidal(**arguments)


def test_decay() -> None:
    spec = phasor.RopeSpec(16, base=500.0, layout="half")
    frequencies, _ = spec.frequencies()
    distances = np.array([0.0, 1.0, 7.5, 300.0])
    partial = np.abs(np.cumsum(np.exp(1j * distances[:, None] * frequencies), axis=-1))
    np.testing.assert_allclose(phasor.decay(spec, distances), partial.mean(-1), rtol=1e-12)
    assert phasor.decay(spec, distances)[0] == pytest.approx(4.5)  # (1 + ... + 8) / 8
    np.testing.assert_array_equal(phasor.decay(spec, 3), phasor.decay(spec, [0, 1, 2]))
    golden = case("linear_attention/long_term_decay_d128")
    curve = phasor.decay(phasor.RopeSpec(golden.json["dim"], layout="half"), golden.input("distance"))
    np.testing.assert_allclose(curve, golden.truth("mean_abs_partial_sum"), atol=1e-10, rtol=1e-11)
