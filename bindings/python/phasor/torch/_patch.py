"""patch(model): Phasor in the rotary part of a loaded transformers model, for that model only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from .._core import Error
from ._common import refusal
from ._patch_tables import PROBED, TOLERANCE, agree, function_swaps, table_stand_in, table_swaps
from .hf import Form, PhasorRotaryEmbedding, apply_rotary_pos_emb

if TYPE_CHECKING:
    from .._core import Layout

_Model = TypeVar("_Model", bound=nn.Module)
_RECORD = "_phasor_patch"
_FORMS: tuple[Form, ...] = ("halves", "repeated", "pairs")
_LAYOUTS: tuple[Layout, ...] = ("half", "interleaved", "interleaved_to_half")


@dataclass
class Patch:
    """What patch() swapped in a model, by the names of named_modules()."""

    rotary: list[str] = field(default_factory=list)  # modules that make cos and sin, or keep a table of them
    attention: list[str] = field(default_factory=list)  # modules that turn queries and keys by them
    _modules: list[tuple[nn.Module, str, nn.Module]] = field(default_factory=list, repr=False)
    _tables: list[tuple[nn.Module, str, Tensor | None]] = field(default_factory=list, repr=False)
    _methods: list[tuple[nn.Module, str, object]] = field(default_factory=list, repr=False)


def patched(model: nn.Module) -> Patch | None:
    """What patch() swapped in this model; None where it is as transformers made it."""
    record = model.__dict__.get(_RECORD)
    return record if isinstance(record, Patch) else None


def patch(model: _Model) -> _Model:
    """Swaps the rotary part of a transformers model and returns the model; unpatch() restores it.

    Its rotary modules (classes ...RotaryEmbedding with a config and forward(x, position_ids)) are replaced by
    PhasorRotaryEmbedding: exact angles. Attention modules whose methods call apply_rotary_pos_emb get, as attributes of
    the instance, those methods with Phasor's function in its place; neither the class nor the module of transformers is
    touched, so other models stay as they are. A function of the modeling file that does something else than turn by cos
    and sin is left alone. GPT-J's and CodeGen's tables of sin and cos become exact in the same way; RoFormer's, which
    comes from float64 and belongs to its checkpoint, stays. Before anything is swapped, cos and sin are compared with
    the original's at the first positions, and the function's results with each known layout.

    A patched model is patched once only. Refuses, with the model untouched, a model without such modules or tables and one
    whose modules give other cos and sin than its config says. Unpatch before pickling the model as an object
    (save_pretrained and state_dict() need nothing).
    """
    if patched(model) is not None:
        return model
    if any(patched(part) is not None for part in model.modules()):
        raise refusal("invalid_argument", "patch: a part of the model is patched, unpatch that first, got both")
    record = Patch()
    swaps = _rotary_swaps(model, record)
    tables = table_swaps(model, record.rotary)
    if not record.rotary:
        raise refusal(
            "unsupported",
            "patch: the model must have a rotary module (class ...RotaryEmbedding with a config and "
            f"forward(x, position_ids)) or a table of sin and cos, got {type(model).__name__} with {_kinds(model)}",
        )
    forms = {module.form for _, _, module in swaps}
    methods = [*_method_swaps(model, forms, record), *function_swaps(model, record.attention)]
    for parent, name, replacement in swaps:
        record._modules.append((parent, name, getattr(parent, name)))
        setattr(parent, name, replacement)
    for owner, name, table in tables:
        record._tables.append((owner, name, owner._buffers[name]))
        owner._buffers[name] = table
    for owner, name, method in methods:
        record._methods.append((owner, name, owner.__dict__.get(name)))
        object.__setattr__(owner, name, method)
    object.__setattr__(model, _RECORD, record)
    return model


def unpatch(model: _Model) -> _Model:
    """Puts back what patch() swapped, the very objects; a model that is not patched is returned as it is."""
    record = patched(model)
    if record is None:
        return model
    for parent, name, original in record._modules:
        setattr(parent, name, original)
    for owner, name, table in record._tables:
        owner._buffers[name] = table
    for owner, name, previous in record._methods:
        if previous is None:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, previous)
    object.__delattr__(model, _RECORD)
    return model


def _kinds(model: nn.Module) -> str:
    kinds = sorted({type(part).__name__ for part in model.modules() if "otary" in type(part).__name__})
    return ", ".join(kinds) if kinds else "no class of that name"


# Rotary modules ---------------------------------------------------------------------------------------------------


def _is_rotary(module: nn.Module) -> bool:
    if "RotaryEmbedding" not in type(module).__name__ or isinstance(module, PhasorRotaryEmbedding):
        return False
    parameters = list(inspect.signature(type(module).forward).parameters)[1:3]
    return hasattr(module, "config") and parameters == ["x", "position_ids"]


def _rotary_swaps(model: nn.Module, record: Patch) -> list[tuple[nn.Module, str, PhasorRotaryEmbedding]]:
    swaps = []
    made: dict[int, PhasorRotaryEmbedding] = {}
    for path, parent in model.named_modules():
        for name, child in parent.named_children():
            if not _is_rotary(child):
                continue
            where = f"{path}.{name}" if path else name
            if id(child) not in made:
                made[id(child)] = _replacement(child, where)
            swaps.append((parent, name, made[id(child)]))
            record.rotary.append(where)
    return swaps


def _replacement(original: nn.Module, where: str) -> PhasorRotaryEmbedding:
    kind = type(original).__name__
    config = original.config
    try:
        ours = PhasorRotaryEmbedding(config)
    except Error as error:
        text = f"patch: the config of {where} ({kind}) must be one that RopeSpec.from_hf reads, got: {error}"
        raise refusal("unsupported", text) from error
    probe = copy.deepcopy(original)
    takes_type = "layer_type" in inspect.signature(type(original).forward).parameters
    form: Form = "halves"
    dtype: torch.dtype | None = None
    # model.to(torch.bfloat16) rounds the frequencies that transformers keeps: that is what patch() mends.
    steps = [torch.finfo(buffer.dtype).eps for buffer in original.buffers() if buffer.is_floating_point()]
    tolerance = max([TOLERANCE, *(PROBED * step for step in steps)])
    for layer_type in ours.layer_types:
        positions = torch.arange(PROBED).expand(1, -1)
        axes = ours.spec(layer_type).axes
        if axes > 1:
            positions = positions.expand(axes, 1, -1)
        keywords = {"layer_type": layer_type} if takes_type and layer_type is not None else {}
        try:
            with torch.no_grad():
                theirs = probe(torch.zeros(1, dtype=torch.float32), positions, **keywords)
                kept = probe(torch.zeros(1, dtype=torch.bfloat16), positions, **keywords)
        except Exception as error:
            text = f"patch: {where} ({kind}) must take positions of shape {list(positions.shape)}, got: {error!r}"
            raise refusal("unsupported", text) from error
        if not (isinstance(theirs, tuple) and len(theirs) == 2 and theirs[0].is_floating_point()):
            raise refusal("unsupported", f"patch: {where} ({kind}) must give cos and sin, got {type(theirs).__name__}")
        if axes == 1 and _reads_three_rows(probe, theirs, keywords):
            raise refusal(
                "unsupported",
                f"patch: the config of {where} ({kind}) must name the sections of its three rows of positions "
                "(mrope_section), got none",
            )
        form = _form_of(theirs, ours, positions, layer_type, tolerance, f"{where} ({kind})")
        dtype = None if kept[0].dtype == torch.bfloat16 else torch.float32
    return PhasorRotaryEmbedding(config, form=form, dtype=dtype)


@torch.no_grad()
def _reads_three_rows(probe: nn.Module, theirs: tuple[Tensor, Tensor], keywords: dict[str, str]) -> bool:
    """Whether a module makes one row of three, as M-RoPE does."""
    try:
        merged = probe(torch.zeros(1, dtype=torch.float32), torch.arange(PROBED).expand(3, 1, -1), **keywords)
    except Exception:  # noqa: BLE001 - a module of one row may refuse three in any way it likes
        return False
    return bool(merged[0].shape == theirs[0].shape)


def _form_of(
    theirs: tuple[Tensor, Tensor],
    ours: PhasorRotaryEmbedding,
    positions: Tensor,
    layer_type: str | None,
    tolerance: float,
    where: str,
) -> Form:
    """How `theirs` writes each pair's number."""
    nearest = float("inf")
    for form in _FORMS:
        ours.form = form
        mine = ours(torch.zeros(1, dtype=torch.float32), positions, layer_type)
        if mine[0].shape == theirs[0].shape:
            nearest = min(nearest, max(float((a - b).abs().max()) for a, b in zip(mine, theirs, strict=True)))
            if nearest <= tolerance:
                return form
    raise refusal(
        "unsupported",
        f"patch: {where} must give the cos and sin that its config asks for, got "
        + (f"another shape, {list(theirs[0].shape)}" if nearest == float("inf") else f"a difference of {nearest:.3g}"),
    )


