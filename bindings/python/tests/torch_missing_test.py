"""phasor without PyTorch: everything but phasor.torch works, and phasor.torch says what it needs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["torch"] = None  # what `import torch` finds if it is not installed
import numpy as np
import phasor
phasor.rotate(np.ones((1, 2, 8), np.float32), phasor.RopeSpec(8, layout="half"))
try:
    import phasor.torch
except ImportError as error:
    print(error)
"""


def test_import_of_phasor_torch_names_what_is_missing() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("phasor.torch: ") and "pip install torch" in ran.stdout
    assert ran.stdout.count("\n") == 1
