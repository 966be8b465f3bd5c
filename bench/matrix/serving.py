"""What the adapters of vLLM and SGLang share: their rotary modules are called in the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from case import Case, Floats, Positions, Rotate


def rotation_of(module: Any, case: Case) -> Rotate:
    """The module's path in plain torch."""
    native = getattr(module, "forward_native", module.forward)  # LongRoPE has torch only

    def rotate(x: Floats, positions: Positions) -> Floats:
        rows = torch.from_numpy(np.array(x))
        if case.layout != "interleaved_to_half":  # DeepSeek's module takes heads apart
            rows = rows.reshape(len(x), -1)
        ids = torch.from_numpy(positions)
        if "mrope_section" in case.rope:  # text: three equal rows
            ids = ids.expand(3, -1)
        with torch.no_grad():
            y, _ = native(ids, rows.clone(), rows.clone())
        return np.asarray(y.reshape(x.shape).float())

    return rotate
