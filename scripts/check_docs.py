#!/usr/bin/env python3
"""Checks that the English and the Chinese pages of the documents say the same.

Every docs/NAME.md, and README.md, has its NAME.zh.md with the same headings (levels, in order), code blocks (comments
may be translated), display formulas (what \\text{} says may be translated), figures, tables (rows, columns,
numbers of each row) and links. Links and figures are compared by section, since word order differs. A Chinese page
links to Chinese pages; anchors are compared by the heading that they lead to. Not checked: docs/adr, which is English
only, and docs/reference, which is made from the sources.
"""

import argparse
import collections
import pathlib
import posixpath
import re
import sys

FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\S*)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)[^()]*\)")
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|!?\[[^\]]*\](?:\([^()]*\))?)*\]\(([^()\s]+)\)")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
HASH, SLASHES = re.compile(r"(^|\s)#.*"), re.compile(r"(^|\s)//.*|/\*.*?\*/")
COMMENTS = {"sh": HASH, "bash": HASH, "python": HASH, "py": HASH, "cmake": HASH, "yaml": HASH, "toml": HASH}
COMMENTS |= {"c": SLASHES, "cpp": SLASHES, "js": SLASHES, "javascript": SLASHES}


def slug(title, used):
    """The anchor of a heading, as code hosts and the site make it."""
    title = re.sub(r"!?\[([^\]]*)\]\([^()]*\)", r"\1", title.replace("`", "").replace("*", ""))
    anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
    used[anchor] += 1
    return anchor if used[anchor] == 1 else f"{anchor}-{used[anchor] - 1}"


class Page:
    """What is compared of one page."""

    def __init__(self, text):
        self.levels, self.anchors = [], []  # of headings
        self.codes, self.formulas = [], []  # (line, language, code); (line, formula)
        self.tables = []  # (line, rows as lists of numbers, columns)
        self.figures, self.links = [[]], [[]]  # by section, the first before any heading
        self.read(text.splitlines())

    def read(self, lines):
        used, at = collections.Counter(), 0
        while at < len(lines):
            line = lines[at]
            if match := FENCE.match(line):
                end = at + 1
                while end < len(lines) and not lines[end].strip().startswith(match[2]):
                    end += 1
                self.codes.append((at + 1, match[3], lines[at + 1 : end]))
                at = end
            elif line.strip().startswith("$$"):
                end = at
                while not (lines[end].strip().endswith("$$") and (end > at or len(line.strip()) > 2)) and end + 1 < len(
                    lines
                ):
                    end += 1
                formula = " ".join(" ".join(lines[at : end + 1]).split())
                self.formulas.append((at + 1, re.sub(r"\\text\{[^{}]*\}", r"\\text{}", formula)))
                at = end
            elif match := HEADING.match(line):
                self.levels.append(len(match[1]))
                self.anchors.append(slug(match[2], used))
                self.figures.append([])
                self.links.append([])
            else:
                if line.lstrip().startswith("|"):
                    self.read_row(at, line.strip(), lines[at - 1] if at else "")
                self.figures[-1] += IMAGE.findall(line)
                self.links[-1] += LINK.findall(re.sub(r"`[^`]*`", "", line))
            at += 1

    def read_row(self, at, line, before):
        cells = re.sub(r"`[^`]*`|\\\|", "", line).strip("|").split("|")
        if not before.lstrip().startswith("|"):
            self.tables.append((at + 1, [], len(cells)))
        targets = re.sub(r"\]\([^()]*\)", "]", line)  # the numbers of a link's target are not the text's
        self.tables[-1][1].append(sorted(NUMBER.findall(targets)))


def without_comments(language, lines):
    """Code with each comment reduced to a mark."""
    comment = COMMENTS.get(language)
    return [
        re.sub(r"\s+", " ", comment.sub(" <comment>", line)).strip() if comment else line.rstrip() for line in lines
    ]


