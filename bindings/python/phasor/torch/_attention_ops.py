"""Custom ops of attention: phasor::attention and phasor::linear_attention, and their backward passes.

The backward passes recompute tiles of the scores and have no derivative of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _core
from ._common import bare, refusal, spec_of
from ._encodings import held, held_objects, resolve

# The other arguments of both softmax attention ops, by their keywords in _core.
_ARRAYS = (
    "mask",
    "key_lengths",
    "key_padding",
    "query_boundaries",
    "key_boundaries",
    "query_positions",
    "key_positions",
    "query_segments",
    "key_segments",
)
_CHOICES = ("causal", "window", "scale", "soft_cap", "context", "order", "angles", "threads")


def _keywords(arrays: tuple[Tensor | None, ...], choices: tuple[Any, ...]) -> dict[str, Any]:
    keywords: dict[str, Any] = dict(zip(_CHOICES, choices, strict=True))
    for name, array in zip(_ARRAYS, arrays, strict=True):
        keywords[name] = None if array is None else array.detach()
    return keywords


def _axes(order: str) -> tuple[int, int]:
    """The axes of tokens and heads in [batch, ., ., dim]."""
    return (2, 1) if order == "heads_first" else (1, 2)


def _attention_room(q: Tensor, v: Tensor, order: str) -> tuple[Tensor, Tensor]:
    tokens, heads = _axes(order)
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return out, torch.empty((q.shape[0], q.shape[heads], q.shape[tokens]), dtype=wide, device=q.device)


@torch.library.custom_op("phasor::attention", mutates_args=(), device_types="cpu")
def attention_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: list[Tensor],
    encoding: str,
    objects: str,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    key_padding: Tensor | None,
    query_boundaries: Tensor | None,
    key_boundaries: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    query_segments: Tensor | None,
    key_segments: Tensor | None,
    causal: bool,
    window: int | None,
    scale: float | None,
    soft_cap: float,
    context: int | None,
    order: str,
    angles: str,
    threads: int,
) -> tuple[Tensor, Tensor]:
    arrays = (
        mask,
        key_lengths,
        key_padding,
        query_boundaries,
        key_boundaries,
        query_positions,
        key_positions,
        query_segments,
        key_segments,
    )
    choices = (causal, window, scale, soft_cap, context, order, angles, threads)
    encodes, _ = resolve(encoding, tables, objects)
    out, log_sum_exp = _attention_room(q, v, order)
    _core.attention(
        bare(q),
        bare(k),
        bare(v),
        encoding=encodes,
        log_sum_exp=log_sum_exp,
        out=out,
        **_keywords(arrays, choices),
    )
    return out, log_sum_exp


@attention_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, tables: list[Tensor], encoding: str, *rest: Any) -> tuple[Tensor, Tensor]:
    return _attention_room(q, v, rest[-3])


@torch.library.custom_op("phasor::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sum_exp: Tensor,
    d_out: Tensor,
    tables: list[Tensor],
    encoding: str,
    objects: str,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    key_padding: Tensor | None,
    query_boundaries: Tensor | None,
    key_boundaries: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    query_segments: Tensor | None,
    key_segments: Tensor | None,
    causal: bool,
    window: int | None,
    scale: float | None,
    soft_cap: float,
    context: int | None,
    order: str,
    angles: str,
    threads: int,
) -> list[Tensor]:
    arrays = (
        mask,
        key_lengths,
        key_padding,
        query_boundaries,
        key_boundaries,
        query_positions,
        key_positions,
        query_segments,
        key_segments,
    )
    choices = (causal, window, scale, soft_cap, context, order, angles, threads)
    encodes, names = resolve(encoding, tables, objects)
    d_q, d_k, d_v = (torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v))
    d_tables = [torch.zeros(table.shape, dtype=table.dtype) for table in tables]
    _core.attention_backward(
        bare(q),
        bare(k),
        bare(v),
        out.detach(),
        log_sum_exp.detach(),
        bare(d_out),
        d_q=d_q,
        d_k=d_k,
        d_v=d_v,
        d_tables=dict(zip(names, d_tables, strict=True)) or None,
        encoding=encodes,
        **_keywords(arrays, choices),
    )
    return [d_q, d_k, d_v, *d_tables]


@attention_backward_op.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sum_exp: Tensor,
    d_out: Tensor,
    tables: list[Tensor],
    *rest: Any,
) -> list[Tensor]:
    return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v, *tables)]


def no_second(where: str) -> Any:
    def backward(ctx: Any, *grads: object) -> None:
        raise refusal(
            "unsupported", f"{where}: second derivatives (create_graph) are not supported"
        )

    return backward


attention_backward_op.register_autograd(no_second("attention"))


def _attention_keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, tables, encoding, objects = inputs[:6]
    arrays, choices = inputs[6:15], inputs[15:]
    ctx.save_for_backward(q, k, v, *output, *tables, *arrays)
    ctx.table_count = len(tables)
    ctx.encoding = encoding
    ctx.objects = held_objects(objects)
    ctx.choices = choices
    ctx.mark_non_differentiable(output[1])


def _attention_backward(ctx: Any, d_out: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, log_sum_exp, *rest = ctx.saved_tensors
    tables, arrays = list(rest[: ctx.table_count]), rest[ctx.table_count :]
    with held(ctx.objects) as numbers:
        d_q, d_k, d_v, *d_tables = attention_backward_op(
            q, k, v, out, log_sum_exp, d_out, tables, ctx.encoding, numbers, *arrays, *ctx.choices
        )
    return (d_q, d_k, d_v, d_tables, *(None,) * 19)


attention_op.register_autograd(_attention_backward, setup_context=_attention_keep)


@torch.library.custom_op("phasor::linear_attention", mutates_args=(), device_types="cpu")
def linear_attention_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_padding: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    spec: str | None,
    causal: bool,
    features: str,
    feature_count: int,
    seed: int,
    rotates: str,
    context: int | None,
    order: str,
    threads: int,
) -> Tensor:
    out, _ = _attention_room(q, v, order)
    arrays = (key_padding, query_positions, key_positions)
    choices = (spec, causal, features, feature_count, seed, rotates, context, order, threads)
    _core.linear_attention(bare(q), bare(k), bare(v), out=out, **_linear_keywords(arrays, choices))
    return out


def _linear_keywords(arrays: tuple[Tensor | None, ...], choices: tuple[Any, ...]) -> dict[str, Any]:
    spec, causal, features, feature_count, seed, rotates, context, order, threads = choices
    padding, queries, keys = (None if array is None else array.detach() for array in arrays)
    return {
        "encoding": None if spec is None else spec_of(spec),
        "causal": causal,
        "features": features,
        "feature_count": feature_count,
        "seed": seed,
        "rotates": rotates,
        "key_padding": padding,
        "query_positions": queries,
        "key_positions": keys,
        "context": context,
        "order": order,
        "threads": threads,
    }


@linear_attention_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return _attention_room(q, v, rest[-2])[0]


@torch.library.custom_op("phasor::linear_attention_backward", mutates_args=(), device_types="cpu")
def linear_attention_backward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    d_out: Tensor,
    key_padding: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    spec: str | None,
    causal: bool,
    features: str,
    feature_count: int,
    seed: int,
    rotates: str,
    context: int | None,
    order: str,
    threads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = (torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v))
    arrays = (key_padding, query_positions, key_positions)
    choices = (spec, causal, features, feature_count, seed, rotates, context, order, threads)
    _core.linear_attention_backward(
        bare(q), bare(k), bare(v), bare(d_out), d_q=d_q, d_k=d_k, d_v=d_v, **_linear_keywords(arrays, choices)
    )
    return d_q, d_k, d_v


@linear_attention_backward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return d_q, d_k, d_v


linear_attention_backward_op.register_autograd(no_second("linear_attention"))


def _linear_keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.choices = inputs[6:]


def _linear_backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    q, k, v, *arrays = ctx.saved_tensors
    gradients = linear_attention_backward_op(q, k, v, d_out, *arrays, *ctx.choices)
    return (*gradients, *(None,) * 12)


linear_attention_op.register_autograd(_linear_backward, setup_context=_linear_keep)
