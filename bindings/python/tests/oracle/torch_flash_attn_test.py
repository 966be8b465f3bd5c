"""flash-attn's functions in place with gradients, and its RotaryEmbedding module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import phasor
import pytest
import torch
from phasor.torch import flash_attn
from torch import Tensor

TOKENS, PAIRS, DIM = 5, 3, 8


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """RoFormer (12) in complex numbers: x [batch, tokens, heads, dim], cos and sin [tokens, pairs]."""
    pairs = cos.shape[-1]
    head, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    split = head.unflatten(-1, (pairs, 2)) if interleaved else head.unflatten(-1, (2, pairs)).transpose(-1, -2)
    rotated = torch.view_as_complex(split.contiguous()) * torch.complex(cos, sin)[:, None]
    joined = torch.view_as_real(rotated)
    return torch.cat(((joined if interleaved else joined.transpose(-1, -2)).flatten(-2), rest), -1)


@pytest.fixture
def table() -> tuple[Tensor, Tensor]:
    angles = randn(TOKENS, PAIRS, seed=5)
    return angles.cos(), angles.sin()


class Unpadded(torch.autograd.Function):
    """A view that a custom function made, as flash-attn's unpad_input returns it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone().flatten(0, 1).unflatten(0, x.shape[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0]


# The tensors that are written, made of one leaf.
SOURCES: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "leaf": lambda x: (x,),
    "result": lambda x: (x * 1.0,),
    "slice of a leaf": lambda x: (x[:, :, :1], x[:, :, 1:]),
    "slice of a result": lambda x: ((x * 1.0)[:, :, :1], (x * 1.0)[:, :, 1:]),
    "chunk": lambda x: (x * 1.0).chunk(2, dim=2),
    "chunk of a leaf": lambda x: x.chunk(2, dim=2),
    "unbind": lambda x: tuple(part.unsqueeze(2) for part in (x * 1.0).unbind(2)),
    "custom function": lambda x: (Unpadded.apply(x),),
    "transposed chunk": lambda x: tuple(p.transpose(0, 1).transpose(0, 1) for p in (x * 1.0).chunk(2, dim=2)),
}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("name", SOURCES)
def test_in_place_with_gradients(name: str, interleaved: bool, table: tuple[Tensor, Tensor]) -> None:
    cos, sin = table
    weights = randn(2, TOKENS, 2, DIM, seed=7)
    gradients, results = [], []
    for in_place in (True, False):
        x = randn(2, TOKENS, 2, DIM).requires_grad_()
        parts = SOURCES[name](x)
        kept = [part.detach() for part in parts]  # views of the same memory
        rotated = [
            flash_attn.apply_rotary_emb(part, cos, sin, interleaved, inplace=True)
            if in_place
            else exact(part, cos, sin, interleaved)
            for part in parts
        ]
        if in_place:
            assert all(torch.equal(memory, result) for memory, result in zip(kept, rotated, strict=True))
            # Not for views that torch cannot record: their siblings would be of no use any more.
            assert name not in ("leaf", "result", "slice of a result") or all(memory._version > 0 for memory in kept)
        results.append(torch.cat(rotated, 2).detach())
        (torch.cat(rotated, 2) * weights).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad)
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)


def test_a_result_written_in_place_has_the_gradient_itself(table: tuple[Tensor, Tensor]) -> None:
    """Where torch can record it, the tensor that was passed may be used as well."""
    cos, sin = table
    x = randn(2, TOKENS, 2, DIM).requires_grad_()
    y = x * 1.0
    assert flash_attn.apply_rotary_emb(y, cos, sin, inplace=True) is y
    qkv = torch.stack((x, x, x), 2)
    assert flash_attn.apply_rotary_emb_qkv_(qkv, cos, sin) is qkv
    (y.square().sum() + qkv.square().sum()).backward()
    torch.testing.assert_close(x.grad, 8 * x.detach())


def test_cos_and_sin_get_their_gradient_in_place(table: tuple[Tensor, Tensor]) -> None:
    gradients = []
    for in_place in (True, False):
        cos, sin = (part.clone().requires_grad_() for part in table)
        x = randn(2, TOKENS, 2, DIM)
        y = flash_attn.apply_rotary_emb(x, cos, sin, inplace=True) if in_place else exact(x, cos, sin, False)
        gradients.append(torch.autograd.grad((y * randn(2, TOKENS, 2, DIM, seed=3)).sum(), (cos, sin)))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("grouped", [False, True])
