"""The part of patch() for models that keep a table [positions, sin | cos]: GPT-J, CodeGen and RoFormer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._core import Error, RopeSpec
from ._common import refusal, spec_text
from ._rotate_by import rotate_by
from ._rotation_ops import cos_sin_op

_BUFFER = "embed_positions"  # GPT-J's and CodeGen's, one in each layer
_FUNCTION = "apply_rotary_position_embeddings"  # RoFormer's, of the class
# Below this position float32 angles are correct to 1e-6: a larger difference means another formula.
PROBED = 12
TOLERANCE = 1e-5


def table_swaps(model: nn.Module, rotary: list[str]) -> list[tuple[nn.Module, str, Tensor]]:
    """Exact tables for the buffers that hold one, after a comparison; their owners' names are added to `rotary`.

    RoFormer's table comes from float64 and is a parameter of the checkpoint: it is compared and kept.
    """
    swaps = []
    made: dict[int, Tensor] = {}  # by the number of positions
    for path, module in model.named_modules():
        buffer = tables_of(module).get(_BUFFER)
        table = module.weight if "SinusoidalPositional" in type(module).__name__ and _is_roformer(model) else buffer
        if not isinstance(table, Tensor) or table.dim() != 2 or not table.is_floating_point():
            continue
        where = f"{path} ({type(module).__name__})"
        if len(table) not in made:
            made[len(table)] = _exact(model, len(table), where)
        exact = made[len(table)]
        _compare(table, exact, where)
        rotary.append(path)
        if buffer is not None:
            swaps.append((module, _BUFFER, exact.to(table.device, table.dtype)))
    return swaps


def tables_of(module: nn.Module) -> dict[str, Any]:
    """Where a module keeps its table: a buffer, or in transformers 4 a plain attribute."""
    return module.__dict__ if _BUFFER in module.__dict__ else module._buffers


def _is_roformer(model: nn.Module) -> bool:
    return any(hasattr(type(part), _FUNCTION) for part in model.modules())


def _exact(model: nn.Module, positions: int, where: str) -> Tensor:
    config: Any = getattr(model, "config", None)
    try:
        spec = RopeSpec.from_hf(config)
    except (Error, TypeError) as error:
        text = f"patch: the config of {where} is not supported by RopeSpec.from_hf: {error}"
        raise refusal("unsupported", text) from error
    cos, sin = cos_sin_op(torch.arange(positions, device="cpu"), None, spec_text(spec), "pairs", torch.float32)
    return torch.cat((sin, cos), dim=-1)


def _compare(table: Tensor, exact: Tensor, where: str) -> None:
    if exact.shape != table.shape:
        got = f"{list(table.shape)}; the config gives {list(exact.shape)}"
        raise refusal("unsupported", f"patch: {where} must have a row of sin and cos for each position, got {got}")
    if table.is_meta:
        raise refusal("unsupported", f"patch: {where} is on meta and cannot be compared: load the model first")
    differences = (exact[:PROBED] - table[:PROBED].detach().float().cpu()).abs()
    difference = float(differences.max()) if differences.numel() else 0.0
    if not difference <= max(TOLERANCE, torch.finfo(table.dtype).eps):
        raise refusal(
            "unsupported",
            f"patch: {where} must hold the sin and cos of its config, got a difference of {difference:.3g}",
        )


def table_equivalent(original: Callable[..., Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """GPT-J's apply_rotary_pos_emb(tensor [batch, tokens, heads, dim], sin, cos); None for a function that differs."""

    def rotate(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return rotate_by(tensor, cos, sin, layout="interleaved")

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 2, 8, generator=generator)
    angles = torch.randn(2, 3, 4, generator=generator)
    return rotate if agree(original, rotate, x, angles.sin(), angles.cos()) else None


def _rotate_heads(
    sinusoidal_pos: Tensor, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor | None = None
) -> tuple[Tensor, ...]:
    """RoFormer (34): sinusoidal_pos [1, 1, tokens, sin | cos], layers [batch, heads, tokens, dim]."""
    sin, cos = sinusoidal_pos[0, 0].chunk(2, dim=-1)
    layers = (query_layer, key_layer) if value_layer is None else (query_layer, key_layer, value_layer)
    return tuple(rotate_by(x, cos, sin, layout="interleaved", order="heads_first") for x in layers)


def function_swaps(model: nn.Module, attention: list[str]) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
    """Phasor's function for RoFormer's modules; their names are added to `attention`."""
    swaps: list[tuple[nn.Module, str, Callable[..., Any]]] = []
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(2, 2, 3, 8, generator=generator) for _ in range(3)]
    angles = torch.randn(1, 1, 3, 4, generator=generator)
    rows = torch.cat((angles.sin(), angles.cos()), dim=-1)
    for path, module in model.named_modules():
        original = getattr(type(module), _FUNCTION, None)
        if original is None or _FUNCTION in module.__dict__ or not agree(original, _rotate_heads, rows, *layers):
            continue
        swaps.append((module, _FUNCTION, _rotate_heads))
        attention.append(path)
    return swaps


def agree(original: Callable[..., Any], ours: Callable[..., Any], *arguments: Tensor) -> bool:
    """Whether both give the same tensors for these arguments, to float32 rounding."""
    try:
        theirs = original(*arguments)
    except Exception:  # noqa: BLE001 - another family's function may refuse these shapes in any way it likes
        return False
    mine = ours(*arguments)
    if isinstance(mine, Tensor):
        theirs, mine = (theirs,), (mine,)
    if not isinstance(theirs, tuple) or len(theirs) != len(mine):
        return False
    return all(
        isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a.float(), b, rtol=0, atol=TOLERANCE)
        for a, b in zip(theirs, mine, strict=True)
    )


__all__ = ["PROBED", "TOLERANCE", "agree", "function_swaps", "table_equivalent", "table_swaps", "tables_of"]
