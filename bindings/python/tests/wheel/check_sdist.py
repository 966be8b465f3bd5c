"""The source distribution: it has what a build needs and nothing else, and it configures on a bare machine.

    check_sdist.py CLONE BUILD_FOLDER

It is configured twice: with every part, and with the folders of this machine's headers and libraries ignored, as on a
machine that has a compiler and Python alone. CMake stops at a source that is missing. `./dev sdist` compiles it.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from typing import NoReturn

from scikit_build_core.build import build_sdist

LARGEST = 6_000_000  # bytes of the archive; the model and the page inside the command are two thirds of it
ROOTS = ("CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "bench", "bindings", "cmake", "include",
         "src", "tools", "web")
WHOLE = ("bindings/python/phasor", "bindings/python/src", "include", "src", "tools")  # every file of these
NOT_INSIDE = re.compile(r"(^|/)(tests|golden|results|docs|build|__pycache__)/|bench/(peers|matrix)/|web/(?!CMakeLists.txt|explorer.html)")
OPTIONS = ("PHASOR_BUILD_TOOLS", "PHASOR_ONEDNN", "PHASOR_SENTENCEPIECE", "PHASOR_ZLIB")


def fail(text: str) -> NoReturn:
    sys.exit(f"check_sdist: {text}")


def check_names(names: set[str], clone: pathlib.Path) -> None:
    strange = sorted(name for name in names if name.split("/")[0] not in ROOTS or NOT_INSIDE.search(name))
    if strange:
        fail(f"not for a source distribution: {', '.join(strange)}")
    wanted = {str(path.relative_to(clone)) for folder in WHOLE for path in (clone / folder).rglob("*")
              if path.is_file() and "__pycache__" not in path.parts}
    if wanted - names:
        fail(f"missing from the source distribution: {', '.join(sorted(wanted - names))}")


def configure(source: pathlib.Path, build: pathlib.Path, *settings: str) -> str:
    site = sysconfig.get_path("purelib")  # scikit-build-core searches it too
    command = ["cmake", "-S", str(source), "-B", str(build), "-DSKBUILD=2", f"-DSKBUILD_SCRIPTS_DIR={build}", "-DPHASOR_BUILD_PYTHON=ON",
               f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_PREFIX_PATH={site}", "-DPHASOR_BUILD_TESTS=OFF",
               "-DPHASOR_BUILD_EXAMPLES=OFF", *settings]
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        fail(f"the source distribution must configure with {' '.join(settings)}:\n{result.stdout}")
    return result.stdout


def main() -> None:
    clone, scratch = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = pathlib.Path(name)
        archive = folder / build_sdist(str(folder))
        if archive.stat().st_size > LARGEST:
            fail(f"{archive.name} must have at most {LARGEST} bytes, got {archive.stat().st_size}")
        with tarfile.open(archive) as tar:
            names = {member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()}
            tar.extractall(folder, filter="data")
        check_names(names, clone)
        source, = (path for path in folder.iterdir() if path.is_dir())
        configure(source, folder / "whole", *(f"-D{option}=ON" for option in OPTIONS))
        # Exact folders, not what is below them: Python's own headers are in /usr/include/python3.N.
        architecture = sysconfig.get_config_var("MULTIARCH")
        ignored = ";".join(f"{root}/{folder}" for root in ("", "/usr", "/usr/local") for folder in
                           ("include", f"include/{architecture}", "lib", f"lib/{architecture}", "lib64"))
        told = configure(source, folder / "bare", f"-DCMAKE_IGNORE_PATH={ignored}",
                         *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in ("CLI11", "fmt", "nlohmann_json")),
                         *(f"-D{option}=AUTO" for option in OPTIONS))
        kept = [option for option in OPTIONS if f"{option}=OFF" not in told]
        if kept:
            fail(f"a bare machine must have none of {', '.join(OPTIONS)}, got {', '.join(kept)}:\n{told}")
        print(f"{archive.name}, {archive.stat().st_size / 1e6:.1f} MB, {len(names)} files: whole, and configures bare")


if __name__ == "__main__":
    main()
