"""phasor.torch.parallel = phasor.torch on one rank. Every rank runs every test; torch_parallel_test.py starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import phasor
import phasor.torch as pt
import pytest
import torch
import torch.distributed as dist
from phasor.torch import parallel
from torch import Tensor

torch.set_num_threads(1)
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SPEC = phasor.RopeSpec(8, layout="half")
DYNAMIC = phasor.RopeSpec(
    8, layout="half", max_position_embeddings=8, scaling={"rope_type": "dynamic", "factor": 2.0}
)


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['PHASOR_RANKS_FILE']}",
        rank=RANK,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    yield
    dist.destroy_process_group()


# The largest difference, relative and absolute.
BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2}


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def near(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=BOUNDS[got.dtype], atol=BOUNDS[got.dtype])


def table(*shape: int) -> Tensor:
    return randn(*shape, seed=9).requires_grad_()


CASES: dict[str, dict[str, Any]] = {
    "rope": {"encoding": SPEC, "causal": True},
    "rope, not causal": {"encoding": SPEC},
    "dynamic scaling": {"encoding": DYNAMIC, "causal": True},
    "window": {"encoding": SPEC, "causal": True, "window": 4},
    "window, not causal": {"window": 5},
    "alibi, soft cap": {"encoding": {"encoding": "alibi"}, "causal": True, "soft_cap": 3.0},
    "t5": {"encoding": {"encoding": "t5", "relative_attention_bias": table(8, 4), "max_distance": 16}},
    "shaw": {"encoding": {"encoding": "shaw", "rel_k": table(7, 8), "rel_v": table(7, 8), "clip": 3}, "causal": True},
    "bert_relative": {
        "encoding": {
            "encoding": "bert_relative",
            "distance_embedding": table(33, 8),
            "position_embedding_type": "relative_key_query",
        }
    },
    "kerple": {"encoding": {"encoding": "kerple", "r1": table(4).detach().abs() + 0.1, "r2": torch.ones(1, dtype=torch.float64)}},
    "two encodings": {"encoding": [{"encoding": "alibi"}, {"encoding": "shaw", "rel_k": table(7, 8), "clip": 3}]},
}


def tables_of(options: dict[str, Any]) -> list[Tensor]:
    encoding = options.get("encoding")
    parts = encoding if isinstance(encoding, list) else [encoding]
    members = [value for part in parts if isinstance(part, dict) for value in part.values()]
    return [value for value in members if isinstance(value, Tensor) and value.requires_grad]


def gradients(out: Tensor, d_out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((out * d_out).sum(), inputs)


@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
@pytest.mark.parametrize("case", CASES)
def test_equals_one_rank(case: str, order: Any) -> None:
    compare(17, 17, order, CASES[case])


def compare(queries: int, keys: int, order: Any, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> None:
    q, d_out = (randn(2, queries, 4, 8, seed=seed, dtype=dtype) for seed in (0, 3))
    k, v = (randn(2, keys, 2, 8, seed=seed, dtype=dtype) for seed in (1, 2))
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    tables = tables_of(options)
    expected = pt.attention(*whole, **options)
    d_expected = gradients(expected, d_out, [*whole, *tables])

    def cut(x: Tensor) -> Tensor:
        return parallel.shard(x, order=order)

    mine = [cut(x).requires_grad_() for x in (q, k, v)]
    out = parallel.attention(*mine, order=order, **options)
    d_mine = gradients(out, cut(d_out), [*mine, *tables])
    near(parallel.unshard(out, order=order), expected.detach())
    for got, wanted in zip(d_mine[:3], d_expected[:3], strict=True):
        near(got, cut(wanted))
    for got, wanted in zip(d_mine[3:], d_expected[3:], strict=True):
        dist.all_reduce(got)  # each rank has its part
        near(got, wanted)


@pytest.mark.parametrize("tokens", [(0, 0), (1, 1), (2, 2), (5, 5), (3, 11)])
def test_shards_of_few_tokens(tokens: tuple[int, int]) -> None:
    compare(*tokens, "zigzag", {"encoding": SPEC, "causal": True})


def test_other_types() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        compare(9, 9, "zigzag", {"encoding": SPEC, "causal": True}, dtype)


def test_key_padding_and_no_batch() -> None:
    q, k, v = (randn(11, 2, 8, seed=seed) for seed in range(3))
    padding = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1]], dtype=torch.bool)
    expected = pt.attention(q, k, v, key_padding=padding, causal=True)
    out = parallel.attention(*(parallel.shard(x) for x in (q, k, v)), key_padding=padding, causal=True)
    near(parallel.unshard(out), expected)


def test_a_group_of_some_ranks() -> None:
    part = dist.new_group([RANKS - 2, RANKS - 1])
    if RANK < RANKS - 2:
        with pytest.raises(phasor.Error, match="not a rank"):
            parallel.shard(torch.zeros(4, 1, 8), group=part)
        return
    q, k, v = (randn(10, 2, 8, seed=seed) for seed in range(3))
    mine = [parallel.shard(x, group=part).requires_grad_() for x in (q, k, v)]
    out = parallel.attention(*mine, group=part, encoding=SPEC, causal=True)
    whole = parallel.unshard(out, group=part)
    near(whole, pt.attention(q, k, v, encoding=SPEC, causal=True))
    out.sum().backward()
    assert all(x.grad is not None for x in mine)


def refused(code: str, *words: str, **changes: Any) -> None:
    """Every rank raises the same line."""
    x = parallel.shard(randn(12, 2, 8))
    arguments = {"q": x, "k": x, "v": x} | changes
    with pytest.raises(phasor.Error) as raised:
        parallel.attention(**arguments)
    lines: list[Any] = [None] * RANKS
    dist.all_gather_object(lines, str(raised.value))
    assert lines == [lines[0]] * RANKS
    assert raised.value.code == code and "\n" not in lines[0]
    assert all(word in lines[0] for word in words), lines[0]


def test_every_rank_refuses_with_the_same_line() -> None:
    last = RANK == RANKS - 1
    refused("invalid_argument", "order", "spiral", order="spiral")
    refused("invalid_argument", f"rank {RANKS - 1}", "str", **({"q": "text"} if last else {}))
    refused("shape_mismatch", f"rank {RANKS - 1}", "[3, 2, 4]", **({"v": torch.zeros(3, 2, 4, dtype=torch.float64)} if last else {}))
    refused("invalid_argument", "rank 0 has", f"rank {RANKS - 1} has", '"window": 3', **({"window": 3} if last else {}))
    refused("invalid_argument", "base", **({"encoding": phasor.RopeSpec(8, layout="half", base=500.0 + RANK)}))
    x = torch.zeros(6 // RANKS + 3 * (RANK == 0), 2, 8, dtype=torch.float64)
    refused("shape_mismatch", "rank 0 must have", f"got {6 // RANKS + 3}", q=x, k=x, v=x)
    refused("shape_mismatch", "[1, 12]", "[1, 5]", key_padding=torch.ones(1, 5, dtype=torch.bool))
    refused("unsupported", "xlnet", encoding=[{"encoding": [{"encoding": "xlnet", "k_head_r": randn(24, 2, 8)}]}])
    # Found while the keys travel.
    refused("shape_mismatch", "rank 0", "64", encoding=phasor.RopeSpec(64, layout="half"))
    # The group still works.
    assert torch.equal(parallel.unshard(parallel.shard(torch.arange(7), axis=0), axis=0), torch.arange(7))


def test_second_derivatives_are_refused() -> None:
    x = parallel.shard(randn(6, 2, 8)).requires_grad_()
    out = parallel.attention(x, x, x)
    with pytest.raises(phasor.Error, match="create_graph") as raised:
        torch.autograd.grad(out.sum(), x, create_graph=True)
    assert raised.value.code == "unsupported"
