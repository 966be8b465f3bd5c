"""Readers of the files that scripts/corpora.py takes text from: R data, gettext catalogues, HTML, man pages, tagged text.

Each takes bytes or text and returns text; ValueError, in one line, for what it does not understand.
"""

from __future__ import annotations

import bz2
import gzip
import html.parser
import lzma
import re
import struct
import zlib

# --- R: serialised objects (XDR), and the files of a lazy-load database -------------------------------------------------


def inflate(data: bytes) -> bytes:
    """Whatever saveRDS() compressed with."""
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ", lzma)):
        if data.startswith(magic):
            return module.decompress(data)
    return zlib.decompress(data) if data[:1] == b"\x78" else data


class RObject:
    """Reads one serialised object: character, integer, real and logical vectors, lists and pairlists of them."""

    NULLS = {254, 253, 242, 241, 247, 250}  # NULL, the global, empty and base environments, no value, base namespace

    def __init__(self, data: bytes):
        self._data, self._at, self._symbols = data, 0, []

    def read(self):
        if self._take(2) != b"X\n":
            raise ValueError(f"R data must be in XDR form, starting with 'X', got {self._data[:2]!r}")
        version = self._int()
        if version not in (2, 3):
            raise ValueError(f"R data must have version 2 or 3, got {version}")
        self._take(8)  # the versions of R that wrote it and that can read it
        if version == 3:
            self._take(self._int())  # the native encoding
        return self._item()

    def _take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise ValueError(f"R data ends at byte {len(self._data)}, {count} more expected at byte {self._at}")
        self._at += count
        return self._data[self._at - count:self._at]

    def _int(self) -> int:
        return struct.unpack(">i", self._take(4))[0]

    def _vector(self, form: str, size: int) -> list:
        count = self._int()
        return list(struct.unpack(f">{count}{form}", self._take(count * size)))

    def _pairlist(self, flags: int) -> dict:
        """{tag: value}, in order."""
        found = {}
        while flags & 0xFF == 2:
            if flags & 0x200:
                self._item()
            tag = self._item() if flags & 0x400 else len(found)
            found[tag] = self._item()
            flags = self._int()
        if flags & 0xFF not in self.NULLS:
            raise ValueError(f"R data: a pairlist must end with NULL, got type {flags & 0xFF}")
        return found

    def _item(self):
        flags = self._int()
        kind = flags & 0xFF
        if kind in self.NULLS:
            return None
        if kind == 255:
            return self._symbols[(flags >> 8 or self._int()) - 1]
        if kind == 1:
            self._symbols.append(self._item())
            return self._symbols[-1]
        if kind == 2:
            return self._pairlist(flags)
        if kind == 9:
            size = self._int()
            # Bit 12 of the flags: Latin-1.
            return None if size == -1 else self._take(size).decode("latin-1" if flags & 0x4000 else "utf-8")
        if kind in (10, 13):
            value = self._vector("i", 4)
        elif kind == 14:
            value = self._vector("d", 8)
        elif kind in (16, 19):
            value = [self._item() for _ in range(self._int())]
        else:
            raise ValueError(f"R data: objects of type {kind} are not supported (byte {self._at - 4})")
        if flags & 0x200:
            attributes = self._pairlist(self._int())
            if kind == 19 and attributes.get("names"):
                return dict(zip(attributes["names"], value))
        return value


