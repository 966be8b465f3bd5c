"""bench/matrix/rows.py: the rows of a table alone are those of the whole table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bench/matrix"))
import case  # noqa: E402
import rows  # noqa: E402

POSITIONS = np.array([1, 99_000, 131_071])


def table(length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """As engines make it."""
    frequencies = 1.0 / 500000 ** (torch.arange(0, 128, 2, dtype=torch.float) / 128)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(dtype)


def asked(rope_type: str = "default") -> case.Case:
    rope = {"rope_type": rope_type, "original_max_position_embeddings": 4096}
    return case.Case("plain", 128, 128, "half", rope, {})


def test_rows_alone_have_the_bits_of_the_table() -> None:
    some = rows.Rows(POSITIONS)
    with some.only():
        short = table(131_072)
    assert some.alone and len(short) == len(POSITIONS)
    assert torch.equal(short[some.indices], table(131_072)[POSITIONS])


def test_a_table_that_ends_before_the_positions_is_whole() -> None:
    some = rows.Rows(POSITIONS)
    with some.only():
        assert len(table(4096)) == 4096
    assert not some.alone and some.indices.tolist() == POSITIONS.tolist()


def test_rows_are_taken_only_where_the_table_does_not_fit() -> None:
    calls = []

    def rotate(x: Any, some: rows.Rows) -> Any:
        made = table(131_072)
        calls.append(len(made))
        if len(made) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return made[some.indices].numpy()

    turned: Any = rows.by_rows(asked(), rotate)
    assert turned(None, POSITIONS).shape == (3, 128) and turned.rows_only and calls == [131_072, 3]


@pytest.mark.parametrize("positions", [POSITIONS, np.array([1, 4097])])
def test_longrope_takes_its_rows_from_the_table_that_it_chooses(positions: Any) -> None:
    def rotate(x: Any, some: rows.Rows) -> Any:
        both = torch.cat((table(4096), 2 * table(131_072)))
        if x == "little memory" and len(both) > 131_072:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        ids = some.indices
        return both[ids + 4096 if bool((ids > 4096).any()) else ids].numpy()

    turned: Any = rows.by_rows(asked("longrope"), rotate)
    whole = turned("much memory", positions)
    assert np.array_equal(turned("little memory", positions), whole) and turned.rows_only
    assert np.array_equal(whole, 2 * table(131_072)[positions].numpy())
    with pytest.raises(RuntimeError, match="allocate"):  # a short text takes the other table
        turned("little memory", np.array([1, 4096]))
