"""Exact numbers in the tables that vLLM and SGLang keep in each rotary module."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .._core import RopeSpec
from ._common import refusal, shape_text
from ._patch_tables import PROBED, TOLERANCE
from ._rotate import cos_sin
from .hf import PhasorRotaryEmbedding

_ROWS = 65536  # at a time: the table of a model with a context of 10 million is larger than what should be copied twice
_LATER = 1024  # compared before this position too: bfloat16 hides slow pairs at the first ones
_PLAIN = "cos_sin_cache"
_COPIES = ("cos_sin_cache_bf16",)  # of vLLM on ROCm
_LONG_SHORT = "long_short_cos_sin_cache"  # longrope: rows of the short list up to the trained length, then the long list's


def fill_cos_sin_cache(model: nn.Module, config: object) -> list[str]:
    """Exact numbers in the tables [positions, cos | sin] of a model of vLLM or SGLang, in place; the names of its modules.

    model: a loaded model, or one rotary module; config: that of transformers, or a RopeSpec. Each table (buffers
    cos_sin_cache, cos_sin_cache_bf16 and long_short_cos_sin_cache) is first compared with the config's rotation at the first
    positions, layers that differ with each of theirs. Storage, device and dtype stay, so that captured CUDA graphs see the new numbers.

    Raises Error, with every table unchanged, if there is no table, or one that is not the config's rotation.
    """
    ours = PhasorRotaryEmbedding(config)
    specs = [ours.spec(name) for name in ours.layer_types]
    found: dict[int, tuple[Tensor, RopeSpec, int | None]] = {}  # by address: layers share tables
    names = []
    for path, module in model.named_modules():
        for label, table, context in _tables(module):
            names.append(f"{path}.{label}" if path else label)
            if table.data_ptr() not in found:
                found[table.data_ptr()] = (table, *_rotation_of(table, specs, context, names[-1]))
    if not found:
        text = f"fill_cos_sin_cache: {type(model).__name__} has no buffer {_PLAIN} or {_LONG_SHORT} [positions, cos | sin]"
        raise refusal("unsupported", text)
    for table, spec, context in found.values():
        for first in range(0, len(table), _ROWS):
            rows = table[first : first + _ROWS]
            rows.copy_(_exact(spec, first, len(rows), context))
    return names


def _tables(module: nn.Module) -> Iterator[tuple[str, Tensor, int | None]]:
    """(name, table, the context at which its frequencies are those of the spec) for each table of a module."""
    for name in (_PLAIN, *_COPIES):
        table = module._buffers.get(name)
        if table is not None:
            yield name, table, None
    both = module._buffers.get(_LONG_SHORT)
    if both is not None:
        short = getattr(module, "original_max_position_embeddings", None)
        if not isinstance(short, int):
            text = f"fill_cos_sin_cache: {type(module).__name__}.original_max_position_embeddings must be an int, got {short!r}"
            raise refusal("unsupported", text)
        yield _LONG_SHORT + " (short)", both[:short], short
        yield _LONG_SHORT + " (long)", both[short:], short + 1


def _exact(spec: RopeSpec, first: int, count: int, context: int | None) -> Tensor:
    positions = torch.arange(first, first + count, device="cpu")
    if spec.axes > 1:  # a table has a row for each position; the kernel chooses the row of each axis
        positions = positions.expand(spec.axes, -1)
    return torch.cat(cos_sin(spec, positions, context=context), dim=-1)


def _rotation_of(
    table: Tensor, specs: list[RopeSpec], context: int | None, where: str
) -> tuple[RopeSpec, int | None]:
    """The rotation, with its context, whose rows are those of the table, at the first positions and some later ones."""
    if table.dim() != 2 or not table.is_floating_point() or table.is_meta:
        text = f"fill_cos_sin_cache: {where} must be [positions, cos | sin] with numbers, got {shape_text(table)} on {table.device}"
        raise refusal("unsupported", text)
    nearest = float("inf")
    for spec in specs:
        at = len(table) if context is None and spec.depends_on_context else context
        over = 0.0
        for first in {0, max(0, min(len(table), _LATER) - PROBED)}:
            theirs = table[first : first + PROBED].detach().to("cpu", torch.float32)
            mine = _exact(spec, first, len(theirs), at)
            if mine.shape != theirs.shape:
                over = float("inf")
            elif mine.numel():
                # float32 angles drift by half an epsilon of the angle, twice.
                allowed = max(TOLERANCE, torch.finfo(table.dtype).eps) + 2.0**-23 * first
                over = max(over, float((mine - theirs).abs().max()) / allowed)
        if over <= 1.0:
            return spec, at
        nearest = min(nearest, over)
    got = shape_text(table) if nearest == float("inf") else f"a difference of {nearest:.3g} times what rounding explains"
    raise refusal("unsupported", f"fill_cos_sin_cache: {where} must hold the cos and sin of the config, got {got}")


__all__ = ["fill_cos_sin_cache"]