def test_packed_forms_in_place(grouped: bool, leaf: bool, table: tuple[Tensor, Tensor]) -> None:
    cos, sin = table
    shape = (2, TOKENS, 4 + 2 * 2, DIM) if grouped else (2, TOKENS, 3, 2, DIM)
    heads = 4 if grouped else None
    weights = randn(*shape, seed=3)
    x = randn(*shape).requires_grad_()
    out = flash_attn.apply_rotary_emb_qkv_(x if leaf else x * 1.0, cos, sin, cos * 2, sin * 2, num_heads_q=heads)
    (out * weights).sum().backward()
    y = randn(*shape).requires_grad_()
    q, k, v = y.split([4, 2, 2], 2) if grouped else y.unbind(2)
    parts = (exact(q, cos, sin, False), exact(k, cos * 2, sin * 2, False), v)
    expected = torch.cat(parts, 2) if grouped else torch.stack(parts, 2)
    (expected * weights).sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(x.grad, y.grad)
    kv = randn(2, TOKENS, 2, 2, DIM).requires_grad_()
    rotated = flash_attn.apply_rotary_emb_kv_(kv if leaf else kv * 1.0, cos, sin)
    rotated.square().sum().backward()
    torch.testing.assert_close(kv.grad, 2 * randn(2, TOKENS, 2, 2, DIM), msg="a rotation keeps the length")


def test_nothing_is_rotated_if_the_keys_cannot_be(table: tuple[Tensor, Tensor]) -> None:
    cos, sin = table
    qkv = randn(2, TOKENS, 3, 2, DIM)
    for tables in ((cos[:, :1], sin[:, :1]), (cos[:2], sin[:2]), (cos, sin[:2])):
        kept = qkv.clone()
        with pytest.raises(phasor.Error) as refused:
            flash_attn.apply_rotary_emb_qkv_(kept, cos, sin, *tables)
        assert refused.value.code == "shape_mismatch" and torch.equal(kept, qkv)


def test_in_place_inside_torch_compile(table: tuple[Tensor, Tensor]) -> None:
    cos, sin = table
    torch._dynamo.reset()
    compiled = torch.compile(flash_attn.apply_rotary_emb_qkv_, backend="aot_eager")
    for grad in (False, True):
        x = randn(2, TOKENS, 3, 2, DIM).requires_grad_(grad)
        out = compiled(x, cos, sin)
        torch.testing.assert_close(out[:, :, 1], exact(randn(2, TOKENS, 3, 2, DIM)[:, :, 1], cos, sin, False))
        assert torch.equal(out, x)
    out.square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * randn(2, TOKENS, 3, 2, DIM))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def inside(x: Tensor) -> Tensor:
        return flash_attn.apply_rotary_emb(x * 2, cos, sin, inplace=True)

    y = randn(2, TOKENS, 2, DIM).requires_grad_()
    inside(y).square().sum().backward()
    torch.testing.assert_close(y.grad, 8 * y.detach())


# The module -------------------------------------------------------------------------------------------------------


def angles_of(positions: Tensor, base: float = 10000.0) -> Tensor:
    return positions.double()[:, None] * base ** (-torch.arange(0, 2 * PAIRS, 2).double() / (2 * PAIRS))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", [0, 9])
def test_module_rotates_qkv_and_kv(offset: int, interleaved: bool) -> None:
    rotary = flash_attn.RotaryEmbedding(2 * PAIRS, 500.0, interleaved)
    angles = angles_of(torch.arange(offset, offset + TOKENS), 500.0)
    cos, sin = angles.cos().float(), angles.sin().float()
    qkv = randn(2, TOKENS, 3, 2, DIM)
    rotated = rotary(qkv.clone(), seqlen_offset=offset)
    for part in (0, 1):
        torch.testing.assert_close(rotated[:, :, part], exact(qkv[:, :, part], cos, sin, interleaved))
    assert torch.equal(rotated[:, :, 2], qkv[:, :, 2])
    grouped = torch.cat((qkv[:, :, 0], qkv[:, :, 1, :1], qkv[:, :, 2, :1]), 2)
    for call in ({"num_heads_q": 2}, {"max_seqlen": 40, "num_heads_q": 2}):
        grouped_rotated = rotary(grouped.clone(), None, offset, **call)
        torch.testing.assert_close(grouped_rotated[:, :, :3], exact(grouped[:, :, :3], cos, sin, interleaved))
    assert torch.equal(rotary(grouped.clone(), None, offset, 40, 2), grouped_rotated), "without cu_seqlens in the order"
    q, kv = rotary(qkv[:, :, 0].clone(), qkv[:, :, 1:].clone(), offset)
    assert torch.equal(q, rotated[:, :, 0]) and torch.equal(kv, rotated[:, :, 1:])
    starts = torch.tensor([offset, offset + 3])
    each = rotary(qkv.clone(), seqlen_offset=starts, max_seqlen=40)
    alone = rotary(qkv[1:].clone(), seqlen_offset=offset + 3)
    assert torch.equal(each[:1], rotated[:1]) and torch.equal(each[1:], alone)
    assert torch.equal(rotary(qkv.clone(), seqlen_offset=starts), each)


