"""The check of the two languages must miss no heading, code, formula, figure, table or link that one side lacks."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_docs  # noqa: E402

ENGLISH = """# Rotation

See [the glossary](glossary.md#base), [speed](#speed) and `[not](a link)`.

```sh
phasor freqs --head-dim 8    # four pairs
# a line of its own
```

$$
\\theta_i = b^{-2i/d} \\quad \\text{for even } d
$$

## Speed

| what | ratio |
|---|---:|
| [in place](https://example.org/2026) | 0.99 |
| `a | b` of 32 heads | 1.23 |

![decay](figures/decay.svg) and [the paper](https://example.org/paper)
"""
CHINESE = """# 旋转

`[这](不是链接)`，参见[速度](#速度)和[术语表](glossary.zh.md#底数)。

```sh
phasor freqs --head-dim 8    # 四对
# 单独一行
```

$$
\\theta_i = b^{-2i/d} \\quad \\text{其中偶数 } d
$$

## 速度

| 项目 | 比值 |
|---|---:|
| [原地](https://example.org/2026) | 0.99 |
| 32 个头的 `a | b` | 1.23 |

[论文](https://example.org/paper)与 ![衰减](figures/decay.zh.svg)
"""


class CheckDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/glossary.md", "# Glossary\n\n## Base\n\n## Pair\n")
        self.write("docs/glossary.zh.md", "# 术语表\n\n## 底数\n\n## 特征对\n")
        self.write("docs/figures/decay.svg", "")
        self.write("docs/figures/decay.zh.svg", "")
        self.write("docs/adr/0001.md", "# Only in English\n")
        self.write("docs/page.md", ENGLISH)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def problems(self, chinese):
        self.write("docs/page.zh.md", chinese)
        checker = check_docs.Checker(self.root)
        self.assertEqual(checker.run(), 2)
        return checker.problems

    def expect(self, old, new, *words):
        """One change of the Chinese page is told, with these words."""
        self.assertIn(old, CHINESE)
        problems = self.problems(CHINESE.replace(old, new))
        self.assertTrue(problems)
        for word in words:
            self.assertIn(word, "\n".join(problems))

    def test_pages_that_agree(self):
        self.assertEqual(self.problems(CHINESE), [])

    def test_headings(self):
        self.expect("## 速度", "### 速度", "1 3", "1 2")
        self.expect("## 速度\n", "## 速度\n\n## 又一节\n", "1 2 2")

    def test_code(self):
        self.expect("--head-dim 8", "--head-dim 16", "code blocks differ", "--head-dim 16")
        self.expect("    # 四对", "", "code blocks differ")
        self.expect("```sh", "```text", "code blocks differ")
        self.expect("# 单独一行\n", "", "code blocks differ")

    def test_formulas(self):
        self.expect("b^{-2i/d}", "b^{2i/d}", "formulas differ")
        self.expect(CHINESE[CHINESE.index("$$") : CHINESE.rindex("$$") + 2], "", "0 formulas, 1 in English")

    def test_tables(self):
        self.expect("| 32 个头的 `a | b` | 1.23 |\n", "", "3 rows", "4 rows")
        self.expect("| 0.99 |", "| 0.98 |", "0.98")
        self.expect("| 项目 | 比值 |\n|---|---:|", "| 项目 | 比值 | |\n|---|---:|---|", "3 columns")

    def test_figures_and_links(self):
        self.expect("![衰减](figures/decay.zh.svg)", "", "figures lack docs/figures/decay.svg")
        self.expect("https://example.org/paper", "https://example.org/other", "links lack https://example.org/paper")
        self.expect("[速度](#速度)", "[速度](#旋转)", "heading 2", "heading 1")
        self.expect("glossary.zh.md#底数", "glossary.zh.md#特征对", "docs/glossary.md, heading 2")
        self.expect("glossary.zh.md#底数", "glossary.zh.md#底", "#底")
        self.expect("glossary.zh.md#底数", "glossary.md#base", "must lead to the Chinese page")
        self.expect("glossary.zh.md#底数", "gone.zh.md", "no such file docs/gone.zh.md")

    def test_missing_pages(self):
        self.assertEqual(self.problems(CHINESE), [])
        (self.root / "docs/page.zh.md").unlink()
        checker = check_docs.Checker(self.root)
        checker.run()
        self.assertEqual(checker.problems, ["docs/page.md: the Chinese page docs/page.zh.md is missing"])
        self.write("docs/page.zh.md", CHINESE)
        (self.root / "docs/page.md").unlink()
        checker = check_docs.Checker(self.root)
        checker.run()
        self.assertEqual(checker.problems, ["docs/page.zh.md: the English page docs/page.md is missing"])

    def test_the_readme_is_a_page(self):
        self.write("docs/page.zh.md", CHINESE)
        self.write("README.md", "# Phasor\n\n[中文](README.zh.md)\n")
        self.write("README.zh.md", "# Phasor\n\n[English](README.md)\n")
        self.assertEqual(check_docs.main(["--root", str(self.root)]), 0)
        self.write("README.zh.md", "# Phasor\n")
        self.assertEqual(check_docs.main(["--root", str(self.root)]), 1)

    def test_a_folder_without_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(check_docs.main(["--root", folder]), 2)

    def test_anchors_are_those_of_code_hosts(self):
        page = check_docs.Page("# A `b`, (c)\n## 四、用 x_i：[d](e.md)\n## a b c\n")
        self.assertEqual(page.anchors, ["a-b-c", "四用-x_id", "a-b-c-1"])


if __name__ == "__main__":
    unittest.main()
