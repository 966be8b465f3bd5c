"""Compares the committed stubs with the built modules: mypy's stubtest, on copies that it can read.

    stub_check.py [ARGUMENTS OF STUBTEST ...]

stubtest asks Python for signatures, and nanobind's functions do not give theirs that way. A twin has every function,
method and property of its module under its name, as plain Python with the signature that nanobind recorded.
phasor._phasor_parallel is compared if it was built.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mypy import stubtest

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


def plain(function: Any, module: str) -> Callable[..., object]:
    """A Python function with the name, arguments and defaults of one of nanobind's."""
    (signature, _, *rest), *overloads = function.__nb_signature__
    if overloads:
        raise SystemExit(f"stub_check: {function.__name__} must have one signature, got {1 + len(overloads)}")
    scope: dict[str, Any] = {"_default": rest[0] if rest else ()}
    exec(f"{names_only(signature)}: ...", scope)  # noqa: S102
    made: Callable[..., object] = scope[function.__name__]
    made.__module__, made.__qualname__ = module, function.__qualname__
    return made


def member(value: object, module: str) -> object:
    match type(value).__name__:
        case "nb_method":
            return plain(value, module)
        case "nb_func":
            return staticmethod(plain(value, module))
        case "property":
            assert isinstance(value, property) and value.fget is not None
            return property(lambda self: None, None if value.fset is None else lambda self, to: None)
    return value


def twin_of_class(made: type) -> type:
    kept = {name: value for name, value in vars(made).items() if name not in ("__dict__", "__weakref__")}
    members = {name: member(value, made.__module__) for name, value in kept.items()}
    if type(members.get("__init__")) is type(object.__init__):
        del members["__init__"]  # a class that only its own functions make
    return type(made.__name__, (), members)


def twin(module: str) -> types.ModuleType:
    built, made = importlib.import_module(module), types.ModuleType(module)
    for name, value in vars(built).items():
        if type(value).__name__ == "nb_func":
            setattr(made, name, plain(value, module))
        elif isinstance(value, type) and type(value).__name__ == "nb_type":
            setattr(made, name, twin_of_class(value))
        else:
            setattr(made, name, value)
    return made


if __name__ == "__main__":
    modules = [name for name in ("phasor._core", "phasor._phasor_parallel") if importlib.util.find_spec(name)]
    sys.modules |= {name: twin(name) for name in modules}
    options = stubtest.parse_options(["--allowlist", str(HERE / "stub_allowlist.txt"), *sys.argv[1:], *modules])
    sys.exit(stubtest.test_stubs(options))
