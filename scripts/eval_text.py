#!/usr/bin/env python3
"""Writes the English text that docs/ evaluates models on: prose of The Debian Administrator's Handbook.

    python3 scripts/eval_text.py OUT.txt [--bytes N] [--package FILE.deb | --folder HTML]

The book (Raphaël Hertzog and Roland Mas; CC BY-SA 3.0 or GPL 2+) is the Debian package debian-handbook, fetched here
with `apt-get download` unless a package file or its unpacked folder html/en-US is given. Headings and paragraphs are taken in
the book's order, one to a line, commands and listings left out; the text ends with the paragraph that reaches N bytes.
Prints what it wrote: bytes and SHA-256. The same package gives the same file.
"""
import argparse
import hashlib
import html.parser
import os
import pathlib
import subprocess
import sys
import tempfile

PACKAGE = "debian-handbook"
FOLDER = "usr/share/doc/debian-handbook/html/en-US"
FIRST_PAGE = "preface.html"
DEFAULT_BYTES = 160_000  # some 35000 tokens of a byte-level BPE


class Page(html.parser.HTMLParser):
    """Headings and paragraphs of one page, and the page that follows it."""

    SKIPPED = {"pre", "table", "script"}

    def __init__(self):
        super().__init__()
        self.next_page = None
        self.paragraphs = []
        self._open = []  # (tag, whether its text is taken)
        self._text = []

    def _flush(self):
        paragraph = " ".join("".join(self._text).split())
        self._text = []
        if paragraph:
            self.paragraphs.append(paragraph)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        kinds = (values.get("class") or "").split()
        if tag == "link" and values.get("rel") == "next":
            self.next_page = values.get("href")
        if tag in {"br", "img", "link", "meta", "input", "hr"}:
            return
        taken = bool(self._open) and self._open[-1][1]
        if (tag == "div" and "para" in kinds) or (tag in {"h1", "h2", "h3", "h4"} and "title" in kinds):
            self._flush()
            taken = True
        elif tag in self.SKIPPED or "docnav" in kinds or "indexterm" in kinds:
            taken = False
        self._open.append((tag, taken))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in {"br", "img", "link", "meta", "input", "hr"}:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not any(entry[0] == tag for entry in self._open):
            return
        while True:
            name, _ = self._open.pop()
            if name in {"div", "h1", "h2", "h3", "h4", "li", "pre", "dt", "dd"}:
                self._flush()
            if name == tag:
                return

    def handle_data(self, data):
        if self._open and self._open[-1][1]:
            self._text.append(data)


def text_of(folder, limit):
    name, lines, size, seen = FIRST_PAGE, [], 0, set()
    while name and name not in seen and size < limit:
        seen.add(name)
        page = Page()
        page.feed((folder / name).read_text(encoding="utf-8"))
        for paragraph in page.paragraphs:
            if size >= limit:
                break
            lines.append(paragraph)
            size += len(paragraph.encode()) + 1
        name = page.next_page
    if size < limit:
        sys.exit(f"eval_text: the text needs {limit} bytes of prose, got {size}")
    return "\n".join(lines) + "\n"


def unpacked(package, folder):
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return pathlib.Path(folder) / FOLDER


def fetched(folder):
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return next(str(path) for path in pathlib.Path(folder).glob(f"{PACKAGE}_*.deb"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--bytes", type=int, default=DEFAULT_BYTES)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--package", help="a debian-handbook_*.deb instead of a download")
    source.add_argument("--folder", help="its unpacked html/en-US instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            if arguments.folder:
                text = text_of(pathlib.Path(arguments.folder), arguments.bytes)
                label = "folder " + arguments.folder
            else:
                package = arguments.package or fetched(scratch)
                text = text_of(unpacked(package, scratch), arguments.bytes)
                label = os.path.basename(package)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"eval_text: cannot read {PACKAGE}: {error}")
    data = text.encode()
    with open(arguments.out, "wb") as out:
        out.write(data)
    print(f"{label}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
