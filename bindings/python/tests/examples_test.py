"""examples/python: every file runs, and prints the line that it is there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import phasor

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"

KEY_LINES = {
    "five_minutes.py": (r"score at positions 7 and 3: (-?\d+\.\d+); a million later: \1$", r"refused: .*rotary_dim"),
    "port_a_llama.py": (
        r"converted together: +largest difference \d\.\de-0[5-9]",
        r"layout forgotten: +largest difference \d\.\de[-+]0[012]",
        r"diagnose: .*layout: half",
    ),
    "diagnose_a_broken_port.py": (
        r"^right +agrees with the config",
        r"neighbouring features +.*layout: half .*interleaved",
        r"never read the base +.*500000.*10000",
    ),
    "extend_a_context.py": (
        r"^linear +0 ",
        r"YaRN, pasted: \d+ of 64 pairs untouched, amplitude 1\.1386",
        r"dynamic NTK at  4096: .* 1\.000 times",
    ),
    "check_the_theory.py": (r"^\(16\) .* \S+$", r"^theorem 3 .* \S+$", r"^every claim holds$"),
    "compare_encodings.py": (r"^none +0\.3", r"^ALiBi +0\.0", r"linear attention with RoPE: 384 tokens"),
}


def run(name: str, *arguments: str) -> str:
    # The example must find the package that is being tested, wherever pytest found it.
    environment = os.environ | {"PYTHONPATH": str(Path(phasor.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_has_a_key_line() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(KEY_LINES)


@pytest.mark.parametrize("name", KEY_LINES)
def test_example_prints_what_it_shows(name: str) -> None:
    said = run(name)
    for line in KEY_LINES[name]:
        assert re.search(line, said, re.MULTILINE), f"{line!r} must be printed, got\n{said}"


@pytest.mark.parametrize(
    ("name", "figure"), [("extend_a_context.py", "wavelengths"), ("compare_encodings.py", "attention_maps")]
)
def test_example_writes_figures_where_it_is_told(name: str, figure: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(name, str(tmp_path / "figures"))
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [f"{figure}.png", f"{figure}.svg"]
