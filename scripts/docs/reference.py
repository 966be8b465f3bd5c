#!/usr/bin/env python3
"""Writes docs/reference: the pages of C++ and C, of the Python package and of the command line, from the sources."""

import argparse
import pathlib
import shutil
import sys

import command_reference
import header_reference

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A page each: its modules are read by mkdocstrings when the site is built.
PYTHON = {
    "phasor": ["phasor"],
    "torch": [
        "phasor.torch",
        "phasor.torch.hf",
        "phasor.torch.llama",
        "phasor.torch.flash_attn",
        "phasor.torch.rotary_embedding_torch",
        "phasor.torch.parallel",
    ],
    "parallel": ["phasor.parallel"],
    "onnx": ["phasor.onnx"],
    "plot": ["phasor.plot"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phasor", type=pathlib.Path, help="the built command")
    options = parser.parse_args()
    if not options.phasor.is_file():
        parser.error(f"no such program: {options.phasor}; ./dev docs builds it")
    output = ROOT / "docs" / "reference"
    shutil.rmtree(output, ignore_errors=True)
    pages = header_reference.write_pages(ROOT, output, ROOT / "build" / "docs" / "doxygen")
    pages.append(command_reference.write_page(options.phasor, output))
    for page, modules in PYTHON.items():
        path = output / "python" / f"{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        title = "phasor" if page == "phasor" else f"phasor.{page}"
        path.write_text(
            f"# Python: `{title}`\n\n" + "".join(f"::: {module}\n\n" for module in modules), encoding="utf-8"
        )
        pages.append(f"python/{page}.md")
    print(f"docs/reference: {len(pages)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
