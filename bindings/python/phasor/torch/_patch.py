"""patch(model): Phasor in the rotary part of a loaded transformers model, for that model only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from .._core import Error
from ._common import refusal
from ._patch_tables import PROBED, TOLERANCE, agree, function_swaps, table_equivalent, table_swaps, tables_of
from ._rotation_ops import in_form
from .hf import Form, PhasorRotaryEmbedding, apply_rotary_pos_emb

if TYPE_CHECKING:
    from .._core import Layout

_Model = TypeVar("_Model", bound=nn.Module)
_RECORD = "_phasor_patch"
_FORMS: tuple[Form, ...] = ("halves", "repeated", "pairs")
_LAYOUTS: tuple[Layout, ...] = ("half", "interleaved", "interleaved_to_half")


@dataclass
class Patch:
    """What patch() replaced in a model, by the names of named_modules()."""

    rotary: list[str] = field(default_factory=list)  # modules that make cos and sin, or keep a table of them
    attention: list[str] = field(default_factory=list)  # modules that rotate queries and keys with them
    _modules: list[tuple[nn.Module, str, nn.Module]] = field(default_factory=list, repr=False)
    _tables: list[tuple[nn.Module, str, Tensor | None]] = field(default_factory=list, repr=False)
    _methods: list[tuple[nn.Module, str, object]] = field(default_factory=list, repr=False)


def patched(model: nn.Module) -> Patch | None:
    """What patch() replaced in this model; None if it is not patched."""
    record = model.__dict__.get(_RECORD)
    return record if isinstance(record, Patch) else None


def patch(model: _Model) -> _Model:
    """Replaces the rotary part of a transformers model and returns the model; unpatch() restores it.

    Its rotary modules (classes ...RotaryEmbedding with a config and forward(x, position_ids)) are replaced by
    PhasorRotaryEmbedding: exact angles. Attention modules whose methods call apply_rotary_pos_emb get, as attributes of
    the instance, those methods with Phasor's function instead; the class and the module of transformers are unchanged,
    so other models are not affected. A function of the modeling file that does more than rotate by cos and sin is
    unchanged. GPT-J's and CodeGen's tables of sin and cos become exact in the same way; RoFormer's, which
    comes from float64 and belongs to its checkpoint, stays. Before anything is replaced, cos and sin are compared with
    the original's at the first positions, and the function's results with each known layout.

    Patching twice changes nothing. Raises Error, with the model unchanged, if the model has no such modules or tables,
    or if its modules give other cos and sin than its config. Unpatch before pickling the model as an object
    (save_pretrained and state_dict() need nothing).
    """
    if patched(model) is not None:
        return model
    if has_patched_part(model):
        raise refusal("invalid_argument", "patch: a submodule is already patched; unpatch() it first")
    if not patch_found(model):
        raise refusal(
            "unsupported",
            "patch: the model has no rotary module (class ...RotaryEmbedding with a config and "
            "forward(x, position_ids)) and no table of sin and cos: "
            f"{type(model).__name__} with {', '.join(rotary_classes(model)) or 'no class of that name'}",
        )
    return model


def patch_found(model: nn.Module) -> bool:
    """patch() of a model that is not patched; False, with the model unchanged, if it has nothing to replace."""
    record = Patch()
    with torch.device("cpu"):  # what is compared needs numbers, also inside torch.device("meta")
        swaps = _rotary_swaps(model, record)
        tables = table_swaps(model, record.rotary)
        if not record.rotary:
            return False
        forms = {module.form for _, _, module in swaps}
        methods = [*_method_swaps(model, forms, record), *function_swaps(model, record.attention)]
    for parent, name, replacement in swaps:
        record._modules.append((parent, name, getattr(parent, name)))
        setattr(parent, name, replacement)
    for owner, name, table in tables:
        record._tables.append((owner, name, tables_of(owner)[name]))
        tables_of(owner)[name] = table
    for owner, name, method in methods:
        record._methods.append((owner, name, owner.__dict__.get(name)))
        object.__setattr__(owner, name, method)
    object.__setattr__(model, _RECORD, record)
    return True


def unpatch(model: _Model) -> _Model:
    """Restores the original objects; a model that is not patched is returned unchanged."""
    record = patched(model)
    if record is None:
        return model
    for parent, name, original in record._modules:
        setattr(parent, name, original)
    for owner, name, table in record._tables:
        tables_of(owner)[name] = table
    for owner, name, previous in record._methods:
        if previous is None:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, previous)
    object.__delattr__(model, _RECORD)
    return model


def has_patched_part(model: nn.Module) -> bool:
    return any(patched(part) is not None for part in model.modules())


def rotary_classes(model: nn.Module) -> list[str]:
    """The names of the classes in a model that name a rotation."""
    return sorted({type(part).__name__ for part in model.modules() if "otary" in type(part).__name__})


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
        text = f"patch: the config of {where} ({kind}) is not supported by RopeSpec.from_hf: {error}"
        raise refusal("unsupported", text) from error
    probe = _on_the_cpu(original)
    kept = {tensor.device for tensor in (*original.parameters(), *original.buffers())}
    takes_type = "layer_type" in inspect.signature(type(original).forward).parameters
    form: Form = "halves"
    dtype: torch.dtype | None = None
    # model.to(torch.bfloat16) rounds the frequencies that transformers keeps; patch() corrects that.
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
                narrow = probe(torch.zeros(1, dtype=torch.bfloat16), positions, **keywords)
        except Exception as error:
            text = f"patch: {where} ({kind}) fails for positions of the shape {list(positions.shape)}: {error!r}"
            raise refusal("unsupported", text) from error
        if not (isinstance(theirs, tuple) and len(theirs) == 2 and theirs[0].is_floating_point()):
            raise refusal("unsupported", f"patch: {where} ({kind}) must return (cos, sin), got {type(theirs).__name__}")
        if axes == 1 and _reads_three_rows(probe, theirs, keywords):
            raise refusal(
                "unsupported",
                f"patch: the config of {where} ({kind}) has no mrope_section, but its module reads three rows",
            )
        form = _form_of(theirs, ours, positions, layer_type, tolerance, f"{where} ({kind})")
        dtype = None if narrow[0].dtype == torch.bfloat16 else torch.float32
    return PhasorRotaryEmbedding(config, kept.pop() if len(kept) == 1 else None, form=form, dtype=dtype)


def _on_the_cpu(original: nn.Module) -> nn.Module:
    """A copy on the CPU; a module on meta, which has no numbers yet, is made again from its config."""
    if not any(tensor.is_meta for tensor in (*original.parameters(), *original.buffers())):
        return copy.deepcopy(original).cpu()
    return type(original)(config=original.config)


@torch.no_grad()
def _reads_three_rows(probe: nn.Module, theirs: tuple[Tensor, Tensor], keywords: dict[str, str]) -> bool:
    """Whether a module merges three rows of positions into one, as M-RoPE does."""
    try:
        merged = probe(torch.zeros(1, dtype=torch.float32), torch.arange(PROBED).expand(3, 1, -1), **keywords)
    except Exception:  # noqa: BLE001 - a module of one row may raise anything for three
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
        f"patch: {where} must return the cos and sin of its config, got "
        + (f"the shape {list(theirs[0].shape)}" if nearest == float("inf") else f"a difference of {nearest:.3g}"),
    )


# Attention modules ------------------------------------------------------------------------------------------------


def _method_swaps(model: nn.Module, forms: set[Form], record: Patch) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
    swaps: list[tuple[nn.Module, str, Callable[..., Any]]] = []
    rebuilt: dict[Callable[..., Any], FunctionType | None] = {}
    for path, module in model.named_modules():
        for name in dir(type(module)):
            function = inspect.getattr_static(type(module), name)
            if not isinstance(function, FunctionType) or not _rotary_names(inspect.unwrap(function)):
                continue
            if function not in rebuilt:
                rebuilt[function] = _with_phasor(function, forms)
            copied = rebuilt[function]
            # A method that was already replaced on the instance is unchanged.
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
    """The same code that calls Phasor's function by the global name; None if it uses no known name."""
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, FunctionType):
        inner = _with_phasor(wrapped, forms)
        return None if inner is None else _decorated_again(function, wrapped, inner)
    swapped = {name: _equivalent(function.__globals__[name], forms) for name in _rotary_names(function)}
    known = {name: ours for name, ours in swapped.items() if ours is not None}
    if not known:
        return None
    scope = {**function.__globals__, **known}
    # torch.compile looks up globals by the name of their module, and would find the originals.
    scope.pop("__name__", None)
    return _copied(function, scope, function.__closure__)


