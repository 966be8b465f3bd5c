"""Every op of phasor.torch: gradients against finite differences, one graph under torch.compile, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import phasor
import phasor.torch as pt
import pytest
import torch
from phasor import RopeSpec
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

BATCH, TOKENS, HEADS, DIM = 2, 5, 2, 8

SPECS = {
    "half": RopeSpec(DIM, layout="half"),
    "interleaved": RopeSpec(DIM, layout="interleaved"),
    "interleaved_to_half": RopeSpec(DIM, layout="interleaved_to_half"),
    "partial, offset": RopeSpec(DIM, layout="half", rotary_dim=4, rotary_offset=2),
    "yarn": RopeSpec(
        DIM,
        layout="half",
        scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "xpos": RopeSpec(DIM, layout="interleaved", xpos={"scale_base": 4.0}),
}


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


# Rotation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["query", "key"])
@pytest.mark.parametrize("direction", ["forward", "inverse", "transpose"])
@pytest.mark.parametrize("name", SPECS)
def test_rotation_is_differentiable_twice(name: str, direction: str, role: Any) -> None:
    if role == "key" and name != "xpos":
        role = "query"
    choices = {direction: True} if direction != "forward" else {}
    positions = torch.tensor([3, 0, 7, 100, 2])

    def rotation(x: Tensor) -> Tensor:
        return pt.rotate(x, SPECS[name], positions, role=role, **choices)

    x = randn(1, TOKENS, HEADS, DIM)
    assert gradcheck(rotation, (x,))
    assert gradgradcheck(rotation, (x,))


def test_inverse_undoes_and_the_op_equals_the_direct_call() -> None:
    for spec in SPECS.values():
        x = randn(BATCH, TOKENS, HEADS, DIM)
        rotated = pt.rotate(x, spec, 5)
        assert torch.equal(rotated, phasor.rotate(x.detach(), spec, 5))
        assert torch.equal(rotated.detach(), pt.rotate(x.detach(), spec, 5))
        if spec.layout != "interleaved_to_half":
            torch.testing.assert_close(pt.rotate(rotated, spec, 5, inverse=True), x, rtol=1e-12, atol=1e-12)


def test_positions_of_every_shape() -> None:
    x = randn(BATCH, HEADS, TOKENS, DIM)
    rows = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    assert gradcheck(lambda x: pt.rotate(x, SPECS["half"], rows, order="heads_first"), (x,))
    mrope = RopeSpec(DIM, layout="half", mrope={"sections": [2, 1, 1], "order": "chunked"})
    grid = torch.stack((rows, rows + 1, rows + 5))
    assert gradcheck(lambda x: pt.rotate(x, mrope, grid, order="heads_first"), (x,))
    floats = rows.to(torch.float64) / 3
    assert gradcheck(lambda x: pt.rotate(x, SPECS["half"], floats, order="heads_first"), (x,))


def test_queries_and_keys_in_one_call() -> None:
    q, k = randn(1, TOKENS, 3, DIM), randn(1, TOKENS, 1, DIM, seed=1)
    spec = SPECS["xpos"]
    assert gradcheck(lambda q, k: pt.rotate_qk(q, k, spec, 2), (q, k))
    rotated = pt.rotate_qk(q, k, spec, 2)
    assert torch.equal(rotated[1], pt.rotate(k, spec, 2, role="key"))
    direct = pt.rotate_qk(q.detach(), k.detach(), spec, 2)
    assert all(torch.equal(a, b) for a, b in zip(rotated, direct, strict=True))


@pytest.mark.parametrize("order", ["tokens_first", "heads_first"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", ["half", "interleaved", "interleaved_to_half"])
def test_given_cos_and_sin_get_their_gradients(layout: Any, transpose: bool, order: Any) -> None:
    shape = (BATCH, 3, HEADS, DIM) if order == "tokens_first" else (BATCH, HEADS, 3, DIM)
    x = randn(*shape)
    for rows in ((3, 3), (BATCH, 3, 3), (1, 3, 3)):
        cos, sin = randn(*rows, seed=1), randn(*rows, seed=2)

        def rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            return pt.rotate_by(x, cos, sin, layout=layout, transpose=transpose, rotary_offset=1, order=order)

        assert gradcheck(rotation, (x, cos, sin))
    assert gradgradcheck(rotation, (x, cos, sin))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_types_round_once(dtype: torch.dtype) -> None:
    x = randn(BATCH, TOKENS, HEADS, DIM, dtype=dtype)
    exact = pt.rotate(x.detach().to(torch.float64), SPECS["half"], 1000)
    rotated = pt.rotate(x, SPECS["half"], 1000)
    rotated.sum().backward()
    assert rotated.dtype == dtype and x.grad is not None and x.grad.dtype == dtype
    bound = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(rotated.detach().to(torch.float64), exact, rtol=bound, atol=bound)


def test_views_with_any_strides() -> None:
    x = randn(TOKENS, HEADS, DIM, BATCH).permute(3, 0, 1, 2)
    expected = pt.rotate(x.detach().contiguous(), SPECS["half"])
    assert torch.equal(pt.rotate(x, SPECS["half"]), expected)
    row = randn(1, 1, 1, DIM)
    assert gradcheck(lambda row: pt.rotate(row.expand(BATCH, TOKENS, HEADS, DIM), SPECS["half"]).sum(0), (row,))


# Attention --------------------------------------------------------------------------------------------------------


def table(*shape: int) -> Tensor:
    return randn(*shape, seed=sum(shape)).detach().mul(0.5).requires_grad_()


N, D = 4, 4
ENCODINGS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "rope": lambda: RopeSpec(D, layout="half"),
    "rope by name": lambda: {"encoding": "rope", "head_dim": D, "layout": "interleaved"},
    "xpos": lambda: {"encoding": "xpos", "layout": "half", "scale_base": 8.0},
    "alibi": lambda: {"encoding": "alibi"},
    "alibi, slopes": lambda: {"encoding": "alibi", "slopes": [0.5, 0.25]},
    "t5": lambda: {"encoding": "t5", "relative_attention_bias": table(8, 2), "max_distance": 16},
    "shaw": lambda: {"encoding": "shaw", "clip": 2, "rel_k": table(5, D), "rel_v": table(2, 5, D)},
    "bert": lambda: {
        "encoding": "bert_relative",
        "distance_embedding": table(2 * N - 1, D),
        "position_embedding_type": "relative_key_query",
    },
    "transformer_xl": lambda: {
        "encoding": "transformer_xl",
        "u_bias": table(2, D),
        "v_bias": table(2, D),
        "r_head": table(2 * N - 1, 2, D),
        "first_distance": N - 1,
    },
    "conformer": lambda: {
        "encoding": "conformer_relative",
        "pos_bias_u": table(2, D),
        "pos_bias_v": table(2, D),
        "pos_proj": table(2 * N - 1, 2, D),
    },
    "xlnet": lambda: {
        "encoding": "xlnet",
        "r_w_bias": table(2, D),
        "r_r_bias": table(2, D),
        "k_head_r": table(2 * N, 2, D),
        "r_s_bias": table(2, D),
        "seg_embed": table(2, 2, D),
    },
    "deberta_v1": lambda: {
        "encoding": "deberta_v1",
        "pos_k": table(2, 2 * N, D),
        "pos_q": table(2, 2 * N, D),
        "max_relative_positions": N,
    },
    "deberta_v2": lambda: {
        "encoding": "deberta_v2",
        "pos_k": table(2, 8, D),
        "pos_q": table(2, 8, D),
        "max_relative_positions": 2 * N,
        "position_buckets": 4,
    },
    "tupe": lambda: {
        "encoding": "tupe",
        "pos_q": table(2, N, D),
        "pos_k": table(2, N, D),
        "bias_table": table(8, 2),
        "max_distance": 16,
        "theta1": table(2),
        "theta2": table(2),
    },
    "several": lambda: [
        RopeSpec(D, layout="half"),
        {"encoding": "shaw", "clip": 1, "rel_k": table(3, D), "rel_v": table(3, D)},
        {"encoding": "alibi"},
    ],
}
SEGMENTS = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]], dtype=torch.int32)


def test_several_encodings_in_one_dictionary() -> None:
    rope = {"encoding": "rope", "head_dim": D, "layout": "half"}
    q, k, v = (randn(1, N, 2, D, seed=i) for i in range(3))

    def attend(q: Tensor, rows: Tensor) -> Tensor:
        shaw = {"encoding": "shaw", "clip": 1, "rel_k": rows}
        return pt.attention(q, k, v, encoding={"encoding": [rope, shaw], "scale": 0.3})

    assert gradcheck(attend, (q, table(3, D)), atol=1e-6)


def tables_of(encoding: Any) -> list[Tensor]:
    parts = encoding if isinstance(encoding, list) else [encoding]
    return [v for part in parts if isinstance(part, dict) for v in part.values() if isinstance(v, Tensor)]


def with_tables(encoding: Any, tables: list[Tensor]) -> Any:
    left = iter(tables)
    parts = encoding if isinstance(encoding, list) else [encoding]
    filled = [
        {key: next(left) if isinstance(v, Tensor) else v for key, v in part.items()} if isinstance(part, dict) else part
        for part in parts
    ]
    return filled if isinstance(encoding, list) else filled[0]


@pytest.mark.parametrize("name", ENCODINGS)
def test_attention_with_every_encoding(name: str) -> None:
    encoding = ENCODINGS[name]()
    segments = {"query_segments": SEGMENTS, "key_segments": SEGMENTS} if name == "xlnet" else {}
    q, k, v = (randn(BATCH, N, heads, D, seed=i) for i, heads in enumerate((2, 2, 2)))

    def attend(q: Tensor, k: Tensor, v: Tensor, *tables: Tensor) -> Tensor:
        return pt.attention(q, k, v, encoding=with_tables(encoding, list(tables)), **segments)

    assert gradcheck(attend, (q, k, v, *tables_of(encoding)), atol=1e-6)


@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_at_positions(name: str) -> None:
    encoding = ENCODINGS[name]()
    choices: dict[str, Any] = {"query_segments": SEGMENTS, "key_segments": SEGMENTS} if name == "xlnet" else {}
    choices["query_positions"] = torch.tensor([[3, 0, 1, 2], [0, 0, 1, 2]])
    choices["key_positions"] = torch.tensor([2, 0, 3, 1])
    q, k, v = (randn(BATCH, N, heads, D, seed=i) for i, heads in enumerate((2, 2, 2)))

    def attend(q: Tensor, k: Tensor, v: Tensor, *tables: Tensor) -> Tensor:
        return pt.attention(q, k, v, encoding=with_tables(encoding, list(tables)), **choices)

    assert gradcheck(attend, (q, k, v, *tables_of(encoding)), atol=1e-6)


@pytest.mark.parametrize(
    "choices",
    [
        {"causal": True},
        {"causal": True, "window": 2, "soft_cap": 5.0},
        {"scale": 0.7, "mask": randn(N, N, grad=False, dtype=torch.float32)},
        {"key_lengths": torch.tensor([3, 4])},
        {"key_padding": torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]], dtype=torch.bool)},
        {"query_positions": 9, "key_positions": torch.tensor([5, 0, 3, 9])},
    ],
    ids=lambda choices: ", ".join(choices),
)
def test_attention_with_every_choice(choices: dict[str, Any]) -> None:
    q, k, v = randn(BATCH, 4, N, D), randn(BATCH, 2, N, D, seed=1), randn(BATCH, 2, N, 3, seed=2)
    spec = RopeSpec(D, layout="half")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return pt.attention(q, k, v, encoding=spec, order="heads_first", **choices)

    assert gradcheck(attend, (q, k, v), atol=1e-6)
    direct = attend(q.detach(), k.detach(), v.detach())
    torch.testing.assert_close(attend(q, k, v).detach(), direct, rtol=1e-12, atol=1e-12)


def test_packed_sequences_without_a_batch() -> None:
    q, k, v = (randn(6, 2, D, seed=i) for i in range(3))
    ends = torch.tensor([0, 2, 6])

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return pt.attention(q, k, v, causal=True, query_boundaries=ends, key_boundaries=ends)

    assert gradcheck(attend, (q, k, v), atol=1e-6)
    whole = pt.attention(q, k, v, causal=True, query_boundaries=ends, key_boundaries=ends)
    torch.testing.assert_close(whole[2:], pt.attention(q[2:], k[2:], v[2:], causal=True))


def test_attention_equals_torch() -> None:
    q, k, v = (randn(BATCH, 3, 37, 16, seed=i, dtype=torch.float32) for i in range(3))
    ours = pt.attention(q, k, v, causal=True, order="heads_first")
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (ours, theirs)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_tables_of_an_encoding_object_get_their_gradient() -> None:
    bias = torch.nn.Parameter(torch.randn(8, 2, generator=torch.Generator().manual_seed(0)))
    q, k, v = (randn(1, N, 2, D, seed=i, dtype=torch.float32) for i in range(3))
    members = {"relative_attention_bias": bias, "max_distance": 16}
    gradients = []
    for encoding in (phasor.Encoding("t5", **members), {"encoding": "t5", **members}):
        out = pt.attention(q, k, v, encoding=encoding)
        gradients.append(torch.autograd.grad(out.square().sum(), (q, bias)))
        assert float(gradients[-1][1].abs().sum()) > 0
        with torch.no_grad():
            torch.testing.assert_close(pt.attention(q, k, v, encoding=encoding), out.detach())
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("features", ["elu_plus_one", "softmax_exp", "favor"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rotates", [None, "features", "inputs"])
def test_linear_attention(rotates: Any, causal: bool, features: Any) -> None:
    count = 2 * D + 2 if features == "favor" else 0
    spec = RopeSpec(count if count and rotates == "features" else D, layout="interleaved") if rotates else None
    q, k, v = randn(BATCH, N, 4, D), randn(BATCH, N, 2, D, seed=1), randn(BATCH, N, 2, 3, seed=2)
    padding = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return pt.linear_attention(
            q,
            k,
            v,
            encoding=spec,
            causal=causal,
            features=features,
            feature_count=count,
            seed=5,
            rotates=rotates or "features",
            key_padding=padding,
        )

    assert gradcheck(attend, (q, k, v), atol=1e-6)
    direct = attend(q.detach(), k.detach(), v.detach())
    assert torch.equal(attend(q, k, v).detach(), direct)


# torch.compile ----------------------------------------------------------------------------------------------------


def test_ops_keep_the_rules_of_custom_ops() -> None:
    spec = pt._common.spec_text(SPECS["half"])
    x = randn(1, TOKENS, HEADS, DIM)
    rows = torch.arange(TOKENS)
    cos, sin = randn(TOKENS, 4, seed=1), randn(TOKENS, 4, seed=2)
    q, k, v = (randn(1, N, 2, D, seed=i) for i in range(3))
    bias = randn(8, 2)
    text = '[{"members": {"encoding": "t5", "relative_attention_bias": {"table": 0}, "max_distance": 16}}]'
    nothing = (None,) * 9
    ops = torch.ops.phasor
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (ops.rotate, (x, None, spec, 3, "forward", "query", None, "tokens_first", "exact", 0)),
        (ops.rotate, (x, rows, spec, 0, "inverse", "query", None, "tokens_first", "exact", 0)),
        (ops.rotate_by, (x, cos, sin, "half", False, 0, "tokens_first", 0)),
        (ops.cos_sin, (rows, None, spec, "halves", torch.float32)),
        (ops.attention, (q, k, v, [bias], text, "", *nothing, True, None, None, 0.0, None, "tokens_first", "exact", 0)),
        (
            ops.linear_attention,
            (q, k, v, None, None, None, None, True, "favor", 10, 3, "features", None, "tokens_first", 0),
        ),
    ]
    for op, arguments in cases:
        torch.library.opcheck(op, arguments)


class Block(torch.nn.Module):
    """Everything at once: given tables, a spec, an encoding with a trained table, linear attention."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.linspace(-1, 1, 3 * DIM).reshape(3, DIM))
        self.freqs = pt.RotaryEmbedding(DIM, learned_freq=True)
        self.spec = SPECS["yarn"]

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        rotated = pt.rotate(x * 2, self.spec, positions)
        q, k = pt.rotate_qk(x, rotated, SPECS["half"], 7)
        q = self.freqs.rotate_queries_or_keys(q, seq_dim=1)
        encoding = [
            SPECS["interleaved"],
            {"encoding": "shaw", "clip": 1, "rel_k": self.rows},
        ]
        out = pt.attention(q, k, x, encoding=encoding, causal=True)
        return out + pt.linear_attention(q, k, x, encoding=self.spec, causal=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_torch_compile_keeps_one_graph(backend: str) -> None:
    torch._dynamo.reset()
    block = Block()
    x = randn(BATCH, TOKENS, HEADS, DIM, dtype=torch.float32)
    positions = torch.arange(TOKENS) + 3
    inputs = (x, block.rows, block.freqs.freqs)
    eager = block(x, positions)
    eager_gradients = torch.autograd.grad(eager.square().sum(), inputs)
    compiled = torch.compile(block, backend=backend, fullgraph=True)(x, positions)
    gradients = torch.autograd.grad(compiled.square().sum(), inputs)
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients, eager_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_another_spec_is_another_graph() -> None:
    torch._dynamo.reset()
    rotation = torch.compile(pt.rotate, backend="aot_eager", fullgraph=True)
    x = randn(1, TOKENS, HEADS, DIM, grad=False)
    for spec in (SPECS["half"], SPECS["interleaved"], RopeSpec(DIM, layout="half", base=500.0)):
        assert torch.equal(rotation(x, spec, 4), pt.rotate(x, spec, 4))


# Refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    x = randn(1, TOKENS, HEADS, DIM)
    away = x.to("meta")
    with pytest.raises(phasor.Error, match="^attention: q .*meta$") as refused:
        pt.attention(away, away, away)
    assert refused.value.code == "unsupported"
    with pytest.raises(phasor.Error, match="^rotate: positions .*grad"):
        pt.rotate(x, SPECS["half"], randn(TOKENS))
    with pytest.raises(phasor.Error, match="inverse.*transpose"):
        pt.rotate(x, SPECS["half"], inverse=True, transpose=True)
    with pytest.raises(phasor.Error, match="attention: encoding "):
        pt.attention(x, x, x, encoding=3)  # type: ignore[arg-type]
    with pytest.raises(phasor.Error, match="attention: q, k and v "):
        pt.attention(x, x[0], x, causal=True)
    with pytest.raises(phasor.Error, match="phasor.torch"):
        phasor.rotate(x, SPECS["half"])


@pytest.mark.parametrize("attend", [pt.attention, pt.linear_attention])
def test_a_second_derivative_of_attention_is_refused(attend: Callable[..., Tensor]) -> None:
    q, k, v = (randn(1, N, 2, D, seed=i) for i in range(3))
    (d_q,) = torch.autograd.grad(attend(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(phasor.Error, match="second derivative"):
        d_q.sum().backward()
