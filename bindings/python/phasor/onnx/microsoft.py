"""The operators of ONNX Runtime (domain com.microsoft) that rotate or attend, as its CPU kernels compute them.

Attributes and inputs that those kernels ignore or do not have are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .._core import Error
from .arguments import Array, Attributes, Inputs, integer, like_input, needed, one_of, optional, real, split_heads
from .attending import Attending
from .rotating import rotated

DOMAIN = "com.microsoft"
ROTARY_ATTRIBUTES = ("interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale")
MULTI_HEAD_ATTRIBUTES = ("mask_filter_value", "num_heads", "scale", "unidirectional")
GROUP_QUERY_ATTRIBUTES = (
    "causal",
    "do_rotary",
    "k_quant_type",
    "kv_cache_bit_width",
    "kv_num_heads",
    "local_window_size",
    "num_heads",
    "qk_norm_epsilon",
    "qk_output",
    "rotary_interleaved",
    "scale",
    "sliding_window_cache",
    "smooth_softmax",
    "softcap",
    "v_quant_type",
)


def rotary_embedding(attributes: Attributes, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
    """The head size is twice the width of cos_cache, or with rotary_embedding_dim that of num_heads heads.

    position_ids hold one number, the position of the first token of every row, or one per token.
    """
    where = "onnx com.microsoft.RotaryEmbedding"
    one_of(attributes, "is_packed_batching", 0, (0,), where)
    scale = real(attributes, "scale")
    if scale not in (None, 1.0):
        raise Error(f"{where}: scale must be 1 (ONNX Runtime reads it and does not apply it), got {scale}")
    given, ids, cos, sin = (
        needed(inputs, at, f"{where}: {name}")
        for at, name in enumerate(("input", "position_ids", "cos_cache", "sin_cache"))
    )
    heads, rotary_dim = integer(attributes, "num_heads", 0), integer(attributes, "rotary_embedding_dim", 0)
    if rotary_dim > 0 and heads < 1:
        raise Error(f"{where}: rotary_embedding_dim {rotary_dim} needs num_heads, got {heads}")
    if given.ndim == 3 and rotary_dim == 0 and cos.ndim == 2:
        dim = 2 * cos.shape[1]
        if dim == 0 or given.shape[2] % dim or heads not in (0, given.shape[2] // dim):
            raise Error(
                f"{where}: num_heads times twice the width of cos_cache must be the {given.shape[2]} features, "
                f"got num_heads {heads} and the width {cos.shape[1]}"
            )
        heads = given.shape[2] // dim
    x = split_heads(given, heads, f"{where}: input")
    batch, tokens, _, dim = x.shape
    if ids.size == 1 and ids.ndim < 2:
        ids = np.broadcast_to(ids.reshape(1, 1) + np.arange(tokens), (batch, tokens))
    y = rotated(x, cos, sin, ids, rotary_dim or dim, integer(attributes, "interleaved", 0) != 0, where)
    return [like_input(y, given.ndim)]


def _scale(attributes: Attributes, dim: int) -> float:
    # 0 means the default, too.
    return real(attributes, "scale") or 1.0 / math.sqrt(dim)


def _refuse_inputs(inputs: Inputs, refused: dict[int, str], where: str) -> None:
    for at, name in refused.items():
        value = optional(inputs, at)
        if value is not None:
            raise Error(f"{where}: {name} is not supported, got the shape {list(value.shape)}")


def _additive(mask: Array | None, q: Array, keys: int, where: str) -> Array | None:
    """attention_bias, [batch or 1, heads or 1, queries, keys]."""
    if mask is None:
        return None
    batch, queries, heads = q.shape[:3]
    if mask.ndim != 4 or mask.shape[0] not in (1, batch) or mask.shape[1] not in (1, heads):
        fits = False
    else:
        fits = mask.shape[2:] == (queries, keys)
    if not fits:
        raise Error(
            f"{where}: attention_bias must have the shape [{batch} or 1, {heads} or 1, {queries}, {keys}], "
            f"got {list(mask.shape)}"
        )
    return np.asarray(mask, dtype=np.float32)


def _key_padding(mask: Array | None, q: Array, keys: int, where: str) -> npt.NDArray[np.bool_] | None:
    """key_padding_mask, [batch, 1, queries or 1, keys]: False for padding."""
    if mask is None:
        return None
    batch, queries = q.shape[:2]
    if mask.shape == (batch,):
        return np.asarray(np.arange(keys) < mask[:, None])[:, None, None]
    if mask.shape == (batch, keys):
        return np.asarray(mask != 0)[:, None, None]
    if mask.shape == (batch, queries, keys):
        return np.asarray(mask != 0)[:, None]
    raise Error(
        f"{where}: key_padding_mask must have the shape [{batch}], [{batch}, {keys}] or [{batch}, {queries}, {keys}], "
        f"got {list(mask.shape)}"
    )


def _unspecified(y: Array, where: npt.NDArray[np.bool_]) -> Array:
    """y with the values that no engine promises masked."""
    return np.ma.masked_array(y, np.broadcast_to(where, y.shape)) if where.any() else y


def _biased(query: Array, key: Array, value: Array, bias: Array, where: str) -> tuple[Array, Array, Array]:
    """The projections with their bias, [q | k | v]. ONNX Runtime adds none to keys and values [batch, heads, tokens,
    dim], which a cross-attention keeps as they are."""
    widths = [query.shape[2], *(x.shape[2] if x.ndim == 3 else x.shape[1] * x.shape[-1] for x in (key, value))]
    if bias.shape != (sum(widths),):
        raise Error(f"{where}: bias must have the shape [{sum(widths)}] of q, k and v, got {list(bias.shape)}")
    of_query, of_key, of_value = np.split(bias, np.cumsum(widths)[:-1])
    if key.ndim == value.ndim == 3:
        return query + of_query, key + of_key, value + of_value
    return query + of_query, key, value


def multi_head_attention(attributes: Attributes, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
    """A masked key has mask_filter_value added to its score, -10000 by default. Queries whose keys are all masked are
    left out of a comparison: only the rounding of such scores tells their keys apart."""
    where = "onnx com.microsoft.MultiHeadAttention"
    _refuse_inputs(inputs, {8: "past_sequence_length", 9: "cache_indirection"}, where)
    heads = integer(attributes, "num_heads", 0)
    query = needed(inputs, 0, f"{where}: query")
    if query.ndim != 3:
        raise Error(f"{where}: query must have 3 axes (packed QKV is not supported), got the shape {list(query.shape)}")
    key, value = needed(inputs, 1, f"{where}: key"), needed(inputs, 2, f"{where}: value")
    bias = optional(inputs, 3)
    if bias is not None:
        query, key, value = _biased(query, key, value, bias, where)
    given = {"query": query, "key": key, "value": value}
    q, k, v = (split_heads(x, heads, f"{where}: {name}") for name, x in given.items())
    past_key, past_value = optional(inputs, 6), optional(inputs, 7)
    if (past_key is None) != (past_value is None):
        raise Error(f"{where}: past_key needs past_value and past_value needs past_key: one is missing")
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k = np.concatenate([past_key.transpose(0, 2, 1, 3), k], axis=1)
        v = np.concatenate([past_value.transpose(0, 2, 1, 3), v], axis=1)
    keys = k.shape[1]
    causal = one_of(attributes, "unidirectional", 0, (0, 1), where) != 0
    if causal and past + q.shape[1] != keys:
        raise Error(f"{where}: unidirectional needs as many new keys as queries, got {q.shape[1]} and {keys - past}")
    mask = _additive(optional(inputs, 5), q, keys, where)
    kept = _key_padding(optional(inputs, 4), q, keys, where)
    offsets = np.full(q.shape[0], past, dtype=np.int64)
    node = Attending(q, k, v, _scale(attributes, q.shape[3]), offsets, mask=mask, causal=causal)
    blind = np.zeros((1, 1, 1, 1), dtype=np.bool_)
    if kept is not None:
        blind = ~np.asarray((kept & node.seen()).any(axis=3))[:, 0, :, None, None]
        filled = real(attributes, "mask_filter_value")
        added = np.where(kept, np.float32(0), np.float32(-10000.0 if filled is None else filled))
        node.mask = added if mask is None else mask + added
    outputs: list[Array | None] = [
        _unspecified(like_input(node.run(), 3), blind[:, :, 0]),
        np.ascontiguousarray(k.transpose(0, 2, 1, 3)),
        np.ascontiguousarray(v.transpose(0, 2, 1, 3)),
    ]
    if len(wanted) > 3 and wanted[3]:
        outputs.append(_unspecified(node.scores(3), blind.transpose(0, 3, 1, 2)))
    return [output if asked else None for output, asked in zip(outputs, wanted)]


class _GroupQuery:
    """The inputs of a GroupQueryAttention node: new tokens, [batch, tokens, heads, dim], after a past of each row."""

    where = "onnx com.microsoft.GroupQueryAttention"

    def __init__(self, attributes: Attributes, inputs: Inputs) -> None:
        heads, key_heads = (integer(attributes, name, 0) for name in ("num_heads", "kv_num_heads"))
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise Error(f"{self.where}: num_heads must be a multiple of kv_num_heads, got {heads} and {key_heads}")
        query, key, value = needed(inputs, 0, f"{self.where}: query"), optional(inputs, 1), optional(inputs, 2)
        if key is None and value is None:
            packed = split_heads(query, heads + 2 * key_heads, f"{self.where}: packed query")
            self.q, self.k, self.v = np.split(packed, [heads, heads + key_heads], axis=2)
        elif key is None or value is None:
            raise Error(f"{self.where}: key and value must both be given, or neither with a packed query")
        else:
            self.q = split_heads(query, heads, f"{self.where}: query")
            self.k = split_heads(key, key_heads, f"{self.where}: key")
            self.v = split_heads(value, key_heads, f"{self.where}: value")
        batch, self.tokens, _, self.dim = self.q.shape
        if self.k.shape[:2] != (batch, self.tokens) or self.v.shape[:2] != (batch, self.tokens):
            raise Error(
                f"{self.where}: key and value must have the {self.tokens} tokens of query, "
                f"got {self.k.shape[1]} and {self.v.shape[1]}"
            )
        ends = needed(inputs, 5, f"{self.where}: seqlens_k").reshape(-1).astype(np.int64) + 1
        self.total = int(needed(inputs, 6, f"{self.where}: total_sequence_length").reshape(-1)[0])
        if ends.shape != (batch,) or ends.min(initial=1) < 1 or ends.max(initial=1) > self.total:
            raise Error(
                f"{self.where}: seqlens_k must hold {batch} numbers from 0 to total_sequence_length - 1 = "
                f"{self.total - 1}, got {(ends - 1).tolist()}"
            )
        # A prompt begins at 0 in every row, and may be padded on the right; later tokens end each row.
        self.is_prompt = self.total == self.tokens
        self.lengths = ends
        self.offsets = np.zeros(batch, dtype=np.int64) if self.is_prompt else ends - self.tokens
        if self.offsets.min(initial=0) < 0:
            raise Error(
                f"{self.where}: seqlens_k + 1 must be at least the {self.tokens} new tokens after a past, "
                f"got {ends.tolist()}"
            )
        self.past_key, self.past_value = optional(inputs, 3), optional(inputs, 4)
        if not self.is_prompt and (self.past_key is None or self.past_value is None):
            raise Error(
                f"{self.where}: past_key and past_value are needed if total_sequence_length exceeds the tokens of "
                f"query, got {self.total} and {self.tokens}"
            )

    def rotate(self, cos: Array, sin: Array, ids: Array | None, interleaved: bool) -> None:
        """A prompt uses only the first of position_ids, and counts from there in every row."""
        own = self.offsets[:, None] + np.arange(self.tokens)
        if ids is not None:
            if ids.shape != own.shape:
                raise Error(
                    f"{self.where}: position_ids must have the shape {list(own.shape)}, got {list(ids.shape)}"
                )
            own = ids[0, 0] + own if self.is_prompt else ids
        # A padded prompt has positions that no output shows.
        for x in ("q", "k"):
            y = rotated(getattr(self, x), cos, sin, own, 2 * cos.shape[-1], interleaved, self.where)
            setattr(self, x, y)

    def cache(self, past: Array | None, new: Array, name: str) -> Array:
        """[batch, total or the past's capacity, heads, dim]: the past of each row, then its new tokens."""
        batch, _, heads, dim = new.shape
        capacity = self.total
        if past is not None:
            if past.ndim != 4 or (past.shape[0], past.shape[1], past.shape[3]) != (batch, heads, dim):
                raise Error(
                    f"{self.where}: {name} must have the shape [{batch}, {heads}, past, {dim}], got {list(past.shape)}"
                )
            capacity = max(capacity, past.shape[2])
        cache = np.zeros((batch, capacity, heads, dim), dtype=new.dtype)
        for row, offset in enumerate(self.offsets):
            if past is not None:
                if past.shape[2] < offset:
                    raise Error(f"{self.where}: {name} must hold the {offset} tokens of row {row}, got {past.shape[2]}")
                cache[row, :offset] = past[row, :, :offset].transpose(1, 0, 2)
            cache[row, offset : offset + self.tokens] = new[row]
        return cache


def group_query_attention(attributes: Attributes, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
    """Keys are rotated before they are stored. Padding tokens of a prompt, and the rest of the cache, are left out of a
    comparison."""
    where = _GroupQuery.where
    _refuse_inputs(inputs, {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight"}, where)
    for name in ("k_quant_type", "v_quant_type"):
        kind = attributes.get(name, b"NONE")
        if kind not in (b"NONE", "NONE"):
            raise Error(f"{where}: {name} must be NONE, got {kind!r}")
    one_of(attributes, "kv_cache_bit_width", 0, (0,), where)
    one_of(attributes, "sliding_window_cache", 0, (0,), where)
    one_of(attributes, "qk_output", 0, (0,), where)
    causal = one_of(attributes, "causal", 1, (0, 1), where) != 0
    window = integer(attributes, "local_window_size", -1)
    if window == 0 or window < -1 or (window > 0 and not causal):
        raise Error(f"{where}: local_window_size must be at least 1 with causal 1, or -1, got {window}")
    given = _GroupQuery(attributes, inputs)
    if one_of(attributes, "do_rotary", 0, (0, 1), where):
        cos, sin = needed(inputs, 7, f"{where}: cos_cache"), needed(inputs, 8, f"{where}: sin_cache")
        interleaved = one_of(attributes, "rotary_interleaved", 0, (0, 1), where) != 0
        given.rotate(cos, sin, optional(inputs, 9), interleaved)
    keys = given.cache(given.past_key, given.k, "past_key")
    values = given.cache(given.past_value, given.v, "past_value")
    batch, tokens, heads, dim = given.q.shape
    node = Attending(
        given.q,
        keys[:, : given.total],
        values[:, : given.total],
        _scale(attributes, dim),
        given.offsets,
        given.lengths,
        _additive(optional(inputs, 10), given.q, given.total, where),
        causal,
        window - 1 if window > 0 else -1,
        soft_cap=real(attributes, "softcap") or 0.0,
    )
    sink = optional(inputs, 11)
    if sink is None and one_of(attributes, "smooth_softmax", 0, (-1, 0, 1), where) == 1:
        sink = np.zeros(heads, dtype=np.float32)
    y = _with_sink(node, sink, where)
    padding = np.arange(tokens) >= (given.lengths - given.offsets)[:, None]
    unused = (np.arange(keys.shape[1]) >= given.lengths[:, None])[:, None, :, None]
    outputs: list[Array | None] = [
        _unspecified(like_input(y, 3), padding[:, :, None]),
        _unspecified(np.ascontiguousarray(keys.transpose(0, 2, 1, 3)), unused),
        _unspecified(np.ascontiguousarray(values.transpose(0, 2, 1, 3)), unused),
    ]
    return [output if asked else None for output, asked in zip(outputs, wanted)]


def _with_sink(node: Attending, sink: Array | None, where: str) -> Array:
    """The output with exp(sink) added to the sum of each head's weights: out * Z / (Z + exp(sink))."""
    if sink is None:
        return node.run()
    batch, tokens, heads = node.q.shape[:3]
    if sink.shape != (heads,):
        raise Error(f"{where}: head_sink must have the shape [{heads}], got {list(sink.shape)}")
    sums = np.empty((batch, heads, tokens), dtype=np.float32)
    y = node.run(sums)
    with np.errstate(over="ignore"):
        kept = 1.0 / (1.0 + np.exp(sink.astype(np.float64)[None, :, None] - sums))
    return np.asarray((y * kept.transpose(0, 2, 1)[..., None]).astype(y.dtype))
