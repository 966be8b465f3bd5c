"""Engines that index a table of all positions: where the table does not fit, its rows that are asked for.

A table for 16 million positions has 8 GB, and engines hold its parts several times while they make it. Each row is
computed from its position alone, so that the rows which are asked for can be had without the others: `torch.arange`,
from which an engine takes the positions of its table, gives only these. The rest is the engine's own code.

LongRoPE has one table for short texts and one for long ones, and chooses by the positions. Its long table is then made
of all positions of a short text and, after these, of those that are asked for: their indices are those of a long text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from case import Case, Floats, Positions, Rotate, out_of_memory

MOST_PAIRS = 4096  # a range up to here is not of positions: a table of so few rows fits


class Rows:
    """Positions that are asked for, and whether a table was made of these alone; `before` them the first positions."""

    def __init__(self, positions: Positions, before: int = 0):
        self.positions = torch.from_numpy(positions)
        self.before = before
        self.alone = False

    @property
    def indices(self) -> torch.Tensor:
        return self.before + torch.arange(len(self.positions)) if self.alone else self.positions

    @contextmanager
    def only(self) -> Iterator[None]:
        """Tables that are made inside have the rows of `positions`. A table that ends before them is made as a whole."""
        arange = torch.arange

        def shorter(*arguments: Any, **options: Any) -> torch.Tensor:
            of_positions = len(arguments) == 1 or (len(arguments) == 2 and arguments[0] == 0)
            if not of_positions or arguments[-1] <= max(int(self.positions.max()), MOST_PAIRS):
                return arange(*arguments, **options)
            self.alone = True
            return torch.cat((arange(self.before), self.positions)).to(options.get("dtype") or torch.int64)

        with patch.object(torch, "arange", shorter):
            yield


def short_text(case: Case) -> int:
    """The largest position that may be of a short text, which has a table of its own; -1 where there is one table."""
    if case.rope_type != "longrope":
        return -1
    name = "original_max_position_embeddings"
    return int(case.rope.get(name, case.config.get(name, 0)))


def by_rows(case: Case, rotate: Callable[[Floats, Rows], Floats]) -> Rotate:
    """`rotate` makes its table inside of a call; if that needs more memory than there is, it is called for its rows."""

    def either(x: Floats, positions: Positions) -> Floats:
        try:
            return rotate(x, Rows(positions))
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or positions.max() <= short_text(case):
                raise
        rows = Rows(positions, short_text(case) + 1)
        with rows.only():
            y = rotate(x, rows)
        either.rows_only = rows.alone  # type: ignore[attr-defined]
        return y

    return either
