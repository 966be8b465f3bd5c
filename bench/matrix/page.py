"""Writes the tables and the figure of docs/engines.md and docs/engines.zh.md from a result of matrix.py.

    PYTHONPATH=build/release/python python bench/matrix/page.py RESULT.json [--check]

A table is between `<!-- NAME -->` and `<!-- end of NAME -->`; the text around it is written by hand. --check writes
nothing and fails if a table is out of date. The figure needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Optional

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
LASTS = ("4095", "131071", "1048575", "16777215")
SAME_FREQUENCY, SAME_AMPLITUDE = 1e-4, 1e-5
MOST_LISTED = 8  # cases of one row; more are counted
RIGHT, OTHER, REFUSED, FAILED = "right", "other", "refused", "failed"
# Columns of the table of cases; a case belongs to the first that matches.
GROUPS = ("M-RoPE, text", "partial", "default", "linear", "dynamic", "llama3", "longrope", "proportional", "yarn")
WORDS = {
    "engine": "引擎",
    "version": "版本",
    "Python": "Python",
    "layouts": "布局",
    "position": "位置",
    "what happened": "结果",
    "cases": "用例数",
    "no": "不支持",
    "-": "-",
    "partial": "部分旋转",
    "M-RoPE, text": "M-RoPE，文本",
    "other frequencies": "频率不同",
    "other amplitude": "幅度不同",
}


def group_of(name: str, case: dict[str, Any]) -> str:
    if name.startswith("mrope"):
        return "M-RoPE, text"
    if case["rope_type"] == "default" and case["rotary_dim"] < case["head_dim"]:
        return "partial"
    return str(case["rope_type"])


def amplitude_of(case: str, result: dict[str, Any]) -> float:
    """The exact amplitude: that of Phasor's row, which a test holds to the golden cases."""
    for engine in result["engines"]:
        if engine["package"] == "phasor":
            return float(engine["cells"][case]["7"]["amplitude"])
    raise SystemExit("page: the result has no row of phasor")


def verdict(cell: dict[str, Any], amplitude: float) -> tuple[str, str]:
    """What an engine did with a case, up to position 131071: right, or why not."""
    for word in (REFUSED, FAILED):
        if word in cell:
            return word, cell[word]
    for last in ("7", "4095", "131071"):
        window = cell[last]
        if window.get(FAILED) == "out of memory":
            break
        if FAILED in window:
            return FAILED, f"{window[FAILED]} at {last}"
        if window["frequency"] > SAME_FREQUENCY:
            return OTHER, "other frequencies"
        if not math.isclose(window["amplitude"], amplitude, rel_tol=SAME_AMPLITUDE):
            return OTHER, "other amplitude"
    return RIGHT, ""


def plain_cell(engine: dict[str, Any]) -> Optional[dict[str, Any]]:
    """Plain RoPE with base 500000; in layout half, if the engine has it."""
    cells = [form_of(engine, f"plain_{layout}_base500000") for layout in ("half", "interleaved")]
    return next((cell for cell in cells if "layout" in cell), None)


def layouts_of(engine: dict[str, Any]) -> list[str]:
    found = {cell["layout"] for cell in engine["cells"].values() if "layout" in cell}
    return sorted(found - {"unknown"})


def scientific(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.1e}"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def errors_table(result: dict[str, Any], keys: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for engine in result["engines"]:
        cell = plain_cell(engine)
        if cell is None:
            continue
        row = [engine["name"]]
        for last in LASTS:
            row.append(", ".join(scientific(cell.get(last, {}).get(key)) for key in keys))
        rows.append(row)
    return ["engine", *LASTS], rows


def engines_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [engine["name"], f"`bench/matrix/adapters/{engine['adapter']}.py`", ", ".join(layouts_of(engine))]
        for engine in result["engines"]
    ]
    return ["engine", "adapter", "layouts"], rows


def counted(result: dict[str, Any], engine: dict[str, Any]) -> dict[str, Counter[str]]:
    """group -> how many cases are right, other, refused, failed."""
    found: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    for name, case in result["cases"].items():
        if case["kind"] == "frequencies":
            word, _ = verdict(form_of(engine, name), amplitude_of(name, result))
            found[group_of(name, case)][word] += 1
    return found


def asked_all(result: dict[str, Any], engine: dict[str, Any]) -> bool:
    """Whether an engine was run over all cases; some variants were run over the plain ones only."""
    return set(result["cases"]) <= {name.removesuffix(", older form") for name in engine["cells"]}


def form_of(engine: dict[str, Any], name: str) -> dict[str, Any]:
    """The cell of a case; for transformers 4, which reads the older form of a config, that of this form."""
    older = f"{name}, older form"
    if engine["package"] == "transformers" and engine["version"].startswith("4") and older in engine["cells"]:
        name = older
    cell: dict[str, Any] = engine["cells"].get(name, {REFUSED: "not asked"})
    return cell


