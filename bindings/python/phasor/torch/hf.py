"""Hugging Face's rotary names: rotate_half, apply_rotary_pos_emb, and a rotary module for its models.

The module's angles are exact: float64, rounded once to cos and sin, while transformers multiplies in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from .._core import Error, RopeSpec
from ._common import refusal, shape_text, spec_of, spec_text
from ._rotate_by import rotate_by
from ._rotation_ops import cos_sin_op

if TYPE_CHECKING:
    from .._core import Layout, Order

Form = Literal["halves", "repeated", "pairs"]


def rotate_half(x: Tensor) -> Tensor:
    """(a, b) -> (-b, a) for the two halves a and b of the last axis: a rotation of every pair by 90 degrees."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_pos_emb(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | int | None = None,
    unsqueeze_dim: int = 1,
    *,
    layout: Layout = "half",
    form: Form = "halves",
) -> tuple[Tensor, Tensor]:
    """Rotates queries and keys by cos and sin, each in its own dtype.

    q, k [batch, heads, tokens, head_dim] (unsqueeze_dim=1) or [batch, tokens, heads, head_dim] (2), or the same
    without batch; cos, sin [batch or 1, tokens, rotary_dim] as a rotary module makes them: each pair's number
    is there twice ("halves" concatenated as in LLaMA, "repeated" interleaved as in Cohere) or once ("pairs").
    Features after rotary_dim are copied. layout: how q and k hold their pairs.
    The fifth argument is unsqueeze_dim (an int, newer transformers) or position_ids (older ones: rows of a table
    [rows, rotary_dim] or [1, 1, rows, rotary_dim]; with cos [batch, tokens, ...] they are not read).
    """
    if isinstance(position_ids, int):
        unsqueeze_dim, position_ids = position_ids, None
    if cos.dim() == 4 and cos.shape[0] == cos.shape[1] == 1:
        cos, sin = cos[0, 0], sin[0, 0]
    if position_ids is not None and cos.dim() == 2:
        cos, sin = cos[position_ids], sin[position_ids]
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos.squeeze(0), sin.squeeze(0)
    cos, sin = _pairs_of(cos, form), _pairs_of(sin, form)
    order = _order("apply_rotary_pos_emb", q, unsqueeze_dim)
    return (
        rotate_by(q, cos, sin, layout=layout, order=order),
        rotate_by(k, cos, sin, layout=layout, order=_order("apply_rotary_pos_emb", k, unsqueeze_dim)),
    )


