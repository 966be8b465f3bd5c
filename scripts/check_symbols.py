#!/usr/bin/env python3
"""Fails on a name that the shared library exports and no public header declares, and the other way round.

    check_symbols.py LIBRARY [--headers include/phasor]

A header declares what PHASOR_API marks: a class with all its members, or a function.
"""

import argparse
import pathlib
import re
import subprocess
import sys

CLASS = r"\b(?:class|struct) (?:\[\[nodiscard\]\] )?PHASOR_API (?P<type>\w+)"
FUNCTION = r"\bPHASOR_API [^;{}()]*?\b(?P<function>operator[^\s\w(]+|\w+)\("
TOKEN = re.compile(rf"\bnamespace (?P<namespace>[\w:]+) \{{|{CLASS}|{FUNCTION}|(?P<open>\{{)|(?P<close>\}})")
IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*|extern "C" \{', re.DOTALL | re.MULTILINE)
ABOUT = re.compile(r"^(?:typeinfo|typeinfo name|vtable|VTT|guard variable) for ")


def declared(text):
    """(classes, functions) that a header exports, with their namespaces."""
    classes, functions, scopes = set(), set(), []
    for token in TOKEN.finditer(IGNORED.sub("", text)):
        prefix = "".join(scope + "::" for scope in scopes if scope)
        if token["namespace"]:
            scopes.append(token["namespace"])
        elif token["open"]:
            scopes.append("")
        elif token["close"] and scopes:
            scopes.pop()
        elif token["type"]:
            classes.add(prefix + token["type"])
        elif token["function"]:
            functions.add(prefix + token["function"])
    return classes, functions


def polymorphic(text):
    """The exported classes of a header, without namespaces, that have a base or a virtual function."""
    parts = re.split(CLASS, IGNORED.sub("", text))  # text, name, text, name, ...
    return {name for name, rest in zip(parts[1::2], parts[2::2])
            if re.match(r"(?: final)? :", rest) or re.search(r"\bvirtual\b", rest.split("\n};")[0])}


def bare(symbol):
    """A demangled name without arguments, return type and tags: phasor::io::Json::dump."""
    name = ABOUT.sub("", symbol).replace("[abi:cxx11]", "").replace("(anonymous namespace)", "{anonymous}")
    depth = 0
    for place, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not name[:place].endswith("operator"):
            name = name[:place]
            break
    return name if "operator" in name else name.rsplit(" ", 1)[-1]


def problems(symbols, texts):
    """Every disagreement between exported symbols and the headers' texts, as one line each."""
    classes, functions = set(), set()
    for text in texts:
        found = declared(text)
        classes |= found[0]
        functions |= found[1]
    names = {bare(symbol): symbol for symbol in symbols}
    found = [
        f"exported, but no public header declares it: {symbol}"
        for name, symbol in sorted(names.items())
        if name not in functions and not any(name == owner or name.startswith(owner + "::") for owner in classes)
    ]
    found += [f"PHASOR_API marks it, but it is not exported: {name}" for name in sorted(functions - set(names))]
    # A program that catches or derives from a class needs its typeinfo.
    known = {symbol.rsplit("::", 1)[-1] for symbol in symbols if symbol.startswith("typeinfo for ")}
    found += [f"its typeinfo is not exported: {name}"
              for name in sorted({name for text in texts for name in polymorphic(text)} - known)]
    return found


def main(arguments=None):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--headers", type=pathlib.Path, default=here.parent / "include/phasor")
    parser.add_argument("--list", action="store_true", help="print the exported names")
    options = parser.parse_args(arguments)
    listing = subprocess.run(["nm", "-D", "-C", "--defined-only", options.library], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    symbols = [line.split(" ", 2)[2] for line in listing.splitlines()]
    if options.list:
        print("\n".join(sorted(symbols)))
    texts = [path.read_text(encoding="utf-8") for path in sorted(options.headers.rglob("*.h*"))]
    found = problems(symbols, texts)
    for problem in found:
        print(problem, file=sys.stderr)
    if not symbols:
        print(f"check_symbols: {options.library} exports nothing", file=sys.stderr)
        return 2
    print(f"check_symbols: {len(symbols)} exported names, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
