"""Rotation under torch.func and with forward gradients, against a plain formula in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import phasor
import phasor.torch as pt
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

SPEC = phasor.RopeSpec(8, layout="half", rotary_dim=6)
AT = torch.tensor([3, 0, 7, 9])
ROWS = torch.arange(8).reshape(2, 4)  # [batch, tokens]
Turn = Callable[..., Tensor]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, COS, SIN = randn(3, 2, 4, 2, 8), randn(4, 3, seed=1), randn(4, 3, seed=2)


def by(x: Tensor, cos: Tensor = COS, sin: Tensor = SIN) -> Tensor:
    return pt.rotate_by(x, cos, sin, layout="half", rotary_offset=1)


def plain_by(x: Tensor, cos: Tensor = COS, sin: Tensor = SIN, first: int = 1) -> Tensor:
    """RoFormer (34) for features [first, first + 6)."""
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    a, b = x[..., first : first + 3], x[..., first + 3 : first + 6]
    return torch.cat((x[..., :first], a * cos - b * sin, b * cos + a * sin, x[..., first + 6 :]), -1)


def at(x: Tensor, positions: Tensor = AT) -> Tensor:
    return pt.rotate(x, SPEC, positions)


def plain_at(x: Tensor, positions: Tensor = AT) -> Tensor:
    angles = positions.double().unsqueeze(-1) * torch.from_numpy(SPEC.frequencies()[0])
    return plain_by(x, angles.cos(), angles.sin(), 0)


def cubes(turn: Turn) -> Turn:
    return lambda *inputs: (turn(*inputs) ** 3).sum()


def tangent(turn: Turn, x: Tensor, d_x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(turn(forward_ad.make_dual(x, d_x))).tangent
    assert found is not None
    return found


BOTH: dict[str, Callable[[Turn], Any]] = {
    "vmap": lambda turn: vmap(turn)(X),
    "vmap without batch": lambda turn: vmap(turn)(X[0]),
    "vmap of another axis": lambda turn: vmap(turn, in_dims=3)(X.movedim(0, 3)),
    "vmap twice": lambda turn: vmap(vmap(turn))(X),
    "grad": lambda turn: grad(cubes(turn))(X[0]),
    "grad in vmap": lambda turn: vmap(grad(cubes(turn)))(X),
    "grad twice": lambda turn: grad(cubes(grad(cubes(turn))))(X[0]),
    "jvp": lambda turn: jvp(turn, (X[0],), (X[1],)),
    "jacrev": lambda turn: jacrev(turn)(X[0, 0]),
    "jacfwd": lambda turn: jacfwd(turn)(X[0, 0]),
    "hessian": lambda turn: hessian(cubes(turn))(X[0, 0, :, :1]),
    "dual tensors": lambda turn: tangent(turn, X[0], X[1]),
}
WITH_POSITIONS: dict[str, Callable[[Turn], Any]] = {
    "positions": lambda turn: vmap(turn)(X, torch.arange(12).reshape(3, 4)),
    "positions alone": lambda turn: vmap(turn, in_dims=(None, 0))(X[0], torch.arange(12).reshape(3, 4)),
    "positions of the batch": lambda turn: vmap(turn, in_dims=(0, None))(X, ROWS),
    "positions of both": lambda turn: vmap(turn)(X, torch.stack((ROWS, ROWS + 1, ROWS + 2))),
}
WITH_TABLES: dict[str, Callable[[Turn], Any]] = {
    "tables": lambda turn: vmap(turn)(X, COS.expand(3, 4, 3) * 2, SIN.expand(3, 4, 3)),
    "cos alone": lambda turn: vmap(turn, in_dims=(None, 0, None))(X[0], torch.stack((COS, COS * 2)), SIN),
    "tables of the batch": lambda turn: vmap(turn, in_dims=(0, None, None))(X, COS.expand(2, 4, 3), SIN.expand(2, 4, 3)),
    "gradients of all": lambda turn: grad(cubes(turn), argnums=(0, 1, 2))(X[0], COS, SIN),
    "tangents of all": lambda turn: jvp(turn, (X[0], COS, SIN), (X[1], SIN, COS)),
    "tangent of cos": lambda turn: jvp(lambda cos: turn(X[0], cos), (COS,), (SIN,)),
    "hessian of cos": lambda turn: hessian(lambda cos: cubes(turn)(X[0], cos))(COS),
    "dual cos": lambda turn: tangent(lambda cos: turn(X[0], cos), COS, SIN),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.func calls what torch deprecates
@pytest.mark.parametrize("name", [*BOTH, *WITH_POSITIONS])
def test_rotate(name: str) -> None:
    call = (BOTH | WITH_POSITIONS)[name]
    torch.testing.assert_close(call(at), call(plain_at))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", [*BOTH, *WITH_TABLES])
def test_rotate_by(name: str) -> None:
    call = (BOTH | WITH_TABLES)[name]
    torch.testing.assert_close(call(by), call(plain_by))


def test_what_has_no_forward_gradient_is_refused() -> None:
    """A custom op would drop the tangent without a word."""
    x = X[0]
    calls: list[Callable[[Tensor], Any]] = [
        lambda dual: phasor.rotate(dual, SPEC),
        lambda dual: pt.attention(dual, x, x),
        lambda dual: pt.linear_attention(x, dual, x),
        lambda dual: pt.rotate(x, SPEC, dual[0, 0, 0, :4]),
    ]
    for call in calls:
        with pytest.raises(phasor.Error, match="dual|torch.func") as refused:
            jvp(call, (x,), (x,))
        assert refused.value.code == "unsupported"
        with forward_ad.dual_level(), pytest.raises(phasor.Error, match="dual"):
            call(forward_ad.make_dual(x, x))