class Checker:
    def __init__(self, root):
        self.root, self.pages, self.problems = root, {}, []

    def page(self, path):
        if path not in self.pages:
            self.pages[path] = Page((self.root / path).read_text(encoding="utf-8"))
        return self.pages[path]

    def place(self, target, page):
        """A link's target in a form that both languages share; None after a problem was told."""
        if re.match(r"[a-z]+:", target):
            return target
        path, _, anchor = target.partition("#")
        other = page.replace(".zh.md", ".md") if page.endswith(".zh.md") else page.replace(".md", ".zh.md")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if not (self.root / path).exists():
            # The pages of the reference are made when the site is built.
            if not path.startswith("docs/reference/"):
                self.problems.append(f"{page}: link to {target}: no such file {path}")
                return None
            return path
        in_chinese = path.removesuffix(".md") + ".zh.md"
        in_english = path.endswith(".md") and not path.endswith(".zh.md") and path != other
        if page.endswith(".zh.md") and in_english and (self.root / in_chinese).exists():
            self.problems.append(f"{page}: link to {target} must lead to the Chinese page {in_chinese}")
            return None
        shared = path.replace(".zh.", ".")
        if not anchor:
            return shared
        if not path.endswith(".md"):
            return f"{shared}#{anchor}"
        anchors = self.page(path).anchors
        if anchor not in anchors:
            self.problems.append(f"{page}: link to {target}: {path} has no heading #{anchor}")
            return None
        return f"{shared}, heading {anchors.index(anchor) + 1}"

    def compare_lists(self, what, page, ours, theirs):
        """The first place where two lists differ, as a problem; each entry is (line, value)."""
        if len(ours) != len(theirs):
            self.problems.append(f"{page}: {len(theirs)} {what}, {len(ours)} in English")
        for (english_line, english), (line, chinese) in zip(ours, theirs):
            if english != chinese:
                self.problems.append(
                    f"{page}:{line}: {what} differ from line {english_line} in English: {chinese} instead of {english}"
                )
                return

    def compare(self, english_path, chinese_path):
        english, chinese = self.page(english_path), self.page(chinese_path)
        if english.levels != chinese.levels:
            levels = [" ".join(map(str, page.levels)) for page in (english, chinese)]
            self.problems.append(f"{chinese_path}: levels of headings are {levels[1]}, in English {levels[0]}")
            return
        codes = [
            [(line, [language, *without_comments(language, code)]) for line, language, code in page.codes]
            for page in (english, chinese)
        ]
        self.compare_lists("code blocks", chinese_path, *codes)
        self.compare_lists("formulas", chinese_path, english.formulas, chinese.formulas)
        tables = [
            [(line, [f"{len(rows)} rows", f"{columns} columns"]) for line, rows, columns in page.tables]
            for page in (english, chinese)
        ]
        self.compare_lists("tables", chinese_path, *tables)
        if tables[0] and [shape for _, shape in tables[0]] == [shape for _, shape in tables[1]]:
            rows = [
                [(line + at, row) for line, rows, _ in page.tables for at, row in enumerate(rows)]
                for page in (english, chinese)
            ]
            self.compare_lists("numbers of a table's row", chinese_path, *rows)
        for kind in ("figures", "links"):
            for section, (ours, theirs) in enumerate(zip(getattr(english, kind), getattr(chinese, kind))):
                where = f"section {section}, #{chinese.anchors[section - 1]}" if section else "the beginning"
                places = [
                    sorted(filter(None, (self.place(one, page) for one in targets)))
                    for targets, page in ((ours, english_path), (theirs, chinese_path))
                ]
                missing, added = ((collections.Counter(a) - collections.Counter(b)) for a, b in (places, places[::-1]))
                for place in missing:
                    self.problems.append(f"{chinese_path}: {where}: {kind} lack {place}")
                for place in added:
                    self.problems.append(f"{chinese_path}: {where}: {kind} have {place}, which English lacks")

    def run(self):
        """Compares every page; returns their number."""
        pages = sorted(
            path.relative_to(self.root).as_posix()
            for path in [*self.root.glob("docs/*.md"), *self.root.glob("README*.md")]
        )
        english = [page for page in pages if not page.endswith(".zh.md")]
        for page in english:
            chinese = page.replace(".md", ".zh.md")
            if chinese not in pages:
                self.problems.append(f"{page}: the Chinese page {chinese} is missing")
            else:
                self.compare(page, chinese)
        for page in set(pages) - set(english) - {page.replace(".md", ".zh.md") for page in english}:
            self.problems.append(f"{page}: the English page {page.replace('.zh.md', '.md')} is missing")
        return len(english)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    options = parser.parse_args(arguments)
    checker = Checker(options.root)
    count = checker.run()
    for problem in checker.problems:
        print(problem, file=sys.stderr)
    if not count:
        print(f"check_docs: no pages in {options.root}/docs", file=sys.stderr)
        return 2
    print(f"check_docs: {count} pages, {len(checker.problems)} problems")
    return 1 if checker.problems else 0


if __name__ == "__main__":
    sys.exit(main())
