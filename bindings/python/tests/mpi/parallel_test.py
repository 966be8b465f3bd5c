"""phasor.parallel = phasor on one rank. Every rank runs every test: scripts/ranks.sh N python -m pytest FILE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import phasor
import pytest
from mpi4py import MPI
from phasor import parallel

Array = npt.NDArray[Any]
WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
ORDERS = ["contiguous", "zigzag", "striped"]
SPEC = phasor.RopeSpec(8, layout="half")
DYNAMIC = phasor.RopeSpec(8, layout="half", max_position_embeddings=8, scaling={"rope_type": "dynamic", "factor": 2.0})


@pytest.fixture(scope="module")
def ranks() -> parallel.Communicator:
    return parallel.Communicator(WORLD, patience=30.0)


def normal(*shape: int, seed: int = 0, dtype: npt.DTypeLike = np.float64) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def encodings(tokens: int) -> dict[str, Any]:
    """Encodings with 4 heads and head_dim 8, each with its tables."""
    return {
        "rope": SPEC,
        "dynamic": DYNAMIC,
        "alibi": {"encoding": "alibi"},
        "t5": {"encoding": "t5", "relative_attention_bias": normal(8, 4, seed=4), "max_distance": 16},
        "shaw": {"encoding": "shaw", "rel_k": normal(7, 8, seed=5), "rel_v": normal(7, 8, seed=6), "clip": 3},
        "kerple": {"encoding": "kerple", "r1": np.full(4, 0.7), "r2": np.full(4, 1.3)},
        "xlnet": {"encoding": "xlnet", "k_head_r": normal(2 * tokens, 4, 8, seed=7), "r_w_bias": normal(4, 8), "r_r_bias": normal(4, 8)},
        "two": [{"encoding": "alibi"}, {"encoding": "shaw", "rel_k": normal(7, 8, seed=5), "clip": 3}],
    }  # fmt: skip


def tables_of(encoding: Any) -> dict[str, Array]:
    if isinstance(encoding, list):
        return {f"{i}.{name}": table for i, part in enumerate(encoding) for name, table in tables_of(part).items()}
    return {name: table for name, table in encoding.items() if isinstance(table, np.ndarray)} if isinstance(encoding, dict) else {}


def tensors(queries: int, keys: int, dtype: npt.DTypeLike = np.float64) -> tuple[Array, ...]:
    """q, k, v and the gradient of the output."""
    shapes = ((2, queries, 4, 8), (2, keys, 2, 8), (2, keys, 2, 8), (2, queries, 4, 8))
    return tuple(normal(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes))


def compare(
    ranks: parallel.Communicator, queries: int, keys: int, order: Any, strategy: Any = "ring", **options: Any
) -> parallel.AttentionPlan:
    """Output, log-sum-exp and gradients of the ranks against one rank's, in float64."""
    q, k, v, d_out = whole = tensors(queries, keys)
    sums = np.empty((2, 4, queries))
    expected = phasor.attention(q, k, v, log_sum_exp=sums, **options)
    d_expected = [np.empty_like(x) for x in (q, k, v)]
    d_tables = {name: np.zeros_like(table) for name, table in tables_of(options.get("encoding")).items()}
    phasor.attention_backward(
        q, k, v, expected, sums, d_out, d_q=d_expected[0], d_k=d_expected[1], d_v=d_expected[2], d_tables=d_tables, **options
    )
    mine = [parallel.shard(x, ranks, order=order) for x in whole]
    plan = parallel.AttentionPlan(*mine[:3], ranks, order=order, strategy=strategy, backward=True, **options)
    own_sums = np.empty((2, 4, mine[0].shape[1]))
    out = plan.run(*mine[:3], log_sum_exp=own_sums)
    np.testing.assert_allclose(parallel.unshard(out, ranks, order=order), expected, atol=1e-11)
    np.testing.assert_allclose(own_sums, sums[..., parallel.tokens(queries, ranks, order=order)], atol=1e-11)
    d_mine = [np.empty_like(x) for x in mine[:3]]
    d_own = {name: np.ones_like(table) for name, table in d_tables.items()}  # added to
    plan.run_backward(
        *mine[:3], out, own_sums, mine[3], d_q=d_mine[0], d_k=d_mine[1], d_v=d_mine[2], d_tables=d_own or None
    )
    for got, wanted in zip(d_mine, d_expected, strict=True):
        np.testing.assert_allclose(parallel.unshard(got, ranks, order=order), wanted, atol=1e-10)
    for name, wanted in d_tables.items():
        np.testing.assert_allclose(d_own[name] - 1.0, wanted, atol=1e-9, err_msg=name)
    assert plan.tokens == queries
    return plan


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", encodings(1))
def test_equals_one_rank(ranks: parallel.Communicator, name: str, order: str) -> None:
    compare(ranks, 17, 17, order, encoding=encodings(17)[name], causal=name != "t5")