def _decorated_again(decorator: FunctionType, wrapped: FunctionType, inner: FunctionType) -> FunctionType | None:
    """A decorator's function (transformers 4.57: deprecate_kwarg) that calls `inner`; None if it keeps no reference."""
    cells = decorator.__closure__ or ()
    if not any(cell.cell_contents is wrapped for cell in cells):
        return None
    closure = tuple(CellType(inner) if cell.cell_contents is wrapped else cell for cell in cells)
    copied = _copied(decorator, decorator.__globals__, closure)
    copied.__dict__.update({**decorator.__dict__, "__wrapped__": inner})
    return copied


def _copied(function: FunctionType, scope: dict[str, Any], closure: tuple[CellType, ...] | None) -> FunctionType:
    copied = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    return copied


def _equivalent(original: Callable[..., Any], forms: set[Form]) -> Callable[..., Any] | None:
    """Phasor's function with the arguments and the layout of `original`; None if it does something else."""
    try:
        names = list(inspect.signature(original).parameters)
    except (TypeError, ValueError):
        return None
    if names == ["tensor", "sin", "cos"]:
        return table_equivalent(original)
    if names[:4] != ["q", "k", "cos", "sin"] or not set(names[4:]) <= {"position_ids", "unsqueeze_dim"}:
        return None
    place = names.index("unsqueeze_dim") - 4 if "unsqueeze_dim" in names else None
    matches = [(layout, form) for form in forms for layout in _LAYOUTS if _same(original, layout, form)]
    if len(matches) != 1 or place is None:
        return None
    layout, form = matches[0]

    def rotate(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, unsqueeze_dim: int = 1, position_ids: object = None
    ) -> tuple[Tensor, Tensor]:
        axis = rest[place] if len(rest) > place else unsqueeze_dim
        return apply_rotary_pos_emb(q, k, cos, sin, None, axis, layout=layout, form=form)

    rotate.__name__ = getattr(original, "__name__", "apply_rotary_pos_emb")
    return rotate


def _same(original: Callable[..., Any], layout: Layout, form: Form) -> bool:
    """Whether `original` rotates by cos and sin of this form in this layout, tested with random numbers."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, heads, 3, 8, generator=generator) for heads in (2, 1))
    angles = torch.randn(1, 3, 4, generator=generator)
    cos, sin = (in_form(rows, form) for rows in (angles.cos(), angles.sin()))
    return agree(original, partial(apply_rotary_pos_emb, layout=layout, form=form), q, k, cos, sin)


__all__ = ["Patch", "has_patched_part", "patch", "patch_found", "patched", "rotary_classes", "unpatch"]
