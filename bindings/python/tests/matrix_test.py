"""bench/matrix with adapters of its own: a right one is seen as right, a wrong one as wrong, and nothing stops it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench/matrix"))
import cases  # noqa: E402
import exact  # noqa: E402
import matrix  # noqa: E402

GOLDEN = ROOT / "golden"
RESULT = ROOT / "bench/results/amd-epyc-avx2-2threads/2026-11-18-matrix.json"
HEAD = """
import os, time
import numpy as np
from case import Case, Refused, by_step
PACKAGE = "numpy"
def angles(case, positions):
    return positions[:, None] * np.array(case.frequencies)
def half(x, cos, sin):
    a, b = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1).astype(np.float32)
def right(case):
    return lambda x, p: half(x, np.cos(angles(case, p)), np.sin(angles(case, p)))
"""


@pytest.fixture(scope="module")
def questions() -> list[cases.Question]:
    return [q for q in cases.plain_cases() if q.case.name == "plain_half_base10000"]


def run(folder: Path, questions: list[cases.Question], body: str, time_limit: float = 60.0) -> list[dict[str, Any]]:
    adapter = folder / "fake.py"
    adapter.write_text(HEAD + body, encoding="utf-8")
    result = matrix.run([Path(sys.executable)], [adapter], questions, time_limit, 2_000_000_000)
    assert result["missing"] == []
    rows: list[dict[str, Any]] = result["engines"] + result["failed_to_import"]
    return rows


def cell(folder: Path, questions: list[cases.Question], make: str, **limits: float) -> dict[str, Any]:
    (row,) = run(folder, questions, f"{make}\nVARIANTS = {{'': make}}\n", **limits)
    found: dict[str, Any] = row["cells"]["plain_half_base10000"]
    return found


def test_exact_values_are_those_of_the_golden_cases() -> None:
    compared = 0
    for question in cases.vector_cases(GOLDEN / "rope_apply"):
        case, window = question.case, question.windows["golden"]
        golden = json.loads((GOLDEN / "rope_apply" / case.name / "case.json").read_text(encoding="utf-8"))
        truth = golden["truth"].get("q_out_f64") or golden["truth"]["q_out_exact"]
        want = np.load(GOLDEN / "rope_apply" / case.name / truth["file"])
        if truth["dims"].index("head") == 1:
            want = want.swapaxes(1, 2)
        cos, sin = exact.cos_sin([question.exact(None)] * len(window.positions), window.positions)
        y = exact.rotated(window.x, cos, sin, case.layout)[:, case.head_dim : case.head_dim + window.queries]
        assert np.abs(y - want.reshape(y.shape)).max() < 2e-9, case.name
        compared += 1
    assert compared == 17


def test_a_right_engine_has_small_errors(tmp_path: Path, questions: list[cases.Question]) -> None:
    found = cell(tmp_path, questions, "make = right")
    assert found["layout"] == "half"
    for last in map(str, cases.LAST_POSITIONS):
        assert found[last]["cos_sin"] < 1e-7 and found[last]["vectors"] < 1e-6 and found[last]["scores"] < 1e-6
        assert found[last]["frequency"] < 1e-6 and found[last]["amplitude"] == pytest.approx(1.0, abs=1e-7)
        assert "frequencies" not in found[last]


def test_float32_angles_are_seen(tmp_path: Path, questions: list[cases.Question]) -> None:
    make = """
def make(case):
    def rotate(x, p):
        angle = p.astype(np.float32)[:, None] * np.array(case.frequencies, np.float32)
        return half(x, np.cos(angle), np.sin(angle))
    return rotate
"""
    found = cell(tmp_path, questions, make)
    errors = [found[str(last)]["cos_sin"] for last in cases.LAST_POSITIONS]
    assert errors[0] < 1e-6 and 1e-5 < errors[1] < 1e-3 and errors[1] < errors[2] < errors[3] < errors[4]
    frequencies = np.array(questions[0].exact(None)[0])
    rounded = np.float32(131071) * frequencies.astype(np.float32)
    assert found["131071"]["angle"] == pytest.approx(np.abs(rounded - 131071 * frequencies).max(), rel=1e-3)
    assert found["131071"]["frequency"] < 1e-6


def test_other_frequencies_amplitudes_and_layouts_are_seen(tmp_path: Path, questions: list[cases.Question]) -> None:
    rows = run(
        tmp_path,
        questions,
        """
from dataclasses import replace
def slower(case):
    return right(replace(case, frequencies=[f / 2 for f in case.frequencies]))
def louder(case):
    return lambda x, p: 1.25 * right(case)(x, p)
def backwards(case):
    return right(replace(case, frequencies=[-f for f in case.frequencies]))