def test_module_rotates_packed_sequences() -> None:
    rotary = flash_attn.RotaryEmbedding(2 * PAIRS, scale_base=16)
    ends = torch.tensor([0, 2, TOKENS], dtype=torch.int32)
    qkv = randn(TOKENS, 3, 2, DIM)
    rotary(randn(1, 8, 3, 2, DIM))  # xPos is centred at half of the longest length so far
    parts = [rotary(qkv[None, a:b].clone(), seqlen_offset=1)[0] for a, b in ((0, 2), (2, TOKENS))]
    packed = rotary(qkv.clone(), seqlen_offset=1, cu_seqlens=ends, max_seqlen=4)
    torch.testing.assert_close(packed, torch.cat(parts))
    assert torch.equal(rotary(qkv.clone(), None, 1, ends), packed)
    q, kv = rotary(qkv[:, 0].clone(), qkv[:, 1:].clone(), 1, ends)
    assert torch.equal(torch.cat((q[:, None], kv), 1), packed)


def test_module_of_xpos() -> None:
    """Queries are multiplied by zeta^((m - centre) / scale_base), keys divided by it."""
    rotary, plain = flash_attn.RotaryEmbedding(2 * PAIRS, scale_base=4), flash_attn.RotaryEmbedding(2 * PAIRS)
    qkv = randn(1, TOKENS, 3, 2, 2 * PAIRS)
    grown, rotated = rotary(qkv.clone()), plain(qkv.clone())
    zeta = (torch.arange(0, 2 * PAIRS, 2).double() + 0.8 * PAIRS) / (2.8 * PAIRS)
    growth = (zeta ** ((torch.arange(TOKENS).double() - TOKENS // 2) / 4)[:, None]).repeat(1, 2)[:, None].float()
    torch.testing.assert_close(grown[:, :, 0], rotated[:, :, 0] * growth)
    torch.testing.assert_close(grown[:, :, 1], rotated[:, :, 1] / growth)
    assert torch.equal(grown[:, :, 2], qkv[:, :, 2])


def test_module_is_exact_and_keeps_no_state() -> None:
    rotary = flash_attn.RotaryEmbedding(2 * PAIRS).to(torch.bfloat16)
    x = torch.zeros(1, 1, 1, 2 * PAIRS)
    x[..., :PAIRS] = 1
    kv = torch.zeros(1, 1, 2, 1, 2 * PAIRS)
    rotated = rotary(x, kv, 131071)[0]
    exactly = angles_of(torch.tensor([131071]))[0]
    torch.testing.assert_close(rotated[0, 0, 0, :PAIRS].double(), exactly.cos(), rtol=0, atol=1e-6)
    assert not rotary.state_dict() and rotary.inv_freq.dtype == torch.bfloat16
    rotary.inv_freq = rotary.inv_freq.float() * 0
    again = torch.ones(1, 1, 1, 2 * PAIRS)
    assert torch.equal(rotary(again.clone(), kv, 131071)[0], again), "other frequencies are used"


def test_module_trains_and_follows_the_dtype() -> None:
    rotary = flash_attn.RotaryEmbedding(DIM)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = randn(2, TOKENS, 3, 2, DIM).to(dtype).requires_grad_()
        rotary(x).float().square().sum().backward()
        assert rotary._cos_cached.dtype == dtype
        torch.testing.assert_close(x.grad, 2 * randn(2, TOKENS, 3, 2, DIM).to(dtype), rtol=0.05, atol=0.05)
    with torch.inference_mode():
        rotary(randn(1, 9, 3, 1, DIM))
    x = randn(1, TOKENS, 3, 1, DIM).requires_grad_()
    rotary(x).sum().backward()


def test_module_takes_the_arguments_of_every_version() -> None:
    arguments: list[tuple[Any, ...]] = [(8, 10000.0, True, None, "cpu"), (8, 10000.0, True, None, False, "cpu")]
    x = randn(1, 3, 3, 1, 8)
    first, second = (flash_attn.RotaryEmbedding(*given)(x.clone()) for given in arguments)
    assert torch.equal(first, second)
    for given in ((8, 10000.0, False, None, "meta"), (8, 10000.0, False, None, True, "meta")):
        assert flash_attn.RotaryEmbedding(*given).inv_freq.is_meta
    with pytest.raises(phasor.Error, match="7"):
        flash_attn.RotaryEmbedding(7)
