"""KVCache: compared with attention over the whole sequence, after every kind of change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
import pytest

Array = npt.NDArray[Any]
SPEC = phasor.RopeSpec(8, base=500.0, layout="half")
HEADS, KEY_HEADS, DIM, VALUE_DIM, TOKENS = 4, 2, 8, 6, 12


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def tensors(batch: int = 2) -> tuple[Array, Array, Array]:
    return (
        normal(batch, TOKENS, HEADS, DIM),
        normal(batch, TOKENS, KEY_HEADS, DIM),
        normal(batch, TOKENS, KEY_HEADS, VALUE_DIM),
    )


def cache_of(k: Array, v: Array, **changes: Any) -> phasor.KVCache:
    options: dict[str, Any] = {"batch": k.shape[0], "spec": SPEC} | changes
    cache = phasor.KVCache(key_heads=KEY_HEADS, head_dim=DIM, value_dim=VALUE_DIM, capacity=20, **options)
    cache.append(k, v)
    return cache


def test_decoding_step_by_step_is_the_whole() -> None:
    q, k, v = tensors()
    whole = phasor.attention(q, k, v, encoding=SPEC, causal=True)
    cache = phasor.KVCache(key_heads=KEY_HEADS, head_dim=DIM, value_dim=VALUE_DIM, capacity=TOKENS, batch=2, spec=SPEC)
    for token in range(TOKENS):
        step = slice(token, token + 1)
        cache.append(k[:, step], v[:, step])
        out = np.empty((2, 1, HEADS, VALUE_DIM), np.float32)
        assert cache.attention(q[:, step], out=out) is out
        np.testing.assert_allclose(out, whole[:, step], atol=2e-6)
    assert len(cache) == cache.capacity == cache.next_position == TOKENS
    assert cache.spec == SPEC
    with pytest.raises(phasor.Error, match="capacity"):
        cache.append(k[:, :1], v[:, :1])
    np.testing.assert_allclose(cache.keys, phasor.rotate(k, SPEC), atol=1e-6)
    np.testing.assert_array_equal(cache.values, v)
    np.testing.assert_array_equal(cache.positions(), np.arange(TOKENS))
    np.testing.assert_allclose(cache.attention(q), whole, atol=2e-6)


@pytest.mark.parametrize("mode", ["compact", "drift_free"])
def test_evicted_and_shifted_tokens_stand_where_they_should(mode: Any) -> None:
    q, k, v = tensors(1)
    cache = cache_of(k, v, mode=mode)
    cache.evict(2, 5)
    np.testing.assert_array_equal(cache.positions(), [0, 1, 5, 6, 7, 8, 9, 10, 11])
    cache.shift(2, 9, -3)
    np.testing.assert_array_equal(cache.positions(), np.arange(9))
    left = np.r_[0, 1, 5:12]
    expected = phasor.attention(q[:, -2:], k[:, left], v[:, left], encoding=SPEC, causal=True)
    np.testing.assert_allclose(cache.attention(q[:, -2:]), expected, atol=3e-6)
    cache.truncate(4)
    assert len(cache) == 4 and cache.next_position == 4


@pytest.mark.parametrize("spec", [None, SPEC])
def test_distances_in_a_cache_are_those_of_its_positions(spec: Any) -> None:
    q, k, v = tensors()
    encodings: list[Any] = [
        phasor.Encoding("alibi"),
        phasor.Encoding("shaw", rel_k=normal(13, DIM), rel_v=normal(13, VALUE_DIM), clip=6),
    ]
    if spec is None:
        encodings.append(phasor.Encoding("t5", relative_attention_bias=normal(8, HEADS), max_distance=20))
    cache = cache_of(k, v, spec=spec)
    cache.evict(3, 7)
    left = np.r_[0:3, 7:TOKENS]
    for delta in (0, -4):
        cache.shift(3, len(cache), delta)
        at = cache.positions()
        for encoding in encodings:
            expected = phasor.attention(
                q[:, -2:], k[:, left], v[:, left], encoding=encoding if spec is None else [spec, encoding],
                causal=True, query_positions=at[-2:], key_positions=at,
            )  # fmt: skip
            got = cache.attention(q[:, -2:], encoding=encoding)
            np.testing.assert_allclose(got, expected, atol=3e-6)
            if spec is None:  # the gap counts until it is closed
                counted = phasor.attention(q[:, -2:], k[:, left], v[:, left], encoding=encoding, causal=True)
                assert (np.abs(got - counted).max() > 1e-3) == (delta == 0)


def test_rerotated_keys_are_those_of_the_other_spec() -> None:
    q, k, v = tensors(1)
    cache = cache_of(k, v)
    other = phasor.RopeSpec(DIM, base=9000.0, layout="half")
    positions = np.arange(TOKENS) * 2
    cache.rerotate(other, positions)
    assert cache.spec == other
    np.testing.assert_allclose(cache.keys, phasor.rotate(k, other, positions), atol=3e-6)
    expected = phasor.attention(
        q, k, v, encoding=other, causal=True, query_positions=positions, key_positions=positions
    )
    np.testing.assert_allclose(cache.attention(q, encoding=other), expected, atol=3e-6)
    with pytest.raises(phasor.Error, match="frequency"):
        cache.attention(q, encoding=SPEC)


def test_other_encodings_with_the_rotation() -> None:
    q, k, v = tensors()
    alibi = phasor.Encoding("alibi")
    expected = phasor.attention(q, k, v, encoding=[SPEC, alibi], causal=True, window=5, soft_cap=2.0)
    cache = cache_of(k, v)
    choices: tuple[Any, ...] = (alibi, [SPEC, alibi])
    for encoding in choices:
        out = cache.attention(q, encoding=encoding, window=5, soft_cap=2.0)
        np.testing.assert_allclose(out, expected, atol=2e-6)
    plain_cache = cache_of(k, v, spec=None)
    assert plain_cache.spec is None
    np.testing.assert_array_equal(plain_cache.keys, k)
    mask = np.random.default_rng(0).random((TOKENS, TOKENS)) < 0.8
    expected = phasor.attention(q, k, v, encoding=alibi, mask=mask)
    np.testing.assert_allclose(plain_cache.attention(q, encoding=alibi, causal=False, mask=mask), expected, atol=2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_sixteen_bits(dtype: Any, tolerance: float) -> None:
    stored = np.dtype(np.float16) if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = tensors()
    cache = cache_of(k.astype(stored), v.astype(stored), dtype=dtype)
    assert cache.keys.dtype == (np.float16 if dtype == "float16" else np.float32)
    np.testing.assert_allclose(cache.keys.astype(np.float64), phasor.rotate(k, SPEC), atol=tolerance * 4)
    expected = phasor.attention(q, k, v, encoding=SPEC, causal=True)
    np.testing.assert_allclose(cache.attention(q), expected, atol=tolerance)


def test_forks_go_apart() -> None:
    _, k, v = tensors()
    cache = cache_of(k, v)
    fork = cache.fork(30)
    fork.append(k, v)
    assert (len(cache), len(fork), fork.capacity, cache.fork().capacity) == (TOKENS, 2 * TOKENS, 30, 20)
    with pytest.raises(phasor.Error, match="12 .*3"):
        cache.fork(3)


def test_heads_first_and_no_batch() -> None:
    q, k, v = (x[0].swapaxes(0, 1) for x in tensors(1))
    cache = phasor.KVCache(key_heads=KEY_HEADS, head_dim=DIM, value_dim=VALUE_DIM, capacity=TOKENS, spec=SPEC)
    cache.append(k, v, order="heads_first")
    out = cache.attention(q, order="heads_first")
    assert out.shape == (HEADS, TOKENS, VALUE_DIM)
    whole = phasor.attention(q, k, v, encoding=SPEC, causal=True, order="heads_first")
    np.testing.assert_allclose(out, whole, atol=2e-6)


def test_repr_counts() -> None:
    _, k, v = tensors()
    assert repr(cache_of(k, v)) == (
        "KVCache(key_heads=2, head_dim=8, capacity=20, value_dim=6, batch=2), 12 tokens of f32, rotated"
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"key_heads": 0}, "key_heads"),
        ({"capacity": -1}, "capacity"),
        ({"dtype": "float64"}, "dtype .*float64"),
        ({"mode": "loose"}, "mode .*loose"),
        ({"spec": phasor.RopeSpec(16, layout="half")}, "head_dim"),
        ({"spec": phasor.RopeSpec(8)}, "layout"),
    ],
)
def test_refusals_at_construction(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(phasor.Error, match=match):
        phasor.KVCache(**{"key_heads": 2, "head_dim": 8, "capacity": 4, **changes})


def test_refusals_leave_the_cache_alone() -> None:
    q, k, v = tensors()
    cache = cache_of(k, v)
    keys = cache.keys
    acts: dict[str, Callable[[], object]] = {
        r"KVCache.append: k .*\[2, 8\]": lambda: cache.append(k[0, 0], v),
        r"k .*\[1, 12, 2, 8\]": lambda: cache.append(k[:1], v[:1]),
        "positions": lambda: cache.append(k[:, :1], v[:, :1], [np.inf]),
        "truncate": lambda: cache.truncate(13),
        "evict": lambda: cache.evict(3, 13),
        "shift": lambda: cache.shift(-1, 3, 1),
        "rerotate: spec .*None": lambda: cache.rerotate(None),  # type: ignore[arg-type]
        r"out .*\[1, 2\]": lambda: cache.attention(q, out=np.zeros((1, 2), np.float32)),
        r"key_padding .*\[2, 3\]": lambda: cache.attention(q, key_padding=np.ones((2, 3), bool)),
    }
    for match, act in acts.items():
        with pytest.raises(phasor.Error, match=match):
            act()
    np.testing.assert_array_equal(cache.keys, keys)
    np.testing.assert_array_equal(cache.positions(), np.arange(TOKENS))


def test_changes_are_refused_while_another_thread_reads() -> None:
    k = normal(1, 4000, 2, 64)
    cache = phasor.KVCache(key_heads=2, head_dim=64, capacity=4000)
    cache.append(k, k)
    q = normal(1, 64, 2, 64)

    def read() -> None:
        for _ in range(500):
            if refused:
                return
            cache.attention(q, threads=1)

    refused = False
    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive() and not refused:
        try:
            cache.truncate(4000)
        except phasor.Error as error:
            refused = "KVCache" in str(error) and "thread" in str(error)
    reader.join()
    assert refused
    cache.truncate(3999)
    assert len(cache) == 3999