def neighbours(case):
    order = np.arange(128).reshape(2, 64).T.ravel()
    return lambda x, p: right(case)(x[..., np.argsort(order)], p)[..., order]
VARIANTS = {"slower": slower, "louder": louder, "backwards": backwards, "neighbours": neighbours}
""",
    )
    slower, louder, backwards, neighbours = (row["cells"]["plain_half_base10000"] for row in rows)
    assert slower["7"]["frequency"] == pytest.approx(0.5) and slower["7"]["frequencies"][0] == pytest.approx(0.5)
    assert all(slower[str(last)]["frequencies"] == "7" for last in cases.LAST_POSITIONS[1:])  # listed once
    assert louder["7"]["amplitude"] == pytest.approx(1.25) and louder["7"]["frequency"] < 1e-6
    assert backwards["layout"] == "half, inverse" and "failed" in backwards["7"]
    assert neighbours["layout"] == "interleaved" and neighbours["16777215"]["cos_sin"] < 1e-7


@pytest.mark.parametrize(
    ("make", "word", "text"),
    [
        ("def make(case): raise Refused('no rope type default')", "refused", "no rope type default"),
        ("def make(case): raise KeyError('factor')", "failed", "KeyError: 'factor'"),
        ("def make(case): raise MemoryError", "failed", "out of memory"),
        ("def make(case): os.abort()", "failed", "crashed with signal 6"),
        ("def make(case): os._exit(3)", "failed", "ended with exit code 3"),
        ("def make(case): return lambda x, p: x[:1]", "failed", "shape [1, 132, 128] instead of [5, 132, 128]"),
        ("def make(case): return lambda x, p: np.zeros(1 << 33, np.uint8)", "failed", "out of memory"),
    ],
)
def test_what_goes_wrong_is_a_cell(
    tmp_path: Path, questions: list[cases.Question], make: str, word: str, text: str
) -> None:
    assert cell(tmp_path, questions, make) == {word: text}


def test_a_hang_is_a_cell(tmp_path: Path, questions: list[cases.Question]) -> None:
    found = cell(tmp_path, questions, "def make(case): time.sleep(1000)", time_limit=0.2)
    assert found == {"failed": "no answer after 0.2 s"}


def test_nan_is_a_cell(tmp_path: Path, questions: list[cases.Question]) -> None:
    make = "def make(case): return lambda x, p: np.where(p[:, None, None] > 5000, np.nan, right(case)(x, p))"
    found = cell(tmp_path, questions, make)
    assert found["4095"]["cos_sin"] < 1e-7
    assert found["131071"] == {"failed": "NaN or infinity"}


def test_a_crash_at_one_position_leaves_the_others(tmp_path: Path, questions: list[cases.Question]) -> None:
    make = """
def make(case):
    print("text of the engine")
    if case.context == 131072:
        os.abort()
    return right(case)
"""
    found = cell(tmp_path, questions, make)
    assert found["131071"] == {"failed": "crashed with signal 6"}
    assert found["1048575"]["cos_sin"] < 1e-7


def test_an_import_that_fails_is_a_row(tmp_path: Path, questions: list[cases.Question]) -> None:
    (row,) = run(tmp_path, questions, "raise OSError('libcuda.so.1: cannot open')\n")
    assert row["failed"] == "OSError: libcuda.so.1: cannot open" and "cells" not in row


def test_a_missing_package_is_named(tmp_path: Path, questions: list[cases.Question]) -> None:
    adapter = tmp_path / "nothing.py"
    adapter.write_text('PACKAGE = "no-such-engine"\n', encoding="utf-8")
    result = matrix.run([Path(sys.executable)], [adapter], questions, 60.0, 0)
    assert result["missing"] == ["no-such-engine"] and result["engines"] == []


def test_engines_of_before_are_kept() -> None:
    def result(*names: str) -> dict[str, Any]:
        rows = [{"name": name, "package": name, "cells": {f"of {names}": {}}} for name in names]
        return {"engines": rows, "failed_to_import": [], "missing": ["a", "z"], "cases": {}}

    joined = matrix.joined(result("a", "b"), result("b", "c"))
    assert [row["name"] for row in joined["engines"]] == ["a", "b", "c"] and joined["missing"] == ["z"]
    assert list(joined["engines"][1]["cells"]) == ["of ('a', 'b')", "of ('b', 'c')"]


def test_the_stored_result_is_written_as_it_was_read() -> None:
    text = RESULT.read_text(encoding="utf-8")
    assert matrix.as_text(json.loads(text)) == text


def test_the_page_has_the_stored_result() -> None:
    page = ROOT / "bench/matrix/page.py"
    done = subprocess.run([sys.executable, "-B", page, RESULT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
