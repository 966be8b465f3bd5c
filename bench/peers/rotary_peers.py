"""Rotation compared with other libraries, and the cost of one call.

Every peer gets its own memory order, and Phasor gets the same: a ratio compares the same bytes in the same order. Peers
are handed cos and sin (rotary-embedding-torch keeps its own), and so is ours, as a table; `without table` computes the
angles in each call, as the shortest call does. Peers return new tensors; so does our `new result`, of the peer's
library; the others write to a buffer that is there, or in place. Each result is compared with ours before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import phasor
from timing import Row, Work, aligned, check, contest, left_out

BATCH, TOKENS, HEADS, DIM, BASE = 1, 4096, 32, 128, 10000.0
DECODED = 1000  # the position of the one decode token
Array = npt.NDArray[np.float32]


@dataclass
class Peer:
    name: str
    layout: Literal["half", "interleaved"]
    order: Literal["tokens_first", "heads_first"]
    rotate: Callable[[], Any]  # -> a new array or tensor
    wrap: Callable[[Array], Any] = np.asarray  # our input as an array of the peer's library, in the same memory


def angles(tokens: int) -> npt.NDArray[np.float64]:
    return np.outer(np.arange(tokens), BASE ** (-np.arange(0, DIM, 2) / DIM))


def rotate_half(x: Any, cos: Any, sin: Any, concatenate: Callable[..., Any]) -> Any:
    """The form of Hugging Face's apply_rotary_pos_emb, for one tensor."""
    first, second = x[..., : DIM // 2], x[..., DIM // 2 :]
    return x * cos + concatenate((-second, first), -1) * sin


def torch_peers(heads_first: Array, tokens_first: Array) -> Iterator[Peer]:
    import torch

    torch.set_num_threads(1)
    rows = torch.from_numpy(angles(TOKENS)).float()
    both = torch.cat((rows, rows), -1)
    cos, sin, phases = both.cos()[None, None], both.sin()[None, None], torch.polar(torch.ones_like(rows), rows)
    by_head, by_token = torch.from_numpy(heads_first), torch.from_numpy(tokens_first)

    def halves(x: Any) -> Any:
        return rotate_half(x, cos, sin, torch.cat)

    def complex_pairs(x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * phases[None, :, None]).flatten(3)

    yield Peer("torch eager, HF rotate-half", "half", "heads_first", lambda: halves(by_head), torch.from_numpy)
    try:
        compiled = torch.compile(halves)
        compiled(by_head)
        yield Peer("torch.compile, HF rotate-half", "half", "heads_first", lambda: compiled(by_head), torch.from_numpy)
    except Exception as error:  # such as no C++ compiler: the other peers still run
        left_out("torch.compile", error)
    yield Peer("torch eager, LLaMA complex", "interleaved", "tokens_first", lambda: complex_pairs(by_token),
               torch.from_numpy)
    try:
        import rotary_embedding_torch

        module = rotary_embedding_torch.RotaryEmbedding(dim=DIM, theta=BASE)

        def module_rotate() -> Any:
            with torch.no_grad():
                return module.rotate_queries_or_keys(by_head)

        yield Peer("rotary-embedding-torch", "interleaved", "heads_first", module_rotate, torch.from_numpy)
    except ImportError as error:
        left_out("rotary-embedding-torch", error)


def onnx_peers(heads_first: Array) -> Iterator[Peer]:
    import onnx
    import onnxruntime

    rows = angles(TOKENS)
    feeds = {"x": heads_first, "cos": np.cos(rows).astype(np.float32), "sin": np.sin(rows).astype(np.float32),
             "ids": np.arange(TOKENS, dtype=np.int64)[None]}
    types = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int64): onnx.TensorProto.INT64}
    inputs = [onnx.helper.make_tensor_value_info(name, types[array.dtype], array.shape)
              for name, array in feeds.items()]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, heads_first.shape)
    layouts: tuple[Literal["half", "interleaved"], ...] = ("half", "interleaved")
    for flag, layout in enumerate(layouts):
        node = onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"], interleaved=flag)
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "rotary", inputs, [output]),
                                       opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        yield Peer("ONNX Runtime RotaryEmbedding", layout, "heads_first",
                   lambda session=session: session.run(None, feeds)[0])


