"""Softmax attention as the operators of ONNX and ONNX Runtime describe it: queries after a past, windows, padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .arguments import Array


@dataclass
class Attending:
    """q, k and v are [batch, tokens, heads, dim], k and v with the past."""

    q: Array
    k: Array
    v: Array
    scale: float
    offsets: npt.NDArray[np.int64]  # [batch]: keys before the first query
    lengths: Array | None = None  # [batch]: keys at or after are padding
    mask: Array | None = None  # boolean or added, broadcast to [batch, heads, queries, keys]
    causal: bool = False
    left: int = -1  # keys before a query that it sees; -1: all
    right: int = -1
    soft_cap: float = 0.0

    def seen(self) -> npt.NDArray[np.bool_]:
        """[batch, 1, queries, keys]: the keys that causality, windows and padding leave visible."""
        at = self.offsets[:, None, None, None] + np.arange(self.q.shape[1])[:, None]
        key = np.arange(self.k.shape[1])
        seen = np.ones((self.q.shape[0], 1, self.q.shape[1], len(key)), dtype=np.bool_)
        if self.causal:
            seen &= key <= at
        if self.left >= 0:
            seen &= key >= at - self.left
        if self.right >= 0:
            seen &= key <= at + self.right
        if self.lengths is not None:
            seen &= key < self.lengths[:, None, None, None]
        return seen

    def bias(self) -> Array:
        """[batch, heads or 1, queries, keys]: the sum added to the scores, -infinity for a hidden key."""
        hidden = np.where(self.seen(), np.float32(0), np.float32(-np.inf))
        if self.mask is None:
            return hidden
        mask = np.where(self.mask, np.float32(0), np.float32(-np.inf)) if self.mask.dtype == np.bool_ else self.mask
        return np.asarray(np.where(np.isneginf(hidden), hidden, hidden + mask), dtype=mask.dtype)

    def run(self, log_sum_exp: Array | None = None) -> Array:
        """The output, [batch, queries, heads, value_dim]; fills log_sum_exp [batch, heads, queries]."""
        choices: dict[str, Any] = {"scale": self.scale, "soft_cap": self.soft_cap, "mask": self.mask}
        queries, keys = self.q.shape[1], self.k.shape[1]
        window = self.left + 1 if self.left >= 0 and (self.causal or self.left == self.right) else None
        # Phasor aligns causality and window bottom-right (last query, last key); the operators count from the past.
        # Both agree if the keys end with the queries, or can be cut there with key_lengths.
        ends = self.offsets + queries
        places = self.causal or window is not None
        says_all = window is not None or (self.left < 0 and (self.right < 0 or self.causal))
        if self.lengths is not None:
            says_all &= not places or bool(np.array_equal(self.lengths, ends))
            choices["key_lengths"] = np.asarray(self.lengths, dtype=np.int64)
        elif self.causal and bool((ends <= keys).all()):
            choices["key_lengths"] = ends
        elif places and bool((ends != keys).any()):
            says_all = False
        if says_all:
            choices.update(causal=self.causal, window=window)
        else:
            choices.update(mask=self.bias())
            choices.pop("key_lengths", None)
        return np.asarray(_core.attention(self.q, self.k, self.v, log_sum_exp=log_sum_exp, **choices))

    def scores(self, mode: int) -> Array:
        """qk_matmul_output, [batch, heads, queries, keys], by plain matrix products.

        Phasor never builds this matrix; it is computed here for the comparison only.
        """
        group = self.q.shape[2] // self.k.shape[2]
        wide = np.float64 if self.q.dtype == np.float64 else np.float32
        k = np.repeat(self.k.astype(wide), group, axis=2)
        scores = np.einsum("bihd,bjhd->bhij", self.q.astype(wide), k) * wide(self.scale)
        if mode >= 1 and self.soft_cap > 0:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
        if mode >= 2:
            bias = self.bias()
            # Selected, not added: a hidden NaN score stays hidden.
            scores = np.where(np.isneginf(bias), -np.inf, scores + bias)
        if mode == 3:
            top = scores.max(axis=-1, keepdims=True)
            weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
            total = weights.sum(axis=-1, keepdims=True)
            # A query that sees no key has a row of zeros.
            scores = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
        return np.asarray(scores.astype(self.q.dtype))
