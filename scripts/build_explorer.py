#!/usr/bin/env python3
"""Builds web/explorer.html: one file with page, style, script and engine, which opens from disk.

The page carries a hash of the sources it was built from; --check compares it with the sources of today,
without Emscripten or esbuild. The hash covers web/src, web/bridge, the pages of text of the command, and the
code of the rooms that the engine contains. Comments and spacing of C++ do not count: a page need not be built
again for them.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("core", "io", "encodings", "config", "attention", "porting")
MOST_BYTES = 2_000_000
HASH = re.compile(r'<meta name="phasor-sources" content="([0-9a-f]{64})" ?/?>')
CPP = {".cpp", ".hpp", ".h"}
# A string, a character or a comment of C++, whichever begins first.
TOKEN = re.compile(
    r'''R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n]){1,8}'|//[^\n]*|/\*.*?\*/''', re.DOTALL)
# Where packages of Debian put the libraries of the page.
LIBRARIES = "/usr/share/nodejs:/usr/share/javascript"
STYLE = '<link rel="stylesheet" href="style.css" />'
SCRIPT = '<script type="module" src="app.js"></script>'


class Problem(Exception):
    """The page cannot be built, or is out of date."""


def source_files(root):
    """The files that the page is made of, sorted by path."""
    folders = [root / "web/src", root / "web/bridge", root / "tools/phasor/pages"]
    folders += [root / top / room for room in ROOMS for top in ("include/phasor", "src")]
    files = [root / name for name in ("web/CMakeLists.txt", "cmake/wasm.cmake", "tools/phasor/text_lines.hpp")]
    for folder in folders:
        files += [path for path in folder.rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def without_comments(text):
    """C++ without comments and spacing, except in strings."""
    parts, end = [], 0
    for match in TOKEN.finditer(text):
        parts.append(" ".join(text[end:match.start()].split()))
        if not match.group().startswith("/"):
            parts.append(match.group())
        end = match.end()
    parts.append(" ".join(text[end:].split()))
    return " ".join(part for part in parts if part)


def contents(path):
    """The bytes of a source that its page depends on."""
    if path.suffix not in CPP:
        return path.read_bytes()
    return without_comments(path.read_text(encoding="utf-8")).encode()


def hash_of_sources(root):
    """One SHA-256 over the names and contents of all sources."""
    whole = hashlib.sha256()
    for path in source_files(root):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(contents(path)).digest())
    return whole.hexdigest()


def check(root):
    """Raises Problem unless web/explorer.html was built from the sources of today."""
    page = root / "web/explorer.html"
    if not page.is_file():
        raise Problem("web/explorer.html is missing. Run: ./dev web")
    found = HASH.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise Problem("web/explorer.html has no hash of its sources. Run: ./dev web")
    if found.group(1) != hash_of_sources(root):
        raise Problem("web/explorer.html is older than its sources. Run: ./dev web")


def bundled(source, *options):
    """The text that esbuild makes of one source."""
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "bundle"
        command = ["esbuild", os.fspath(source), "--bundle", "--minify", f"--outfile={target}"]
        command += ["--charset=utf8", "--log-level=warning", *options]
        environment = {**os.environ, "NODE_PATH": LIBRARIES}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise Problem(f"esbuild failed on {source}:\n{done.stderr.strip()}")
        return target.read_text(encoding="utf-8")


def replaced(page, mark, text):
    """The page with `mark`, which must occur once, replaced by `text`."""
    if page.count(mark) != 1:
        raise Problem(f"web/src/index.html must contain {mark} once, got {page.count(mark)}")
    return page.replace(mark, text)


def build(root, output):
    """Writes the page and returns its size in bytes."""
    source = root / "web/src"
    page = (source / "index.html").read_text(encoding="utf-8")
    style = bundled(source / "style.css", "--loader:.css=css")
    script = bundled(source / "app.js", "--format=esm", "--loader:.gz=binary")
    # An HTML parser ends the element at the first of these, wherever it is.
    script = script.replace("</script", "<\\/script")
    mark = f'<meta name="phasor-sources" content="{hash_of_sources(root)}" />'
    page = replaced(page, STYLE, f"{mark}\n<style>\n{style}</style>")
    page = replaced(page, SCRIPT, f'<script type="module">\n{script}</script>')
    size = len(page.encode())
    if size > MOST_BYTES:
        raise Problem(f"{output} must have at most {MOST_BYTES} bytes, got {size}")
    output.write_text(page, encoding="utf-8")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=pathlib.Path, help="write the page here instead of web/explorer.html")
    arguments = parser.parse_args()
    output = arguments.output or arguments.root / "web/explorer.html"
    try:
        if arguments.check:
            check(arguments.root)
        else:
            print(f"{output}: {build(arguments.root, output)} bytes")
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
