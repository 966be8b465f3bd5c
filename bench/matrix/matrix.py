"""What each engine computes: every adapter over the RoPE cases, against exact values.

    python bench/matrix/matrix.py VENV... [--only transformers mlx] [--cases 'plain*'] [-o build/matrix.json]

Each VENV is a Python environment; an adapter runs in every one that has its package, once per version. Each runs in a
process of its own, so that a crash, a hang or an error is a cell of the result. bench/matrix/page.py makes
docs/engines.md of the result.
"""

from __future__ import annotations

import argparse
import ast
import copy
import datetime
import fnmatch
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import numpy as np

from cases import Question, all_cases
from exact import compared, cos_sin, layout_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
START_LIMIT = 600.0  # seconds for importing an engine
VERSIONS = """
import importlib, importlib.metadata, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = name.replace("-", "_")
        if importlib.util.find_spec(module):
            found[name] = importlib.import_module(module).__version__
print(json.dumps(found))
"""


def say(text: str) -> None:
    print(f"matrix: {text}", file=sys.stderr, flush=True)


class Child:
    """A process that runs one adapter. It is started again after it ended or was stopped."""

    def __init__(self, python: Path, adapter: Path, time_limit: float, memory: int):
        self.command = [str(python), "-B", str(HERE / "child.py"), str(adapter), "--memory", str(memory)]
        self.time_limit = time_limit
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.buffer = b""

    def start(self) -> dict[str, Any]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.buffer = b""
        return self.read(START_LIMIT)

    def read(self, limit: float) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        out = self.process.stdout.fileno()
        end = datetime.datetime.now() + datetime.timedelta(seconds=limit)
        while b"\n" not in self.buffer:
            left = (end - datetime.datetime.now()).total_seconds()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self.stop()
                return {"failed": f"no answer after {limit:g} s"}
            part = os.read(out, 65536)
            if not part:
                code = self.process.wait()
                self.process = None
                return {"failed": f"crashed with signal {-code}" if code < 0 else f"ended with exit code {code}"}
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        if self.process is None and "failed" in (answer := self.start()):
            return answer
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read() says how it ended
        return self.read(self.time_limit)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def cell(child: Child, engine: dict[str, Any], question: Question, config: dict[str, Any]) -> dict[str, Any]:
    """One engine, one case: its layout and the errors of each window, or what went wrong."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "input.npz", Path(folder) / "output.npy"
        for name, window in question.windows.items():
            context = int(window.positions.max()) + 1
            frequencies, amplitude = question.exact(context)
            case = replace(
                question.case, config=config, context=context, frequencies=frequencies, amplitude=amplitude
            )
            np.savez(source, x=window.x, positions=window.positions)
            task = {"variant": engine["variant"], "case": case.to_json(), "input": str(source), "output": str(output)}
            answer = child.ask(task)
            if "done" not in answer:
                if not result:
                    return answer  # the first, shortest window: the others would fail alike
                result[name] = answer
                continue
            y = np.load(output)
            each = [
                question.exact(int(p) + 1) if engine["by_step"] else (frequencies, amplitude) for p in window.positions
            ]
            if not result:
                token = int(np.flatnonzero(window.positions)[0])
                sine = float(cos_sin(each, window.positions)[1][token, 0])
                result["layout"] = layout_of(y[token], len(frequencies), sine)
            result[name] = compared(case, window, each, y, result["layout"])
            if answer["rows_only"]:
                result[name]["rows_only"] = True
    return without_repeats(result)


def without_repeats(cell: dict[str, Any]) -> dict[str, Any]:
    """Frequencies that a window shares with one before it are the name of that window."""
    seen: dict[str, str] = {}
    for name, window in cell.items():
        if isinstance(window, dict) and isinstance(window.get("frequencies"), list):
            first = seen.setdefault(json.dumps(window["frequencies"]), name)
            if first != name:
                window["frequencies"] = first
    return cell


def measured(child: Child, about: dict[str, Any], questions: list[Question], variants: str) -> list[dict[str, Any]]:
    """The rows of one adapter in one environment."""
    started = child.start()
    if "failed" in started:
        return [about | started]
    rows = []
    for variant in fnmatch.filter(started["variants"], variants):
        name = f"{about['package']} {about['version']}" + (f", {variant}" if variant else "")
        engine = {"name": name} | about | {"variant": variant} | started
        del engine["variants"], engine["tables_given"]
        engine["tables_given"] = variant in started["tables_given"]
        cells = {}
        for question in questions:
            cells[question.case.name] = cell(child, engine, question, question.case.config)
            if engine["reads_config"] and question.older is not None:
                cells[question.case.name + ", older form"] = cell(child, engine, question, question.older)
        rows.append(engine | {"cells": cells})
        say(f"{name}: {sum('layout' in c for c in cells.values())} of {len(cells)} cases")
    child.stop()
    return rows


def package_of(adapter: Path) -> str:
    for node in ast.parse(adapter.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "PACKAGE" for t in node.targets):
            return str(ast.literal_eval(node.value))
    raise SystemExit(f"matrix: {adapter}: PACKAGE is missing")


def versions_in(python: Path, packages: list[str]) -> dict[str, str]:
    # Python -c looks for modules in its folder: one of the user's may have a folder named like an engine.
    command = [str(python.absolute()), "-c", VERSIONS, *packages]
    out = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if out.returncode != 0:
        lines = out.stderr.strip().splitlines() or ["no message"]
        raise SystemExit(f"matrix: {python} cannot list its packages, exit code {out.returncode}: {lines[-1]}")
    found: dict[str, str] = json.loads(out.stdout)
    return found


def run(
    pythons: list[Path],
    adapters: list[Path],
    questions: list[Question],
    time_limit: float,
    memory: int,
    variants: str = "*",
) -> dict[str, Any]:
    packages = {adapter: package_of(adapter) for adapter in adapters}
    rows: list[dict[str, Any]] = []
    seen = set()
    for python in pythons:
        found = versions_in(python, sorted(set(packages.values())))
        for adapter, package in packages.items():
            key = (adapter.stem, found.get(package))
            if package not in found or key in seen:
                continue
            seen.add(key)
            say(f"running {package} {found[package]} of {python}")
            about = {"adapter": adapter.stem, "package": package, "version": found[package]}
            rows += measured(Child(python, adapter, time_limit, memory), about, questions, variants)
    missing = sorted({package for adapter, package in packages.items() if adapter.stem not in {key[0] for key in seen}})
    if missing:
        say(f"skipped, in none of the environments: {', '.join(missing)}")
    for row in rows:
        if "cells" not in row:
            say(f"skipped, cannot be imported: {row['package']} {row['version']}: {row['failed']}")
    return {
        "format": 1,
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "cases": {q.case.name: described(q) for q in questions},
        "engines": [row for row in rows if "cells" in row],
        "failed_to_import": [row for row in rows if "cells" not in row],
        "missing": missing,
    }


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The result of now, and the engines and cases of before that were not run now."""
    old = {row["name"]: row for row in before["engines"]}
    for row in now["engines"]:
        row["cells"] = old.pop(row["name"], {"cells": {}})["cells"] | row["cells"]
    now["engines"] = [*old.values(), *now["engines"]]
    run_now = {row["package"] for row in now["engines"] + now["failed_to_import"]}
    now["failed_to_import"] += [row for row in before["failed_to_import"] if row["package"] not in run_now]
    known = {row["package"] for part in ("engines", "failed_to_import") for row in now[part]}
    now["missing"] = [package for package in now["missing"] if package not in known]
    now["cases"] = before["cases"] | now["cases"]
    return now


