"""What an adapter is asked: one RoPE case at one context. Adapters run in environments of their own, so this file needs
NumPy only.

An adapter is a file of bench/matrix/adapters, which imports its engine and has

    PACKAGE     the name on PyPI; its version is the engine's
    VARIANTS    label -> make; make(case) -> rotate, or raises Refused; rotate(x, positions) -> y
    READS_CONFIG, optional  True if the engine reads config.json itself: it gets the older form of each config, too
    BY_STEP, optional       True if one call has one position, as in decoding: a scaling that follows the length then
                            follows the position
    TABLES_GIVEN, optional  labels of variants that are given cos and sin

A rotation whose table did not fit in memory, and that made the asked rows of it alone, has the attribute rows_only.

x is float32 [tokens, heads, head_dim], positions int64 [tokens]; y has the shape of x.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
Rotate = Callable[[Floats, Positions], Floats]


class Refused(Exception):
    """The engine has no such rotation; the message says why."""


@dataclass
class Case:
    """One case of the golden set, or a plain one."""

    name: str
    head_dim: int
    rotary_dim: int
    layout: str  # of the model that the case is from
    rope: dict[str, Any]  # rope_parameters of the layer: rope_type, rope_theta and what the type needs
    config: dict[str, Any]  # config.json, as an engine that reads configs gets it
    frequencies: list[float] = field(default_factory=list)  # radians per position, exact, at this context
    amplitude: float = 1.0
    layer_type: Optional[str] = None
    max_position_embeddings: int = 131072
    context: int = 0  # the length of the sequence that the positions are in

    @property
    def rope_type(self) -> str:
        return str(self.rope["rope_type"])

    @property
    def base(self) -> float:
        return float(self.rope.get("rope_theta", 10000.0))

    @property
    def factor(self) -> float:
        return float(self.rope["factor"])

    def needs(self, *types: str) -> None:
        """Refuses rope types that the engine does not name."""
        if self.rope_type not in types:
            raise Refused(f"no rope type {self.rope_type}")

    def known(self) -> None:
        """Refuses what no config says."""
        if self.rope_type == "listed frequencies":
            raise Refused("no rope type for listed frequencies")

    def cos_sin(self, positions: Positions) -> tuple[Floats, Floats]:
        """Tables [tokens, pairs] for engines that are given them: exact, rounded once."""
        angles = positions[:, None].astype(np.longdouble) * np.array(self.frequencies, np.longdouble)
        return (
            (self.amplitude * np.cos(angles)).astype(np.float32),
            (self.amplitude * np.sin(angles)).astype(np.float32),
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Case:
        return Case(**json.loads(text))


def out_of_memory(error: Exception) -> bool:
    """Whether an engine had not enough memory; torch and others raise a RuntimeError."""
    return isinstance(error, MemoryError) or "allocate" in str(error)


def leading(case: Case, rotate: Rotate) -> Rotate:
    """`rotate` of an engine that takes the rotated features only; the others keep their bits."""

    def partial(x: Floats, positions: Positions) -> Floats:
        y = np.array(x)
        y[..., : case.rotary_dim] = rotate(np.ascontiguousarray(x[..., : case.rotary_dim]), positions)
        partial.rows_only = getattr(rotate, "rows_only", False)  # type: ignore[attr-defined]
        return y

    return rotate if case.rotary_dim == case.head_dim else partial


def by_step(rotate: Callable[[Floats, int], Any]) -> Rotate:
    """One call per token: `rotate` takes x as [heads, head_dim] and the position."""

    def each(x: Floats, positions: Positions) -> Floats:
        return np.stack([np.array(rotate(row, int(p)), np.float32) for row, p in zip(x, positions)])

    return each
