"""The references of C++ and C as Markdown: what Doxygen finds in the installed headers, as the headers write it.

Doxygen says which names there are, where they are declared and which types they use. Declarations and comments are
taken from the header itself: comments here are contracts in fixed fields (shape, throws, cost ...), which become tables.
"""

import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

DOXYFILE = """
INPUT = include/phasor
RECURSIVE = YES
FILE_PATTERNS = *.hpp *.h
EXCLUDE_PATTERNS = */internal/*
EXTRACT_ALL = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OUTPUT_DIRECTORY = {output}
QUIET = YES
WARNINGS = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = PHASOR_API=
"""
KINDS = {"function", "variable", "typedef", "enum"}
CONTRACT = re.compile(r"^([a-z][a-z ]{1,14}?)\s{2,}(\S.*)$")
BODY = re.compile(r"\)((?:\s*(?:const|noexcept|override|&&?))*)\s*(?::[^:;{}][^;{}]*)?\{")


@dataclass
class Name:
    """A name of a header: where it is declared, and the ids of the types that it uses."""

    id: str
    text: str
    kind: str
    file: str
    line: int
    uses: list = field(default_factory=list)


@dataclass
class Entry:
    """Declarations that are documented together."""

    names: list
    code: str
    comment: list
    anchor: str = ""
    overload: bool = False  # of the entry before it


