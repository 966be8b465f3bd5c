"""The rules of `phasor diff` against what `./dev matrix` measured: where an engine was run, the rules say what it did."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import phasor
import pytest

MEASURED = Path(__file__).resolve().parents[3] / "bench/results/amd-epyc-avx2-2threads/2026-11-18-matrix.json"
SAME_FREQUENCY = 1e-4  # as in bench/matrix/exact.py
SAME_AMPLITUDE = 1e-5
# An angle error of one rounding depends on the last bit of a frequency, which engines compute in different ways.
ANGLE_FACTOR = 2.5
LONGEST = 0.5  # rad; a larger error may have gone round
DIALECTS = {"mlx-lm": "mlx-lm", "sglang": "sglang", "vllm": "vllm-main", "xllamacpp": "llama.cpp"}
SERVERS = ("vllm", "sglang")


@cache
def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def dialect_of(engine: dict[str, Any]) -> str | None:
    """The dialect that describes an engine. Variants in 16 bits have no rules."""
    if "bfloat16" in engine["variant"]:
        return None
    if engine["package"] == "transformers":
        return "hf" if engine["version"].startswith("5") else "hf-4"
    return DIALECTS.get(engine["package"])


def windows() -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any], dict[str, Any], int]]:
    """Engine, dialect, case, config, cell, one window, its last position."""
    for engine in measured()["engines"]:
        dialect = dialect_of(engine)
        for name, cell in engine["cells"].items():
            case = measured()["cases"][name.removesuffix(", older form")]
            if dialect is None or case["kind"] == "vectors":
                continue
            config = case["older_config"] if name.endswith(", older form") else case["config"]
            for last, window in cell.items():
                if isinstance(window, dict) and "frequency" in window:
                    yield engine, dialect, name, case | {"config": config}, cell, window, int(last)


def view_of(engine: dict[str, Any], dialect: str, case: dict[str, Any], last: int) -> dict[str, Any]:
    # One call a position: the frequencies were read at position 1, which is the last of two.
    context = 2 if engine["by_step"] else last + 1
    longest = max(last + 1, case["config"].get("max_position_embeddings", 131072))
    report = phasor.diff(
        case["config"],
        between=["hf", dialect] if dialect != "hf" else ["hf", "vllm"],
        context=context,
        layer=case["layer_type"],
        max_length=longest if engine["package"] in SERVERS else None,
    )
    (group,) = report["groups"]
    return next(view for view in group["views"] if view["dialect"] == dialect)


def problems(engine: dict[str, Any], dialect: str, name: str, case: dict[str, Any], window: dict[str, Any], last: int) -> Iterator[str]:
    where = f"{engine['name']}, {name}, {last}"
    view = view_of(engine, dialect, case, last)
    if not view["readable"]:
        yield f"{where}: the rules refuse it, the engine rotates"
        return
    context = 2 if engine["by_step"] else last + 1
    exact, _ = phasor.RopeSpec.from_hf(case["config"] if dialect != "hf-4" else measured()["cases"][name.removesuffix(", older form")]["config"], case["layer_type"]).frequencies(context)
    found = window.get("frequencies", [float(f) for f in exact])
    for pair, (got, want) in enumerate(zip(found, view["frequencies"], strict=True)):
        if not math.isclose(got, want, rel_tol=2 * SAME_FREQUENCY, abs_tol=1e-12):
            yield f"{where}: pair {pair} has the frequency {got:.7g}, the rules say {want:.7g}"
            break
    if not math.isclose(window["amplitude"], view["amplitude"], rel_tol=SAME_AMPLITUDE):
        yield f"{where}: the amplitude is {window['amplitude']:.6f}, the rules say {view['amplitude']:.6f}"


if __name__ == "__main__":
    import sys, warnings
    warnings.simplefilter("ignore")
    if len(sys.argv)>1: MEASURED=Path(sys.argv[1])
    n=0
    for engine, dialect, name, case, cell, window, last in windows():
        n+=1
        try:
            for p in problems(engine, dialect, name, case, window, last): print(p)
        except Exception as e: print('EXC', engine['name'], name, last, e)
    print(n)