HEADS = [name for name in encodings(1) if 4 % RANKS == 0]  # 4 heads are divided between ranks


@pytest.mark.parametrize("name", HEADS)
def test_heads_equal_one_rank(ranks: parallel.Communicator, name: str) -> None:
    plan = compare(ranks, 17, 17, "zigzag", encoding=encodings(17)[name], causal=name != "t5", strategy="heads")
    assert plan.strategy == "heads"


def test_strategy(ranks: parallel.Communicator) -> None:
    x, few = parallel.shard(normal(24, 12, 8), ranks), parallel.shard(normal(24, 12, 1), ranks)
    # Many ranks send fewer bytes by heads, two as many; a window keeps the ring's messages among neighbours.
    assert parallel.AttentionPlan(x, x, x, ranks).strategy == ("heads" if RANKS > 2 else "ring")
    window: dict[str, Any] = {"order": "contiguous", "causal": True, "window": 2}
    assert parallel.AttentionPlan(x, x, x, ranks, **window).strategy == "ring"
    assert parallel.AttentionPlan(x, x, x, ranks, strategy="ring").strategy == "ring"
    assert parallel.AttentionPlan(x[:, :, :4], x[:, :1, :4], few[:, :1], ranks).strategy == "ring"
    odd = parallel.shard(normal(24, 5, 8), ranks)
    assert parallel.AttentionPlan(odd, odd, odd, ranks).strategy == "ring"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"features": "favor", "feature_count": 16, "rotates": "inputs", "seed": 3}])
def test_linear_attention_equals_one_rank(ranks: parallel.Communicator, causal: bool, options: dict[str, Any]) -> None:
    options = options | {"encoding": SPEC, "causal": causal}
    q, k, v, d_out = whole = tensors(17, 17, np.float32)
    expected = phasor.linear_attention(q, k, v, **options)
    d_expected = [np.empty_like(x) for x in (q, k, v)]
    phasor.linear_attention_backward(
        q, k, v, d_out, d_q=d_expected[0], d_k=d_expected[1], d_v=d_expected[2], **options
    )
    mine = [parallel.shard(x, ranks, order="contiguous") for x in whole]
    out = parallel.linear_attention(*mine[:3], ranks, **options)
    np.testing.assert_allclose(parallel.unshard(out, ranks, order="contiguous"), expected, rtol=1e-4, atol=1e-5)
    plan = parallel.LinearAttentionPlan(*mine[:3], ranks, backward=True, **options)
    np.testing.assert_array_equal(plan.run(*mine[:3]), out)
    d_mine = [np.empty_like(x) for x in mine[:3]]
    plan.run_backward(*mine[:3], mine[3], d_q=d_mine[0], d_k=d_mine[1], d_v=d_mine[2])
    for got, wanted in zip(d_mine, d_expected, strict=True):
        whole_got = parallel.unshard(got, ranks, order="contiguous")
        np.testing.assert_allclose(whole_got, wanted, rtol=1e-4, atol=1e-4)
    assert plan.tokens == 17 and plan.nbytes > 0 and (plan.bytes_sent > 0) == (RANKS > 1)


@pytest.mark.parametrize("order", ORDERS)
def test_options(ranks: parallel.Communicator, order: str) -> None:
    compare(ranks, 17, 17, order, encoding=SPEC, causal=True, window=5, soft_cap=3.0)
    padding = np.arange(34).reshape(2, 17) % 5 != 0
    compare(ranks, 17, 17, order, encoding=SPEC, key_padding=padding, scale=0.5)
    positions = np.arange(17) * 3 + 100
    compare(ranks, 17, 17, order, encoding=SPEC, causal=True, query_positions=positions, key_positions=positions)
    compare(ranks, 5, 13, order, encoding=SPEC, causal=True)


def test_packed_sequences(ranks: parallel.Communicator) -> None:
    q, k, v = (normal(1, 19, 2, 8, seed=seed) for seed in range(3))
    options: dict[str, Any] = {"encoding": SPEC, "causal": True, "query_boundaries": [0, 4, 15, 19], "key_boundaries": [0, 4, 15, 19]}
    expected = phasor.attention(q, k, v, **options)
    out = parallel.attention(*(parallel.shard(x, ranks) for x in (q, k, v)), ranks, **options)
    np.testing.assert_allclose(parallel.unshard(out, ranks), expected, atol=1e-12)


