"""torch tensors in every function that takes arrays: what is read, refused and written, and what autograd is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import phasor
import phasor.torch as pt
import pytest
import torch
from phasor import RopeSpec
from phasor.torch import flash_attn
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

SPEC = RopeSpec(8, layout="half")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Every function with the tensors it takes ---------------------------------------------------------------------------


def backward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, d_out: Tensor) -> list[Tensor]:
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (x3, x3, x3)]
    d_q, d_k, d_v = gradients
    phasor.attention_backward(q, k, v, out, sums, d_out, d_q=d_q, d_k=d_k, d_v=d_v)
    return gradients


def linear_backward(q: Tensor, k: Tensor, v: Tensor, d_out: Tensor) -> list[Tensor]:
    gradients = [torch.empty_like(x3) for _ in range(3)]
    d_q, d_k, d_v = gradients
    phasor.linear_attention_backward(q, k, v, d_out, d_q=d_q, d_k=d_k, d_v=d_v)
    return gradients


def cached(k: Tensor, v: Tensor, q: Tensor) -> Tensor:
    cache = phasor.KVCache(key_heads=2, head_dim=8, capacity=4, spec=SPEC)
    cache.append(k, v)
    return cache.attention(q, query_positions=0)


def with_table(table: Tensor) -> Tensor:
    first = phasor.Encoding("t5", relative_attention_bias=table, max_distance=16)
    again = first.with_tables({"relative_attention_bias": table})
    return phasor.attention(x3, x3, x3, encoding=first) + phasor.attention(x3, x3, x3, encoding=again)


x3, rows = randn(1, 4, 2, 8), randn(4, 4, seed=1)
sums = torch.zeros(1, 2, 4)
attended = phasor.attention(x3, x3, x3, log_sum_exp=sums)
cos, sin = (torch.from_numpy(part) for part in phasor.cos_sin(SPEC, 4))
READERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "rotate": (lambda x, at: phasor.rotate(x, SPEC, at), (x3, rows[0])),
    "rotate, in torch": (lambda x, at: pt.rotate(x, SPEC, at), (x3, rows[0])),
    "rotate_qk": (lambda q, k, at: phasor.rotate_qk(q, k, SPEC, at), (x3, x3, rows[0])),
    "rotate_qk, in torch": (lambda q, k, at: pt.rotate_qk(q, k, SPEC, at), (x3, x3, rows[0])),
    "rotate_by": (lambda x, c, s: phasor.rotate_by(x, c, s, layout="half"), (x3, cos.clone(), sin.clone())),
    "rotate_by, in torch": (lambda x, c, s: pt.rotate_by(x, c, s, layout="half"), (x3, cos.clone(), sin.clone())),
    "cos_sin": (lambda at: phasor.cos_sin(SPEC, at), (rows,)),
    "cos_sin, in torch": (lambda at: pt.cos_sin(SPEC, at), (rows,)),
    "sinusoidal": (lambda at: phasor.sinusoidal(at, 6), (torch.tensor([3, -4, 5]),)),
    "decay": (lambda at: phasor.decay(SPEC, at), (rows.abs(),)),
    "attention": (lambda q, k, v, m: phasor.attention(q, k, v, mask=m, encoding=SPEC), (x3, x3, x3, rows)),
    "attention, in torch": (lambda q, k, v, m: pt.attention(q, k, v, mask=m, encoding=SPEC), (x3, x3, x3, rows)),
    "attention_backward": (backward, (x3, x3, x3, attended, sums, x3)),
    "linear_attention": (phasor.linear_attention, (x3, x3, x3)),
    "linear_attention, in torch": (pt.linear_attention, (x3, x3, x3)),
    "linear_attention_backward": (linear_backward, (x3, x3, x3, x3)),
    "KVCache": (cached, (x3, x3, x3)),
    "Encoding": (with_table, (randn(8, 2),)),
    "convert_layout": (lambda x: phasor.convert_layout(x, to="interleaved"), (x3,)),
    "diagnose": (phasor.diagnose, (x3, phasor.rotate(x3, SPEC))),
    "audit": (lambda c, s: phasor.audit(c, s, SPEC), (cos, sin)),
}


def same(ours: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor | np.ndarray):
        return bool(np.array_equal(np.asarray(ours), np.asarray(expected)))
    if isinstance(expected, tuple | list):
        return all(same(a, b) for a, b in zip(ours, expected, strict=True))
    return bool(ours == expected)


def by_conjugate(x: Tensor) -> Tensor:
    """x as the imaginary part of a conjugate: every second number of memory, negated."""
    if not x.is_floating_point():
        return torch._neg_view(-x)
    seen = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert seen.is_neg() and torch.equal(seen, x)
    return seen


@pytest.mark.parametrize("negated", [by_conjugate, lambda x: torch._neg_view(-x)], ids=["conj().imag", "_neg_view"])
@pytest.mark.parametrize("name", READERS)
def test_the_negative_bit_is_resolved(name: str, negated: Callable[[Tensor], Tensor]) -> None:
    call, tensors = READERS[name]
    expected = call(*tensors)
    for i, tensor in enumerate(tensors):
        assert same(call(*tensors[:i], negated(tensor), *tensors[i + 1 :]), expected), f"argument {i}"


@pytest.mark.parametrize("name", READERS)
def test_a_sparse_tensor_is_refused_by_name(name: str) -> None:
    call, tensors = READERS[name]
    for i, tensor in enumerate(tensors):
        with pytest.raises(phasor.Error, match="sparse_coo") as refused:
            call(*tensors[:i], tensor.to_sparse(), *tensors[i + 1 :])
        assert refused.value.code == "unsupported"


OTHERS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "compressed": (lambda x: x[0, :, 0].to_sparse_csr(), "sparse_csr"),
    "quantised": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "qint8"),
    "nested": (lambda x: torch.nested.nested_tensor([x[0], x[0]]), "nested"),
    "jagged": (lambda x: torch.nested.nested_tensor([x[0], x[0]], layout=torch.jagged), "jagged"),
    "meta": (lambda x: x.to("meta"), "meta"),
    "fake": (lambda x: FakeTensorMode().from_tensor(x), "FakeTensor"),
    "mkldnn": (lambda x: x.to_mkldnn(), "mkldnn"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_tensors_without_plain_memory_are_refused_by_name(name: str) -> None:
    make, text = OTHERS[name]
    for call in (
        lambda x: phasor.rotate(x, SPEC),
        lambda x: phasor.rotate(x3, SPEC, out=x),
        lambda x: phasor.attention(x3, x, x3),
        lambda x: phasor.cos_sin(SPEC, x),
    ):
        with pytest.raises(phasor.Error, match=text) as refused:
            call(make(x3))
        assert refused.value.code == "unsupported"


def test_a_tensor_whose_storage_is_gone_is_refused() -> None:
    x = x3.clone()
    x.untyped_storage().resize_(0)
    with pytest.raises(phasor.Error, match="rotate: x "):
        phasor.rotate(x, SPEC)


def test_tensors_of_torch_func_are_refused_by_name() -> None:
    for transform in (torch.vmap, torch.func.functionalize):
        with pytest.raises(phasor.Error, match="torch.func"):
            transform(lambda x: phasor.rotate(x, SPEC))(x3)


def test_a_tracer_sees_the_op() -> None:
    traced = make_fx(lambda x: pt.rotate(x, SPEC) * 2)(x3)
    assert "phasor.rotate" in traced.code
    other = randn(1, 4, 2, 8, seed=9)
    assert torch.equal(traced(other), phasor.rotate(other, SPEC) * 2)


# What is written ---------------------------------------------------------------------------------------------------


def test_a_graph_that_saved_the_tensor_refuses_to_go_back() -> None:
    w = torch.ones_like(x3).requires_grad_()
    for write in (
        lambda t: phasor.rotate(t, SPEC, out=t),
        lambda t: flash_attn.apply_rotary_emb(t, cos, sin, inplace=True),
        lambda t: phasor.rotate(t[:, :2], SPEC, out=t[:, :2]),
    ):
        t = x3.clone()
        y = (w * t).sum()
        with torch.no_grad():
            write(t)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def new(*shape: int) -> Tensor:
    return torch.zeros(*shape)


def gradients_of_table(x: Tensor, d_table: Tensor) -> None:
    encoding = {"encoding": "t5", "relative_attention_bias": new(8, 2), "max_distance": 16}
    phasor.attention_backward(
        x, x, x, attended, sums, x, d_q=new(1, 4, 2, 8), d_k=new(1, 4, 2, 8), d_v=new(1, 4, 2, 8),
        d_tables={"relative_attention_bias": d_table}, encoding=encoding,
    )  # fmt: skip


def cache_attention(x: Tensor, out: Tensor) -> None:
    cache = phasor.KVCache(key_heads=2, head_dim=8, capacity=4, spec=SPEC)
    cache.append(x, x)
    cache.attention(x, out=out)


WRITERS: dict[str, tuple[Callable[..., object], tuple[int, ...]]] = {
    "rotate": (lambda x, to: phasor.rotate(x, SPEC, out=to), (1, 4, 2, 8)),
    "rotate_qk": (lambda x, to: phasor.rotate_qk(x, x, SPEC, out=(new(1, 4, 2, 8), to)), (1, 4, 2, 8)),
    "rotate_by": (lambda x, to: phasor.rotate_by(x, cos, sin, layout="half", out=to), (1, 4, 2, 8)),
    "convert_layout": (lambda x, to: phasor.convert_layout(x, to="half", out=to), (1, 4, 2, 8)),
    "attention": (lambda x, to: phasor.attention(x, x, x, out=to), (1, 4, 2, 8)),
    "log_sum_exp": (lambda x, to: phasor.attention(x, x, x, log_sum_exp=to), (1, 2, 4)),
    "linear_attention": (lambda x, to: phasor.linear_attention(x, x, x, out=to), (1, 4, 2, 8)),
    "d_tables": (gradients_of_table, (8, 2)),
    "KVCache": (cache_attention, (1, 4, 2, 8)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_version_counts_what_was_written(name: str) -> None:
    call, shape = WRITERS[name]
    x, to = x3.clone(), torch.zeros(*shape)
    call(x, to)
    assert x._version == 0 and to._version > 0 and float(to.abs().sum()) > 0
    # Nothing is written by a call that fails, nor where the negative bit is set.
    short = torch.zeros(*shape[:-1], shape[-1] - 1)
    with pytest.raises(phasor.Error):
        call(x, short)
    assert short._version == 0
    negative = torch._neg_view(torch.zeros(*shape))
    with pytest.raises(phasor.Error, match="negative bit"):
        call(x, negative)
    assert float(negative.abs().sum()) == 0


def test_inference_tensors_are_written() -> None:
    with torch.inference_mode():
        x = x3.clone()
        phasor.rotate(x, SPEC, out=x)
        assert torch.equal(x, phasor.rotate(x3, SPEC))


# What comes back ---------------------------------------------------------------------------------------------------


def test_tensors_in_tensors_out() -> None:
    at = torch.tensor([[0, 3], [100, 7]])
    numpy_at = at.numpy()
    for dtype in ("float32", "float64"):
        pairs = [(phasor.cos_sin(SPEC, at, dtype=dtype), phasor.cos_sin(SPEC, numpy_at, dtype=dtype))]
        pairs.append(((phasor.sinusoidal(at, 6, dtype=dtype),), (phasor.sinusoidal(numpy_at, 6, dtype=dtype),)))
        for ours, plain in pairs:
            for a, b in zip(ours, plain, strict=True):
                assert isinstance(a, Tensor) and isinstance(b, np.ndarray) and str(a.dtype) == f"torch.{dtype}"
                np.testing.assert_array_equal(a.numpy(), b)
    assert isinstance(phasor.decay(SPEC, at), Tensor)
    assert isinstance(phasor.cos_sin(SPEC, 4)[0], np.ndarray)


def advised_of_huge_pages(tensor: Tensor) -> bool:
    """Whether the mapping that holds the middle of the tensor has "hg" among its flags."""
    wanted = tensor.data_ptr() + tensor.nbytes // 2
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, last = line.split()[0].partition("-")
        if last:
            inside = int(first, 16) <= wanted < int(last, 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("no mapping of the tensor")


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no transparent huge pages")
def test_a_large_new_tensor_is_in_huge_pages() -> None:
    # 64 MiB: glibc maps and unmaps such a block in every call, whatever was freed before.
    x = randn(1, 16384, 8, 128)
    spec = RopeSpec(128, layout="half")
    assert not advised_of_huge_pages(torch.empty_like(x))
    assert advised_of_huge_pages(phasor.rotate(x, spec))
    assert advised_of_huge_pages(torch.ops.phasor.rotate(x, None, pt._common.spec_text(spec), 0, "forward", "query", None,
                                                         "tokens_first", "exact", 0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_cos_sin_of_torch(dtype: torch.dtype) -> None:
    yarn = SPEC.replace(scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})
    at = torch.arange(12).reshape(2, 6)
    ours = pt.cos_sin(yarn, at, dtype=dtype)
    for a, b in zip(ours, phasor.cos_sin(yarn, at, dtype="float64"), strict=True):
        assert a.dtype == dtype and a.shape == (2, 6, 4)
        torch.testing.assert_close(a.double(), b, rtol=0, atol=torch.finfo(dtype).eps)
    compiled = torch.compile(lambda at: pt.cos_sin(yarn, at, dtype=dtype), backend="aot_eager", fullgraph=True)
    assert all(torch.equal(a, b) for a, b in zip(compiled(at), ours, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(pt.cos_sin(yarn, 6, dtype=dtype), (r[0] for r in ours), strict=True))
    mrope = RopeSpec(8, layout="half", mrope={"sections": [2, 1, 1], "order": "chunked"})
    assert pt.cos_sin(mrope, torch.arange(6).expand(3, 1, 6))[0].shape == (1, 6, 4)
    rough = pt.cos_sin(SPEC, torch.tensor([131071]), angles="float32")[0]
    np.testing.assert_array_equal(rough.numpy(), phasor.cos_sin(SPEC, [131071], angles="float32")[0])


def test_a_subclass_with_plain_memory_is_a_tensor() -> None:
    class Named(torch.Tensor):
        pass

    x = x3.clone().as_subclass(Named)
    rotated = phasor.rotate(x, SPEC)
    assert isinstance(rotated, Named) and torch.equal(torch.Tensor(rotated), phasor.rotate(x3, SPEC))


def test_torch_is_not_imported() -> None:
    program = (
        "import sys, numpy as np, phasor\n"
        "x = np.ones((1, 2, 8), np.float32)\n"
        "phasor.rotate(x, phasor.RopeSpec(8, layout='half'), out=x)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
