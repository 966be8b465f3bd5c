"""Tests against PyTorch and what is built on it; they need the packages of requirements.txt."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

# Some virtual machines report AMX without its tiles: torch's bfloat16 products would die of SIGILL there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch  # noqa: E402 - after the line that it reads

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def originals() -> Path:
    """The folder that scripts/fetch_originals.py filled."""
    folder = os.environ.get("PHASOR_ORIGINALS")
    if folder is None:
        pytest.skip("PHASOR_ORIGINALS names no folder: run scripts/fetch_originals.py FOLDER")
    return Path(folder)


@pytest.fixture(scope="session")
def functions_of(originals: Path) -> Callable[..., dict[str, Any]]:
    """Functions of an original's source file, without the imports that only a GPU machine has."""

    def load(path: str, names: list[str], scope: Mapping[str, Any]) -> dict[str, Any]:
        tree = ast.parse((originals / path).read_text(encoding="utf-8"))
        chosen = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
        assert sorted(node.name for node in chosen) == sorted(names), f"{path} must define {names}"
        found = dict(scope)
        exec(compile(ast.Module(chosen, type_ignores=[]), path, "exec"), found)  # noqa: S102
        return found

    return load
