#!/usr/bin/env python3
"""Fails on an #include of a room that layers.toml does not allow."""

import argparse
import pathlib
import re
import sys
import tomllib

SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp"}
SKIPPED_EXAMPLES = "consumer"  # a project of its own that sees only the installed headers
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def includes(text):
    """Yields (line number, quote, target) of each #include outside comments."""
    text = BLOCK_COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


class Layers:
    def __init__(self, root, table):
        self.root = root
        self.rooms = table["rooms"]
        self.top_headers = table["top_headers"]
        self.everywhere = set(table["everywhere"]["headers"])
        self.include_roots = table["include_roots"]
        self.edges = set(table["edges"]["folders"])
        self.shared_edges = set(table["edges"]["shared"])
        self.implements = table.get("implements", {})
        self.kernels = table["kernels"]
        self.private = table.get("private", {})
        self.compiled_once = table.get("compiled_once", {})
        self.shared_tests = set(table["tests"]["shared"])
        for room, below in self.rooms.items():
            for other in below:
                if other not in self.rooms:
                    raise ValueError(f"layers.toml: unknown room {other} under {room}")
                if room in self.rooms[other]:
                    raise ValueError(f"layers.toml: cycle between {room} and {other}")

    def resolve(self, file, target):
        """The path inside the project that an include names, or None for other headers."""
        for folder in [file.parent, *(self.root / include_root for include_root in self.include_roots)]:
            path = (folder / target).resolve()
            if path.is_file() and path.is_relative_to(self.root):
                return path.relative_to(self.root)
        return None

    def place(self, path):
        """(kind, name): ("room", "core"), ("top", "phasor.h"), ("test", "core"), ("edge", "tools")."""
        parts = path.parts
        if parts[:2] == ("include", "phasor"):
            return ("top", parts[2]) if len(parts) == 3 else ("room", parts[2])
        if parts[0] == "src":
            return ("room", parts[1])
        if parts[0] == "tests":
            return ("test", parts[1])
        return ("edge", parts[0])

    def allowed(self, source, target):
        kind, name = source
        target_kind, target_name = target
        if target_kind == "test":
            # Tests use the helpers of their own room's tests and of those below.
            return kind == "test" and target_name in self.shared_tests | {name} | set(self.rooms.get(name, []))
        if target_kind == "edge":
            return kind in ("edge", "test") and target_name in self.shared_edges | {name}
        if kind == "edge" or (kind == "test" and name not in self.rooms):
            return True  # tools, examples and tests of the tools may use any room
        if target_kind == "top" and target_name in self.everywhere:
            return True
        if target_kind == "top" and kind == "top":
            return target_name in self.top_headers[name]
        if target_kind == "top":
            return target_name in self.implements.get(name, []) or (kind == "test" and name in self.implements)
        below = self.top_headers[name] if kind == "top" else self.rooms[name] + [name]
        return target_name in below

    def may_see(self, path, found):
        """A header of src/ belongs to its room: the room itself, its tests and the files listed as exceptions see it."""
        if found.parts[0] != "src":
            return True
        kind, name = self.place(path)
        return (kind in ("room", "test") and name == found.parts[1]) or str(path) in self.private.get("exceptions", [])

    def is_installed(self, path):
        return path.parts[:2] == ("include", "phasor") and "internal" not in path.parts

    def is_kernel(self, path):
        return any(path.is_relative_to(folder) for folder in self.kernels["folders"])

    def check_file(self, path):
        file = self.root / path
        source = self.place(path)
        if source[0] == "room" and source[1] not in self.rooms:
            return [f"{path}: unknown room {source[1]}; add it to layers.toml"]
        if source[0] == "top" and source[1] not in self.top_headers:
            return [f"{path}: unknown top header {source[1]}; add it to layers.toml"]
        in_kernels = self.is_kernel(path)
        problems = []
        for line, quote, target in includes(file.read_text(encoding="utf-8")):
            found = self.resolve(file, target)
            where = f"{path}:{line}"
            if found is None:
                if quote == '"' or target.startswith("phasor/"):
                    problems.append(f"{where}: no such file in the project: {target}")
                elif str(path) not in self.compiled_once.get(target.split("/")[0], [str(path)]):
                    only = ", ".join(self.compiled_once[target.split("/")[0]])
                    problems.append(f"{where}: only {only} may include this header, got <{target}>")
                elif in_kernels and target not in self.kernels["allowed"]:
                    problems.append(f"{where}: a kernel must include no standard template, got <{target}>")
                elif source in (("top", "phasor.h"), ("room", "c")) and target not in ("stdint.h", "stddef.h"):
                    problems.append(f"{where}: the C API must include stdint.h, stddef.h and phasor/export.h only, "
                                    f"got <{target}>")
                continue
            if in_kernels and not self.is_kernel(found):
                problems.append(f"{where}: a kernel must include kernel headers only, got {found}")
            elif not self.allowed(source, self.place(found)):
                problems.append(f"{where}: {source[1]} must include only rooms below it, got {found}")
            elif not self.may_see(path, found):
                problems.append(f"{where}: {found} is private; include a header of include/phasor/{found.parts[1]}")
            elif self.is_installed(path) and not self.is_installed(found):
                problems.append(f"{where}: an installed header must not include {found}, which is not installed")
        return problems

    def reached(self, path, seen):
        """Adds to `seen` every file of the project that a file includes, directly or through others."""
        for _, _, target in includes((self.root / path).read_text(encoding="utf-8")):
            found = self.resolve(self.root / path, target)
            if found is not None and found not in seen:
                seen.add(found)
                self.reached(found, seen)
        return seen

    def check_reach(self, path):
        """A top header pulls in the rooms of its row and of the top headers in it, whatever those include."""
        kind, name = self.place(path)
        if kind != "top" or name not in self.top_headers:
            return []
        rooms = set(self.top_headers[name])
        while True:
            more = {room for top in rooms & self.top_headers.keys() for room in self.top_headers[top]} - rooms
            if not more:
                break
            rooms |= more
        direct = {self.resolve(self.root / path, target) for _, _, target in
                  includes((self.root / path).read_text(encoding="utf-8"))}
        return [f"{path}: must not pull in the room {self.place(found)[1]}, got {found}"
                for found in sorted(self.reached(path, set()) - direct)
                if self.place(found)[0] == "room" and self.place(found)[1] not in rooms]

    def files(self):
        for folder in ["include", "src", "tests", *sorted(self.edges)]:
            for file in sorted((self.root / folder).rglob("*")):
                path = file.relative_to(self.root)
                if file.suffix in SUFFIXES and SKIPPED_EXAMPLES not in path.parts:
                    yield path


def check(root, table):
    """Every problem as one line of text, and the number of files read."""
    layers = Layers(root.resolve(), table)
    paths = list(layers.files())
    return [problem for path in paths for problem in layers.check_file(path) + layers.check_reach(path)], len(paths)


def main(arguments=None):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=here.parent)
    parser.add_argument("--table", type=pathlib.Path, default=here / "layers.toml")
    options = parser.parse_args(arguments)
    with options.table.open("rb") as file:
        table = tomllib.load(file)
    problems, count = check(options.root, table)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not count:
        print(f"check_layers: no sources in {options.root}", file=sys.stderr)
        return 2
    print(f"check_layers: {count} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
