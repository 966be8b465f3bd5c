"""phasor without MPI: `import phasor` needs neither mpi4py nor the module that links MPI, and phasor.parallel says what is
missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, types
mpi4py = types.ModuleType("mpi4py")
mpi4py.MPI = types.ModuleType("mpi4py.MPI")
sys.modules["mpi4py"], sys.modules["mpi4py.MPI"] = mpi4py, mpi4py.MPI
sys.modules[{missing!r}] = None  # what an import finds if it is not installed
import phasor
assert not any("phasor_parallel" in name and module for name, module in sys.modules.items())
try:
    import phasor.parallel
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "words"),
    [("mpi4py", ("pip install mpi4py", "openmpi-bin")), ("phasor._phasor_parallel", ("PHASOR_MPI=ON", "libopenmpi-dev"))],
)
def test_import_names_what_is_missing(missing: str, words: tuple[str, ...]) -> None:
    program = PROGRAM.format(missing=missing)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("phasor.parallel: ") and ran.stdout.count("\n") == 1
    assert all(word in ran.stdout for word in words), ran.stdout