class Rotation:
    """The rows of rotation; peers are loaded once and measured with each heap."""

    def __init__(self) -> None:
        self.heads_first, self.tokens_first = aligned((BATCH, HEADS, TOKENS, DIM)), aligned((BATCH, TOKENS, HEADS, DIM))
        self.heads_first[:] = np.random.default_rng(1).standard_normal(self.heads_first.shape, dtype=np.float32)
        self.tokens_first[:] = self.heads_first.transpose(0, 2, 1, 3)
        self.peers: list[Peer] = []
        for name, load in (("torch", lambda: torch_peers(self.heads_first, self.tokens_first)),
                           ("ONNX Runtime", lambda: onnx_peers(self.heads_first))):
            try:
                self.peers.extend(load())
            except ImportError as error:
                left_out(name, error)

    def rows(self, heap: str, rounds: int, only: str) -> Iterator[Row]:
        """`only`: a part of the peers' names."""
        for peer in self.peers:
            if only not in peer.name:
                continue
            x = self.heads_first if peer.order == "heads_first" else self.tokens_first
            target, working = aligned(x.shape), aligned(x.shape)
            working[:] = x
            spec = phasor.RopeSpec(DIM, base=BASE, layout=peer.layout)
            how: dict[str, Any] = {"order": peer.order, "threads": 1}
            table = phasor.CosSinTable(spec, TOKENS)
            given = peer.wrap(x)
            ours: dict[str, Work] = {
                "rotate, new result": lambda: phasor.rotate(given, spec, table=table, **how),
                "rotate, out of place": lambda: phasor.rotate(x, spec, table=table, out=target, **how),
                "rotate, in place": lambda: phasor.rotate(working, spec, table=table, out=working, **how),
                "rotate, in place, without table": lambda: phasor.rotate(working, spec, out=working, **how),
            }
            ours["rotate, out of place"]()
            # The peers' float32 angles are off by 1e-3 at the last positions.
            check(peer.name, target, np.asarray(peer.rotate()), 1e-2)
            named = {f"{name}/{peer.layout}/f32/{peer.order}": work for name, work in ours.items()}
            yield from contest(named, f"{peer.name}, {heap} heap", peer.rotate, rounds)


def call_rows(rounds: int) -> Iterator[Row]:
    """One decode token, [1, 1, 32, 128]: the cost of a call from Python, and of rotate-half on the same arrays."""
    spec = phasor.RopeSpec(DIM, base=BASE, layout="half")
    shape = (1, 1, HEADS, DIM)
    both = np.tile(angles(DECODED + 1)[-1], 2)
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)

    def row(dtype: str, kind: str, array: Any, cos: Any, sin: Any, concatenate: Callable[..., Any]) -> Iterator[Row]:
        ours: dict[str, Work] = {
            f"one token, in place/{dtype}/{kind}": lambda: phasor.rotate(array, spec, DECODED, out=array),
            f"one token, out of place/{dtype}/{kind}": lambda: phasor.rotate(array, spec, DECODED),
        }
        yield from contest(ours, f"{kind}, HF rotate-half", lambda: rotate_half(array, cos, sin, concatenate), rounds)

    yield from row("f32", "NumPy", x.copy(), np.cos(both).astype(np.float32), np.sin(both).astype(np.float32),
                   np.concatenate)
    try:
        import ml_dtypes

        yield from row("bf16", "NumPy", x.astype(ml_dtypes.bfloat16), np.cos(both).astype(ml_dtypes.bfloat16),
                       np.sin(both).astype(ml_dtypes.bfloat16), np.concatenate)
    except ImportError as error:
        left_out("bf16 of NumPy", error)
    try:
        import torch
    except ImportError as error:
        left_out("torch", error)
        return
    torch.set_num_threads(1)
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        cos, sin = (torch.from_numpy(values).to(dtype) for values in (np.cos(both), np.sin(both)))
        yield from row(name, "torch", torch.from_numpy(x).to(dtype), cos, sin, torch.cat)
