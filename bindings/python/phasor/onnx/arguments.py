"""Attributes and inputs of a node, as the operators read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core import Error

Array = npt.NDArray[Any]
Attributes = Mapping[str, object]
Inputs = Sequence["Array | None"]


def integer(attributes: Attributes, name: str, fallback: int) -> int:
    value = attributes.get(name, fallback)
    assert isinstance(value, int)
    return value


def real(attributes: Attributes, name: str) -> float | None:
    value = attributes.get(name)
    return None if value is None else float(value)  # type: ignore[arg-type]


def needed(inputs: Inputs, at: int, where: str) -> Array:
    value = optional(inputs, at)
    if value is None:
        raise Error(f"{where} is missing")
    return value


def optional(inputs: Inputs, at: int) -> Array | None:
    return inputs[at] if at < len(inputs) else None


def split_heads(x: Array, heads: int, where: str) -> Array:
    """[batch, tokens, heads, dim], a view: of [batch, heads, tokens, dim], or of [batch, tokens, heads * dim]."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    if x.ndim != 3:
        raise Error(f"{where} must have 3 or 4 axes, got the shape {list(x.shape)}")
    if heads < 1 or x.shape[2] % heads:
        raise Error(f"{where}: the number of heads must divide the {x.shape[2]} features, got {heads}")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads)


def like_input(y: Array, rank: int) -> Array:
    """[batch, tokens, heads, dim] with the axes that the node's input had."""
    if rank == 4:
        return np.ascontiguousarray(y.transpose(0, 2, 1, 3))
    return np.ascontiguousarray(y).reshape(y.shape[0], y.shape[1], -1)


def one_of(attributes: Attributes, name: str, fallback: int, allowed: tuple[int, ...], where: str) -> int:
    """An attribute that is one of a few numbers."""
    value = integer(attributes, name, fallback)
    if value not in allowed:
        raise Error(f"{where}: {name} must be {' or '.join(map(str, allowed))}, got {value}")
    return value
