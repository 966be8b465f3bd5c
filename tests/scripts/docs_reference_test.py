"""The references say what headers and man pages say: declarations without private parts, contracts, flags."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "docs"))
import command_reference  # noqa: E402
import header_reference  # noqa: E402
from header_reference import Entry, Header, Links, Name  # noqa: E402

HEADER = """// Rotation of heads.
#pragma once

namespace phasor::core {

// Rows of cos and sin, computed once.

// A value; copies share their rows.
//
// throws   Error(invalid_argument): no pairs,
//          or too many
class PHASOR_API Table {
 public:
  explicit Table(int pairs);
  [[nodiscard]] int pairs() const noexcept { return pairs_; }

 private:
  int pairs_ = 0;
};

// RoFormer (34)   y = x cos + swapped x sin
PHASOR_API void rotate(const Table& table,
                       float* x);
PHASOR_API void rotate(const Table& table, double* x);
PHASOR_API void unrotate(const Table& table, float* x);  // the inverse

}  // namespace phasor::core
"""
MAN = r""".TH PHASOR\-FREQS 1 "" "phasor" "manual"
.SH NAME
phasor\-freqs \- frequencies of a config
.SH SYNOPSIS
.B phasor freqs
[\fIflags\fR]
.SH DESCRIPTION
.PP
Computes head_dim / 2 numbers.
.SH OPTIONS
.TP
\fB\-\-layout\fR \fI{half|interleaved}\fR
which pairs
.br
Needs \fB\-\-config\fR.
.SH EXAMPLE
.nf
phasor freqs \-\-config \(aq{...}\(aq
.fi
"""


class HeaderReference(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        (root / "table.hpp").write_text(HEADER, encoding="utf-8")
        lines = HEADER.splitlines()
        names = [Name("table", "Table", "class", "table.hpp", lines.index("class PHASOR_API Table {") + 1)]
        for at, line in enumerate(lines, 1):
            if line.startswith("PHASOR_API void"):
                names.append(
                    Name(f"function{at}", line.split("(")[0].split()[-1], "function", "table.hpp", at, ["table"])
                )
        self.header = Header(root, "table.hpp", names)

    def test_parts_in_their_order(self):
        self.assertEqual(self.header.head, ["Rotation of heads."])
        free, table, rotate, unrotate = self.header.parts
        self.assertEqual(free, ["Rows of cos and sin, computed once."])
        self.assertEqual(
            [[name.text for name in entry.names] for entry in (table, rotate, unrotate)],
            [["Table"], ["rotate", "rotate"], ["unrotate"]],
        )

    def test_declarations_without_bodies_and_private_members(self):
        table, rotate, _ = [part for part in self.header.parts if isinstance(part, Entry)]
        self.assertEqual(
            table.code,
            "class Table {\n public:\n  explicit Table(int pairs);\n  [[nodiscard]] int pairs() const noexcept;\n};",
        )
        self.assertEqual(
            rotate.code,
            "void rotate(const Table& table,\n            float* x);\nvoid rotate(const Table& table, double* x);",
        )

    def test_comments_become_text_formulas_and_contracts(self):
        links = Links()
        table, rotate, _ = [part for part in self.header.parts if isinstance(part, Entry)]
        links.add(table, "../cpp/core.md#table")
        self.assertEqual(
            header_reference.markdown_of(table.comment, links, "../cpp/core.md"),
            "A value; copies share their rows.\n\n| | |\n|---|---|\n"
            "| throws | Error(`invalid_argument`): no pairs, or too many |\n\n",
        )
        self.assertEqual(
            header_reference.markdown_of(rotate.comment, links, "../cpp/core.md"),
            "```text\nRoFormer (34)   y = x cos + swapped x sin\n```\n\n",
        )
        self.assertEqual(
            links.prose("a Table, or k_max() [0, 1)", "../cpp/models.md"),
            "a [`Table`](../cpp/core.md#table), or `k_max()` \\[0, 1)",
        )

    def test_a_declaration_without_an_end(self):
        self.header.lines = ["void rotate(int x"]
        with self.assertRaisesRegex(ValueError, "table.hpp:1"):
            self.header.end_of(0)


class CommandReference(unittest.TestCase):
    def test_a_page(self):
        text = command_reference.markdown_of(MAN, "**{}**")
        self.assertIn("```sh\nphasor freqs [flags]\n```", text)
        self.assertIn("Computes `head_dim` / 2 numbers.\n\n**Options**", text)
        self.assertIn("| `--layout {half\\|interleaved}` | which pairs<br>Needs `--config`. |", text)
        self.assertIn("```text\nphasor freqs --config '{...}'\n```", text)

    def test_a_request_that_is_not_known(self):
        with self.assertRaisesRegex(ValueError, r"\.RS"):
            command_reference.markdown_of(MAN.replace(".nf", ".RS"), "**{}**")


if __name__ == "__main__":
    unittest.main()