def names_of(root, output):
    """Every name that Doxygen finds in the installed headers."""
    output.mkdir(parents=True, exist_ok=True)
    subprocess.run(["doxygen", "-"], input=DOXYFILE.format(output=output), text=True, check=True, cwd=root)
    names = []
    for path in sorted((output / "xml").glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            kind = compound.get("kind")
            if kind in ("struct", "class", "union"):
                place = compound.find("location")
                names.append(
                    Name(
                        compound.get("id"),
                        compound.findtext("compoundname").split("::")[-1],
                        kind,
                        place.get("file"),
                        int(place.get("line")),
                    )
                )
            if kind not in ("namespace", "file") or compound.findtext("compoundname").endswith("::detail"):
                continue
            for member in compound.iter("memberdef"):
                if member.get("kind") in KINDS:
                    place = member.find("location")
                    uses = [
                        ref.get("refid")
                        for part in ("type", "param")
                        for one in member.findall(part)
                        for ref in one.iter("ref")
                    ]
                    name = member.findtext("name")
                    names.append(
                        Name(
                            member.get("id"), name, member.get("kind"), place.get("file"), int(place.get("line")), uses
                        )
                    )
    return names


def is_comment(line):
    return line.startswith(("//", "/*", " *"))


def comment_text(lines):
    """The lines of a comment without its marks."""
    result = []
    for line in lines:
        line = re.sub(r"^\s*(///?<?|/\*+|\*+/|\*)? ?", "", line.rstrip(), count=1)
        result.append(re.sub(r"\s*\*+/$", "", line).rstrip())
    while result and not result[-1]:
        result.pop()
    return result


class Header:
    """One header, as entries in their order, with the comments between them."""

    def __init__(self, root, path, names):
        self.path = path
        self.lines = (root / path).read_text(encoding="utf-8").splitlines()
        self.names = sorted(names, key=lambda name: name.line)
        self.head, self.parts = [], []
        self.read()

    def start_of(self, at):
        """The first line of the declaration that has line `at`."""
        while at > 0:
            above = self.lines[at - 1]
            code = above.split("//")[0].rstrip()
            if not code or is_comment(above) or above.startswith("#") or code.endswith((";", "}", "{", ":", "*/")):
                break
            at -= 1
        return at

    def end_of(self, at):
        """The last line of the declaration that begins on line `at`, a comment after it included."""
        depth, in_comment = 0, False
        for number in range(at, len(self.lines)):
            line = self.lines[number]
            code, rest = "", line
            while rest:
                if in_comment:
                    _, closed, rest = rest.partition("*/")
                    in_comment = not closed
                else:
                    before, opened, rest = rest.partition("/*")
                    code += before.split("//")[0]
                    if "//" in before:
                        rest, opened = "", ""
                    in_comment = bool(opened)
            depth += code.count("{") - code.count("}") + code.count("(") - code.count(")")
            if depth == 0 and code.rstrip().endswith((";", "}")):
                ended = number
                while in_comment:
                    ended += 1
                    in_comment = "*/" not in self.lines[ended]
                return ended
        raise ValueError(f"{self.path}:{at + 1}: the declaration has no end")

    def read(self):
        end = -1  # the last line that was read
        while self.head_line(end + 1):
            end += 1
        self.head = comment_text(self.lines[: end + 1])
        for name in self.names:
            start = self.start_of(name.line - 1)
            if start <= end:  # a member of what was read, or its second name
                if self.parts and isinstance(self.parts[-1], Entry) and name.kind == "typedef":
                    self.parts[-1].names.append(name)
                continue
            comment_start = start
            while comment_start > end + 1 and is_comment(self.lines[comment_start - 1]):
                comment_start -= 1
            self.parts += self.between(end + 1, comment_start)
            comment = comment_text(self.lines[comment_start:start])
            last, end = end, self.end_of(start)
            code = public_part(self.lines[start : end + 1])
            if not comment and start == last + 1 and self.parts and self.continues(name, code):
                self.parts[-1].names.append(name)
                self.parts[-1].code += "\n" + code
            else:
                self.parts.append(Entry([name], code, comment))

    def continues(self, name, code):
        """Whether a declaration without a comment belongs to the entry before it: functions of one comment, or the
        values of a type."""
        before = self.parts[-1]
        if not isinstance(before, Entry):
            return False
        kinds = (before.names[-1].kind, name.kind)
        if kinds == ("typedef", "enum"):
            return True
        return kinds[0] == kinds[1] and kinds[0] in KINDS and not re.search(r"//|/\*", code)

    def head_line(self, at):
        return at < len(self.lines) and is_comment(self.lines[at])

    def between(self, first, last):
        """Comments that belong to no declaration: they explain what follows."""
        block, result = [], []
        for line in self.lines[first:last] + [""]:
            if is_comment(line):
                block.append(line)
            elif block:
                text = comment_text(block)
                if not line.strip() and not re.match(r"(NOLINT|clang-format)", text[0]):
                    result.append([one.strip("- ") if one.startswith("--") else one for one in text])
                block = []
        return result


def public_part(lines):
    """A declaration without its private members and without the bodies of functions."""
    text, private = [], False
    for line in lines:
        if re.match(r"\s*(private|protected):", line):
            private = True
        elif re.match(r"\s*public:", line) or re.match(r"\S", line):
            private = False
        if not private:
            text.append(re.sub(r"\s*// NOLINT.*", "", line))
    code = "\n".join(text)
    at = 0
    while match := BODY.search(code, at):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        code = code[: match.start()] + ")" + re.sub(r"\s+", " ", match[1]) + ";" + code[end:].removeprefix(";")
        at = match.start() + 1
    return without_export(re.sub(r"\n\s*\n(\s*\})", r"\n\1", code))


def without_export(code):
    """The code without the mark of exported names; lines that were aligned with what follows it stay aligned."""
    lines, shift = [], 0
    for line in code.split("\n"):
        aligned = shift and len(line) - len(line.lstrip()) > shift + 4
        lines.append(line[shift:] if aligned else line.replace("PHASOR_API ", "", 1))
        if "PHASOR_API " in line:
            shift = len("PHASOR_API ")
        if line.rstrip().endswith((";", "{", "}")):
            shift = 0
    return "\n".join(lines)


class Links:
    """Pages and anchors of every name."""

    def __init__(self):
        self.of_id, self.of_text = {}, {}

    def add(self, entry, target):
        for name in entry.names:
            self.of_id[name.id] = (name.text, target)
            if name.text and not name.text.startswith("@"):
                self.of_text.setdefault(name.text, []).append(target)

    def target(self, text, page):
        """Where a name is explained: on this page if it is here, else in a page of the same language."""
        targets = self.of_text.get(text, [])
        nearest = [one for one in targets if one.startswith(page + "#")]
        same = [one for one in targets if one.split("/")[1] == page.split("/")[1]]
        return next(iter(nearest + same), None)

    def prose(self, text, page):
        """Text of a comment as Markdown: names of the reference are links, other code is marked as code."""

        def word(match):
            text = match[0]
            plain = text.removesuffix("()").split("::")[-1]
            like_code = re.search(r"_|::|\(\)|^k[A-Z]|[a-z][A-Z]", text)
            target = self.target(plain, page)
            if target and (like_code or plain[0].isupper()):
                return f"[`{text}`]({relative(target, page)})"
            return f"`{text}`" if like_code else text

        pieces = re.split(r"(`[^`]*`)", text)
        for at in range(0, len(pieces), 2):
            piece = re.sub(r"([\\*<\[\]|])", r"\\\1", pieces[at])
            pieces[at] = re.sub(r"[A-Za-z_][\w]*(?:::\w+)*(?:\(\))?", word, piece)
        return "".join(pieces)


def relative(target, page):
    return target.removeprefix(page) if target.startswith(page + "#") else target


def markdown_of(comment, links, page):
    """A comment as Markdown: paragraphs, formulas as written, and the contract as a table."""
    blocks, contract, kind = [], [], None

    def add(new_kind, line):
        nonlocal kind
        if kind != new_kind or not blocks:
            blocks.append((new_kind, []))
        blocks[-1][1].append(line)
        kind = new_kind

    for line in comment:
        match = CONTRACT.match(line)
        if match and not re.match(r"(iff|or|and|to)$", match[1]):
            contract.append([match[1], match[2]])
            kind = "contract"
        elif kind == "contract" and line.startswith("   "):
            contract[-1][1] += " " + line.strip()
        elif not line:
            kind = None
        elif line.startswith("  ") or re.search(r"\S {3,}\S", line):
            add("code", line)
        else:
            add("text", line)
    text = ""
    for block, lines in blocks:
        if block == "code":
            text += "```text\n" + "\n".join(lines) + "\n```\n\n"
        else:
            text += links.prose(" ".join(lines), page) + "\n\n"
    if contract:
        text += "| | |\n|---|---|\n"
        text += "".join(f"| {name} | {links.prose(value, page)} |\n" for name, value in contract) + "\n"
    return text


def texts_of(entry):
    """The names of an entry, each once."""
    return list(dict.fromkeys(name.text for name in entry.names if name.text and not name.text.startswith("@")))


def heading_of(entry):
    return texts_of(entry)[0]


def write_pages(root, output, scratch):
    """Writes a page for each room of C++ and for each header of C; returns their paths under output."""
    names = names_of(root, scratch)
    collected = collected_names(root)
    pages = {}
    for path in sorted({name.file for name in names if "/detail" not in name.file}):
        room = pathlib.PurePath(path).relative_to("include/phasor")
        if len(room.parts) == 1:
            continue
        page = f"c/{room.stem}.md" if room.parts[0] == "c" else f"cpp/{room.parts[0]}.md"
        pages.setdefault(page, []).append(Header(root, path, [name for name in names if name.file == path]))
    links = Links()
    for page, headers in pages.items():
        used = set()
        for header in headers:
            last = None
            for part in [part for part in header.parts if isinstance(part, Entry)]:
                part.overload = last is not None and heading_of(last) == heading_of(part)
                part.anchor = last.anchor if part.overload else unused(heading_of(part).lower(), used)
                links.add(part, f"../{page}#{part.anchor}")
                last = part
    for page, headers in pages.items():
        target = output / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_text(page, headers, links, collected), encoding="utf-8")
    return sorted(pages)


