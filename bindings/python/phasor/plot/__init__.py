"""Figures: each a function that returns a matplotlib Figure, and a command, `python -m phasor.plot FIGURE -o FILE`.

    from phasor import RopeSpec, plot

    figure = plot.decay([RopeSpec(128), RopeSpec(128, base=500000.0)])
    plot.save(figure, "decay.svg", "decay.png")

Needs matplotlib, imported with the first figure. No function uses pyplot, a window or matplotlib's global settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .maps import attention_maps, inner_products
    from .rotation import cos_sin_tables, decay, float32_error, wavelengths
    from .style import PALETTE, save
    from .tables import eval_table, lab_contexts, lab_table, offset_table

__all__ = [
    "PALETTE",
    "attention_maps",
    "cos_sin_tables",
    "decay",
    "eval_table",
    "float32_error",
    "inner_products",
    "lab_contexts",
    "lab_table",
    "offset_table",
    "save",
    "wavelengths",
]

_HOMES = {
    "maps": ("attention_maps", "inner_products"),
    "rotation": ("cos_sin_tables", "decay", "float32_error", "wavelengths"),
    "style": ("PALETTE", "save"),
    "tables": ("eval_table", "lab_contexts", "lab_table", "offset_table"),
}


def __getattr__(name: str) -> object:
    # matplotlib is imported here, so that the command can report in one line that it is missing.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted(__all__)
