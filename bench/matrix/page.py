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
EXACT = 1e-7  # an error of cos or sin: one rounding to float32 is 3e-8
FLOAT32_ANGLES = 0.01  # at position 4095; beyond, the frequencies are other ones
# How an engine's errors grow, best first.
CLASSES = ("exact at every position", "angles of float32", "other frequencies")
MOST_LISTED = 8  # cases of one row; more are counted
RIGHT, OTHER, REFUSED, FAILED = "right", "other", "refused", "failed"
# Columns of the table of cases; a case belongs to the first that matches.
GROUPS = ("M-RoPE, text", "partial", "default", "linear", "dynamic", "llama3", "longrope", "proportional", "yarn")
WORDS = {
    "engine": "引擎",
    "version": "版本",
    "Python": "Python",
    "layouts": "布局",
    "errors": "误差",
    "engines": "引擎",
    "exact at every position": "任何位置都精确",
    "angles of float32": "float32 角度",
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
        if window.get(FAILED) == "out of memory" or REFUSED in window:
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


def class_of(cell: dict[str, Any]) -> str:
    errors = [cell[last]["cos_sin"] for last in LASTS if "cos_sin" in cell.get(last, {})]
    if max(errors) <= EXACT:
        return CLASSES[0]
    return CLASSES[1] if errors[0] < FLOAT32_ANGLES else CLASSES[2]


def by_class(result: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(class, engine, cell of plain RoPE), best class first."""
    found = [(class_of(cell), engine, cell) for engine in result["engines"] if (cell := plain_cell(engine))]
    return sorted(found, key=lambda row: CLASSES.index(row[0]))


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
    for _, engine, cell in by_class(result):
        row = [engine["name"]]
        for last in LASTS:
            row.append(", ".join(scientific(cell.get(last, {}).get(key)) for key in keys))
        rows.append(row)
    return ["engine", *LASTS], rows


def short_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for name in CLASSES:
        members = [(engine, cell) for word, engine, cell in by_class(result) if word == name]
        row = [name, "; ".join(engine["name"] for engine, _ in members)]
        for last in LASTS:
            errors = [cell[last]["cos_sin"] for _, cell in members if "cos_sin" in cell.get(last, {})]
            texts = sorted({scientific(min(errors)), scientific(max(errors))}, key=float)
            row.append(" .. ".join(texts))
        rows.append(row)
    return ["errors", "engines", *LASTS], rows


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
            rows.append([engine["name"], why if why in WORDS else "`" + why.replace("`", "'") + "`", listed])
    return ["engine", "what happened", "cases"], rows


def tables(result: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    return {
        "in short": short_table(result),
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


def missing_text(window: dict[str, Any]) -> str:
    return "no memory" if window.get(FAILED) == "out of memory" else "not run"


def draw_errors(axes: Any, rows: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    import numpy as np

    values = np.array([[cell.get(last, {}).get("cos_sin", np.nan) for last in LASTS] for *_, cell in rows], float)
    axes.imshow(np.log10(values), aspect="auto", cmap="cividis_r", vmin=-8, vmax=0.5)
    for (y, x), value in np.ndenumerate(values):
        if np.isnan(value):
            text, colour = missing_text(rows[y][2].get(LASTS[x], {})), "black"
        else:
            text, colour = f"{value:.0e}", "white" if value > 1e-5 else "black"
        axes.text(x, y, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(len(LASTS)), [f"{int(last):,}" for last in LASTS], fontsize=8.5)
    axes.set_yticks(range(len(rows)), [engine["name"] for _, engine, _ in rows])
    axes.set_title("largest error of cos and sin up to a position\n(yellow: exact; dark blue: points anywhere)")


def draw_cases(axes: Any, result: dict[str, Any], rows: list[Any], colours: dict[str, str]) -> None:
    for y, (_, engine, _) in enumerate(rows):
        if not asked_all(result, engine):
            axes.text(-0.45, y, "asked for plain RoPE only", va="center", fontsize=9)
            continue
        counts = counted(result, engine)
        for x, group in enumerate(GROUPS):
            start, total = x - 0.45, sum(counts[group].values())
            for word in colours:
                width = 0.9 * counts[group][word] / total
                axes.barh(y, width, left=start, height=0.8, color=colours[word])
                start += width
    axes.set_xticks(range(len(GROUPS)), GROUPS, rotation=20, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.6, len(GROUPS) - 0.4)
    axes.set_title("golden cases by rope type:\nhow many have the frequencies of the config")


def draw(result: dict[str, Any], folder: Path) -> None:
    """Left: the error of cos and sin by position, best engines first; right: the rope types that an engine has."""
    from phasor.plot.style import PALETTE, new_figure, save, styled

    rows = by_class(result)
    colours = {RIGHT: PALETTE[3], OTHER: PALETTE[1], FAILED: PALETTE[4], REFUSED: "#E0E0E0"}

    @styled
    def figure() -> Any:
        made = new_figure(13.0, 2.2 + 0.34 * len(rows))
        left, right = made.subplots(1, 2, sharey=True, width_ratios=(1, 1.4))
        draw_errors(left, rows)
        draw_cases(right, result, rows, colours)
        handles = [right.barh(0, 0, color=colour) for colour in colours.values()]
        words = ("same frequencies", "other frequencies or amplitude", "an error", "not supported")
        made.legend(handles, words, loc="outside lower right", ncols=4)
        for axes in (left, right):
            axes.tick_params(length=0)
            for spine in axes.spines.values():
                spine.set_visible(False)
            for y in range(1, len(rows)):  # a line between the classes of errors
                if rows[y][0] != rows[y - 1][0]:
                    axes.axhline(y - 0.5, color="black", linewidth=1.0)
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
