"""One ONNX node, run with Phasor: RotaryEmbedding-23 and Attention-23, -24 and -25."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.helper

from .. import _core
from .._core import Error

Array = npt.NDArray[Any]
Attributes = Mapping[str, object]

_ROTARY_ATTRIBUTES = ("interleaved", "num_heads", "rotary_embedding_dim")
_ATTENTION_ATTRIBUTES = (
    "is_causal",
    "kv_num_heads",
    "left_window_size",
    "q_num_heads",
    "qk_matmul_output_mode",
    "right_window_size",
    "scale",
    "softcap",
    "softmax_precision",
)


def attributes_of(node: onnx.NodeProto) -> dict[str, object]:
    """name -> value of a node's attributes."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def is_ours(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in _OPERATORS


def run_node(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> list[Array | None]:
    """The node's outputs in their order; None is a missing optional input or output.

    raises  for other operators, unknown attributes, shapes that disagree
    """
    if not is_ours(node):
        raise Error(
            f"onnx: the node must be RotaryEmbedding or Attention, got {node.domain or 'ai.onnx'}.{node.op_type}"
        )
    known, run = _OPERATORS[node.op_type]
    attributes = attributes_of(node)
    for name in attributes:
        if name not in known:
            raise Error(f"onnx {node.op_type}: unknown attribute {name}; known are {', '.join(known)}")
    return run(attributes, inputs, [bool(name) for name in node.output])


def _integer(attributes: Attributes, name: str, fallback: int) -> int:
    value = attributes.get(name, fallback)
    assert isinstance(value, int)
    return value


def _real(attributes: Attributes, name: str) -> float | None:
    value = attributes.get(name)
    return None if value is None else float(value)  # type: ignore[arg-type]


def _needed(inputs: Sequence[Array | None], at: int, where: str) -> Array:
    value = _optional(inputs, at)
    if value is None:
        raise Error(f"{where} is missing")
    return value


def _optional(inputs: Sequence[Array | None], at: int) -> Array | None:
    return inputs[at] if at < len(inputs) else None


def _heads(x: Array, heads: int, where: str) -> Array:
    """[batch, tokens, heads, dim], a view: of [batch, heads, tokens, dim], or of [batch, tokens, heads * dim]."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    if x.ndim != 3:
        raise Error(f"{where} must have 3 or 4 axes, got the shape {list(x.shape)}")
    if heads < 1 or x.shape[2] % heads:
        raise Error(f"{where}: the number of heads must divide the {x.shape[2]} features, got {heads}")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads)


def _like_input(y: Array, rank: int) -> Array:
    """[batch, tokens, heads, dim] with the axes that the node's input had."""
    if rank == 4:
        return np.ascontiguousarray(y.transpose(0, 2, 1, 3))
    return np.ascontiguousarray(y).reshape(y.shape[0], y.shape[1], -1)


def _rows(cache: Array, ids: Array | None, batch: int, tokens: int, where: str) -> npt.NDArray[np.float32]:
    """The rows of cos or sin, [batch, tokens, pairs]."""
    if ids is None:
        if cache.ndim != 3 or cache.shape[:2] != (batch, tokens):
            raise Error(
                f"{where} must have the shape [{batch}, {tokens}, pairs] without position_ids, got {list(cache.shape)}"
            )
        return np.ascontiguousarray(cache, dtype=np.float32)
    if cache.ndim != 2 or ids.shape != (batch, tokens):
        raise Error(
            f"{where} and position_ids must have the shapes [positions, pairs] and [{batch}, {tokens}], "
            f"got {list(cache.shape)} and {list(ids.shape)}"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < len(cache):
        raise Error(f"position_ids must be in [0, {len(cache)}), got {ids.min()} to {ids.max()}")
    return np.ascontiguousarray(cache[ids], dtype=np.float32)


def _rotary_embedding(
    attributes: Attributes, inputs: Sequence[Array | None], wanted: Sequence[bool]
) -> list[Array | None]:
    where = "onnx RotaryEmbedding"
    given = _needed(inputs, 0, f"{where}: X")
    x = _heads(given, _integer(attributes, "num_heads", 0), f"{where}: X")
    batch, tokens, _, dim = x.shape
    rotary_dim = _integer(attributes, "rotary_embedding_dim", 0) or dim
    ids = _optional(inputs, 3)
    cos, sin = (
        _rows(_needed(inputs, at, f"{where}: {name}"), ids, batch, tokens, f"{where}: {name}")
        for at, name in ((1, "cos_cache"), (2, "sin_cache"))
    )
    if cos.shape != sin.shape or 2 * cos.shape[2] != rotary_dim:
        raise Error(
            f"{where}: cos_cache and sin_cache must hold {rotary_dim // 2} pairs per row, "
            f"got {cos.shape[2]} and {sin.shape[2]}"
        )
    layout: _core.Layout = "interleaved" if _integer(attributes, "interleaved", 0) else "half"
    rotated = np.asarray(_core.rotate_by(x, cos, sin, layout=layout))
    return [_like_input(rotated, given.ndim)]


class _Attention:
    """An Attention node: its inputs as arrays [batch, tokens, heads, dim], and its masks."""

    where = "onnx Attention"

    def __init__(self, attributes: Attributes, inputs: Sequence[Array | None]) -> None:
        q, k, v = (_needed(inputs, at, f"{self.where}: {name}") for at, name in enumerate("QKV"))
        self.rank = q.ndim
        self.q = _heads(q, _integer(attributes, "q_num_heads", 0), f"{self.where}: Q")
        key_heads = _integer(attributes, "kv_num_heads", 0)
        new_k, new_v = _heads(k, key_heads, f"{self.where}: K"), _heads(v, key_heads, f"{self.where}: V")
        past_key, past_value = _optional(inputs, 4), _optional(inputs, 5)
        if (past_key is None) != (past_value is None):
            raise Error(f"{self.where}: past_key needs past_value and past_value needs past_key: one is missing")
        self.k, self.v = self._joined(past_key, new_k, "past_key"), self._joined(past_value, new_v, "past_value")
        self.past = self.k.shape[1] - new_k.shape[1]
        self.mask = self._broadcast_mask(_optional(inputs, 3))
        self.lengths = _optional(inputs, 6)
        if self.lengths is not None and past_key is not None:
            raise Error(f"{self.where}: nonpad_kv_seqlen and past_key cannot be combined")
        if self.lengths is not None and self.lengths.shape != (self.q.shape[0],):
            raise Error(
                f"{self.where}: nonpad_kv_seqlen must have the shape [{self.q.shape[0]}], "
                f"got {list(self.lengths.shape)}"
            )
        self.causal = _integer(attributes, "is_causal", 0) != 0
        self.left = _integer(attributes, "left_window_size", -1)
        self.right = _integer(attributes, "right_window_size", -1)
        self.soft_cap = _real(attributes, "softcap") or 0.0
        given_scale = _real(attributes, "scale")
        self.scale = 1.0 / math.sqrt(self.q.shape[3]) if given_scale is None else given_scale

    def _joined(self, past: Array | None, new: Array, name: str) -> Array:
        """[batch, tokens, heads, dim]: the past, which is stored heads first, before the new tokens."""
        if past is None:
            return new
        batch, _, heads, dim = new.shape
        if (
            past.ndim != 4
            or (past.shape[0], past.shape[1], past.shape[3]) != (batch, heads, dim)
            or past.dtype != new.dtype
        ):
            raise Error(
                f"{self.where}: {name} must be {new.dtype} of the shape [{batch}, {heads}, past, {dim}], "
                f"got {past.dtype} {list(past.shape)}"
            )
        return np.concatenate([past.transpose(0, 2, 1, 3), new], axis=1)

    def _broadcast_mask(self, mask: Array | None) -> Array | None:
        """attn_mask for all keys: keys after its last column are hidden."""
        if mask is None:
            return None
        keys = self.k.shape[1]
        if mask.dtype != np.bool_:
            mask = np.asarray(mask, dtype=np.float64 if self.q.dtype == np.float64 else np.float32)
        missing = keys - mask.shape[-1] if mask.ndim else 0
        # ONNX's reference pads a single column too, instead of broadcasting it.
        if missing > 0:
            hidden = False if mask.dtype == np.bool_ else -np.inf
            mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=hidden)
        # A mask of rank 1 is the same for every query.
        return mask[None, :] if mask.ndim == 1 else mask

    def offsets(self) -> npt.NDArray[np.int64]:
        """[batch]: the number of keys before the first query."""
        if self.lengths is not None:
            return np.asarray(self.lengths - self.q.shape[1], dtype=np.int64)
        return np.full(self.q.shape[0], self.past, dtype=np.int64)

    def seen(self) -> npt.NDArray[np.bool_]:
        """[batch, 1, queries, keys]: the keys that causality, windows and padding leave visible."""
        at = self.offsets()[:, None, None, None] + np.arange(self.q.shape[1])[:, None]
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

    def run(self) -> Array:
        """Y, [batch, queries, heads, value_dim]."""
        choices: dict[str, Any] = {"scale": self.scale, "soft_cap": self.soft_cap, "mask": self.mask}
        queries, keys = self.q.shape[1], self.k.shape[1]
        window = self.left + 1 if self.left >= 0 and (self.causal or self.left == self.right) else None
        # Phasor aligns causality and window bottom-right (last query, last key); the operator counts from the past.
        # Both agree if the keys end with the queries, or can be cut there with key_lengths.
        says_all = window is not None or (self.left < 0 and (self.right < 0 or self.causal))
        ends = self.past + queries
        places = self.causal or window is not None
        if self.lengths is not None:
            choices["key_lengths"] = self.lengths
        elif self.causal and ends <= keys:
            choices["key_lengths"] = np.full(self.q.shape[0], ends, dtype=np.int64)
        elif places and ends != keys:
            says_all = False
        if says_all:
            choices.update(causal=self.causal, window=window)
        else:
            choices.update(mask=self.bias())
            choices.pop("key_lengths", None)
        return np.asarray(_core.attention(self.q, self.k, self.v, **choices))

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


def _attention(attributes: Attributes, inputs: Sequence[Array | None], wanted: Sequence[bool]) -> list[Array | None]:
    mode = _integer(attributes, "qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise Error(f"onnx Attention: qk_matmul_output_mode must be 0 to 3, got {mode}")
    for name in ("left_window_size", "right_window_size"):
        if _integer(attributes, name, -1) < -1:
            raise Error(f"onnx Attention: {name} must be -1 or more, got {attributes[name]}")
    node = _Attention(attributes, inputs)
    outputs: tuple[Callable[[], Array], ...] = (
        lambda: _like_input(node.run(), node.rank),
        lambda: np.ascontiguousarray(node.k.transpose(0, 2, 1, 3)),
        lambda: np.ascontiguousarray(node.v.transpose(0, 2, 1, 3)),
        lambda: node.scores(mode),
    )
    # Only requested outputs: the scores need memory of tokens squared.
    return [output() if asked else None for output, asked in zip(outputs, wanted)]


_Run = Callable[[Attributes, Sequence["Array | None"], Sequence[bool]], "list[Array | None]"]
_OPERATORS: dict[str, tuple[tuple[str, ...], _Run]] = {
    "RotaryEmbedding": (_ROTARY_ATTRIBUTES, _rotary_embedding),
    "Attention": (_ATTENTION_ATTRIBUTES, _attention),
}
