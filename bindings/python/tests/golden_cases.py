"""The golden cases of attention as NumPy arrays: golden/README.md says what each file holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
Floats = npt.NDArray[np.floating[Any]]

# Inputs of a case that are not tables of its encoding.
_TENSORS = {"q", "k", "v", "d_output", "position_ids", "inv_freq_f64", "slopes_f64", "mask", "relative_index"}
# Members of an encoding that are not tables.
_MEMBERS = {
    "clip", "left", "right", "num_buckets", "max_distance", "bidirectional", "position_buckets",
    "max_relative_positions", "pos_att_type", "reset_cls", "relative_bias", "scale_base", "gamma", "centre",
    "position_embedding_type", "max_position_embeddings",
}  # fmt: skip


def _load(path: Path) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.load(path)
    return array


@dataclass
class Case:
    folder: Path
    json: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    def input(self, name: str) -> npt.NDArray[Any]:
        return _load(self.folder / self.json["inputs"][name]["file"])

    def output(self, name: str) -> npt.NDArray[Any]:
        return _load(self.folder / self.json["outputs"][name]["file"])

    def truth(self, name: str) -> npt.NDArray[Any]:
        return _load(self.folder / self.json["truth"][name + "_f64"]["file"])

    def tables(self) -> dict[str, Any]:
        """The arrays that the encoding takes, by member."""
        return {name: self.input(name) for name in self.json["inputs"] if name not in _TENSORS}

    def members(self) -> dict[str, Any]:
        return {name: value for name, value in self.json.items() if name in _MEMBERS}

    def check(self, name: str, got: Floats) -> None:
        """The comparison that golden/README.md states."""
        stated = self.json["outputs"][name]
        np.testing.assert_allclose(got, self.output(name), atol=stated["atol"], rtol=stated["rtol"], err_msg=name)


def case(path: str) -> Case:
    folder = GOLDEN / path
    return Case(folder, json.loads((folder / "case.json").read_text()))


def cases(pattern: str) -> list[Case]:
    found = [case(str(folder.relative_to(GOLDEN))) for folder in sorted(GOLDEN.glob(pattern))]
    assert found, pattern
    return found