def read_lazy_data(index: bytes, values: bytes) -> dict:
    """The objects of Rdata.rdx and Rdata.rdb, by name."""
    found = {}
    for name, (offset, size) in RObject(inflate(index)).read()["variables"].items():
        block = values[offset:offset + size]
        # Four bytes of the size, then zlib; or a letter for the method in between.
        packed = block[4:] if block[4:5] == b"\x78" else block[5:]
        if block[4:5] == b"Z":
            packed = lzma.decompress(packed, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
        found[name] = RObject(inflate(packed)).read()
    return found


# --- gettext ------------------------------------------------------------------------------------------------------------


def read_catalogue(data: bytes) -> list[tuple[str, str]]:
    """The pairs (message, translation) of a .mo file, without contexts; of plurals the singular."""
    if len(data) < 28:
        raise ValueError(f"a catalogue must have at least 28 bytes, got {len(data)}")
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise ValueError(f"a catalogue must start with 950412de or de120495, got {data[:4].hex()}")
    count, sources, targets = struct.unpack(order + "4x4x3I8x", data[:28])

    def text(table: int, i: int) -> str:
        size, offset = struct.unpack_from(order + "2I", data, table + 8 * i)
        if offset + size > len(data):
            raise ValueError(f"catalogue entry {i} ends at byte {offset + size}, the file has {len(data)}")
        return data[offset:offset + size].split(b"\0")[0].decode("utf-8")

    if max(sources, targets) + 8 * count > len(data):
        raise ValueError(f"a catalogue of {count} entries needs more than its {len(data)} bytes")
    pairs = ((text(sources, i).rpartition("\4")[2], text(targets, i)) for i in range(count))
    return [(source, target) for source, target in pairs if source and target]


# --- HTML ---------------------------------------------------------------------------------------------------------------


class HtmlText(html.parser.HTMLParser):
    """Paragraphs; a form feed before each h2."""

    BLOCKS = {"p", "div", "li", "ul", "ol", "blockquote", "h1", "h2", "h3", "h4", "h5", "br", "hr", "tr", "table", "pre"}
    SKIPPED = {"script", "style", "head", "title"}

    def __init__(self):
        super().__init__()
        self.paragraphs, self._text, self._skipped = [], [], 0

    def _flush(self):
        paragraph = " ".join("".join(self._text).split())
        self._text = []
        if paragraph:
            self.paragraphs.append(paragraph)

    def handle_starttag(self, tag, attributes):
        self._skipped += tag in self.SKIPPED
        if tag in self.BLOCKS:
            self._flush()
        if tag == "h2" and self.paragraphs:
            self.paragraphs.append("\f")

    def handle_endtag(self, tag):
        self._skipped -= tag in self.SKIPPED and self._skipped > 0
        if tag in self.BLOCKS:
            self._flush()

    def handle_data(self, data):
        if not self._skipped:
            self._text.append(data)


def joined(paragraphs: list[str]) -> str:
    """Paragraphs with an empty line between them; sections with a form feed between them."""
    sections, section = [], []
    for paragraph in [*paragraphs, "\f"]:
        if paragraph != "\f":
            section.append(paragraph)
        elif section:
            sections.append("\n\n".join(section))
            section = []
    return "\n\f\n".join(sections) + "\n" if sections else ""


def read_html(text: str) -> str:
    page = HtmlText()
    page.feed(text)
    page.close()
    page._flush()
    return joined(page.paragraphs)


# --- man pages ----------------------------------------------------------------------------------------------------------

FONT_REQUESTS = {"B", "I", "BR", "RB", "BI", "IB", "IR", "RI", "SM", "SB", "TP", "IP", "SH", "SS"}
ESCAPES = [
    (r'\\".*', ""), (r"\\f(\(..|\[[^]]*\]|.)", ""), (r"\\s[-+]?\d+", ""), (r"\\\*(\(..|\[[^]]*\]|.)", ""),
    (r"\\\((..)", lambda m: {"lq": "“", "rq": "”", "aq": "'", "dq": '"', "bu": "•", "em": "—", "en": "–",
                             "co": "©", "->": "→", "<-": "←", "oq": "‘", "cq": "’"}.get(m[1], "")),
    (r"\\\[[^]]*\]", ""), (r"\\[-']", lambda m: m[0][1]), (r"\\[ ~0]", " "), (r"\\e", "\0"), (r"\\.", ""),
    ("\0", r"\\"),
]


def read_man_page(text: str) -> str:
    """Text of a page in the man macros, without tables, macros and comments."""
    paragraphs, words, skipping = [], [], None

    def flush():
        line = " ".join(" ".join(words).split())
        words.clear()
        if line:
            paragraphs.append(line)

    for line in text.splitlines():
        request = re.match(r"[.']\s*([A-Za-z]{1,2}|\\\"|\.)?(.*)", line)
        name, rest = (request[1] or "", request[2]) if request else (None, line)
        if skipping:
            skipping = None if name == skipping else skipping
            continue
        if name in ("TS", "EQ", "PS", "de", "ig"):
            skipping = {"TS": "TE", "EQ": "EN", "PS": "PE"}.get(name, ".")
            continue
        if name is not None and name not in FONT_REQUESTS:
            if name in ("PP", "P", "LP", "br", "sp", "HP", "RS", "RE", "nf", "fi"):
                flush()
            continue
        for pattern, by in ESCAPES:
            rest = re.sub(pattern, by, rest)
        if name in ("SH", "SS", "TP", "IP"):
            flush()
        if name in ("TP", "IP"):
            rest = ""  # an indent, or a mark of a list
        words.append(rest.replace('"', "") if name else rest)
        if name in ("SH", "SS") or not line.strip():
            flush()
    flush()
    return joined(paragraphs)


# --- tagged and wrapped text --------------------------------------------------------------------------------------------


def strip_tags(line: str) -> str:
    """`[中央/n 电台/n]nt 记者/n` as 中央电台记者."""
    words = re.sub(r"\](nt|ns|nz|[a-zA-Z]{1,2})?(?=\s|$)", "", line).split()
    return "".join(word.rpartition("/")[0].removeprefix("[") if "/" in word else word for word in words)


def unwrap(lines: list[str], is_heading) -> str:
    """Lines of a book as paragraphs; a form feed before each heading of a chapter."""
    paragraphs, paragraph = [], []
    for line in [*lines, ""]:
        line = line.strip()
        if line and not is_heading(line):
            paragraph.append(line)
            continue
        if paragraph:
            paragraphs.append(" ".join(" ".join(paragraph).split()))
            paragraph = []
        if line:
            paragraphs += ["\f", line]
    return joined(paragraphs)
