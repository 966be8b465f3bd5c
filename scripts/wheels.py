#!/usr/bin/env python3
"""The source distribution and the wheels of the Python package, in build/wheel.

    wheels.py [--tests] [PYTHON ...]

PYTHON: interpreters with their headers; without any, every python3.N of PATH. From CPython 3.12 on one wheel is for all
versions (the limited API), and it is checked on each of them; an older version has a wheel of its own. The wheels are
compiled from the unpacked source distribution, one after the other in one folder: only the module is compiled again.

--tests: run the package's tests on every installed wheel too.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

CLONE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = CLONE / "build/wheel"
LIMITED_API = (3, 12)  # wheel.py-api of pyproject.toml
PINS = CLONE / "bindings/python/requirements-test.txt"
BUILDERS = ("nanobind", "scikit-build-core", "nlohmann-json")
TESTERS = ("numpy", "ml_dtypes", "matplotlib", "pytest", "sacrebleu")
# A wheel for others has everything: a missing library is an error, and not left out.
WHOLE = ("PHASOR_BUILD_TOOLS", "PHASOR_ONEDNN", "PHASOR_SENTENCEPIECE", "PHASOR_ZLIB")
# Compiled into the wheel from headers; their licences ask to be named like those of the shared libraries.
HEADERS = ("nlohmann-json3-dev", "libcli11-dev")


def say(text: str) -> None:
    print(f"wheels: {text}", file=sys.stderr, flush=True)


def run(*command: str | os.PathLike[str], folder: pathlib.Path = CLONE) -> str:
    """What a command prints; its own words where it fails. The tools of this environment come first in PATH."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment["PATH"] = f"{pathlib.Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    result = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"wheels: {' '.join(map(str, command))} must exit 0, got {result.returncode}:\n{result.stdout}")
    return result.stdout.strip()


def version_of(python: pathlib.Path) -> tuple[int, int] | None:
    """Its version if it is a CPython that can compile and install a module."""
    asked = ("import os, sys, sysconfig, venv, ensurepip; header = sysconfig.get_path('include') + '/Python.h';"
             "print(*sys.version_info[:2]) if os.path.exists(header) and sys.implementation.name == 'cpython' else exit(1)")
    result = subprocess.run([python, "-c", asked], text=True, capture_output=True)
    if result.returncode != 0:
        return None
    major, minor = map(int, result.stdout.split())
    return major, minor


def interpreters(given: list[pathlib.Path]) -> dict[tuple[int, int], pathlib.Path]:
    lowest = re.search(r'requires-python = ">=3\.(\d+)"', (CLONE / "pyproject.toml").read_text())
    assert lowest
    found: dict[tuple[int, int], pathlib.Path] = {}
    on_path = (shutil.which(f"python3.{minor}") for minor in range(int(lowest[1]), 30))
    for python in given or [pathlib.Path(name) for name in on_path if name]:
        version = version_of(python)
        if version:
            found.setdefault(version, python)
        elif given:
            sys.exit(f"wheels: not a CPython with venv and its headers: {python}")
        else:  # such as a shim of pyenv for a version that is not active
            say(f"left out, not a CPython with venv and its headers: {python}")
    if not found:
        sys.exit("wheels: no CPython with venv and its headers in PATH. On Debian: apt-get install python3-dev python3-venv")
    return dict(sorted(found.items()))


def pins(names: tuple[str, ...], version: tuple[int, int]) -> list[str]:
    """The versions that the tests use. NumPy and its like end their support of old Pythons early: there the newest one
    that pip finds."""
    lines = [line.strip() for line in PINS.read_text().splitlines() if line.split("==")[0] in names]
    assert len(lines) == len(names), (names, lines)
    return lines if version == (3, 11) or names == BUILDERS else [line.split("==")[0] for line in lines]