def as_text(result: dict[str, Any]) -> str:
    """JSON with a line for each case and each cell."""

    def block(members: dict[str, Any]) -> str:
        return ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())

    rows = []
    for engine in result["engines"]:
        about = json.dumps({key: value for key, value in engine.items() if key != "cells"})
        rows.append(f'{about[:-1]}, "cells": {{\n{block(engine["cells"])}}}}}')
    rest = block({key: value for key, value in result.items() if key not in ("cases", "engines")})
    cases = block(result["cases"])
    return f'{{\n{rest},\n "cases": {{\n{cases}}},\n "engines": [\n{",".join(rows)}]}}\n'


def described(question: Question) -> dict[str, Any]:
    case = question.case
    rope = copy.deepcopy(case.rope)
    return {
        "kind": question.kind,
        "layout": case.layout,
        "head_dim": case.head_dim,
        "rotary_dim": case.rotary_dim,
        "rope_type": rope["rope_type"],
        "layer_type": case.layer_type,
        "config": case.config,
        "older_config": question.older,
    }


def shown(result: dict[str, Any]) -> str:
    """Largest error of cos and sin of plain RoPE with base 500000, in the layout that the engine has."""
    lasts = ("4095", "131071", "1048575", "16777215")
    lines = [f"{'largest error of cos and sin at':58}" + "".join(f"{last:>12}" for last in lasts)]
    for engine in result["engines"]:
        form = ", older form" if engine["package"] == "transformers" and engine["version"].startswith("4") else ""
        cells = [engine["cells"].get(f"plain_{layout}_base500000{form}", {}) for layout in ("half", "interleaved")]
        good = next((c for c in cells if "layout" in c), None)
        if good is None:
            lines.append(f"{engine['name']:58}  {cells[0].get('refused', cells[0].get('failed', 'not asked'))}")
            continue
        errors = [good.get(last, {}).get("cos_sin") for last in lasts]
        lines.append(f"{engine['name']:58}" + "".join("           -" if e is None else f"{e:12.1e}" for e in errors))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="every engine over the RoPE cases, against exact values")
    parser.add_argument("environments", type=Path, nargs="*", metavar="VENV")
    parser.add_argument("--only", nargs="+", metavar="ADAPTER", help="adapters to run (default: all)")
    parser.add_argument("--cases", default="*", help="cases whose names match (* any text)")
    parser.add_argument("--variants", default="*", help="variants of adapters whose labels match; '' is the plain one")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one call of an engine")
    parser.add_argument("--memory-limit", type=float, default=4.0, help="GB that an engine may allocate")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/matrix.json")
    kept = "keep the engines and cases of the output that are not run again"
    parser.add_argument("--add", action="store_true", help=kept)
    arguments = parser.parse_args()
    adapters = {path.stem: path for path in sorted((HERE / "adapters").glob("*.py"))}
    for name in arguments.only or ():
        if name not in adapters:
            parser.error(f"unknown adapter {name}; must be one of: {', '.join(adapters)}")
    pythons = [Path(sys.executable)]
    for environment in arguments.environments:
        python = environment / "bin/python"
        if not os.access(python, os.X_OK):
            parser.error(f"not a Python environment: {environment}")
        pythons.append(python)
    questions = [q for q in all_cases(ROOT / "golden") if fnmatch.fnmatch(q.case.name, arguments.cases)]
    if not questions:
        parser.error(f"no case matches {arguments.cases}")
    chosen = [adapters[name] for name in arguments.only or adapters]
    memory = int(arguments.memory_limit * 1e9)
    result = run(pythons, chosen, questions, arguments.time_limit, memory, arguments.variants)
    if arguments.add and arguments.output.exists():
        result = joined(json.loads(arguments.output.read_text()), result)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(as_text(result), encoding="utf-8")
    print(shown(result))
    say(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