# Attention modules ------------------------------------------------------------------------------------------------


def _method_swaps(model: nn.Module, forms: set[Form], record: Patch) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
    swaps: list[tuple[nn.Module, str, Callable[..., Any]]] = []
    rebuilt: dict[Callable[..., Any], FunctionType | None] = {}
    for path, module in model.named_modules():
        for name in dir(type(module)):
            function = inspect.getattr_static(type(module), name)
            if not isinstance(function, FunctionType) or not _rotary_names(function):
                continue
            if function not in rebuilt:
                rebuilt[function] = _with_phasor(function, forms)
            copied = rebuilt[function]
            # A method that somebody has wrapped on the instance already stays in their hands.
            if copied is not None and name not in module.__dict__:
                swaps.append((module, name, MethodType(copied, module)))
                record.attention.append(path)
    return swaps


def _rotary_names(function: FunctionType) -> list[str]:
    return [
        name
        for name in function.__code__.co_names
        if name.startswith("apply_rotary") and callable(function.__globals__.get(name))
    ]


def _with_phasor(function: FunctionType, forms: set[Form]) -> FunctionType | None:
    """The same code that finds Phasor's function under the global name; None where no name is one that we know."""
    swapped = {name: _stand_in(function.__globals__[name], forms) for name in _rotary_names(function)}
    known = {name: ours for name, ours in swapped.items() if ours is not None}
    if not known:
        return None
    scope = {**function.__globals__, **known}
    # torch.compile looks globals up by the name of their module where there is one: it would find the originals.
    scope.pop("__name__", None)
    copied = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    return copied


