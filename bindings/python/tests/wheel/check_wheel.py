"""The wheel as a new user gets it: built, installed into an empty environment, used from another folder.

    check_wheel.py CLONE (--build FOLDER | --wheel FILE)

--build packs what a build folder already holds (see the CMakeLists.txt in this folder), --wheel takes a wheel
that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
import zipfile

USE = """
import pathlib, sys
import numpy as np
import phasor

clone = pathlib.Path(sys.argv[1])
here = pathlib.Path(phasor.__file__).resolve()
assert not here.is_relative_to(clone), here
assert (here.parent / "py.typed").is_file() and (here.parent / "_core.pyi").is_file()

spec = phasor.RopeSpec(head_dim=4, base=10000.0, layout="interleaved")
x = np.ones((2, 1, 4), np.float32)
y = phasor.rotate(x, spec)
angles = np.array([1.0, 0.01])  # radians per position
expected = np.stack((np.cos(angles) - np.sin(angles), np.cos(angles) + np.sin(angles)), -1).reshape(4)
assert np.array_equal(y[0], x[0]) and np.allclose(y[1, 0], expected, atol=1e-6), y
try:
    phasor.RopeSpec(head_dim=4, rotary_dim=3)
except phasor.Error as error:
    assert isinstance(error, ValueError)
else:
    raise AssertionError("an odd rotary_dim must be refused")
model = phasor.Model.load(clone / "golden/models/llama_gqa_llama3/model")
assert model.logits([1, 2, 3]).shape[0] == 3
print(phasor.__version__)
"""


def run(*command: str | os.PathLike[str], folder: pathlib.Path) -> str:
    """What a command prints; its own words where it fails. The build's environment stays outside."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    result = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"check_wheel: {' '.join(map(str, command))} must exit 0, got {result.returncode}:\n{result.stdout}")
    return result.stdout.strip()


def pack(clone: pathlib.Path, build: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    shim = pathlib.Path(__file__).resolve().parent
    # Not -C, which Debian's pip does not know yet.
    settings = (f"--config-settings={setting}" for setting in (
        f"cmake.source-dir={shim}", f"cmake.define.PHASOR_BUILD_DIR={build}", f"build-dir={folder}/build"))
    run(sys.executable, "-m", "pip", "wheel", clone, "--no-deps", "--no-build-isolation", "--quiet",
        "--wheel-dir", folder, *settings, folder=folder)
    wheel, = folder.glob("*.whl")
    return wheel


def check_names(wheel: pathlib.Path) -> None:
    """The package, its metadata and the command; no header, no library of ours, no test."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    inside = re.compile(r"phasor/(\w+/)*\w+\.pyi?|phasor/py\.typed|phasor/_(core|phasor_parallel)\.[\w.-]+\.so"
                        r"|phasor-[\w.]+\.dist-info/.+|phasor-[\w.]+\.data/scripts/phasor"
                        r"|phasor\.(libs|scripts)/[\w.-]+")
    strange = [name for name in names if not inside.fullmatch(name) or "libphasor" in name]
    if strange:
        sys.exit(f"check_wheel: a wheel must hold the package and the command, got {', '.join(strange)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=pathlib.Path)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--build", type=pathlib.Path)
    source.add_argument("--wheel", type=pathlib.Path)
    arguments = parser.parse_args()
    clone = arguments.clone.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel = arguments.wheel.resolve() if arguments.wheel else pack(clone, arguments.build.resolve(), folder)
        check_names(wheel)
        venv.create(folder / "venv", with_pip=False)
        programs = folder / "venv/bin"
        # This environment's pip installs into that one: an empty environment needs none of its own.
        run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-compile", wheel, folder=folder)

        version = run(programs / "python", "-c", USE, clone, folder=folder)
        told = run(programs / "phasor", "--version", folder=folder)
        if version not in told or f"-{version}-" not in wheel.name:
            sys.exit(f"check_wheel: version must be one, got {version}, {told} and {wheel.name}")
        config = folder / "config.json"
        config.write_text(json.dumps({"head_dim": 8, "base": 10000, "layout": "half"}))
        layers = json.loads(run(programs / "phasor", "explain", config, "--json", folder=folder))["layers"]
        if layers[0]["head_dim"] != 8:
            sys.exit(f"check_wheel: head_dim must be 8, got {layers[0]['head_dim']}")
        print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB: installed and used")


if __name__ == "__main__":
    main()
