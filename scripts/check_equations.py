#!/usr/bin/env python3
"""Checks docs/equations.md: every function and every test that it names is where it says.

A row is `| equation | what | function | test |`. The last two cells hold one or more entries of the form
`name` in `path`; a function must be declared or defined in its file, a test (suite.name) written in its file.
"""

import argparse
import pathlib
import re
import sys

ENTRY = re.compile(r"`([^`]+)` in `([^`]+)`")
HEADER = ["equation", "what", "function", "test"]


def rows(text):
    """Yields (line number, cells) of every row below a header of four columns."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if [cell.lower() for cell in cells] == HEADER:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            yield number, cells


def has_function(text, name):
    return re.search(rf"\b{re.escape(name.split('::')[-1])}\s*(<[^;{{}}]*>)?\(", text) is not None


def has_test(text, name):
    suite, _, case = name.partition(".")
    if not case:
        return False
    macro = r"\b(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)"
    return re.search(rf"{macro}\(\s*{re.escape(suite)}\s*,\s*{re.escape(case)}\b", text) is not None


def check(root, text):
    """Every problem as one line of text, and the number of rows."""
    problems = []
    count = 0
    for number, cells in rows(text):
        count += 1
        where = f"docs/equations.md:{number}"
        if len(cells) != len(HEADER):
            problems.append(f"{where}: row must have {len(HEADER)} cells, got {len(cells)}")
            continue
        for kind, cell, found in (("function", cells[2], has_function), ("test", cells[3], has_test)):
            entries = ENTRY.findall(cell)
            leftover = ENTRY.sub("", cell).strip(" ,;")
            if not entries or leftover:
                problems.append(f"{where}: {kind} must read `name` in `path`, got {cell or 'an empty cell'}")
            for name, path in entries:
                file = root / path
                if not file.is_file():
                    problems.append(f"{where}: {kind} {name}: no such file {path}")
                elif kind == "test" and not path.startswith("tests/"):
                    problems.append(f"{where}: test {name} must be under tests/, got {path}")
                elif not found(file.read_text(encoding="utf-8"), name):
                    problems.append(f"{where}: {kind} {name} not found in {path}")
    return problems, count


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    options = parser.parse_args(arguments)
    table = options.root / "docs" / "equations.md"
    if not table.is_file():
        print(f"check_equations: cannot open {table}: no such file", file=sys.stderr)
        return 2
    problems, count = check(options.root, table.read_text(encoding="utf-8"))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not count:
        print(f"check_equations: no table rows in {table}", file=sys.stderr)
        return 2
    print(f"check_equations: {count} rows, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
