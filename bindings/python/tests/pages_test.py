"""Pages of docs: their Python lines run, and their commands print the lines that the page shows."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"(<!-- not run by the test[^\n]*-->\n)?```(python|console)\n(.*?)```\n", re.DOTALL)


def mismatch(shown: list[str], printed: list[str]) -> str | None:
    """The first line of `shown` that is not in its place in `printed`; `...` stands for lines or for a line's end."""
    at, anywhere = 0, False
    for line in shown:
        if line == "...":
            anywhere = True
            continue
        start = line.removesuffix("...")
        fits = [text == line or (start != line and text.startswith(start)) for text in printed[at:]]
        if True not in fits or (not anywhere and not fits[0]):
            return line
        at, anywhere = at + fits.index(True) + 1, False
    return None if anywhere or at == len(printed) else "the end"


def test_mismatch_sees_lines_that_differ_or_are_missing() -> None:
    assert mismatch(["a", "...", "c"], ["a", "b", "c"]) is None
    assert mismatch(["a", "c"], ["a", "b", "c"]) == "c"
    assert mismatch(["a", "...", "d"], ["a", "b", "c"]) == "d"
    assert mismatch(["a"], ["a", "b"]) == "the end"
    assert mismatch(["a", "..."], ["a", "b"]) is None
    assert mismatch(["a ..."], ["a lot"]) is None
    assert mismatch(["a ..."], ["b lot"]) == "a ..."


# Each page with the least number of blocks of Python and of commands that it must have.
@pytest.mark.skipif("PHASOR_COMMAND" not in os.environ, reason="needs the phasor command")
@pytest.mark.parametrize(("page", "blocks", "calls"), [("porting", 1, 26), ("encodings", 15, 0), ("choosing", 2, 1)])
def test_commands_print_what_the_page_shows(
    page: str, blocks: int, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "phasor").symlink_to(os.environ["PHASOR_COMMAND"])
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    names: dict[str, object] = {}
    ran = commands = 0
    for skipped, kind, text in BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        if skipped:
            continue
        if kind == "python":
            exec(text, names)  # noqa: S102  # lines of our own page
            ran += 1
            continue
        for call in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *shown = call.splitlines()
            done = subprocess.run(
                ["sh", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False
            )
            printed = (done.stdout + done.stderr).splitlines()
            wrong = mismatch(shown, printed)
            assert wrong is None, f"$ {command}\nexpected: {wrong}\ngot:\n" + "\n".join(printed)
            commands += 1
    assert ran >= blocks and commands >= calls


def test_the_moving_picture_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(DOCS.parent / "scripts" / "rotation_picture.py"))
    assert script["picture"]() == (DOCS / "figures" / "rotation.svg").read_text(encoding="utf-8")
