"""Attention under torch.func, against plain formulas in torch."""

from __future__ import annotations

import math

import phasor
import phasor.torch as pt
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacrev, vjp, vmap

SPEC = phasor.RopeSpec(8, layout="half")
TOKENS = 5


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Q, K, V = (randn(2, TOKENS, 2, 8, seed=seed) for seed in range(3))
BIAS = randn(4, 2, seed=3)  # [bucket, head]


def plain_rotated(x: Tensor) -> Tensor:
    """RoFormer (34)."""
    angles = torch.arange(TOKENS, dtype=torch.float64)[:, None] * torch.from_numpy(SPEC.frequencies()[0])
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :4], x[..., 4:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def plain(q: Tensor, k: Tensor = K, v: Tensor = V) -> Tensor:
    scores = torch.einsum("...qhd,...khd->...hqk", plain_rotated(q), plain_rotated(k)) / math.sqrt(8)
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    return torch.einsum("...hqk,...khd->...qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)


def ours(q: Tensor, k: Tensor = K, v: Tensor = V) -> Tensor:
    return pt.attention(q, k, v, encoding=SPEC, causal=True)


def squares(attend: object, *inputs: Tensor) -> Tensor:
    return (attend(*inputs) ** 2).sum()  # type: ignore[operator]


def close(mine: object, theirs: object) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_grad_of_every_input() -> None:
    for place in range(3):
        mine = grad(lambda *x: squares(ours, *x), argnums=place)(Q, K, V)
        close(mine, grad(lambda *x: squares(plain, *x), argnums=place)(Q, K, V))


def test_vjp_and_jacrev() -> None:
    out, pull = vjp(ours, Q)
    expected, plain_pull = vjp(plain, Q)
    close(out, expected)
    close(pull(V)[0], plain_pull(V)[0])
    q, k, v = Q[:1, :, :1], K[:1, :, :1], V[:1, :, :1]
    close(jacrev(lambda x: ours(x, k, v))(q), jacrev(lambda x: plain(x, k, v))(q))


def test_gradients_of_each_sample() -> None:
    mine = vmap(grad(lambda q, k: squares(ours, q, k, V[0]), argnums=(0, 1)))(Q, K)
    close(mine, vmap(grad(lambda q, k: squares(plain, q, k, V[0]), argnums=(0, 1)))(Q, K))
    # The axis of vmap may be another one, and inputs may be shared.
    close(vmap(ours, in_dims=(2, None, None), out_dims=1)(Q[:, :, None], K, V), plain(Q).unsqueeze(1))


@pytest.mark.parametrize("form", ["dictionary", "object"])
def test_gradient_of_a_table(form: str) -> None:
    members = {"num_buckets": 4, "max_distance": 8, "bidirectional": False}
    kept = phasor.Encoding("t5", relative_attention_bias=BIAS, **members)

    def loss(bias: Tensor) -> Tensor:
        encoding = {"encoding": "t5", "relative_attention_bias": bias, **members}
        return squares(lambda q: pt.attention(q, K, V, encoding=encoding, causal=True), Q)

    if form == "object":
        close(
            grad(lambda q: squares(lambda q: pt.attention(q, K, V, encoding=kept, causal=True), q))(Q),
            torch.autograd.functional.jacobian(
                lambda q: squares(lambda q: pt.attention(q, K, V, encoding=kept, causal=True), q), Q
            ),
        )
        return
    bias = BIAS.clone().requires_grad_()
    loss(bias).backward()
    close(grad(loss)(BIAS), bias.grad)


def test_weights_by_functional_call() -> None:
    layer = torch.nn.Linear(8, 8, bias=False, dtype=torch.float64)
    weights = dict(layer.named_parameters())
    found = [
        grad(lambda w, attend=attend: squares(attend, functional_call(layer, w, (Q,))))(weights)["weight"]
        for attend in (ours, plain)
    ]
    close(found[0], found[1])


def test_linear_attention() -> None:
    def attend(q: Tensor, k: Tensor = K, v: Tensor = V) -> Tensor:
        return pt.linear_attention(q, k, v, encoding=SPEC, causal=True)

    for place in range(3):
        inputs = [x.clone().requires_grad_(at == place) for at, x in enumerate((Q, K, V))]
        squares(attend, *inputs).backward()
        close(grad(lambda *x: squares(attend, *x), argnums=place)(Q, K, V), inputs[place].grad)
    each = vmap(grad(lambda q, k, v: squares(attend, q, k, v)))(Q, K, V)
    close(each, grad(lambda q: squares(attend, q))(Q))


def test_what_has_no_derivative_is_refused() -> None:
    with pytest.raises(phasor.Error, match="attention: forward gradients"):
        hessian(lambda q: squares(ours, q, K[:1], V[:1]))(Q[:1])
    with pytest.raises(phasor.Error, match="attention: second derivatives"):
        grad(lambda q: grad(lambda q: squares(ours, q))(q).sum())(Q)
    with pytest.raises(phasor.Error, match="attention: q is a dual tensor"):
        torch.func.jvp(ours, (Q,), (Q,))
    # Attention of constants inside.
    close(torch.func.jvp(lambda x: x * ours(Q), (V,), (K,)), torch.func.jvp(lambda x: x * plain(Q), (V,), (K,)))
