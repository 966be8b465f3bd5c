"""Attention over the ranks of torch.distributed, with gradients, for CPU tensors (gloo). mpi4py is not needed.

Each rank holds a shard of the tokens; keys and values travel around a ring of ranks while each rank attends to the
shard that it has. phasor.parallel does the same over MPI, for more encodings and options.

    torchrun --nproc-per-node 2 program.py

    dist.init_process_group("gloo")
    q, k, v = (parallel.shard(x) for x in (q, k, v))        # [batch, tokens, heads, head_dim]
    out = parallel.attention(q, k, v, encoding=spec, causal=True)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _core
from .._core import Encoding, Error
from ._attention import _with_batch
from ._common import applied, bare, refusal, require_no_grad, require_readable, shape_text
from ._encodings import flatten, held, resolve

if TYPE_CHECKING:
    from .._core import Angles, Encodes

TokenOrder = Literal["contiguous", "zigzag"]


def _chunks(order: str, tokens: int, ranks: int, rank: int) -> list[range]:
    """The tokens of a rank as ranges, in the order of its rows."""
    if order not in ("contiguous", "zigzag"):
        raise refusal("invalid_argument", f"parallel: order must be contiguous or zigzag, got {order}")
    count = ranks if order == "contiguous" else 2 * ranks
    sizes = [tokens // count + (i < tokens % count) for i in range(count)]
    bounds = list(accumulate(sizes, initial=0))
    held_here = [rank] if order == "contiguous" else [rank, 2 * ranks - 1 - rank]
    return [range(bounds[i], bounds[i + 1]) for i in held_here]


def _group(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This rank and the number of ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise refusal(
            "invalid_argument",
            'parallel: torch.distributed is not initialised: call init_process_group("gloo") first',
        )
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise refusal("invalid_argument", "parallel: this process is not a rank of the group")
    return rank, ranks


def _agreed(
    group: dist.ProcessGroup | None, ranks: int, check: Callable[[], tuple[list[int], str]]
) -> list[list[int]]:
    """The counts of every rank. Raises the same line on every rank if the check of one refuses, or if their texts
    differ."""
    refused: Error | None = None
    counts, text = [0, 0], ""
    try:
        counts, text = check()
    except Error as error:
        refused = error
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    mine = torch.tensor([refused is not None, digest, *counts], dtype=torch.int64)
    all_ranks = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(all_ranks, mine, group=group)
    rows = [row.tolist() for row in all_ranks]
    if any(row[0] or row[1] != rows[0][1] for row in rows):
        answers: list[Any] = [None] * ranks
        dist.all_gather_object(answers, (refused and (refused.code, str(refused)), text), group=group)
        for rank, (theirs, _) in enumerate(answers):
            if theirs:
                raise refusal(theirs[0], f"rank {rank}: {theirs[1]}")
        rank = next(rank for rank, (_, theirs) in enumerate(answers) if theirs != answers[0][1])
        raise refusal(
            "invalid_argument",
            f"parallel: ranks must agree: rank 0 has {answers[0][1]}, rank {rank} has {answers[rank][1]}",
        )
    return [row[2:] for row in rows]


def _whole(name: str, order: str, counts: Sequence[int]) -> int:
    """The tokens of all ranks; refuses counts that the order does not give."""
    tokens, ranks = sum(counts), len(counts)
    for rank, got in enumerate(counts):
        wanted = sum(map(len, _chunks(order, tokens, ranks, rank)))
        if got != wanted:
            raise refusal(
                "shape_mismatch",
                f"parallel: {name} has {tokens} tokens on all ranks: rank {rank} must have {wanted} of them, got {got} "
                "(phasor.torch.parallel.shard cuts a tensor)",
            )
    return tokens


def _require_pieces(encoding: Encodes) -> None:
    """Refuses encodings whose tables are counted from the ends of the sequence, which a piece does not have."""
    parts = list(encoding) if isinstance(encoding, (list, tuple)) else [encoding]
    while parts:
        part = parts.pop()
        if isinstance(part, str | PathLike):
            part = Encoding.from_file(part)
        name = part.get("encoding") if isinstance(part, Mapping) else getattr(part, "name", None)
        if isinstance(name, Sequence) and not isinstance(name, str):
            parts.extend(name)
        elif name == "xlnet":
            raise refusal("unsupported", "attention: the encoding xlnet is not supported here: use phasor.parallel (MPI)")


class _Piece(NamedTuple):
    """Queries and keys that each count up: rows of this rank and of the owner of the keys, and their first tokens."""

    queries: slice
    keys: slice
    query_token: int
    key_token: int


class _Ring:
    """The ranks, the tokens of each, and the options of the whole sequence."""

    def __init__(
        self, group: dist.ProcessGroup | None, order: str, queries: int, keys: int, options: dict[str, Any]
    ) -> None:
        self.group = group
        self.rank, self.ranks = _group(group)
        self.order, self.queries, self.keys = order, queries, keys
        self.options = options
        self.refused: Error | None = None
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        if group is not None:
            after, before = dist.get_global_rank(group, after), dist.get_global_rank(group, before)
        self.after, self.before = after, before

    def owner(self, step: int) -> int:
        """Whose keys and values are here at a step."""
        return (self.rank - step) % self.ranks

    def pass_on(self, tensors: Sequence[Tensor], owner: int) -> Callable[[], list[Tensor]]:
        """Starts to send tensors [batch, keys, ...] to the next rank; the call returns those of `owner`, received."""
        rows = sum(map(len, _chunks(self.order, self.keys, self.ranks, owner)))
        out = [tensor.contiguous() for tensor in tensors]
        received = [tensor.new_empty((tensor.shape[0], rows, *tensor.shape[2:])) for tensor in tensors]
        works = [dist.irecv(tensor, self.before, self.group) for tensor in received if tensor.numel()]
        works += [dist.isend(tensor, self.after, self.group) for tensor in out if tensor.numel()]

        def finish() -> list[Tensor]:
            for work in works:
                if work is not None:  # torch's answer to a process outside the group
                    work.wait()
            del out[:]  # held until it has been sent
            return received

        return finish

    def pieces(self, owner: int) -> Iterator[_Piece]:
        """Pieces in which a query may see a key of `owner`."""
        offset, window, causal = self.keys - self.queries, self.options["window"], self.options["causal"]
        first_query = 0
        for queries in _chunks(self.order, self.queries, self.ranks, self.rank):
            first_key = 0
            for keys in _chunks(self.order, self.keys, self.ranks, owner):
                piece = _Piece(
                    slice(first_query, first_query + len(queries)),
                    slice(first_key, first_key + len(keys)),
                    queries.start + offset,
                    keys.start,
                )
                first_key += len(keys)
                if not queries or not keys:
                    continue
                ahead = keys.start - (queries[-1] + offset)  # above 0: every key is after every query
                behind = queries.start + offset - keys[-1]
                if (causal and ahead > 0) or (window is not None and max(ahead, behind) >= window):
                    continue
                yield piece
            first_query += len(queries)

    def attempt(self, work: Callable[[], None]) -> None:
        """Runs a rank's part of a step. After a refusal the keys still travel, so that the group stays usable; finish()
        raises it."""
        if self.refused is None:
            try:
                work()
            except Error as error:
                self.refused = error

    def finish(self) -> None:
        """Collective: raises what a rank has refused, on every rank."""

        def check() -> tuple[list[int], str]:
            refused, self.refused = self.refused, None
            if refused is not None:
                raise refused
            return [0, 0], ""

        _agreed(self.group, self.ranks, check)

    def keywords(self, piece: _Piece) -> dict[str, Any]:
        padding = self.options["key_padding"]
        first, count = piece.key_token, piece.keys.stop - piece.keys.start
        return self.options | {
            "query_offset": piece.query_token - piece.key_token,
            "query_positions": piece.query_token,
            "key_positions": piece.key_token,
            "key_padding": None if padding is None else padding[:, first : first + count].contiguous(),
        }


def _add(out: Tensor, sums: Tensor, part: Tensor, part_sums: Tensor) -> None:
    """Merges attention to more keys: with L = log(exp(a) + exp(b)), out = exp(a - L) out_a + exp(b - L) out_b."""
    both = torch.logaddexp(sums, part_sums)
    for values, its_sums in ((out, sums), (part, part_sums)):
        weights = torch.where(its_sums == -math.inf, 0.0, (its_sums - both).exp())
        values.mul_(weights.transpose(1, 2)[..., None])
    out.add_(part)
    sums.copy_(both)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ring: _Ring, text: str, objects: list[Encoding], q: Tensor, k: Tensor, v: Tensor, *tables: Tensor
    ) -> Tensor:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        queries = bare(q).to(wide)
        out = queries.new_zeros((*q.shape[:-1], v.shape[-1]))
        sums = queries.new_full((q.shape[0], q.shape[2], q.shape[1]), -math.inf)
        here = [bare(k), bare(v)]

        def attend(owner: int, encoding: Encodes) -> None:
            for piece in ring.pieces(owner):
                part_q = queries[:, piece.queries]
                part_sums = sums.new_empty((*sums.shape[:2], part_q.shape[1]))
                part = _core.attention(
                    part_q,
                    here[0][:, piece.keys],
                    here[1][:, piece.keys],
                    encoding=encoding,
                    log_sum_exp=part_sums,
                    **ring.keywords(piece),
                )
                _add(out[:, piece.queries], sums[:, :, piece.queries], part, part_sums)

        with held(objects) as name:
            encoding, _ = resolve(text, tables, name)
            for step in range(ring.ranks):
                more = step + 1 < ring.ranks
                arriving = ring.pass_on(here, ring.owner(step + 1)) if more else None
                ring.attempt(lambda: attend(ring.owner(step), encoding))
                if arriving:
                    here = arriving()
        ring.finish()
        ctx.save_for_backward(q, k, v, out, sums, *tables)
        ctx.ring, ctx.text, ctx.objects = ring, text, objects
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise refusal("unsupported", "attention: second derivatives (create_graph) are not supported")
        q, k, v, out, sums, *tables = ctx.saved_tensors
        ring: _Ring = ctx.ring
        out = out.detach()
        queries, d_out = bare(q).to(out.dtype), bare(d_out).to(out.dtype)
        d_q = torch.zeros_like(queries, memory_format=torch.contiguous_format)
        d_tables = [torch.zeros_like(table, memory_format=torch.contiguous_format) for table in tables]
        here = [bare(k), bare(v)]
        d_here: list[Tensor] = []  # what this rank adds to the gradients of the keys and values that are here
        coming: Callable[[], list[Tensor]] | None = None

        def attend_backward(owner: int, encoding: Encodes, to_tables: dict[str, Tensor] | None) -> None:
            for piece in ring.pieces(owner):
                inputs = (queries[:, piece.queries], here[0][:, piece.keys], here[1][:, piece.keys])
                parts = [x.new_empty(x.shape, dtype=out.dtype) for x in inputs]
                _core.attention_backward(
                    *inputs,
                    out[:, piece.queries],
                    sums[:, :, piece.queries].contiguous(),
                    d_out[:, piece.queries],
                    d_q=parts[0],
                    d_k=parts[1],
                    d_v=parts[2],
                    d_tables=to_tables,
                    encoding=encoding,
                    **ring.keywords(piece),
                )
                d_q[:, piece.queries].add_(parts[0])
                d_here[0][:, piece.keys].add_(parts[1])
                d_here[1][:, piece.keys].add_(parts[2])

        with held(ctx.objects) as name:
            encoding, names = resolve(ctx.text, tables, name)
            to_tables = dict(zip(names, d_tables, strict=True)) or None
            for step in range(ring.ranks):
                more = step + 1 < ring.ranks
                arriving = ring.pass_on(here, ring.owner(step + 1)) if more else None
                d_here = [x.new_zeros(x.shape, dtype=out.dtype) for x in here]
                ring.attempt(lambda: attend_backward(ring.owner(step), encoding, to_tables))
                if coming:
                    for mine, before in zip(d_here, coming(), strict=True):
                        mine.add_(before)
                # The sums go on with their keys; after the last step they are back at their owner.
                coming = ring.pass_on(d_here, ring.owner(step + 1)) if ring.ranks > 1 else lambda d=d_here: d
                if arriving:
                    here = arriving()
        assert coming is not None
        d_k, d_v = coming()
        ring.finish()
        return None, None, None, d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), *d_tables


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    encoding: Encodes = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    soft_cap: float = 0.0,
    key_padding: Tensor | None = None,
    context: int | None = None,
    order: TokenOrder = "zigzag",
    angles: Angles = "exact",
    threads: int = 0,
) -> Tensor:
    """phasor.torch.attention over the ranks of a group, with gradients for q, k, v and the encoding's tables.

    q, k, v: this rank's shards [batch, tokens, heads, head_dim] or without batch, as shard() cuts them in the same
    `order`; the result is the shard of the output. causal, window, key_padding [batch, keys] and positions describe the
    whole sequence: token 0 of it has position 0. Keys and values travel in their own type, gradients in float32 (float64
    for float64). Every encoding but xlnet, whose rows are counted from the ends of the sequence: phasor.parallel has it.

    Gradients of tables are this rank's part, like those of every other parameter: DistributedDataParallel or all_reduce
    sums them. Collective: every rank of the group calls forward and backward. A rank whose arguments are wrong, or differ
    from those of the others, raises phasor.Error on every rank, with the same line.
    """
    _, ranks = _group(group)
    choices = {
        "causal": causal,
        "window": window,
        "scale": scale,
        "soft_cap": soft_cap,
        "context": context,
        "angles": angles,
    }

    def check() -> tuple[list[int], str]:
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if not isinstance(tensor, Tensor):
                raise refusal("invalid_argument", f"attention: {name} must be a tensor, got {type(tensor).__name__}")
        require_readable("attention", q=q, k=k, v=v, key_padding=key_padding)
        require_no_grad("attention", key_padding=key_padding)
        shapes = [tensor.shape for tensor in _with_batch("attention", q, k, v)]
        if shapes[1][:3] != shapes[2][:3]:
            raise refusal(
                "shape_mismatch",
                f"attention: k and v must have the same batch, tokens and heads, got {shape_text(k)} and {shape_text(v)}",
            )
        _chunks(order, 0, ranks, 0)
        _require_pieces(encoding)
        # Every rank must have what does not depend on its tokens.
        sizes = [[shape[0], *shape[2:]] for shape in shapes]
        padding = None if key_padding is None else list(key_padding.shape)
        text = flatten("attention", encoding, q.dtype).text
        types = [str(tensor.dtype).removeprefix("torch.") for tensor in (q, k, v)]
        told = {"[batch, heads, head_dim] of q, k, v": sizes, "types": types, "order": order, "key_padding": padding}
        return [shapes[0][1], shapes[1][1]], json.dumps(told | choices | {"encoding": json.loads(text)})

    counts = _agreed(group, ranks, check)
    queries = _whole("q", order, [row[0] for row in counts])
    keys = _whole("k", order, [row[1] for row in counts])
    q4, k4, v4 = _with_batch("attention", q, k, v)
    if key_padding is not None:
        key_padding = key_padding.reshape(-1, key_padding.shape[-1])
        if list(key_padding.shape) != [q4.shape[0], keys]:
            raise refusal(
                "shape_mismatch",
                f"attention: key_padding must be [{q4.shape[0]}, {keys}], for the whole sequence, got "
                f"{shape_text(key_padding)}",
            )
    # Scalings that depend on the length see that of the whole sequence.
    choices["context"] = max(keys, 1) if context is None else context
    ring = _Ring(group, order, queries, keys, choices | {"threads": threads, "key_padding": key_padding})
    flat = flatten("attention", encoding, q.dtype)
    out: Tensor = applied(_Attention, ring, flat.text, flat.objects, q4, k4, v4, *flat.tables)
    return out if q.dim() == 4 else out.squeeze(0)


def shard(
    x: Tensor, *, group: dist.ProcessGroup | None = None, order: TokenOrder = "zigzag", axis: int = -3
) -> Tensor:
    """This rank's tokens of a tensor that every rank has whole; `axis` is that of the tokens. Has a gradient.

    contiguous: rank r of R has the r-th of R equal parts. zigzag: parts r and 2R - 1 - r of 2R, which gives every rank
    the same work under a causal mask. If the tokens do not divide evenly, the first parts have one more.
    """
    rank, ranks = _group(group)
    parts = _chunks(order, x.shape[axis], ranks, rank)
    return torch.cat([x.narrow(axis, part.start, len(part)) for part in parts], axis)


def unshard(
    x: Tensor, *, group: dist.ProcessGroup | None = None, order: TokenOrder = "zigzag", axis: int = -3
) -> Tensor:
    """The whole tensor, on every rank, from the shards that shard() cuts. Collective; without a gradient."""
    _, ranks = _group(group)

    def check() -> tuple[list[int], str]:
        require_readable("unshard", x=x)
        shape = list(x.shape)
        tokens, shape[axis] = shape[axis], -1
        return [tokens, 0], json.dumps({"order": order, "x": [shape, str(x.dtype)], "axis": axis})

    counts = [row[0] for row in _agreed(group, ranks, check)]
    tokens = _whole("x", order, counts)
    # Shards may differ by a token: all send as many as the longest.
    mine = x.detach().movedim(axis, 0)
    padded = mine.new_zeros((max(counts), *mine.shape[1:]))
    padded[: mine.shape[0]] = mine
    shards = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(shards, padded, group=group)
    whole = mine.new_empty((tokens, *mine.shape[1:]))
    for rank, rows in enumerate(shards):
        first = 0
        for part in _chunks(order, tokens, ranks, rank):
            whole[part.start : part.stop] = rows[first : first + len(part)]
            first += len(part)
    return whole.movedim(0, axis).contiguous()


__all__ = ["attention", "shard", "unshard"]
