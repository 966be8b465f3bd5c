"""The equation check must miss no function and no test that the table names and the tree lacks."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_equations  # noqa: E402

HEAD = "| equation | what | function | test |\n|---|---|---|---|\n"
GOOD = "| (34) | rotation | `rotate` in `src/a.cpp` | `Rotate.rotates` in `tests/a.cpp` |\n"


class CheckEquations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/a.cpp", "void rotate(int x);\nstruct Rotation {};\n")
        self.write("tests/a.cpp", "TEST(Rotate, rotates) {}\nTEST_P(Rotate,\n       wide) {}\n"
                   "RC_GTEST_PROP(RotateLaws, relativity, (int m)) {}\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def expect(self, row, words):
        problems, count = check_equations.check(self.root, HEAD + row)
        self.assertEqual(count, 1)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(words, problems[0])

    def test_a_sound_table(self):
        text = HEAD + GOOD + GOOD.replace("Rotate.rotates", "Rotate.wide") + GOOD.replace(
            "`Rotate.rotates` in `tests/a.cpp`",
            "`Rotate.rotates` in `tests/a.cpp`, `RotateLaws.relativity` in `tests/a.cpp`")
        self.assertEqual(check_equations.check(self.root, text), ([], 3))

    def test_what_is_missing(self):
        self.expect(GOOD.replace("`rotate`", "`rotat`"), "rotat")
        self.expect(GOOD.replace("`rotate`", "`Rotation`"), "function Rotation")
        self.expect(GOOD.replace("src/a.cpp", "src/b.cpp"), "src/b.cpp")
        self.expect(GOOD.replace("Rotate.rotates", "Rotate.rotate"), "test Rotate.rotate ")
        self.expect(GOOD.replace("Rotate.rotates", "rotates"), "test rotates")
        self.expect(GOOD.replace("tests/a.cpp", "src/a.cpp"), "src/a.cpp")

    def test_cells_that_do_not_read(self):
        self.expect("| (34) | rotation | rotate | `Rotate.rotates` in `tests/a.cpp` |\n", "must read")
        self.expect("| (34) | rotation |  | `Rotate.rotates` in `tests/a.cpp` |\n", "empty")
        self.expect(GOOD.replace("tests/a.cpp` |", "tests/a.cpp` and more |"), "must read")
        self.expect("| (34) | rotation |\n", "2")

    def test_other_tables_are_left_alone(self):
        text = "| a | b |\n|---|---|\n| x | y |\n\n" + HEAD + GOOD
        self.assertEqual(check_equations.check(self.root, text), ([], 1))

    def test_the_exit_code(self):
        arguments = ["--root", str(self.root)]
        self.assertEqual(check_equations.main(arguments), 2)
        self.write("docs/equations.md", "no table\n")
        self.assertEqual(check_equations.main(arguments), 2)
        self.write("docs/equations.md", HEAD + GOOD)
        self.assertEqual(check_equations.main(arguments), 0)
        self.write("docs/equations.md", HEAD + GOOD.replace("(34) | rotation | `rotate`", "(34) | rotation | `gone`"))
        self.assertEqual(check_equations.main(arguments), 1)


if __name__ == "__main__":
    unittest.main()