def _stand_in(original: Callable[..., Any], forms: set[Form]) -> Callable[..., Any] | None:
    """Phasor's function with the arguments and the layout of `original`; None where it does something else."""
    try:
        names = list(inspect.signature(original).parameters)
    except (TypeError, ValueError):
        return None
    if names == ["tensor", "sin", "cos"]:
        return table_stand_in(original)
    if names[:4] != ["q", "k", "cos", "sin"] or not set(names[4:]) <= {"position_ids", "unsqueeze_dim"}:
        return None
    place = names.index("unsqueeze_dim") - 4 if "unsqueeze_dim" in names else None
    matches = [(layout, form) for form in forms for layout in _LAYOUTS if _same(original, layout, form)]
    if len(matches) != 1 or place is None:
        return None
    layout, form = matches[0]

    def turn(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, unsqueeze_dim: int = 1, position_ids: object = None
    ) -> tuple[Tensor, Tensor]:
        axis = rest[place] if len(rest) > place else unsqueeze_dim
        return apply_rotary_pos_emb(q, k, cos, sin, None, axis, layout=layout, form=form)

    turn.__name__ = getattr(original, "__name__", "apply_rotary_pos_emb")
    return turn


def _same(original: Callable[..., Any], layout: Layout, form: Form) -> bool:
    """Whether `original` turns by cos and sin of this form as `layout` says, on a few random numbers."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, heads, 3, 8, generator=generator) for heads in (2, 1))
    angles = torch.randn(1, 3, 4, generator=generator)
    cos, sin = (_written(rows, form) for rows in (angles.cos(), angles.sin()))
    return agree(original, partial(apply_rotary_pos_emb, layout=layout, form=form), q, k, cos, sin)


def _written(rows: Tensor, form: Form) -> Tensor:
    if form == "halves":
        return torch.cat((rows, rows), dim=-1)
    return rows.repeat_interleave(2, dim=-1) if form == "repeated" else rows


__all__ = ["Patch", "patch", "patched", "unpatch"]
