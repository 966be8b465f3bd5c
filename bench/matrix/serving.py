"""What the adapters of vLLM and SGLang share: their rotary modules are called in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from case import Case, Floats, Rotate
from rows import Rows, by_rows


def rotation_of(module: Callable[[], Any], case: Case) -> Rotate:
    """The path in plain torch of the module that `module` makes."""

    def rotate(x: Floats, asked: Rows) -> Floats:
        made = module()
        native = getattr(made, "forward_native", made.forward)  # LongRoPE has torch only
        rows = torch.from_numpy(np.array(x))
        if case.layout != "interleaved_to_half":  # DeepSeek's module takes heads apart
            rows = rows.reshape(len(x), -1)
        ids = asked.indices
        if "mrope_section" in case.rope:  # text: three equal rows
            ids = ids.expand(3, -1)
        with torch.no_grad():
            y, _ = native(ids, rows.clone(), rows.clone())
        return np.asarray(y.reshape(x.shape).float())

    return by_rows(case, rotate)
