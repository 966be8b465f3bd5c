"""Runs one adapter; started by matrix.py with the Python of the engine's environment.

    python child.py ADAPTER.py [--memory BYTES]

Prints a line of JSON with the variants of the adapter, then reads tasks from stdin, a line each, and answers each with
a line.
What the engine itself prints goes to stderr, so that it cannot be taken for an answer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from case import Case, Refused, out_of_memory


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(adapter: ModuleType) -> dict[str, Any]:
    return {
        "variants": list(adapter.VARIANTS),
        "python": platform.python_version(),
        "reads_config": getattr(adapter, "READS_CONFIG", False),
        "by_step": getattr(adapter, "BY_STEP", False),
        "tables_given": list(getattr(adapter, "TABLES_GIVEN", ())),
    }


def answer(make: Any, task: dict[str, Any]) -> dict[str, Any]:
    case = Case.from_json(task["case"])
    with np.load(task["input"]) as arrays:
        x, positions = arrays["x"], arrays["positions"]
    try:
        rotate = make(case)
        y = np.asarray(rotate(x, positions), np.float32)
    except Refused as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is a cell of the matrix
        return failure(error)
    if y.shape != x.shape:
        return {"failed": f"shape {list(y.shape)} instead of {list(x.shape)}"}
    np.save(task["output"], y)
    return {"done": True, "rows_only": getattr(rotate, "rows_only", False)}


def failure(error: Exception) -> dict[str, Any]:
    if out_of_memory(error):
        return {"failed": "out of memory"}
    lines = str(error).strip().splitlines()
    return {"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]}


def main() -> None:
    parser = argparse.ArgumentParser(description="run one adapter")
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--memory", type=int, default=0, help="limit in bytes; 0: none")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if arguments.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory, arguments.memory))
    try:
        adapter = load(arguments.adapter)
    except Exception as error:  # noqa: BLE001 - a package may fail to import with any error
        answers.write(json.dumps(failure(error)) + "\n")
        return
    answers.write(json.dumps(described(adapter)) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps(answer(adapter.VARIANTS[task["variant"]], task)) + "\n")


if __name__ == "__main__":
    main()
