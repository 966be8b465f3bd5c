"""The corpora of the lab: readers on tiny files made here, splits, manifests."""

import contextlib
import gzip
import io
import json
import pathlib
import struct
import sys
import tempfile
import unittest
import unittest.mock
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import corpora  # noqa: E402
import corpus_readers as readers  # noqa: E402


def r_int(*numbers):
    return struct.pack(f">{len(numbers)}i", *numbers)


def r_string(text):
    return r_int(9 | 0x8 << 12, len(text.encode())) + text.encode()


def r_strings(texts, flags=16):
    return r_int(flags, len(texts)) + b"".join(r_string(text) for text in texts)


def r_names(names):
    """The attribute `names` of the object before it."""
    return r_int(0x402, 1) + r_string("names") + r_strings(names) + r_int(254)


def r_data(item, version=3):
    return b"X\n" + r_int(version, 0x40201, 0x30500) + (r_int(5) + b"UTF-8" if version == 3 else b"") + item


def catalogue(pairs, order="<"):
    entries = [[text.encode() for text in pair] for pair in pairs]
    tables, texts, at = [b"", b""], b"", 28 + 16 * len(entries)
    for side in (0, 1):
        for entry in entries:
            tables[side] += struct.pack(order + "2I", len(entry[side]), at + len(texts))
            texts += entry[side] + b"\0"
    head = struct.pack(order + "7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    return head + tables[0] + tables[1] + texts


class RData(unittest.TestCase):
    def test_lines_of_text(self):
        for version in (2, 3):
            self.assertEqual(readers.RObject(r_data(r_strings(["Emma", "", "é"]), version)).read(), ["Emma", "", "é"])

    def test_lists_with_names(self):
        item = r_int(19 | 0x200, 2) + r_int(13, 2, 5, 7) + r_int(16, 1, 9, -1) + r_names(["a", "b"])
        self.assertEqual(readers.RObject(r_data(item)).read(), {"a": [5, 7], "b": [None]})

    def test_symbols_are_referred_to(self):
        inner = r_int(0x402, 0x101 & 0xFF) + r_string("names") + r_strings(["x"]) + r_int(254)
        again = r_int(0x402, 255 | 1 << 8) + r_strings(["y"]) + r_int(254)
        item = r_int(19, 2) + r_int(19 | 0x200, 1) + r_int(13, 1, 1) + inner + r_int(19 | 0x200, 1) + r_int(13, 1, 2) + again
        self.assertEqual(readers.RObject(r_data(item)).read(), [{"x": [1]}, {"y": [2]}])

    def test_lazy_data(self):
        block = r_data(r_strings(["CHAPTER I", "text"]))
        packed = struct.pack(">I", len(block)) + zlib.compress(block)
        places = r_int(19 | 0x200, 1) + r_int(13, 2, 3, len(packed)) + r_names(["emma"])
        index = gzip.compress(r_data(r_int(19 | 0x200, 1) + places + r_names(["variables"])))
        self.assertEqual(readers.read_lazy_data(index, b"..." + packed), {"emma": ["CHAPTER I", "text"]})

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "A"):
            readers.RObject(b"A\n").read()
        with self.assertRaisesRegex(ValueError, "7"):
            readers.RObject(b"X\n" + r_int(7, 0, 0)).read()
        with self.assertRaisesRegex(ValueError, "type 3"):
            readers.RObject(r_data(r_int(3))).read()
        whole = r_data(r_strings(["Emma"]))
        for size in range(len(whole)):
            with self.assertRaises((ValueError, struct.error)):
                readers.RObject(whole[:size]).read()


class Catalogue(unittest.TestCase):
    def test_pairs(self):
        pairs = [("", "Content-Type: ..."), ("unit\4Hello there", "Hallo"), ("one\0many", "eins\0viele"), ("none", "")]
        for order in "<>":
            self.assertEqual(readers.read_catalogue(catalogue(pairs, order)), [("Hello there", "Hallo"), ("one", "eins")])

    def test_refusals(self):
        data = catalogue([("a", "b")])
        for broken, shown in ((b"abcd" + data[4:], "61626364"), (data[:20], "20"), (data[:-3], "entry 0"),
                              (data[:8] + b"\xff\xff\xff\0" + data[12:], "16777215")):
            with self.assertRaisesRegex(ValueError, shown):
                readers.read_catalogue(broken)