def unused(anchor, used):
    """The anchor, with a number if the page has it already."""
    number, result = 1, anchor
    while result in used:
        number += 1
        result = f"{anchor}-{number}"
    used.add(result)
    return result


def collected_names(root):
    """Names of a room that rope.hpp, attention.hpp or models.hpp also declare in namespace phasor."""
    result = {}
    for header in ("rope", "attention", "models"):
        text = (root / f"include/phasor/{header}.hpp").read_text(encoding="utf-8")
        for room, name in re.findall(r"^using (\w+)::(\w+);", text, re.M):
            result.setdefault((room, name), header)
    return result


def page_text(page, headers, links, collected):
    is_c = page.startswith("c/")
    room = pathlib.PurePath(page).stem
    text = f"# `{headers[0].path.removeprefix('include/')}`\n\n" if is_c else f"# C++: `{room}`\n\n"
    here = f"../{page}"
    for header in headers:
        if not is_c:
            text += f"## `{header.path.removeprefix('include/')}`\n\n"
        text += markdown_of(header.head, links, here)
        level = "##" if is_c else "###"
        for part in header.parts:
            if not isinstance(part, Entry):
                text += markdown_of(part, links, here)
                continue
            constant = part.names[0].kind == "variable"
            if not part.overload:
                title = ", ".join(f"`{one}`" for one in texts_of(part))
                text += f"{level}{'#' * constant} {title} {{ #{part.anchor} }}\n\n"
            text += f"```{'c' if is_c else 'cpp'}\n{part.code}\n```\n\n"
            text += markdown_of(part.comment, links, here)
            notes = []
            if header_name := collected.get((room, heading_of(part))):
                notes.append(f"In `<phasor/{header_name}.hpp>`: `phasor::{heading_of(part)}`.")
            types = {}
            for name in part.names:
                for used in name.uses:
                    if used in links.of_id and links.of_id[used][1] != f"{here}#{part.anchor}":
                        types[links.of_id[used][0]] = links.of_id[used][1]
            if types:
                notes.append(
                    "Types: " + ", ".join(f"[`{one}`]({relative(to, here)})" for one, to in types.items()) + "."
                )
            if notes:
                text += " ".join(notes) + "\n\n"
    return text
