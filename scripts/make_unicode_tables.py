#!/usr/bin/env python3
"""Writes src/text/unicode/tables.cpp from Python's own unicodedata (the file states the version).

Run it with the Python of Debian 12 (Unicode 14): python3 scripts/make_unicode_tables.py
"""

import pathlib
import sys
import unicodedata

OUT = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / "unicode" / "tables.cpp"
# In the order of unicode.hpp's Category.
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
HANGUL = range(0xAC00, 0xAC00 + 11172)  # composed by rule, not by table
ALL = range(0x110000)


def category_ranges():
    """(first, category) of each run; a run ends where the next begins."""
    last = None
    for code in ALL:
        category = CATEGORIES.index(unicodedata.category(chr(code)))
        if category != last:
            yield code, category
            last = category


def class_ranges():
    """(first, last, combining class) of each run with a class other than 0."""
    runs = []
    for code in ALL:
        value = unicodedata.combining(chr(code))
        if value == 0:
            continue
        if runs and runs[-1][1] == code - 1 and runs[-1][2] == value:
            runs[-1][1] = code
        else:
            runs.append([code, code, value])
    return runs


def decompositions():
    """(code, first, second) of each canonical decomposition; second is 0 for a single character."""
    for code in ALL:
        text = unicodedata.decomposition(chr(code))
        if not text or text.startswith("<") or code in HANGUL:
            continue
        parts = [int(part, 16) for part in text.split()]
        yield code, parts[0], parts[1] if len(parts) == 2 else 0


def compositions(table):
    """(first, second, code) of each pair that normalisation form C puts together."""
    found = []
    for code, first, second in table:
        if second and unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code):
            found.append((first, second, code))
    return sorted(found)


def lower_case():
    """(code, lower) where one character is lowered to one other; U+0130 alone has two."""
    for code in ALL:
        lower = chr(code).lower()
        if lower != chr(code) and len(lower) == 1:
            yield code, ord(lower)


def put(lines, kind, name, rows):
    rows = list(rows)
    lines.append(f"const {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(f"{value:#x}" if value > 9 else str(value) for value in row) + "},"
        if len(line) + len(text) > 100:
            lines.append(line)
            line = "   "
        line += text
    lines += [line, "};", f"const std::size_t {name}Count = {len(rows)};", ""]


def main():
    lines = [f"// Unicode {unicodedata.unidata_version}. Written by scripts/make_unicode_tables.py: change that, not this.",
             '#include "text/unicode/tables.hpp"', "", "namespace phasor::text::unicode {", "", "// clang-format off"]
    put(lines, "CategoryRun", "kCategoryRuns", category_ranges())
    put(lines, "ClassRun", "kClassRuns", class_ranges())
    table = list(decompositions())
    put(lines, "Decomposition", "kDecompositions", table)
    put(lines, "Composition", "kCompositions", compositions(table))
    put(lines, "LowerCase", "kLowerCase", lower_case())
    lines += ["// clang-format on", "", "}  // namespace phasor::text::unicode", ""]
    OUT.write_text("\n".join(lines))
    print(f"{OUT.name}: Unicode {unicodedata.unidata_version}", file=sys.stderr)


if __name__ == "__main__":
    main()