class Text(unittest.TestCase):
    def test_html(self):
        page = "<head><title>no</title></head><p>One <b>two</b>\n three &amp; four<h2>Next</h2><ul><li>a<li>b</ul>tail"
        self.assertEqual(readers.read_html(page), "One two three & four\n\f\nNext\n\na\n\nb\n\ntail\n")

    def test_man_page(self):
        page = ('.\\" comment\n.TH CP 1\n.SH 名称\ncp \\- 复制 \\fB文件\\fP\n.PP\n.B "\\-a"\n\\*(lq引\\(rq\n.TS\nl l.\ntable\n.TE\n'
                ".de X\nmacro\n..\n.TP 4\nback\\eslash\n")
        self.assertEqual(readers.read_man_page(page), "名称\n\ncp - 复制 文件\n\n-a 引”\n\nback\\slash\n")

    def test_tags(self):
        self.assertEqual(readers.strip_tags("[中央/n  电台/n]nt  １２月/t  ２/m  ／/w  km//q"), "中央电台１２月２／km/")

    def test_books(self):
        lines = ["EMMA", "", "CHAPTER I", "", "Emma  was", "clever.", "", "She was", "CHAPTER II", "End."]
        self.assertEqual(readers.unwrap(lines, corpora.is_chapter),
                         "EMMA\n\f\nCHAPTER I\n\nEmma was clever.\n\nShe was\n\f\nCHAPTER II\n\nEnd.\n")
        self.assertFalse(corpora.is_chapter("Chapter and verse"))


class Pairs(unittest.TestCase):
    def test_sentences_of_equal_number_are_parted(self):
        self.assertEqual(corpora.sentences("I came. I saw!", "Ich kam. Ich sah!"), [("I came.", "Ich kam."), ("I saw!", "Ich sah!")])
        self.assertEqual(corpora.sentences("I came. I saw!", "Ich kam  und sah!"), [("I came. I saw!", "Ich kam und sah!")])
        self.assertEqual(len(corpora.sentences("Go. We are too many for them here!", "Wir sind hier zu viele für sie. Los!")), 1)

    def test_only_prose_is_kept(self):
        self.assertTrue(corpora.is_pair("We are the first here.", "Wir sind die ersten hier."))
        for source, target in (("We are here.", "Wir sind hier."), ("$name is the first here.", "$name ist als erster hier."),
                               ("We are the <b>first</b> here.", "Wir sind die ersten hier."),
                               ("one two three four", "One, two, three, four!"), ("We are the first here.", "Ja ja.")):
            self.assertFalse(corpora.is_pair(source, target), source)


class FakePackages:
    """Texts with repeats."""

    used = [{"package": "p", "file": "p_1.deb", "licence": "MIT", "sha256": "0"}]

    def python(self, _requirement, _licence, _wanted):
        reviews = [f"很好 {i}" for i in range(200)]
        return {"s/sentiment/pos.txt": "\n".join(reviews + ["  很好，１", "both"]).encode(),
                "s/sentiment/neg.txt": "\n".join([f"不好 {i}" for i in range(200)] + ["Both!"]).encode()}

    def debian(self, name, _licence, _wanted):
        repeated = ("We will meet again tomorrow.", "Wir sehen uns morgen wieder.")
        own = [(f"hint^{name} has number {i} of many.", f"{name} hat Nummer {i} von vielen.") for i in range(20)]
        return {"de.mo": catalogue([("", "head"), *own, repeated, (f"{name}. {repeated[0]}", f"{name}. {repeated[1]}")])}


