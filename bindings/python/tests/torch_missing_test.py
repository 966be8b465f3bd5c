"""phasor without PyTorch: everything but phasor.torch works, phasor.torch says what it needs, and tensors of a stand-in
are treated like those of torch."""

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


# A substitute for torch: just what phasor asks a tensor for.
STAND_IN = """
import sys, types
import numpy as np
import phasor

spec = phasor.RopeSpec(8, layout="half")
rows = np.arange(16, dtype=np.float32).reshape(2, 1, 8)
written = []


class Tensor:
    requires_grad, device, layout, is_nested, is_quantized, dtype = False, "cpu", "torch.strided", False, False, "float"

    def __init__(self, array, negative=False):
        self.array, self.negative = array, negative

    def __torch_dispatch__(self):
        pass

    def is_neg(self):
        return self.negative

    def resolve_neg(self):
        return Tensor(-self.array)

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (1, 0)


class Wrapper(Tensor):
    def __torch_dispatch__(self):
        pass


names = ("torch", "torch.autograd", "torch.autograd.graph", "torch.autograd.forward_ad")
for name in names:
    sys.modules[name] = types.ModuleType(name)
torch = sys.modules["torch"]
torch.Tensor, torch.empty_like = Tensor, lambda like: Tensor(np.empty_like(like.array))
sys.modules["torch.autograd.graph"].increment_version = written.append
sys.modules["torch.autograd.forward_ad"]._current_level = -1


def refused(call, *words):
    try:
        call()
    except phasor.Error as error:
        assert error.code == "unsupported" and all(word in str(error) for word in words), error
    else:
        raise AssertionError("not refused")


expected = phasor.rotate(rows, spec, 3)
result = phasor.rotate(Tensor(rows), spec, 3)
assert isinstance(result, Tensor) and np.array_equal(result.array, expected)
assert np.array_equal(phasor.rotate(Tensor(-rows, negative=True), spec, 3).array, expected)
assert written == []

out = Tensor(rows.copy())
assert phasor.rotate(out, spec, 3, out=out) is out
assert np.array_equal(out.array, expected) and written == [out]

refused(lambda: phasor.rotate(Tensor(rows), spec, out=Tensor(rows, negative=True)), "out", "negative bit")
refused(lambda: phasor.rotate(Wrapper(rows), spec), "Wrapper")
Tensor.requires_grad = True
refused(lambda: phasor.rotate(Tensor(rows), spec), "phasor.torch")
Tensor.requires_grad = False
try:
    phasor.rotate(out, spec, np.arange(5), out=out)
except phasor.Error:
    pass
assert written == [out], "a call that fails has written nothing"
"""


def test_a_tensor_is_resolved_refused_and_counted() -> None:
    subprocess.run([sys.executable, "-c", STAND_IN], check=True)


def test_import_of_phasor_torch_names_what_is_missing() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("phasor.torch: ") and "pip install torch" in ran.stdout
    assert ran.stdout.count("\n") == 1
