#!/usr/bin/env python3
"""Tests of the hash by which scripts/build_explorer.py knows that the page is older than its sources."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "build_explorer.py"
sys.path.insert(0, str(SCRIPT.parent))
import build_explorer  # noqa: E402


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("web/CMakeLists.txt", "cmake/wasm.cmake", "tools/phasor/text_lines.hpp", "web/bridge/bridge.cpp",
                     "src/core/rotate.cpp"):
            self.write(name, "int a;\n")
        self.write("web/src/app.js", "let a = 1;\n")
        self.stamp()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def stamp(self):
        sources = build_explorer.hash_of_sources(self.root)
        self.write("web/explorer.html", f'<meta name="phasor-sources" content="{sources}" />\n')

    def check(self):
        """The problem as text; empty: none."""
        try:
            build_explorer.check(self.root)
        except build_explorer.Problem as problem:
            return str(problem)
        return ""

    def test_a_page_of_these_sources_passes(self):
        self.assertEqual(self.check(), "")

    def test_the_exit_code_says_so(self):
        command = [sys.executable, "-B", str(SCRIPT), "--check", "--root", str(self.root)]
        self.assertEqual(subprocess.run(command, check=False).returncode, 0)
        self.write("web/src/app.js", "")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("./dev web", done.stderr)

    def test_a_changed_added_or_renamed_source_is_found(self):
        for name, text in (("web/src/app.js", "let a = 2;\n"), ("web/bridge/bridge.cpp", "int b;\n"),
                           ("src/core/rotate.cpp", 'const char* a = "// b";\n'), ("web/src/views/new.js", "")):
            self.write(name, text)
            self.assertIn("./dev web", self.check(), name)
            self.stamp()
        (self.root / "web/src/app.js").rename(self.root / "web/src/main.js")
        self.assertIn("./dev web", self.check())

    def test_comments_and_spacing_of_cpp_do_not_count(self):
        self.write("src/core/rotate.cpp", "// why\nint   a;  /* more\n lines */\n")
        self.assertEqual(self.check(), "")
        self.write("src/core/rotate.cpp", 'const char* a = "//  x";\n')
        self.stamp()
        self.write("src/core/rotate.cpp", 'const char* a = "// x";\n')
        self.assertIn("./dev web", self.check())

    def test_rooms_that_the_engine_does_not_contain_do_not_count(self):
        self.write("src/lab/run.cpp", "int c;\n")
        self.assertEqual(self.check(), "")

    def test_a_missing_page_or_hash_is_found(self):
        self.write("web/explorer.html", "<html></html>\n")
        self.assertIn("./dev web", self.check())
        (self.root / "web/explorer.html").unlink()
        self.assertIn("./dev web", self.check())


if __name__ == "__main__":
    unittest.main()