@pytest.mark.parametrize("tokens", [0, 1, 2, 7])
def test_shards_of_few_tokens(ranks: parallel.Communicator, tokens: int) -> None:
    compare(ranks, tokens, tokens, "zigzag", encoding=SPEC, causal=True)


def test_types_and_the_wire(ranks: parallel.Communicator) -> None:
    for dtype, wire, bound in (
        (np.float32, "f32", 1e-5),
        (np.float32, "bf16", 0.05),
        (np.float16, "f32", 5e-3),
        (ml_dtypes.bfloat16, "bf16", 0.06),
    ):
        q, k, v, _ = tensors(20, 20, dtype)
        expected = phasor.attention(*(x.astype(np.float64) for x in (q, k, v)), encoding=SPEC, causal=True)
        mine = [parallel.shard(x, ranks) for x in (q, k, v)]
        plan = parallel.AttentionPlan(*mine, ranks, encoding=SPEC, causal=True, strategy="ring", wire=wire)
        out = np.empty_like(mine[0])
        assert plan.run(*mine, out=out) is out and out.dtype == dtype
        np.testing.assert_allclose(parallel.unshard(out, ranks).astype(np.float64), expected, atol=bound)
        assert plan.nbytes > 0
        if wire == "f32" and RANKS == 2:
            assert plan.bytes_sent == 2 * 10 * 2 * (8 + 8) * 4  # the other rank sees keys of this one
        elif RANKS == 2:
            assert plan.bytes_sent == 2 * 10 * 2 * (8 + 8) * 2


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float64, 1e-11)])
def test_a_plan_is_run_again_with_other_numbers_and_tables(
    ranks: parallel.Communicator, dtype: type[np.floating[Any]], bound: float
) -> None:
    table = normal(7, 8, dtype=dtype)
    encoding = {"encoding": "shaw", "rel_k": table, "clip": 3}
    q, k, v, _ = tensors(19, 19, dtype)
    mine = [parallel.shard(x, ranks) for x in (q, k, v)]
    plans = [parallel.AttentionPlan(*mine, ranks, encoding=encoding, strategy="ring")]
    if 4 % RANKS == 0:
        plans.append(parallel.AttentionPlan(*mine, ranks, encoding=encoding, strategy="heads"))
    for plan in plans:
        plan.run(*mine)
    table *= 2.0
    half = dtype(0.5)
    expected = phasor.attention(q + half, k + half, v + half, encoding=encoding)
    for x in mine:
        x += half
    for plan in plans:
        plan.update_tables()
        np.testing.assert_allclose(parallel.unshard(plan.run(*mine), ranks), expected, atol=bound)