def _pairs_of(rows: Tensor, form: Form) -> Tensor:
    if form == "pairs":
        return rows
    return rows[..., ::2] if form == "repeated" else rows.narrow(-1, 0, rows.shape[-1] // 2)


def _order(where: str, x: Tensor, unsqueeze_dim: int) -> Order:
    """The axis that cos is stretched over holds the heads."""
    heads = unsqueeze_dim + x.dim() if unsqueeze_dim < 0 else unsqueeze_dim
    if x.dim() in (3, 4) and heads == x.dim() - 3:
        return "heads_first"
    if x.dim() in (3, 4) and heads == x.dim() - 2:
        return "tokens_first"
    raise refusal(
        "shape_mismatch",
        f"{where}: q and k must be [batch, heads, tokens, head_dim] with unsqueeze_dim=1 or "
        f"[batch, tokens, heads, head_dim] with 2, got {shape_text(x)} and {unsqueeze_dim}",
    )


class PhasorRotaryEmbedding(nn.Module):
    """The rotary module of a transformers model: forward(x, position_ids) -> (cos, sin), from exact angles.

    config is a transformers config, a config dictionary, or a RopeSpec; layer_type chooses among layers that differ
    (Gemma 3), and without it forward() takes it. cos and sin are [batch, tokens, rotary_dim] on x's device in its dtype (or in
    `dtype`), each pair's number twice as `form` says. position_ids [batch, tokens], or [3, batch, tokens] for M-RoPE.

    Frequencies that depend on the length follow transformers: dynamic scaling grows with the longest sequence
    so far and falls back below the trained length; longrope takes its long list while a sequence is longer than the
    original length.

    inv_freq (float32, radians per position) and attention_scaling (the amplitude) are there to be read, under the names
    of transformers: <layer type>_inv_freq and so on if layers differ. They are copies: writing to them changes nothing.
    """

    def __init__(
        self,
        config: object,
        device: torch.device | str | None = None,
        layer_type: str | None = None,
        *,
        form: Form = "halves",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.layer_type = layer_type
        self.form: Form = form
        self.dtype = dtype
        self._rules: dict[str | None, _Rule] = {}
        for name in [layer_type] if layer_type is not None else _layer_types(config):
            rule = _rule_of(_spec_of_config(config, name))
            self._rules[name] = rule
            if rule.growth == "dynamic":
                # The longest sequence so far; not part of a checkpoint, so that it must not begin on meta.
                place = torch.device("cpu" if device is None else device)
                grown = torch.tensor(rule.trained_length, dtype=torch.int64, device="cpu" if place.type == "meta" else place)
                self.register_buffer(_grown_name(name), grown, persistent=False)

    @property
    def layer_types(self) -> list[str | None]:
        """The layer types that have a rotation of their own; [None] if there is one for all."""
        return list(self._rules)

    def spec(self, layer_type: str | None = None) -> RopeSpec:
        """The rotation of a layer type."""
        return spec_of(self._rules[self._known(layer_type)].text)

    def __getattr__(self, name: str) -> Any:
        for ending in ("inv_freq", "attention_scaling"):
            layer_type = name.removesuffix(ending).removesuffix("_") or None
            if name.endswith(ending) and layer_type in self.__dict__.get("_rules", {}):
                rule = self._rules[layer_type]
                grown = self._buffers.get(_grown_name(layer_type))
                context = int(grown) if grown is not None else 1 if rule.growth == "length" else None
                frequencies, amplitude = spec_of(rule.text).frequencies(context)
                return torch.from_numpy(frequencies).to(torch.float32) if ending == "inv_freq" else amplitude
        return super().__getattr__(name)

    def _known(self, layer_type: str | None) -> str | None:
        chosen = self.layer_type if layer_type is None else layer_type
        if chosen in self._rules:
            return chosen
        if len(self._rules) == 1:
            return next(iter(self._rules))
        raise refusal(
            "invalid_argument",
            f"PhasorRotaryEmbedding: layer_type must be one of {', '.join(map(str, self._rules))}, got {chosen}",
        )

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        name = self._known(layer_type)
        rule = self._rules[name]
        if rule.axes > 1 and position_ids.dim() == 2:
            position_ids = position_ids.unsqueeze(0).expand(rule.axes, -1, -1)
        context = None if rule.growth == "none" else self._context(name, rule, position_ids)
        dtype = x.dtype if self.dtype is None else self.dtype
        cos, sin = cos_sin_op(position_ids, context, rule.text, self.form, dtype)
        return (cos, sin) if cos.device == x.device else (cos.to(x.device), sin.to(x.device))

    def _context(self, name: str | None, rule: _Rule, position_ids: Tensor) -> Tensor:
        length = (position_ids.max() + 1).to(torch.int64)
        if rule.growth == "length":
            return length
        grown: Tensor = getattr(self, _grown_name(name))
        length = length.to(grown.device)
        trained = torch.full_like(grown, rule.trained_length)
        grown.copy_(torch.where(length < trained, trained, torch.maximum(grown, length)))
        return grown.clone()

    def extra_repr(self) -> str:
        return "\n".join(
            f"{'' if name is None else name + ': '}{spec_of(rule.text)!r}" for name, rule in self._rules.items()
        )


@dataclass(frozen=True)
class _Rule:
    """What forward() needs to know of a spec, as plain values: torch.compile cannot look into the spec itself."""

    text: str
    axes: int
    growth: Literal["none", "dynamic", "length"]
    trained_length: int


def _rule_of(spec: RopeSpec) -> _Rule:
    if not spec.depends_on_context:
        return _Rule(spec_text(spec), spec.axes, "none", 0)
    if spec.scaling["type"] != "dynamic":
        return _Rule(spec_text(spec), spec.axes, "length", 0)
    return _Rule(spec_text(spec), spec.axes, "dynamic", int(spec.to_dict()["max_position_embeddings"]))


def _grown_name(layer_type: str | None) -> str:
    return "grown_context" if layer_type is None else f"{layer_type}_grown_context"


def _layer_types(config: object) -> list[str | None]:
    """The names under which a config keeps different rotations, of layers that rotate; [None] if there is one."""
    parameters = _get(config, "rope_parameters")
    if not isinstance(parameters, dict):
        return [None]
    nested = [name for name, rope in parameters.items() if isinstance(rope, dict)]
    if not nested or any(rope is not None and name not in nested for name, rope in parameters.items()):
        return [None]
    # Names that are no layer types are not chosen by layer (DeepSeek V4: "main" and "compress").
    used = _get(config, "layer_types") or ()
    return [name for name in nested if name in used] or nested


def _get(config: object, key: str) -> Any:
    return config.get(key) if isinstance(config, dict) else getattr(config, key, None)


def _spec_of_config(config: object, layer_type: str | None) -> RopeSpec:
    if isinstance(config, RopeSpec):
        return config
    mapping: Any = config
    try:
        return RopeSpec.from_hf(mapping, layer_type)
    except Error:
        # Layers that differ only in whether they rotate share one rotary module.
        layers = _get(config, "num_hidden_layers")
        specs = {spec for layer in range(layers or 0) if (spec := _spec_of_layer(mapping, layer)) is not None}
        if layer_type is None and len(specs) == 1:
            return specs.pop()
        raise


def _spec_of_layer(config: Any, layer: int) -> RopeSpec | None:
    try:
        return RopeSpec.from_hf(config, layer)
    except Error:
        return None


__all__ = ["PhasorRotaryEmbedding", "apply_rotary_pos_emb", "rotate_half"]