def cases_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for engine in result["engines"]:
        if not asked_all(result, engine):
            continue
        counts = counted(result, engine)
        row = [engine["name"]]
        for group in GROUPS:
            right, total = counts[group][RIGHT], sum(counts[group].values())
            none = counts[group][REFUSED] + counts[group][FAILED] == total
            row.append("no" if none else f"{right}/{total}")
        rows.append(row)
    return ["engine", *GROUPS], rows


def differences_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for engine in filter(lambda engine: asked_all(result, engine), result["engines"]):
        found: dict[str, list[str]] = {}
        for name, case in result["cases"].items():
            if case["kind"] == "frequencies":
                word, why = verdict(form_of(engine, name), amplitude_of(name, result))
                if word in (OTHER, FAILED):
                    found.setdefault(why, []).append(f"`{name}`")
        for why, names in found.items():
            listed = ", ".join(names) if len(names) <= MOST_LISTED else str(len(names))
            rows.append([engine["name"], why if why in WORDS else f"`{why}`", listed])
    return ["engine", "what happened", "cases"], rows


def tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    return {
        "engines": engines_table(result),
        "cos and sin": errors_table(result, ("cos_sin",)),
        "vectors and scores": errors_table(result, ("vectors", "scores")),
        "cases": cases_table(result),
        "differences": differences_table(result),
    }


def translated(cells: list[str]) -> list[str]:
    return [WORDS.get(cell, cell) for cell in cells]


def with_tables(text: str, found: dict[str, tuple[list[str], list[list[str]]]], chinese: bool) -> str:
    for name, (header, rows) in found.items():
        if chinese:
            header, rows = translated(header), [translated(row) for row in rows]
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text, times = pattern.subn(lambda m: m[1] + table(header, rows) + "\n" + m[2], text)
        if times != 1:
            raise SystemExit(f"page: the document must contain the table {name} once, found {times}")
    return text


def draw(result: dict[str, Any], folder: Path) -> None:
    """Left: the error of cos and sin by position; right: the rope types that an engine has."""
    import numpy as np
    from phasor.plot.style import PALETTE, new_figure, save, styled

    rows = [engine for engine in result["engines"] if plain_cell(engine) is not None]
    colours = {RIGHT: PALETTE[3], OTHER: PALETTE[1], FAILED: PALETTE[4], REFUSED: "#E0E0E0"}

    @styled
    def figure() -> Any:
        made = new_figure(13.0, 1.6 + 0.34 * len(rows))
        left, right = made.subplots(1, 2, sharey=True, width_ratios=(1, 1.5))
        values = np.array(
            [[(plain_cell(e) or {}).get(last, {}).get("cos_sin", np.nan) for last in LASTS] for e in rows], float
        )
        left.imshow(np.log10(values), aspect="auto", cmap="cividis_r", vmin=-8, vmax=0.5)
        for (y, x), value in np.ndenumerate(values):
            dark = value > 1e-5
            text = "no memory" if np.isnan(value) else f"{value:.0e}"
            left.text(x, y, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
        left.set_xticks(range(4), [f"{int(last):,}" for last in LASTS], fontsize=9)
        left.set_yticks(range(len(rows)), [e["name"] for e in rows])
        left.set_title("largest error of cos and sin at a position")
        for y, engine in enumerate(rows):
            if not asked_all(result, engine):
                continue
            counts = counted(result, engine)
            for x, group in enumerate(GROUPS):
                start, total = x - 0.45, sum(counts[group].values())
                for word in (RIGHT, OTHER, FAILED, REFUSED):
                    width = 0.9 * counts[group][word] / total
                    right.barh(y, width, left=start, height=0.8, color=colours[word], label=None)
                    start += width
        right.set_xticks(range(len(GROUPS)), GROUPS, rotation=20, ha="right")
        right.set_xlim(-0.6, len(GROUPS) - 0.4)
        right.set_title("golden cases by rope type")
        handles = [right.barh(0, 0, color=colours[word]) for word in (RIGHT, OTHER, FAILED, REFUSED)]
        words = ("same frequencies", "other frequencies or amplitude", "an error", "not supported")
        made.legend(handles, words, loc="outside lower right", ncols=4)
        for axes in (left, right):
            axes.tick_params(length=0)
            for spine in axes.spines.values():
                spine.set_visible(False)
        return made

    save(figure(), folder / "engines.svg", folder / "engines.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="the tables and the figure of docs/engines.md")
    parser.add_argument("result", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is out of date")
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    found = tables(result)
    for name in ("engines.md", "engines.zh.md"):
        before = (DOCS / name).read_text(encoding="utf-8")
        after = with_tables(before, found, chinese=".zh." in name)
        if arguments.check and before != after:
            sys.exit(f"page: docs/{name} is out of date; run: bench/matrix/page.py {arguments.result}")
        if not arguments.check:
            (DOCS / name).write_text(after, encoding="utf-8")
    if not arguments.check:
        draw(result, DOCS / "figures")


if __name__ == "__main__":
    main()
