"""Encodings as arguments of custom ops: the members as text, the tables as a list of tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from .._core import Encoding, RopeSpec
from ._common import constant, refusal, spec_of, spec_text

if TYPE_CHECKING:
    from .._core import Encodes

Plain: TypeAlias = dict[str, object]
Resolved: TypeAlias = "RopeSpec | Encoding | Plain"

# phasor.Encoding objects of running calls, by the name that is passed to the op.
_held: dict[str, list[Encoding]] = {}
_numbers = count()


class Flat:
    """An `encoding=` argument split: `text` for the op, and `tables` in the order of their numbers in it."""

    def __init__(self, text: str, tables: list[Tensor], objects: list[Encoding]) -> None:
        self.text = text
        self.tables = tables
        self.objects = objects


def flatten(where: str, encoding: Encodes, dtype: torch.dtype) -> Flat:
    """Splits `encoding`; tables become float32, or float64 if `dtype` is, with their gradients."""
    if encoding is None:
        return Flat("[]", [], [])
    parts = list(encoding) if isinstance(encoding, (list, tuple)) else [encoding]
    tables: list[Tensor] = []
    objects: list[Encoding] = []
    plain = [_plain_part(where, part, tables, objects) for part in parts]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return Flat(_dump(plain), [table.to(wide) for table in tables], objects)


@constant
def _dump(plain: object) -> str:
    return json.dumps(plain)


def _plain_part(where: str, part: object, tables: list[Tensor], objects: list[Encoding]) -> Plain:
    if isinstance(part, str | PathLike):
        part = Encoding.from_file(part)
    if isinstance(part, RopeSpec):
        return {"rope": spec_text(part)}
    if isinstance(part, Encoding):
        given = part.tables
        names = list(given)
        first = len(tables)
        tables.extend(_as_tensor(given[name]) for name in names)
        objects.append(part)
        return {"object": len(objects) - 1, "tables": {name: first + i for i, name in enumerate(names)}}
    if isinstance(part, Mapping):
        return {"members": _plain_members(where, part, tables)}
    raise refusal(
        "invalid_argument",
        f"{where}: encoding must be a RopeSpec, an Encoding, a dictionary, a path or a list of those, got "
        f"{type(part).__name__}",
    )


def _plain_members(where: str, members: Mapping[str, object], tables: list[Tensor]) -> Plain:
    plain: Plain = {}
    for key, value in members.items():
        if isinstance(value, Tensor | np.ndarray) and key == "slopes":
            plain[key] = value.tolist()
        elif isinstance(value, Tensor | np.ndarray):
            plain[key] = {"table": len(tables)}
            tables.append(_as_tensor(value))
        elif isinstance(value, RopeSpec):
            plain[key] = json.loads(spec_text(value))
        elif key == "encoding" and isinstance(value, Sequence) and not isinstance(value, str):
            plain[key] = [_plain_members(where, cast(Mapping[str, object], item), tables) for item in value]
        else:
            plain[key] = value
    return plain


def _as_tensor(table: object) -> Tensor:
    return table if isinstance(table, Tensor) else torch.as_tensor(table)


@contextmanager
def held(objects: Sequence[Encoding]) -> Iterator[str]:
    """A name by which an op finds the objects while the block runs."""
    name = f"call {next(_numbers)}"
    _held[name] = list(objects)
    try:
        yield name
    finally:
        del _held[name]


def held_objects(name: str) -> list[Encoding]:
    """The objects of a running call; [] for an unknown name."""
    return _held.get(name, [])


@lru_cache(maxsize=256)
def _without_tables(text: str) -> Encoding:
    members = json.loads(text)
    return Encoding(members.pop("encoding"), **members)


def resolve(text: str, tables: Sequence[Tensor], objects: str) -> tuple[Encodes, list[str]]:
    """The argument that _core takes, and the name of each table's gradient in it."""
    parts = json.loads(text)
    names = [""] * len(tables)
    resolved: list[Resolved] = []
    for index, part in enumerate(parts):
        prefix = f"{index}." if len(parts) > 1 else ""
        if "rope" in part:
            resolved.append(spec_of(part["rope"]))
        elif "object" in part:
            for name, number in part["tables"].items():
                names[number] = prefix + name
            shell = held_objects(objects)[part["object"]]
            chosen = {name: tables[number].detach() for name, number in part["tables"].items()}
            resolved.append(shell.with_tables(chosen) if chosen else shell)
        else:
            members, before = part["members"], names.count("")
            filled = _filled(members, tables, prefix, names)
            plain = names.count("") == before and isinstance(members.get("encoding"), str)
            resolved.append(_without_tables(json.dumps(members)) if plain else filled)
    if not resolved:
        return None, names
    return (resolved[0] if len(resolved) == 1 else resolved), names


def _filled(members: Mapping[str, Any], tables: Sequence[Tensor], prefix: str, names: list[str]) -> Plain:
    filled: Plain = {}
    for key, value in members.items():
        if isinstance(value, dict) and set(value) == {"table"}:
            names[value["table"]] = prefix + key
            filled[key] = tables[value["table"]].detach()
        elif key == "encoding" and isinstance(value, list):
            filled[key] = [_filled(item, tables, f"{prefix}{i}.", names) for i, item in enumerate(value)]
        else:
            filled[key] = value
    return filled