def environment(version: tuple[int, int], python: pathlib.Path, names: tuple[str, ...]) -> pathlib.Path:
    folder = FOLDER / f"venvs/{version[0]}.{version[1]}"
    if not (folder / "bin/python").exists():
        run(python, "-m", "venv", folder)
    if names:
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins(names, version))
    return folder / "bin/python"


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Files that are equal keep their times, which are all the same inside the archive: so a build compiles what changed."""
    wanted = set()
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if not member.isfile():
                continue
            path = folder / pathlib.Path(*pathlib.PurePath(member.name).parts[1:])
            wanted.add(path)
            content = tar.extractfile(member)
            assert content is not None
            data = content.read()
            if not path.is_file() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(member.mode & 0o777)
    for path in [path for path in folder.rglob("*") if path.is_file() and path not in wanted]:
        path.unlink()


def make_source() -> pathlib.Path:
    for old in FOLDER.glob("*.tar.gz"):
        old.unlink()
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", FOLDER)
    source, = FOLDER.glob("*.tar.gz")
    unpack(source, FOLDER / "source")
    return source


def add_licences(wheel: pathlib.Path) -> pathlib.Path:
    """Adds the licences of what the wheel contains besides our code, and packs it into FOLDER."""
    with tempfile.TemporaryDirectory() as name:
        run(sys.executable, "-m", "wheel", "unpack", "--dest", name, wheel)
        unpacked, = pathlib.Path(name).iterdir()
        licences, = unpacked.glob("*.dist-info/licenses")
        packages = set(HEADERS)
        for library in (unpacked / "phasor.libs").iterdir():
            # libdnnl-0123abcd.so.2.6 -> libdnnl.so.2.6
            file = re.sub(r"-[0-9a-f]{8,}(?=\.so)", "", library.name)
            packages.add(run("dpkg-query", "-S", f"*/{file}").split(":")[0])
        for package in sorted(packages):
            text = pathlib.Path("/usr/share/doc", package, "copyright")
            if not text.is_file():
                sys.exit(f"wheels: no licence in {text}")
            shutil.copyfile(text, licences / f"{package}.txt")
        nanobind, = pathlib.Path(sys.prefix).glob("lib/python*/site-packages/nanobind-*.dist-info/licenses/LICENSE")
        shutil.copyfile(nanobind, licences / "nanobind.txt")
        packed = run(sys.executable, "-m", "wheel", "pack", "--dest-dir", FOLDER, unpacked)
    names: list[str] = re.findall(r"[\w.-]+\.whl", packed)
    return FOLDER / names[-1]


def forget_python(cache: pathlib.Path) -> None:
    """CMake keeps the headers of the Python that it found first."""
    if cache.is_file():
        lines = cache.read_text().splitlines(keepends=True)
        cache.write_text("".join(line for line in lines if not re.match(r"_?Python_|nanobind_DIR|SKBUILD_SABI_VERSION", line)))


def make_wheel(python: pathlib.Path) -> pathlib.Path:
    for folder in ("raw", "repaired"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    forget_python(FOLDER / "cmake/CMakeCache.txt")
    settings = [f"--config-settings=cmake.define.{option}=ON" for option in WHOLE]
    settings += ["--config-settings=cmake.define.PHASOR_OLDER_GLIBC=ON", f"--config-settings=build-dir={FOLDER}/cmake"]
    run(python, "-m", "pip", "wheel", FOLDER / "source", "--no-deps", "--no-build-isolation", "--wheel-dir", FOLDER / "raw",
        *settings)
    raw, = (FOLDER / "raw").iterdir()
    # Adds oneDNN, SentencePiece and what they need.
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", FOLDER / "repaired", raw)
    repaired, = (FOLDER / "repaired").iterdir()
    return add_licences(repaired)


def audit(wheel: pathlib.Path) -> None:
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
    tag = re.search(r'platform tag:\s+"(\w+)"', shown)
    if not tag or not tag[1].startswith("manylinux"):
        sys.exit(f"wheels: {wheel.name} must be a manylinux wheel, but auditwheel says:\n{shown}")
    if tag[1] not in wheel.name:
        sys.exit(f"wheels: the name of {wheel.name} must say {tag[1]}")
    if "-abi3-" in wheel.name:
        told = run(sys.executable, "-m", "abi3audit", "--strict", "--summary", wheel)
        say("abi3audit: " + " ".join(told.split()))


def check(wheel: pathlib.Path, version: tuple[int, int], python: pathlib.Path, tests: bool) -> None:
    used = environment(version, python, ())
    say(f"{version[0]}.{version[1]}: " + run(used, "-B", CLONE / "bindings/python/tests/wheel/check_wheel.py", CLONE,
                                             "--wheel", wheel))
    if not tests:
        return
    used = environment(version, python, TESTERS)
    run(used, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel)
    os.environ["PHASOR_COMMAND"] = str(used.parent / "phasor")
    files = sorted((CLONE / "bindings/python/tests").glob("*_test.py"))
    printed = run(used, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, folder=FOLDER)
    say(f"{version[0]}.{version[1]}: {printed.splitlines()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("python", type=pathlib.Path, nargs="*")
    arguments = parser.parse_args()
    found = interpreters([python.absolute() for python in arguments.python])
    say("CPython " + ", ".join(f"{major}.{minor}" for major, minor in found))
    if max(found) < LIMITED_API:
        say("no CPython 3.12 or newer in PATH: the wheel for 3.12 and all later versions is not built")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.whl"):
        old.unlink()
    made = [make_source()]
    for version, python in found.items():
        if version < LIMITED_API or "-abi3-" not in made[-1].name:
            start = time.monotonic()
            wheel = make_wheel(environment(version, python, BUILDERS))
            audit(wheel)
            made.append(wheel)
            say(f"built {wheel.name} in {time.monotonic() - start:.0f} s")
        check(made[-1], version, python, arguments.tests)
    for file in made:
        print(f"{file.stat().st_size / 1e6:6.1f} MB  {file.relative_to(CLONE)}")


if __name__ == "__main__":
    main()
