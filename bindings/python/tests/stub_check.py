"""Compares the committed stub with the built module: mypy's stubtest, on a copy that it can read.

    stub_check.py [ARGUMENTS OF STUBTEST ...]

stubtest asks Python for signatures, and nanobind's functions do not give theirs that way. The twin has every function,
method and property of phasor._core under its name, as plain Python with the signature that nanobind recorded.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mypy import stubtest

import phasor._core

HERE = Path(__file__).resolve().parent


def names_only(signature: str) -> str:
    """`def f(x: int | None = \\0, *, y: str) -> object` as `def f(x=_default[0], *, y)`."""
    inside = signature[signature.index("(") + 1 : signature.rindex(")" if "->" not in signature else ") ->")]
    parts, depth, start = [], 0, 0
    for i, character in enumerate(inside + ","):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(inside[start:i].strip())
            start = i + 1
    arguments = []
    for part in filter(None, parts):
        default = re.search(r"= \\(\d+)$", part)
        arguments.append(part.split(":")[0].split(" =")[0] + (f"=_default[{default.group(1)}]" if default else ""))
    return f"{signature[: signature.index('(')]}({', '.join(arguments)})"


def plain(function: Any) -> Callable[..., object]:
    """A Python function with the name, arguments and defaults of one of nanobind's."""
    (signature, _, *rest), *overloads = function.__nb_signature__
    if overloads:
        raise SystemExit(f"stub_check: {function.__name__} must have one signature, got {1 + len(overloads)}")
    scope: dict[str, Any] = {"_default": rest[0] if rest else ()}
    exec(f"{names_only(signature)}: ...", scope)  # noqa: S102
    made: Callable[..., object] = scope[function.__name__]
    made.__module__, made.__qualname__ = "phasor._core", function.__qualname__
    return made


def member(value: object) -> object:
    match type(value).__name__:
        case "nb_method":
            return plain(value)
        case "nb_func":
            return staticmethod(plain(value))
        case "property":
            assert isinstance(value, property) and value.fget is not None
            return property(lambda self: None, None if value.fset is None else lambda self, to: None)
    return value


def twin_of_class(made: type) -> type:
    members = {name: member(value) for name, value in vars(made).items() if name not in ("__dict__", "__weakref__")}
    if type(members.get("__init__")) is type(object.__init__):
        del members["__init__"]  # a class that only its own functions make
    return type(made.__name__, (), members)


def twin() -> types.ModuleType:
    built, made = phasor._core, types.ModuleType("phasor._core")
    for name, value in vars(built).items():
        if type(value).__name__ == "nb_func":
            setattr(made, name, plain(value))
        elif isinstance(value, type) and type(value).__name__ == "nb_type":
            setattr(made, name, twin_of_class(value))
        else:
            setattr(made, name, value)
    return made


if __name__ == "__main__":
    sys.modules["phasor._core"] = twin()
    options = stubtest.parse_options(["--allowlist", str(HERE / "stub_allowlist.txt"), *sys.argv[1:], "phasor._core"])
    sys.exit(stubtest.test_stubs(options))