def test_a_communicator_of_mpi4py_is_taken_as_it_is() -> None:
    q, k, v = (normal(6, 2, 8, seed=seed) for seed in range(3))
    for comm in (WORLD, WORLD.Split(RANK // 2, RANK), MPI.COMM_SELF):
        out = parallel.attention(*(parallel.shard(x, comm) for x in (q, k, v)), comm, causal=True)
        whole = parallel.unshard(out, comm)
        np.testing.assert_allclose(whole, phasor.attention(q, k, v, causal=True), atol=1e-12)


def chunks_of(order: str, tokens: int, ranks: int, rank: int) -> list[int]:
    """The definition, in another form than the library's."""
    if order == "striped":
        return [t for t in range(tokens) if t % ranks == rank]
    parts = np.array_split(np.arange(tokens), ranks if order == "contiguous" else 2 * ranks)
    chosen = [rank] if order == "contiguous" else [rank, 2 * ranks - 1 - rank]
    return [int(t) for part in chosen for t in parts[part]]


@pytest.mark.parametrize("order", ORDERS)
def test_shard_and_unshard(ranks: parallel.Communicator, order: Any) -> None:
    for tokens in (0, 1, 5, 12, 31):
        mine = parallel.tokens(tokens, ranks, order=order)
        assert mine.dtype == np.int64 and mine.tolist() == chunks_of(order, tokens, RANKS, RANK)
        for dtype in (np.float32, np.int64, ml_dtypes.bfloat16, np.bool_):
            x = (np.arange(tokens * 6) % 7).reshape(2, tokens, 3).astype(dtype)
            part = parallel.shard(x, ranks, order=order, axis=1)
            np.testing.assert_array_equal(part, x[:, mine])
            whole = parallel.unshard(part, ranks, order=order, axis=-2)
            assert whole.dtype == dtype
            np.testing.assert_array_equal(whole, x)


def refused(code: str, words: tuple[str, ...], call: Callable[[], object]) -> None:
    """Every rank raises the same line."""
    with pytest.raises(phasor.Error) as raised:
        call()
    lines = WORLD.allgather(str(raised.value))
    assert lines == [lines[0]] * RANKS
    assert raised.value.code == code and "\n" not in lines[0]
    assert all(word in lines[0] for word in words), lines[0]


def test_every_rank_refuses_with_the_same_line(ranks: parallel.Communicator) -> None:
    x = parallel.shard(normal(12, 2, 8), ranks)
    last = RANK == RANKS - 1
    rank = f"rank {RANKS - 1}"

    def attention(q: Any = x, k: Any = x, v: Any = x, **options: Any) -> Callable[[], object]:
        return lambda: parallel.attention(q, k, v, ranks, **options)

    refused("invalid_argument", ("order", "heads_first"), attention(order="heads_first"))
    refused("invalid_argument", (rank, "wire", "f8"), attention(wire="f8" if last else "f32"))
    refused("invalid_argument", ("strategy", "star"), attention(strategy="star"))
    if 2 % RANKS != 0:
        refused("shape_mismatch", ("2", str(RANKS)), attention(strategy="heads"))
    refused("invalid_argument", (rank, "q", "str"), attention(q="text" if last else x))
    refused("shape_mismatch", (rank, "[9, 2, 4]"), attention(v=np.zeros((9, 2, 4)) if last else x))
    refused("shape_mismatch", (rank, "head_dim", "64"), attention(encoding=phasor.RopeSpec(64, layout="half") if last else SPEC))
    refused("shape_mismatch", ("key_padding", "[1, 12]", "[5]"), attention(key_padding=np.ones(5, bool)))
    if RANKS > 1:
        wrong = np.zeros((len(x) + 3, 2, 8)) if RANK == 0 else x
        refused("shape_mismatch", ("rank 0 must have",), attention(wrong, wrong, wrong))
        refused("invalid_argument", ("rank 0", rank), attention(window=3 if last else 4, causal=True))
        refused("invalid_argument", ("rank 0", rank), attention(encoding=phasor.RopeSpec(8, layout="half", base=500.0 if last else 600.0)))
        refused("invalid_argument", ("rank 0 has", rank), lambda: parallel.unshard(x.astype(np.float32) if last else x, ranks))
    plan = parallel.AttentionPlan(x, x, x, ranks)
    refused("shape_mismatch", (rank, "[1, 2, 8]"), lambda: plan.run(np.zeros((1, 2, 8)) if last else x, x, x))
    refused("shape_mismatch", (rank, "out"), lambda: plan.run(x, x, x, out=np.zeros((1, 2, 8)) if last else None))
    sums = np.zeros((1, 2, len(x)))
    refused("invalid_argument", ("backward=True",), lambda: plan.run_backward(x, x, x, x, sums, x, d_q=x.copy(), d_k=x.copy(), d_v=x.copy()))


def test_after_a_refusal_the_ranks_still_work(ranks: parallel.Communicator) -> None:
    x = parallel.shard(normal(12, 2, 8), ranks)
    refused("invalid_argument", ("order",), lambda: parallel.attention(x, x, x, ranks, order="spiral"))
    compare(ranks, 12, 12, "zigzag", encoding=SPEC, causal=True)


def test_a_rank_that_does_not_come() -> None:
    hasty = parallel.Communicator(WORLD, patience=3.0)
    assert (hasty.rank, hasty.size, hasty.patience) == (RANK, RANKS, 3.0)
    WORLD.Barrier()
    if RANKS > 1 and RANK > 0:
        with pytest.raises(phasor.Error, match="3000 ms") as raised:
            parallel.unshard(np.zeros((1, 1, 1)), hasty)
        assert raised.value.code == "io"
    WORLD.Barrier()


def test_a_communicator_that_is_none() -> None:
    for wrong in (None, 7, "world", MPI.COMM_NULL):
        with pytest.raises(phasor.Error, match="mpi4py") as raised:
            parallel.Communicator(wrong)
        assert raised.value.code == "invalid_argument"
    for patience in (0.0, -1.0, float("nan"), 1e9):
        with pytest.raises(phasor.Error) as raised:
            parallel.Communicator(WORLD, patience=patience)
        assert raised.value.code == "out_of_range"
