"""Attention as its formula says, in float64: what the tests of attention compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def normal(*shape: int, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def plain(q: Array, k: Array, v: Array, bias: Array | float = 0.0, scale: float | None = None) -> Array:
    """RoFormer (2) in float64, [batch, tokens, heads, dim]; bias [..., queries, keys] with -inf for hidden pairs."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.einsum("bmhd,bnhd->bhmn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out: Array = np.einsum("bhmn,bnhd->bmhd", weights, v)
    return out


def hidden(allowed: Array) -> Array:
    return np.where(allowed, 0.0, -np.inf)


def causal_mask(queries: int, keys: int) -> Array:
    return np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
