"""Every config class of transformers with its defaults: read, answered or refused by name; cos and sin of those read."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import phasor
import phasor.torch as pt
import torch
from phasor.torch._patch import _same
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.utils import logging

logging.set_verbosity_error()

# Of 788 model types of transformers 5.22.2, of which two cannot be made without arguments. The numbers may grow.
ANSWERED = 745  # read, or known to rotate nothing
ROTATING = 305  # of these, the ones that rotate
COMPARED = 210  # rotary classes whose cos and sin are those of Phasor
PATCHED = 170  # rotary classes that patch() replaces
TOLERANCE = 2e-5  # float32 angles at positions below 40
TOKENS = 6

FORMS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda rows: np.concatenate((rows, rows), -1),
    lambda rows: np.repeat(rows, 2, -1),
    lambda rows: rows,
)

LAYOUTS = ("half", "interleaved", "interleaved_to_half")
NAMED_FORMS = ("halves", "repeated", "pairs")


@cache
def configs() -> dict[str, Any]:
    """A config of each model type, where transformers can make one without arguments."""
    made = {}
    for model_type in CONFIG_MAPPING:
        try:
            made[model_type] = CONFIG_MAPPING[model_type]()
        except Exception:  # noqa: BLE001 - a config class may refuse its own defaults with any error
            continue
    assert len(made) >= len(CONFIG_MAPPING) - 2
    return made


@cache
def answers() -> dict[str, dict[str, Any] | phasor.Error]:
    """What explain() says of each."""
    found: dict[str, dict[str, Any] | phasor.Error] = {}
    for model_type, config in configs().items():
        try:
            found[model_type] = phasor.explain(named(model_type, config))
        except phasor.Error as error:
            found[model_type] = error
    return found


def named(model_type: str, config: Any) -> dict[str, Any]:
    """The config.json; some parts have a class without a model_type of their own."""
    members: dict[str, Any] = config.to_dict()
    if not members.get("model_type"):
        members["model_type"] = model_type
    return members


def rotates(answer: dict[str, Any] | phasor.Error) -> bool:
    return isinstance(answer, dict) and any(layer["encoding"] == "rope" for layer in answer["layers"])


def names_of(members: dict[str, Any]) -> Iterator[str]:
    """The model types of a config and of its parts."""
    if members.get("model_type"):
        yield members["model_type"]
    for part in members.values():
        if isinstance(part, dict):
            yield from names_of(part)


def test_configs_are_read_answered_or_refused_by_name() -> None:
    refused = {name: answer for name, answer in answers().items() if isinstance(answer, phasor.Error)}
    for model_type, error in refused.items():
        names = set(names_of(named(model_type, configs()[model_type])))
        assert any(name in str(error) for name in names), f"{model_type}: {error}"
    assert len(answers()) - len(refused) >= ANSWERED, sorted(refused)
    assert sum(map(rotates, answers().values())) >= ROTATING


def test_models_that_rotate_have_a_layout() -> None:
    unknown = [
        model_type
        for model_type, answer in answers().items()
        if isinstance(answer, dict) and any(layer["encoding"] == "rope" and not layer["layout"] for layer in answer["layers"])
    ]
    # Its pairs rotate by minus the angle, which no layout has.
    assert unknown == ["nanochat"]


def test_the_part_that_is_read_is_read_like_a_model_of_its_own() -> None:
    parts = 0
    for model_type, answer in answers().items():
        if isinstance(answer, phasor.Error) or not answer["part"]:
            continue
        part = named(model_type, configs()[model_type])
        for key in answer["part"].split("."):
            part = {"model_type": part["model_type"], **part[key]}
        alone = phasor.explain(part)
        for layer in (*alone["layers"], *answer["layers"]):
            layer.pop("sources")  # paths of keys
            for encoding in layer["positions"]:
                encoding.pop("sources")
        assert alone["layers"] == answer["layers"] and alone["model_type"] == answer["model_type"], model_type
        parts += 1
    assert parts >= 100


# The rotary classes of the models --------------------------------------------------------------------------------


def modeling_of(config: Any) -> ModuleType | None:
    try:
        return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return None


def rotary_of(config: Any) -> nn.Module | None:
    """The rotary module that the model of a config has; None if it has none of its own, or several."""
    module = modeling_of(config)
    if module is None:
        return None
    found = []
    for name, kind in vars(module).items():
        if not (inspect.isclass(kind) and issubclass(kind, nn.Module) and "RotaryEmbedding" in name):
            continue
        parameter = inspect.signature(kind.__init__).parameters.get("config")
        if parameter is None or kind.__module__ != module.__name__:
            continue
        annotation = parameter.annotation
        found.append((kind, (annotation if isinstance(annotation, str) else annotation.__name__) == type(config).__name__))
    exact = [kind for kind, same in found if same] or [kind for kind, _ in found]
    made = []
    for kind in exact:
        try:
            made.append(kind(config))
        except Exception:  # noqa: BLE001 - a class of another part of the model
            continue
    return made[0] if len(made) == 1 else None


@cache
def rotaries() -> dict[str, nn.Module]:
    found = {}
    for model_type, answer in answers().items():
        if rotates(answer) and not answer["part"] and (made := rotary_of(configs()[model_type])) is not None:  # type: ignore[index]
            found[model_type] = made
    return found


def layer_types_of(module: nn.Module, config: Any) -> list[str | None]:
    """The layer types that a rotary module takes, of those that the model has."""
    if "layer_type" not in inspect.signature(type(module).forward).parameters:
        return [None]
    used = getattr(config, "layer_types", None) or ()
    return [name for name, rope in config.rope_parameters.items() if isinstance(rope, dict) and name in used]


def positions_for(axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions as a module takes them and as Phasor does."""
    random = np.random.default_rng(1)
    if axes == 2:
        grid = random.integers(0, 40, (TOKENS, 2))
        return grid, grid.T
    rows = random.integers(0, 40, (axes, 1, TOKENS) if axes > 1 else (1, TOKENS))
    return rows, rows[:, 0] if axes > 1 else rows[0]


