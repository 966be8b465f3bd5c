"""Positions of encodings that read distances: explicit matrices, gradients, orders of keys and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
import pytest

Array = npt.NDArray[Any]
BATCH, TOKENS, HEADS, DIM = 2, 9, 2, 4


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


TABLES: dict[str, dict[str, tuple[int, ...]]] = {
    "alibi": {},
    "t5": {"relative_attention_bias": (8, HEADS)},
    "kerple": {"r1": (HEADS,), "r2": (HEADS,)},
    "shaw": {"rel_k": (7, DIM), "rel_v": (7, DIM)},
    "bert_relative": {"distance_embedding": (81, DIM)},
    "transformer_xl": {"r_head": (81, HEADS, DIM), "u_bias": (HEADS, DIM), "v_bias": (HEADS, DIM)},
    "deberta_v1": {"pos_k": (HEADS, 12, DIM), "pos_q": (HEADS, 12, DIM)},
    "tupe": {"pos_q": (HEADS, 41, 3), "pos_k": (HEADS, 41, 3)},
}
MEMBERS: dict[str, dict[str, Any]] = {
    "t5": {"max_distance": 20, "bidirectional": True},
    "shaw": {"clip": 3},
    "bert_relative": {"position_embedding_type": "relative_key_query"},
    "transformer_xl": {"first_distance": 40},
    "deberta_v1": {"max_relative_positions": 6},
}


def t5_bucket(key_minus_query: Array, buckets: int, max_distance: int) -> Array:
    half, exact = buckets // 2, buckets // 4
    far = np.abs(key_minus_query)
    steps = np.log(np.maximum(far, 1) / exact) / np.log(max_distance / exact) * (half - exact)
    inside = np.where(far < exact, far, np.minimum(exact + steps.astype(int), half - 1))
    return np.where(key_minus_query > 0, half + inside, inside)


def expected(name: str, t: dict[str, Array], q: Array, k: Array, v: Array, m: Array, n: Array) -> Array:
    """The whole matrix, in float64: m [batch, queries], n [batch, keys]."""
    d = m[:, :, None] - n[:, None, :]
    scores = np.einsum("bmhd,bnhd->bhmn", q, k)
    scale, added, rows = DIM**-0.5, np.zeros(()), None
    if name == "alibi":
        added = -np.array([2.0**-4, 2.0**-8])[:, None, None] * np.abs(d)[:, None]
    elif name == "t5":
        scale = 1.0
        added = np.moveaxis(t["relative_attention_bias"][t5_bucket(-d, 8, 20)], -1, 1)
    elif name == "kerple":
        r1, r2 = (t[member][:, None, None] for member in ("r1", "r2"))
        added = -r1 * np.log1p(r2 * np.abs(d)[:, None])
    elif name == "shaw":
        x = np.clip(-d, -3, 3) + 3
        scores += np.einsum("bmhd,bmnd->bhmn", q, t["rel_k"][x])
        rows = t["rel_v"][x]
    elif name == "bert_relative":
        table = t["distance_embedding"][d + 40]
        scores += np.einsum("bmhd,bmnd->bhmn", q, table) + np.einsum("bnhd,bmnd->bhmn", k, table)
    elif name == "transformer_xl":
        scores += np.einsum("hd,bnhd->bhn", t["u_bias"], k)[:, :, None]
        scores += np.einsum("bmhd,bmnhd->bhmn", q + t["v_bias"], t["r_head"][40 - d])
    elif name == "deberta_v1":
        x = np.clip(d + 6, 0, 11)
        scores += np.einsum("bmhd,hbmnd->bhmn", q, t["pos_k"][:, x])
        scores += np.einsum("bnhd,hbmnd->bhmn", k, t["pos_q"][:, x])
        scale = (3 * DIM) ** -0.5
    elif name == "tupe":
        scores += np.einsum("hbmd,hbnd->bhmn", t["pos_q"][:, m], t["pos_k"][:, n])
        scale = (2 * DIM) ** -0.5
    scores = scores * scale + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out: Array = np.einsum("bhmn,bnhd->bmhd", weights, v)
    return out if rows is None else out + np.einsum("bhmn,bmnd->bmhd", weights, rows)


POSITIONS: dict[str, Array] = {
    "left padding": np.array([[1, 1, 0, 1, 2, 3, 4, 5, 6], np.arange(9)]),
    "gaps": np.array([[0, 1, 2, 10, 11, 12, 30, 31, 32], [0, 5, 6, 7, 8, 9, 10, 11, 40]]),
    "packed": np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1], [0, 1, 0, 1, 0, 1, 0, 1, 2]]),
    "reordered": np.array([[4, 2, 0, 8, 1, 3, 7, 6, 5], [8, 7, 6, 5, 4, 3, 2, 1, 0]]),
}


def problem(name: str) -> tuple[list[Array], dict[str, Array], Any]:
    heads = [normal(BATCH, TOKENS, HEADS, DIM, seed=i) for i in range(4)]
    tables = {member: normal(*shape, seed=7) for member, shape in TABLES[name].items()}
    if name == "kerple":
        tables = {member: np.abs(table) + 0.1 for member, table in tables.items()}
    return heads, tables, phasor.Encoding(name, **MEMBERS.get(name, {}), **tables)


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("name", TABLES)
def test_distances_are_those_of_the_positions(name: str, kind: str) -> None:
    (q, k, v, _), tables, encoding = problem(name)
    n = POSITIONS[kind]
    for m in (n, n[:, ::-1].copy()):
        want = expected(name, tables, q, k, v, m, n)
        got = phasor.attention(q, k, v, encoding=encoding, query_positions=m, key_positions=n)
        np.testing.assert_allclose(got, want, atol=1e-12)
        narrow = (x.astype(np.float32) for x in (q, k, v))
        got = phasor.attention(*narrow, encoding=encoding, query_positions=m, key_positions=n.astype(np.float64))
        np.testing.assert_allclose(got, want, atol=1e-5)
    counted = np.arange(TOKENS)
    np.testing.assert_allclose(
        phasor.attention(q, k, v, encoding=encoding),
        expected(name, tables, q, k, v, counted[None], counted[None]),
        atol=1e-12,
    )


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name]])
def test_gradients_against_finite_differences(name: str) -> None:
    (q, k, v, d_out), tables, encoding = problem(name)
    m, n = POSITIONS["gaps"], POSITIONS["reordered"]
    options: dict[str, Any] = {"encoding": encoding, "query_positions": m, "key_positions": n}
    wide = gradients(q, k, v, d_out, tables, options)
    step, rng = 1e-6, np.random.default_rng(3)
    inputs = {"q": q, "k": k, "v": v} | tables
    for member, array in inputs.items():
        direction = rng.standard_normal(array.shape)
        kept = array.copy()
        losses = []
        for sign in (1.0, -1.0):
            array[...] = kept + sign * step * direction
            losses.append(float((phasor.attention(q, k, v, **options) * d_out).sum()))
        array[...] = kept
        slope = (losses[0] - losses[1]) / (2 * step)
        assert float((wide[member] * direction).sum()) == pytest.approx(slope, rel=1e-6, abs=1e-7), member
    narrow = [x.astype(np.float32) for x in (q, k, v, d_out)]
    for member, gradient in gradients(*narrow, tables, options).items():
        np.testing.assert_allclose(gradient, wide[member], atol=2e-4, err_msg=member)


def gradients(
    q: Array, k: Array, v: Array, d_out: Array, tables: dict[str, Array], options: dict[str, Any]
) -> dict[str, Array]:
    sums = np.empty((BATCH, HEADS, TOKENS), q.dtype)
    out = phasor.attention(q, k, v, log_sum_exp=sums, **options)
    of_heads = {name: np.empty_like(x) for name, x in zip("qkv", (q, k, v), strict=True)}
    of_tables = {member: np.zeros_like(table) for member, table in tables.items()}
    phasor.attention_backward(
        q, k, v, out, sums, d_out,
        d_q=of_heads["q"], d_k=of_heads["k"], d_v=of_heads["v"], d_tables=of_tables, **options,
    )  # fmt: skip
    return of_heads | of_tables


@pytest.mark.parametrize("name", TABLES)
def test_keys_in_another_order_are_the_same_keys(name: str) -> None:
    (q, k, v, _), _, encoding = problem(name)
    n, order = POSITIONS["gaps"], np.random.default_rng(1).permutation(TOKENS)
    one = phasor.attention(q, k, v, encoding=encoding, query_positions=n, key_positions=n)
    other = phasor.attention(
        q, k[:, order], v[:, order], encoding=encoding, query_positions=n, key_positions=n[:, order]
    )
    np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "tupe"])
def test_an_offset_of_all_changes_nothing(name: str) -> None:
    (q, k, v, _), _, encoding = problem(name)
    one = phasor.attention(q, k, v, encoding=encoding, causal=True)
    at = np.arange(TOKENS) + 1000
    other = phasor.attention(q, k, v, encoding=encoding, causal=True, query_positions=at, key_positions=1000)
    np.testing.assert_array_equal(one, other)


def test_masks_count_tokens() -> None:
    (q, k, v, _), tables, encoding = problem("alibi")
    n = POSITIONS["reordered"]
    got = phasor.attention(q, k, v, encoding=encoding, causal=True, query_positions=n, key_positions=n)
    first = expected("alibi", tables, q[:, :1], k[:, :1], v[:, :1], n[:, :1], n[:, :1])
    np.testing.assert_allclose(got[:, :1], first, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "positions", "match", "code"),
    [
        ("alibi", np.arange(TOKENS) * 0.5, "key_positions.* 0.5", "unsupported"),
        ("t5", np.arange(TOKENS) * 0.5, "key_positions.* 0.5", "unsupported"),
        ("shaw", np.zeros((3, BATCH, TOKENS)), "key_positions .*3 axes", "unsupported"),
        ("alibi", np.arange(TOKENS) << 30, "2\\^28", "out_of_range"),
        ("bert_relative", np.arange(TOKENS) * 20, "query_rows .*-160", "out_of_range"),
        ("tupe", np.arange(TOKENS) - 1, "key_positions .*-1", "out_of_range"),
        ("tupe", np.arange(TOKENS) * 10, "extra_key .*81 rows, got 41", "shape_mismatch"),
        ("alibi", np.arange(TOKENS + 1), r"\[10\]", "shape_mismatch"),
    ],
)
def test_positions_that_an_encoding_cannot_have(name: str, positions: Array, match: str, code: str) -> None:
    (q, k, v, _), _, encoding = problem(name)
    out = np.full_like(q, 7.0)
    with pytest.raises(phasor.Error, match=match) as refused:
        phasor.attention(q, k, v, encoding=encoding, key_positions=positions, out=out)
    assert refused.value.code == code
    assert (out == 7.0).all()
