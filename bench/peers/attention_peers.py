"""Attention compared with torch: fused without an encoding, composed with each.

float32, causal, 8 heads of 64, one thread each. `sdpa` is torch.nn.functional.scaled_dot_product_attention, forward and
backward at 2048 and 4096 tokens. `composed` is the encoding's formula as a torch user writes it, with matrix products,
the relative shift or a gather, and softmax; if sdpa can compute the encoding (q and k rotated before it, a bias as its
mask), that is measured too. Everything that depends on the input or on the encoding's tables is
computed in each call, by Phasor and by torch; index tables that depend on the token count only are made before. Each
result is compared with ours before it is timed. The formulas composed in torch are in torch_attention.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import phasor
from timing import Row, check, contest

HEADS, DIM = 8, 64
Array = npt.NDArray[np.float32]


class Attention:
    """Ours on arrays [heads, tokens, dim], with an encoding of torch_attention.py."""

    def __init__(self, encoding: Any, q: Array, k: Array, v: Array) -> None:
        members = {name: value for name, value in encoding.spec.items() if name != "encoding"}
        self.arrays, self.out = (q, k, v), np.zeros_like(q)
        self.how: dict[str, Any] = {
            "encoding": phasor.Encoding(encoding.spec["encoding"], **members, **encoding.tables),
            "causal": True, "order": "heads_first", "threads": 1,
            "query_segments": encoding.segments, "key_segments": encoding.segments,
        }
        self.log_sum_exp: Array | None = None

    def forward(self) -> None:
        phasor.attention(*self.arrays, out=self.out, log_sum_exp=self.log_sum_exp, **self.how)

    def prepare_backward(self, d_out: Array) -> None:
        """Forward once with its sums; forward() writes them from then on, as training does."""
        self.d_out, self.gradients = d_out, [np.zeros_like(array) for array in self.arrays]
        heads, tokens, _ = d_out.shape
        self.log_sum_exp = np.zeros((1, heads, tokens), np.float32)
        self.forward()

    def backward(self) -> None:
        d_q, d_k, d_v = self.gradients
        phasor.attention_backward(*self.arrays, self.out, self.log_sum_exp, self.d_out, d_q=d_q, d_k=d_k, d_v=d_v,
                                  **self.how)


def rows(heap: str, rounds: int, tokens: int, only: str | None, every_backward: bool) -> Iterator[Row]:
    """Every encoding at `tokens`; none at twice as many too."""
    yield from rows_of(heap, rounds, tokens, only, every_backward)
    if only in (None, "none"):
        yield from rows_of(heap, rounds, 2 * tokens, "none", every_backward)


def rows_of(heap: str, rounds: int, tokens: int, only: str | None, every_backward: bool) -> Iterator[Row]:
    import torch

    import torch_attention

    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    q, k, v, d_out = (random.standard_normal((HEADS, tokens, DIM), dtype=np.float32) for _ in range(4))
    inputs = [torch.from_numpy(x)[None] for x in (q, k, v)]
    for encoding in torch_attention.encodings(HEADS, tokens, DIM):
        if only not in (None, encoding.name):
            continue
        ours = Attention(encoding, q, k, v)
        ours.forward()
        for peer, function in encoding.peers.items():
            with torch.no_grad():
                check(f"{encoding.name}, {peer}", ours.out, function(*inputs)[0].numpy(), 1e-4)

            def theirs(function: Any = function) -> None:
                with torch.no_grad():
                    function(*inputs)

            yield from contest({f"attention/{encoding.name}/f32/t{tokens}": ours.forward}, f"torch {peer}, {heap} heap",
                               theirs, rounds, least=1)
        if encoding.name == "none" or every_backward:
            yield from backward_rows(heap, rounds, tokens, encoding, ours, inputs, d_out)


def backward_rows(heap: str, rounds: int, tokens: int, encoding: Any, ours: Attention, inputs: list[Any],
                  d_out: Array) -> Iterator[Row]:
    import torch

    ours.prepare_backward(d_out)
    ours.backward()
    leaves = [x.clone().requires_grad_() for x in inputs]
    gradient = torch.from_numpy(d_out)[None]
    for peer, function in encoding.peers.items():
        result = function(*leaves)
        expected = torch.autograd.grad(result, leaves, gradient, retain_graph=True)
        for mine, their in zip(ours.gradients, expected):
            # Gradients are sums over tokens: differences are relative to the largest.
            check(f"{encoding.name}, {peer}, backward", mine, their[0].numpy(),
                  1e-4 * max(1.0, float(np.abs(mine).max())))

        def theirs(result: Any = result) -> None:
            torch.autograd.grad(result, leaves, gradient, retain_graph=True)

        yield from contest({f"attention_backward/{encoding.name}/f32/t{tokens}": ours.backward},
                           f"torch {peer}, {heap} heap", theirs, rounds, least=1)
