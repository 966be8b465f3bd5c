"""Attention with gradients: softmax attention with every encoding, and linear attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from .. import _core
from .._core import RopeSpec
from ._attention_func import transformed_attention, transformed_linear_attention
from ._attention_ops import attention_op, linear_attention_op
from ._common import bare, direct, functional, needs_grad, refusal, require_readable, require_no_grad, shape_text, spec_text
from ._encodings import flatten, held

if TYPE_CHECKING:
    from .._core import Angles, Encodes, Order


def _with_batch(where: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Adds a batch axis of 1 to tensors of rank 3."""
    ranks = {tensor.dim() for tensor in tensors}
    if ranks == {4}:
        return tensors
    if ranks == {3}:
        return tuple(tensor.unsqueeze(0) for tensor in tensors)
    got = ", ".join(shape_text(tensor) for tensor in tensors)
    raise refusal("shape_mismatch", f"{where}: q, k and v must all have 4 axes or all 3, got {got}")


def _rows(where: str, name: str, positions: Tensor | int | None, tokens: int) -> Tensor | None:
    """Positions as a tensor, which is what an op takes."""
    if positions is None or isinstance(positions, Tensor):
        require_readable(where, **{name: positions})
        require_no_grad(where, **{name: positions})
        return positions
    return torch.arange(positions, positions + tokens)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    encoding: Encodes = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    soft_cap: float = 0.0,
    mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    key_padding: Tensor | None = None,
    query_boundaries: Tensor | None = None,
    key_boundaries: Tensor | None = None,
    query_positions: Tensor | int | None = None,
    key_positions: Tensor | int | None = None,
    query_segments: Tensor | None = None,
    key_segments: Tensor | None = None,
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
) -> Tensor:
    """Softmax attention with any encoding, in tiles, with gradients for q, k, v and the encoding's tables.

    q [batch, tokens, heads, head_dim] or without batch; k and v with their own number of heads; order="heads_first"
    swaps tokens and heads. encoding: a RopeSpec, a phasor.Encoding, the dictionary form
    ({"encoding": "t5", "relative_attention_bias": parameter, ...}), or a list of those; tables that are tensors get
    their gradient. Inside torch.compile use specs and dictionaries: the tracer cannot look into a phasor.Encoding.
    First derivatives only: second derivatives are not supported. Masks and positions have no gradient.
    """
    rotates_only = encoding is None or isinstance(encoding, RopeSpec)
    if rotates_only and direct(q, k, v, mask) and not needs_grad(q, k, v, mask):
        return _core.attention(
            bare(q),
            bare(k),
            bare(v),
            encoding=encoding,
            causal=causal,
            window=window,
            scale=scale,
            soft_cap=soft_cap,
            mask=mask,
            key_lengths=key_lengths,
            key_padding=key_padding,
            query_boundaries=query_boundaries,
            key_boundaries=key_boundaries,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
            context=context,
            order=order,
            angles=angles,
            threads=threads,
        )
    require_readable("attention", q=q, k=k, v=v, mask=mask)
    require_no_grad("attention", mask=mask)
    q4, k4, v4 = _with_batch("attention", q, k, v)
    tokens = 2 if order == "heads_first" else 1
    flat = flatten("attention", encoding, q.dtype)
    require_readable("attention", **{f"table {i}": table for i, table in enumerate(flat.tables)})
    arrays = (
        mask,
        key_lengths,
        key_padding,
        query_boundaries,
        key_boundaries,
        _rows("attention", "query_positions", query_positions, q4.shape[tokens]),
        _rows("attention", "key_positions", key_positions, k4.shape[tokens]),
        query_segments,
        key_segments,
    )
    choices = (causal, window, scale, soft_cap, context, order, angles, threads)

    def attend(objects: str) -> Tensor:
        if functional("attention", q4, k4, v4, *flat.tables):
            return transformed_attention((q4, k4, v4), flat.tables, flat.text, objects, arrays, choices)
        return attention_op(q4, k4, v4, flat.tables, flat.text, objects, *arrays, *choices)[0]

    if flat.objects:
        with held(flat.objects) as numbers:
            out = attend(numbers)
    else:
        out = attend("")
    return out if q.dim() == 4 else out.squeeze(0)


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    encoding: RopeSpec | None = None,
    causal: bool = False,
    features: Literal["elu_plus_one", "softmax_exp", "favor"] = "elu_plus_one",
    feature_count: int = 0,
    seed: int = 0,
    rotates: Literal["features", "inputs"] = "features",
    key_padding: Tensor | None = None,
    query_positions: Tensor | int | None = None,
    key_positions: Tensor | int | None = None,
    context: int | None = None,
    order: Order = "tokens_first",
    threads: int = 0,
) -> Tensor:
    """Linear attention with rotation, RoFormer (19), with gradients for q, k and v; shapes as attention().
    feature_count, seed (below 2**63) and rotates as phasor.linear_attention.

    First derivatives only: second derivatives are not supported. For decoding with a state use phasor.linear_attention.
    """
    if direct(q, k, v) and not needs_grad(q, k, v):
        return _core.linear_attention(
            bare(q),
            bare(k),
            bare(v),
            encoding=encoding,
            causal=causal,
            features=features,
            feature_count=feature_count,
            seed=seed,
            rotates=rotates,
            key_padding=key_padding,
            query_positions=query_positions,
            key_positions=key_positions,
            context=context,
            order=order,
            threads=threads,
        )
    require_readable("linear_attention", q=q, k=k, v=v)
    q4, k4, v4 = _with_batch("linear_attention", q, k, v)
    tokens = 2 if order == "heads_first" else 1
    followed = functional("linear_attention", q4, k4, v4)
    out = (transformed_linear_attention if followed else linear_attention_op)(
        q4,
        k4,
        v4,
        key_padding,
        _rows("linear_attention", "query_positions", query_positions, q4.shape[tokens]),
        _rows("linear_attention", "key_positions", key_positions, k4.shape[tokens]),
        None if encoding is None else spec_text(encoding),
        causal,
        features,
        feature_count,
        seed,
        rotates,
        context,
        order,
        threads,
    )
    return out if q.dim() == 4 else out.squeeze(0)


__all__ = ["attention", "linear_attention"]
