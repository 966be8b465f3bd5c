"""Engines that index a table of all positions: where the table does not fit, its rows that are asked for.

A table for 16 million positions has 8 GB, and engines hold its parts several times while they make it. Each row is
computed from its position alone, so that the rows which are asked for can be had without the others: `torch.arange`,
from which an engine takes the positions of its table, gives only these. The rest is the engine's own code.
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
    """Positions that are asked for, and whether a table was made of these alone."""

    def __init__(self, positions: Positions):
        self.positions = torch.from_numpy(positions)
        self.alone = False

    @property
    def indices(self) -> torch.Tensor:
        return torch.arange(len(self.positions)) if self.alone else self.positions

    @contextmanager
    def only(self) -> Iterator[None]:
        """Tables that are made inside have the rows of `positions`. A table that ends before them is made as a whole."""
        arange = torch.arange

        def shorter(*arguments: Any, **options: Any) -> torch.Tensor:
            of_positions = len(arguments) == 1 or (len(arguments) == 2 and arguments[0] == 0)
            if not of_positions or arguments[-1] <= max(int(self.positions.max()), MOST_PAIRS):
                return arange(*arguments, **options)
            self.alone = True
            return self.positions.to(options.get("dtype") or torch.int64)

        with patch.object(torch, "arange", shorter):
            yield


def by_rows(case: Case, rotate: Callable[[Floats, Rows], Floats]) -> Rotate:
    """`rotate` makes its table inside of a call; if that needs more memory than there is, it is called for its rows."""

    def either(x: Floats, positions: Positions) -> Floats:
        try:
            return rotate(x, Rows(positions))
        except (MemoryError, RuntimeError) as error:
            # LongRoPE chooses between two tables by the positions themselves.
            if not out_of_memory(error) or case.rope_type == "longrope":
                raise
        rows = Rows(positions)
        with rows.only():
            y = rotate(x, rows)
        either.rows_only = rows.alone  # type: ignore[attr-defined]
        return y

    return either