def difference(module: nn.Module, spec: phasor.RopeSpec, layer_type: str | None) -> float | None:
    """The largest difference of cos and sin; None if the module's forward takes other arguments."""
    theirs, ours = positions_for(spec.axes)
    keywords = {} if layer_type is None else {"layer_type": layer_type}
    try:
        with torch.no_grad():
            out = module(torch.zeros(1, TOKENS, 8), torch.from_numpy(theirs), **keywords)
    except Exception:  # noqa: BLE001 - the arguments of a module that is no plain rotary module
        return None
    if isinstance(out, Tensor) and out.is_complex():
        out = (out.real, out.imag)
    cos, sin = (rows.numpy().reshape(-1, rows.shape[-1]) for rows in out)
    want = phasor.cos_sin(spec, ours)
    nearest = float("inf")
    for form in FORMS:
        made = [form(rows) for rows in want]
        if made[0].shape == cos.shape:
            nearest = min(nearest, max(float(abs(a - b).max()) for a, b in zip(made, (cos, sin), strict=True)))
    # Modules of images take their positions in other shapes, too.
    return None if spec.axes == 2 and nearest == float("inf") else nearest


def test_cos_and_sin_are_those_of_the_models() -> None:
    wrong, compared = {}, 0
    for model_type, module in rotaries().items():
        config = configs()[model_type]
        for layer_type in layer_types_of(module, config):
            spec = spec_of(config, layer_type)
            found = None if spec is None else difference(module, spec, layer_type)
            if found is None:
                continue
            compared += 1
            if found > TOLERANCE:
                wrong[f"{model_type} {layer_type or ''}"] = found
    assert wrong == {}
    assert compared >= COMPARED


def spec_of(config: Any, layer_type: str | None) -> phasor.RopeSpec | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return phasor.RopeSpec.from_hf(config, layer_type)
        except phasor.Error:
            return None


def test_patch_takes_the_rotary_modules() -> None:
    accepted = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in rotaries().values():
            try:
                pt.patch(nn.ModuleDict({"rotary_emb": module}))
            except phasor.Error:
                continue
            accepted += 1
    assert accepted >= PATCHED


def test_layouts_are_those_of_the_models() -> None:
    """Modules whose apply_rotary functions all pair features in one way."""
    wrong, compared = {}, 0
    for model_type, answer in answers().items():
        module = modeling_of(configs()[model_type])
        if not rotates(answer) or answer["part"] or module is None:  # type: ignore[index]
            continue
        functions = [f for name, f in vars(module).items() if name.startswith("apply_rotary") and inspect.isfunction(f)]
        seen = {layout for f in functions for layout in LAYOUTS for form in NAMED_FORMS if _same(f, layout, form)}
        if len(seen) == 1:
            compared += 1
            layers = [layer for layer in answer["layers"] if layer["encoding"] == "rope"]  # type: ignore[index]
            layouts = {layer["layout"] for layer in layers}
            # Files of models with text and images have a second function for images.
            if layouts != seen and not any((layer["axes"] or {}).get("kind") == "axial" for layer in layers):
                wrong[model_type] = (layouts, seen)
    assert wrong == {}
    assert compared >= COMPARED - 40
