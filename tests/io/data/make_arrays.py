"""Writes the files of arrays/ with NumPy and torch: python tests/io/data/make_arrays.py

The numbers are such that the tests can compute them. Made with NumPy 2.4 and torch 2.15.
"""

import pathlib

import numpy as np
import torch

FOLDER = pathlib.Path(__file__).parent / "arrays"


class Dangerous:
    def __reduce__(self):
        import os

        return os.system, ("true",)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays = {
        "q": x,
        "k": x.astype(np.float16),
        "layers.0.v": np.asfortranarray(x.astype(np.float64)),
        "ids": np.arange(5, dtype=np.int64) - 2,
        "freqs_cis": (x[0] + 1j * x[1]).astype(np.complex64),
        "scalar": np.float32(2.5),
        "empty": np.zeros((0, 3), np.float32),
        "mask": np.array([True, False]),
    }
    np.savez(FOLDER / "arrays.npz", **arrays)
    np.savez_compressed(FOLDER / "arrays_deflated.npz", **arrays)
    np.savez_compressed(FOLDER / "one.npz", q=np.tile(x, (40, 1, 1)))
    np.savez(FOLDER / "objects.npz", q=x, names=np.array(["a", None], dtype=object))

    torch.manual_seed(0)
    t = torch.from_numpy(x.copy())
    torch.save(t, FOLDER / "tensor.pt")
    nested = {
        "layers": [{"q": t, "k": t.half()}, {"q": t + 1, "k": t.bfloat16()}],
        "parameter": torch.nn.Parameter(t.double()),
        "ids": torch.arange(5) - 2,
        "freqs_cis": torch.complex(t[0].clone(), t[1].clone()),
        "bits": t.to(torch.uint16),
        "float8": t.to(torch.float8_e4m3fn),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "shape": t.shape,
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "settings": {"steps": 12345678901, "rate": 2.5, "name": None, "on": True, 7: "seven"},
    }
    torch.save(nested, FOLDER / "nested.pt")
    torch.save(nested, FOLDER / "protocol4.pt", pickle_protocol=4)
    torch.save(
        {
            "transposed": t.permute(1, 0, 2),
            "sliced": t[:, 1:, ::2],
            "expanded": t[:1].expand(5, 3, 4),
            "row": t[1, 2],
            "conjugated": torch.complex(t, t).conj(),
        },
        FOLDER / "views.pt",
    )
    torch.save(torch.nn.Linear(2, 2).state_dict(), FOLDER / "state_dict.pt")
    torch.save(t, FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"q": t, "run": Dangerous()}, FOLDER / "code.pt")
    torch.serialization.set_crc32_options(False)
    torch.save(t, FOLDER / "no_check_sums.pt")


if __name__ == "__main__":
    main()