class Sets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rows(self, files):
        return {split: [json.loads(line) for line in files[f"{split}.jsonl"].splitlines()] for split in corpora.SPLITS}

    def test_no_review_is_in_two_splits(self):
        rows = self.rows(corpora.chinese_sentiment(FakePackages()))
        texts = [corpora.letters_of(row["text"]) for split in rows.values() for row in split]
        self.assertEqual(len(texts), 400)
        self.assertEqual(len(set(texts)), 400)
        self.assertNotIn("both", texts)
        self.assertEqual({row["label"] for row in rows["train"]}, {0, 1})
        self.assertTrue(all(row["label"] == ("很好" in row["text"]) for row in rows["train"]))

    def test_no_sentence_is_in_two_splits(self):
        rows = self.rows(corpora.english_german(FakePackages()))
        for side in ("source", "target"):
            texts = [corpora.letters_of(row[side]) for split in rows.values() for row in split]
            self.assertEqual(len(texts), len(set(texts)))
            self.assertEqual(len(texts), 20 * len(corpora.WESNOTH) + 1)
        self.assertFalse([row for row in rows["train"] if "hint" in row["source"]])

    def test_every_novel_has_chapters_in_all_splits(self):
        texts = {f"{split}/{name}.txt": "TITLE\n\f\n" + "\n\f\n".join(f"CHAPTER {i}\n\n{name} {i}.\n\nMore." for i in range(1, 11))
                 for split, name in (("train", "emma"), ("test", "persuasion"))}
        with unittest.mock.patch.object(corpora, "novels", lambda _packages: texts):
            files = corpora.chapters(FakePackages())
        self.assertEqual(sorted(files), [f"{split}/{name}.txt" for split in sorted(corpora.SPLITS) for name in ("emma", "persuasion")])
        for name in ("emma", "persuasion"):
            held_out = [(files[f"{split}/{name}.txt"]) for split in ("valid", "test")]
            self.assertEqual(held_out, [f"{name} 4.\n\nMore.\n", f"{name} 8.\n\nMore.\n"])
            self.assertEqual(files[f"train/{name}.txt"], "\n\f\n".join(f"{name} {i}.\n\nMore." for i in (1, 2, 3, 5, 6, 7, 9, 10)) + "\n")

    def test_passages_are_labelled_with_their_novel(self):
        texts = {f"{split}/{name}.txt": "\n\f\n".join([" ".join(f"{name}{split}{i}" for i in range(200)), "too short"])
                 for split in corpora.SPLITS for name in ("persuasion", "emma")}
        with unittest.mock.patch.object(corpora, "chapters", lambda _packages: texts):
            rows = self.rows(corpora.novel_passages(FakePackages()))
        for split in corpora.SPLITS:
            found = sorted((row["label"], row["text"].split()) for row in rows[split])
            expected = [(label, [f"{name}{split}{i}" for i in range(at, at + 80)])
                        for label, name in enumerate(("emma", "persuasion")) for at in (0, 80)]
            self.assertEqual(found, sorted(expected))

    def test_splits_hold_out_what_was_asked(self):
        counts = {split: 0 for split in corpora.SPLITS}
        for i in range(4000):
            counts[corpora.split_of(str(i), 0.05)] += 1
        self.assertTrue(150 < counts["test"] < 250 and 150 < counts["valid"] < 250, counts)

    def test_a_set_is_checked(self):
        corpora.make("chinese-sentiment", self.folder, FakePackages())
        made = self.folder / "chinese-sentiment"
        self.assertEqual(corpora.check(made), [])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["chinese-sentiment"])
        (made / "extra.txt").write_text("x")
        (made / "test.jsonl").write_text("{}\n")
        (made / "valid.jsonl").unlink()
        wrong = "\n".join(corpora.check(made))
        for name in ("extra.txt", "test.jsonl", "valid.jsonl"):
            self.assertIn(name, wrong)
        self.assertNotIn("train.jsonl", wrong)
        corpora.make("chinese-sentiment", self.folder, FakePackages())
        self.assertEqual(corpora.check(made), [])

    def test_a_failed_set_leaves_nothing(self):
        class Broken(FakePackages):
            def debian(self, *_):
                return {"de.mo": catalogue([("", "head")])}

        with self.assertRaisesRegex(corpora.CorpusError, "english-german.*train"):
            corpora.make("english-german", self.folder, Broken())
        self.assertEqual(list(self.folder.iterdir()), [])

    def main(self, *arguments):
        """Exit code and the last line of stderr."""
        out, err = io.StringIO(), io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["corpora.py", str(self.folder), *arguments]), \
                unittest.mock.patch.object(corpora, "Packages", lambda _cache: FakePackages()), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = corpora.main()
        return code, out.getvalue() + err.getvalue()

    def test_sizes_and_licences_are_printed_and_complete_sets_stay(self):
        for place in (".partial-old", ".downloads/.partial-old"):
            (self.folder / place).mkdir(parents=True)
        code, text = self.main("--only", "chinese-sentiment")
        self.assertEqual(code, 0)
        rows = len((self.folder / "chinese-sentiment" / "test.jsonl").read_text().splitlines())
        for value in (f" {rows} documents", "MIT: p_1.deb"):
            self.assertIn(value, text)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["chinese-sentiment"])
        made = (self.folder / "chinese-sentiment").stat().st_ino
        self.assertEqual(self.main("--only", "chinese-sentiment"), (0, text))
        self.assertEqual((self.folder / "chinese-sentiment").stat().st_ino, made)
        self.assertEqual(self.main("--only", "chinese-sentiment", "--check")[0], 0)
        self.assertEqual(self.main("--check")[0], 1)

    def test_two_runs_do_not_mix(self):
        with corpora.alone(self.folder):
            code, text = self.main("--only", "chinese-sentiment")
        self.assertEqual(code, 2)
        self.assertIn(str(self.folder), text)

    def test_downloads_that_fail_are_told_in_one_line(self):
        out = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["corpora.py", str(self.folder), "--only", "english"]), \
                unittest.mock.patch.object(corpora.subprocess, "run", side_effect=FileNotFoundError), \
                contextlib.redirect_stderr(out):
            self.assertEqual(corpora.main(), 2)
        self.assertIn("r-cran-janeaustenr", out.getvalue().splitlines()[-1])
        self.assertFalse((self.folder / "english").exists())


if __name__ == "__main__":
    unittest.main()
