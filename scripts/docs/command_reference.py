"""The reference of the command line as Markdown, from the man pages that `phasor man` prints.

Only what tools/phasor/man_page.cpp writes is understood; anything else is an error, so that nothing is lost in silence.
"""

import re
import subprocess

ESCAPES = {r"\-": "-", r"\e": "\\", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\(dq": '"', r"\&": ""}
ESCAPE = re.compile(r"\\(?:\((?:aq|ga|ha|ti|dq)|[-e&])")
FONT = re.compile(r"\\f([BIR])")


def plain(text):
    """Roff text without fonts and escapes."""
    return ESCAPE.sub(lambda match: ESCAPES[match[0]], FONT.sub("", text))


def prose(text):
    """Roff text as Markdown: flags and words with an underscore are marked as code."""
    pieces = re.split(r"(`[^`]*`)", plain(text))
    for at in range(0, len(pieces), 2):
        piece = re.sub(r"([\\*<\[\]|])", r"\\\1", pieces[at])
        pieces[at] = re.sub(r"(?<![\w-])(--?[a-zA-Z][\w-]*)|\b\w+_\w+\b", r"`\g<0>`", piece)
    return "".join(pieces)


def markdown_of(page, heading, links=()):
    """A man page as Markdown, from its synopsis on; `links` are terms that lead to their own section."""
    text, section, lines = "", "", page.splitlines()
    at, synopsis, in_list = 0, [], False

    def end_synopsis():
        nonlocal text, synopsis
        if synopsis:
            text += "```sh\n" + " ".join(synopsis).replace("\n ", "\n") + "\n```\n\n"
            synopsis = []

    while at < len(lines):
        request, _, argument = lines[at].partition(" ")
        at += 1
        if request == ".SH":
            end_synopsis()
            section, in_list = plain(argument), False
            if section not in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
                text = text.rstrip("\n") + "\n\n" + heading.format(section.capitalize()) + "\n\n"
        elif section == "SYNOPSIS":
            if request == ".br":
                synopsis.append("\n")
                continue
            synopsis.append(plain(argument if request in (".B", ".I") else lines[at - 1]))
        elif section in ("", "NAME", "SEE ALSO") or request in (".PP", ".br"):
            text += "\n" if request == ".PP" else ""
        elif request == ".TP":
            term = plain(re.sub(r"^\.[BI] ", "", lines[at]))
            at += 1
            body = []
            while at < len(lines) and (not lines[at].startswith(".") or lines[at] == ".br"):
                if lines[at] != ".br":
                    body.append(prose(lines[at]))
                at += 1
            text += "" if in_list else "| | |\n|---|---|\n"
            in_list = True
            shown = f"`{term.replace('|', chr(92) + '|')}`"
            text += f"| {f'[{shown}](#{term})' if term in links else shown} | {'<br>'.join(body)} |\n"
            if at >= len(lines) or lines[at] != ".TP":
                text += "\n"
        elif request == ".nf":
            end = lines.index(".fi", at)
            text += "```text\n" + "\n".join(plain(line) for line in lines[at:end]) + "\n```\n\n"
            at = end + 1
        elif request.startswith("."):
            raise ValueError(f"man page: cannot read the request {request} in: {lines[at - 1]}")
        else:
            text += prose(lines[at - 1]) + "\n"
    end_synopsis()
    return text


def printed(phasor, *arguments):
    return subprocess.run(
        [phasor, *arguments], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout


def write_page(phasor, output):
    """Writes the page of every verb; returns its path under output."""
    program = printed(phasor, "man")
    verbs = re.findall(r"^\.TP\n\.B (\S+)\n", program.partition(".SH VERBS\n")[2].partition("\n.SH ")[0] + "\n", re.M)
    if not verbs:
        raise ValueError("phasor man: no section VERBS with verbs")
    verbs = [plain(verb) for verb in verbs]
    exit_status = ".SH EXIT STATUS\n" + program.partition(".SH EXIT STATUS\n")[2].partition(".SH ")[0]
    text = "# Command line\n\n" + markdown_of(program, "## {}", verbs)
    for verb in verbs:
        # What holds for every verb is told once.
        page = printed(phasor, "man", verb).replace(exit_status, "")
        summary = re.search(r"^\.SH NAME\n\S+ \\- (.*)$", page, re.M)[1]
        summary = prose(summary)
        text += f"## `phasor {verb}` {{ #{verb} }}\n\n{summary[0].upper()}{summary[1:]}.\n\n" + markdown_of(
            page, "**{}**"
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / "command_line.md").write_text(text, encoding="utf-8")
    return "command_line.md"
