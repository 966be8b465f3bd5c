"""One ONNX node, run with Phasor: RotaryEmbedding-23, Attention-23, -24 and -25, and operators of ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx.helper

from .._core import Error
from . import microsoft
from .arguments import Array, Attributes, Inputs, integer, like_input, needed, optional, real, split_heads
from .attending import Attending
from .rotating import rotated

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
    return (node.domain or "ai.onnx", node.op_type) in _OPERATORS


def run_node(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> list[Array | None]:
    """The node's outputs in their order; None is a missing optional input or output. Values that the operator leaves
    unspecified are masked (numpy.ma).

    raises  for other operators, unknown attributes, shapes that disagree
    """
    operator = (node.domain or "ai.onnx", node.op_type)
    if operator not in _OPERATORS:
        raise Error(f"onnx: the node must be one of {OPERATOR_NAMES}, got {'.'.join(operator)}")
    known, run = _OPERATORS[operator]
    attributes = attributes_of(node)
    for name in attributes:
        if name not in known:
            raise Error(f"onnx {node.op_type}: unknown attribute {name}; known are {', '.join(known)}")
    return run(attributes, inputs, [bool(name) for name in node.output])


def _rotary_embedding(attributes: Attributes, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
    where = "onnx RotaryEmbedding"
    given = needed(inputs, 0, f"{where}: X")
    x = split_heads(given, integer(attributes, "num_heads", 0), f"{where}: X")
    y = rotated(
        x,
        needed(inputs, 1, f"{where}: cos_cache"),
        needed(inputs, 2, f"{where}: sin_cache"),
        optional(inputs, 3),
        integer(attributes, "rotary_embedding_dim", 0) or x.shape[3],
        integer(attributes, "interleaved", 0) != 0,
        where,
    )
    return [like_input(y, given.ndim)]


def _joined(past: Array | None, new: Array, name: str) -> Array:
    """[batch, tokens, heads, dim]: the past, which is stored heads first, before the new tokens."""
    if past is None:
        return new
    batch, _, heads, dim = new.shape
    shape = (batch, heads, dim)
    if past.ndim != 4 or (past.shape[0], past.shape[1], past.shape[3]) != shape or past.dtype != new.dtype:
        raise Error(
            f"onnx Attention: {name} must be {new.dtype} of the shape [{batch}, {heads}, past, {dim}], "
            f"got {past.dtype} {list(past.shape)}"
        )
    return np.concatenate([past.transpose(0, 2, 1, 3), new], axis=1)


def _full_mask(mask: Array | None, q: Array, keys: int) -> Array | None:
    """attn_mask for all keys: keys after its last column are hidden."""
    if mask is None:
        return None
    if mask.dtype != np.bool_:
        mask = np.asarray(mask, dtype=np.float64 if q.dtype == np.float64 else np.float32)
    missing = keys - mask.shape[-1] if mask.ndim else 0
    # ONNX's reference pads a single column too, instead of broadcasting it.
    if missing > 0:
        hidden = False if mask.dtype == np.bool_ else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=hidden)
    # A mask of rank 1 is the same for every query.
    return mask[None, :] if mask.ndim == 1 else mask


def _attending(attributes: Attributes, inputs: Inputs) -> Attending:
    where = "onnx Attention"
    q, k, v = (needed(inputs, at, f"{where}: {name}") for at, name in enumerate("QKV"))
    queries = split_heads(q, integer(attributes, "q_num_heads", 0), f"{where}: Q")
    key_heads = integer(attributes, "kv_num_heads", 0)
    new_k, new_v = split_heads(k, key_heads, f"{where}: K"), split_heads(v, key_heads, f"{where}: V")
    past_key, past_value = optional(inputs, 4), optional(inputs, 5)
    if (past_key is None) != (past_value is None):
        raise Error(f"{where}: past_key needs past_value and past_value needs past_key: one is missing")
    keys = _joined(past_key, new_k, "past_key")
    batch, tokens = queries.shape[:2]
    lengths = optional(inputs, 6)
    if lengths is not None and past_key is not None:
        raise Error(f"{where}: nonpad_kv_seqlen and past_key cannot be combined")
    if lengths is not None and lengths.shape != (batch,):
        raise Error(f"{where}: nonpad_kv_seqlen must have the shape [{batch}], got {list(lengths.shape)}")
    past = np.full(batch, keys.shape[1] - new_k.shape[1], dtype=np.int64)
    given_scale = real(attributes, "scale")
    return Attending(
        queries,
        keys,
        _joined(past_value, new_v, "past_value"),
        1.0 / math.sqrt(queries.shape[3]) if given_scale is None else given_scale,
        past if lengths is None else np.asarray(lengths - tokens, dtype=np.int64),
        lengths,
        _full_mask(optional(inputs, 3), queries, keys.shape[1]),
        integer(attributes, "is_causal", 0) != 0,
        integer(attributes, "left_window_size", -1),
        integer(attributes, "right_window_size", -1),
        real(attributes, "softcap") or 0.0,
    )


def _attention(attributes: Attributes, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
    mode = integer(attributes, "qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise Error(f"onnx Attention: qk_matmul_output_mode must be 0 to 3, got {mode}")
    for name in ("left_window_size", "right_window_size"):
        if integer(attributes, name, -1) < -1:
            raise Error(f"onnx Attention: {name} must be -1 or more, got {attributes[name]}")
    node = _attending(attributes, inputs)
    rank = needed(inputs, 0, "onnx Attention: Q").ndim
    outputs: tuple[Callable[[], Array], ...] = (
        lambda: like_input(node.run(), rank),
        lambda: np.ascontiguousarray(node.k.transpose(0, 2, 1, 3)),
        lambda: np.ascontiguousarray(node.v.transpose(0, 2, 1, 3)),
        lambda: node.scores(mode),
    )
    # Only requested outputs: the scores need memory of tokens squared.
    return [output() if asked else None for output, asked in zip(outputs, wanted)]


_Run = Callable[[Attributes, Inputs, Sequence[bool]], "list[Array | None]"]
_OPERATORS: dict[tuple[str, str], tuple[tuple[str, ...], _Run]] = {
    ("ai.onnx", "RotaryEmbedding"): (_ROTARY_ATTRIBUTES, _rotary_embedding),
    ("ai.onnx", "Attention"): (_ATTENTION_ATTRIBUTES, _attention),
    (microsoft.DOMAIN, "RotaryEmbedding"): (microsoft.ROTARY_ATTRIBUTES, microsoft.rotary_embedding),
    (microsoft.DOMAIN, "MultiHeadAttention"): (microsoft.MULTI_HEAD_ATTRIBUTES, microsoft.multi_head_attention),
    (microsoft.DOMAIN, "GroupQueryAttention"): (microsoft.GROUP_QUERY_ATTRIBUTES, microsoft.group_query_attention),
}
OPERATOR_NAMES = ", ".join(f"{domain}.{name}" for domain, name in _OPERATORS)
