"""Which keys a query sees: masks, windows, lengths, padding, parts of the keys and packed sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import phasor
from attention_formula import hidden, normal, plain


def test_masks_of_every_rank_and_kind() -> None:
    q, k, v = normal(2, 5, 4, 8), normal(2, 7, 4, 8), normal(2, 7, 4, 8)
    rng = np.random.default_rng(5)
    for shape in [(5, 7), (1, 7), (5, 1), (4, 5, 7), (4, 1, 7), (2, 4, 5, 7), (2, 1, 5, 7), (2, 1, 1, 7)]:
        keep = rng.random(shape) < 0.7
        keep[..., 0] = True
        expected = plain(q, k, v, hidden(keep))
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=keep), expected, atol=2e-6, err_msg=str(shape))
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=keep.astype(np.uint8)), expected, atol=2e-6)
        bias = rng.standard_normal(shape).astype(np.float32)
        expected = plain(q, k, v, bias)
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=bias), expected, atol=2e-6, err_msg=str(shape))
        # Read through its strides: a transposed array, every second entry, reversed.
        apart = np.asfortranarray(np.repeat(bias, 2, axis=-1))[..., ::2]
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=apart), expected, atol=2e-6)
        backwards = bias[..., ::-1].copy()[..., ::-1]
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=backwards), expected, atol=2e-6)
        np.testing.assert_allclose(phasor.attention(q, k, v, mask=bias.astype(np.float64)), expected, atol=2e-6)
        # With float64 tensors, a float64 mask is used in full precision.
        wide = [x.astype(np.float64) for x in (q, k, v)]
        fine = rng.standard_normal(shape)
        np.testing.assert_allclose(phasor.attention(*wide, mask=fine), plain(*wide, fine), atol=1e-13)
        apart = np.asfortranarray(np.repeat(fine, 2, axis=-1))[..., ::2]
        np.testing.assert_allclose(phasor.attention(*wide, mask=apart), plain(*wide, fine), atol=1e-13)


def test_window_scale_soft_cap_lengths_and_padding() -> None:
    q, k, v = normal(2, 6, 2, 8), normal(2, 6, 2, 8, seed=1), normal(2, 6, 2, 8, seed=2)
    near = np.abs(np.arange(6)[:, None] - np.arange(6)) < 2
    np.testing.assert_allclose(phasor.attention(q, k, v, window=2), plain(q, k, v, hidden(near)), atol=2e-6)
    np.testing.assert_allclose(phasor.attention(q, k, v, scale=0.1), plain(q, k, v, scale=0.1), atol=2e-6)
    scores = np.einsum("bmhd,bnhd->bhmn", q, k).astype(np.float64) / np.sqrt(8)
    capped = plain(q, k, v, np.tanh(scores) - scores)
    np.testing.assert_allclose(phasor.attention(q, k, v, soft_cap=1.0), capped, atol=2e-6)
    keep = np.arange(6)[None] < np.array([6, 4])[:, None]
    expected = plain(q, k, v, hidden(keep)[:, None, None])
    np.testing.assert_allclose(phasor.attention(q, k, v, key_lengths=[6, 4]), expected, atol=2e-6)
    np.testing.assert_allclose(phasor.attention(q, k, v, key_padding=keep), expected, atol=2e-6)


def test_query_offset_over_parts_of_the_keys() -> None:
    q, k, v, d_out = (normal(1, 9, 2, 8, seed=i, dtype=np.float64) for i in range(4))
    spec = phasor.RopeSpec(8, layout="half")
    options: dict[str, Any] = {"encoding": spec, "causal": True, "window": 5}
    whole = np.empty((1, 2, 9))
    expected = phasor.attention(q, k, v, log_sum_exp=whole, **options)
    d_expected = [np.empty_like(x) for x in (q, k, v)]
    phasor.attention_backward(
        q, k, v, expected, whole, d_out, d_q=d_expected[0], d_k=d_expected[1], d_v=d_expected[2], **options
    )
    out, d_q = np.zeros_like(q), np.zeros_like(q)
    for first, last in ((0, 4), (4, 9)):
        part: dict[str, Any] = options | {"query_offset": -first, "query_positions": 0, "key_positions": first}
        keys, values = k[:, first:last], v[:, first:last]
        sums = np.empty((1, 2, 9))
        some = phasor.attention(q, keys, values, log_sum_exp=sums, **part)
        out += some * np.exp(sums - whole).transpose(0, 2, 1)[..., None]
        d_part = [np.empty_like(x) for x in (q, keys, values)]
        phasor.attention_backward(
            q, keys, values, expected, whole, d_out, d_q=d_part[0], d_k=d_part[1], d_v=d_part[2], **part
        )
        d_q += d_part[0]
        np.testing.assert_allclose(d_part[1], d_expected[1][:, first:last], atol=1e-12)
        np.testing.assert_allclose(d_part[2], d_expected[2][:, first:last], atol=1e-12)
    np.testing.assert_allclose(out, expected, atol=1e-12)
    np.testing.assert_allclose(d_q, d_expected[0], atol=1e-12)


def test_packed_sequences_are_those_one_by_one() -> None:
    q, k, v = (normal(9, 2, 8, seed=i) for i in range(3))
    spec = phasor.RopeSpec(8, layout="half")
    bounds = [0, 4, 9]
    packed = phasor.attention(
        q, k, v, encoding=spec, causal=True, query_boundaries=bounds, key_boundaries=np.array(bounds, np.int32)
    )
    for first, last in zip(bounds, bounds[1:], strict=False):
        alone = phasor.attention(q[first:last], k[first:last], v[first:last], encoding=spec, causal=True)
        np.testing.assert_allclose(packed[first:last], alone, atol=2e-6)
