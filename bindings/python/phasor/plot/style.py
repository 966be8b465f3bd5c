"""The style of every figure and how it is saved: one palette, one page style, atomic writes."""

from __future__ import annotations

import functools
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec

from .._core import Error

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"phasor.plot: missing module {missing.name}; run: pip install matplotlib",
        name=missing.name,
    ) from missing

_Arguments = ParamSpec("_Arguments")

# The colour-blind safe palette of Okabe and Ito, yellow last because it is faint on white. Markers and dashes repeat
# the information of the colours.
PALETTE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (7, 1, 1, 1, 1, 1)),
    (0, (3, 1)),
    (0, (1, 1)),
    (0, (8, 2)),
    (0, (2, 2)),
)
GREY = "#555555"
# Colour-blind safe: dark to light for values >= 0, two hues for signed values.
SEQUENTIAL, DIVERGING = "viridis", "PuOr_r"

FORMATS = ("svg", "png")
# On top of matplotlib's own defaults, so that a reader's settings do not change a figure.
_STYLE: dict[Any, Any] = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"} | {
    "font.size": 12.0,
    "axes.titlesize": 12.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 12.0,
    "figure.titlesize": 13.0,
    "legend.fontsize": 11.0,
    "legend.frameon": False,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "figure.dpi": 100.0,
    # Names inside an SVG come from this salt instead of a random one, and text stays text.
    "svg.hashsalt": "phasor",
    "svg.fonttype": "none",
}


def styled(draw: Callable[_Arguments, Figure]) -> Callable[_Arguments, Figure]:
    """The figure that `draw` returns, drawn in this module's style; matplotlib's settings are unchanged."""

    @functools.wraps(draw)
    def drawn(*arguments: _Arguments.args, **choices: _Arguments.kwargs) -> Figure:
        with matplotlib.rc_context(rc=_STYLE):
            return draw(*arguments, **choices)

    return drawn


def new_figure(width: float, height: float, title: str | None = None, *, square: bool = False) -> Figure:
    """An empty figure of this size in inches, outside pyplot's list; `square` for panels that keep their proportions."""
    figure = Figure(figsize=(width, height), layout="compressed" if square else "constrained")
    if title is not None:
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def plain_number(value: float, _tick: object = None) -> str:
    """1,024 rather than 2^10 or 1.0e3."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def power_of_two(value: float, _tick: object = None) -> str:
    """4096 as 4 Ki, for axes that reach a million positions."""
    for factor, unit in ((1 << 20, " Mi"), (1 << 10, " Ki")):
        if value >= factor:
            return plain_number(value / factor) + unit
    return plain_number(value)


def ticks_at(axis: Axis, places: Sequence[float], text: Callable[[float, object], str] = plain_number) -> None:
    """These ticks on a matplotlib axis and no others."""
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(text))


def with_grid(axes: Axes) -> None:
    axes.grid(True)


def line_style(order: int) -> dict[str, Any]:
    """Colour and dashes of the line that is drawn as number `order`."""
    return {"color": PALETTE[order % len(PALETTE)], "linestyle": DASHES[order % len(DASHES)]}


def format_of(path: str | os.PathLike[str]) -> str:
    """svg or png, from the ending of the file's name."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise Error(f"plot: the file must end in .svg or .png, got {os.fspath(path)}")
    return ending


def rendered(figure: Figure, form: str, *, dpi: int = 150) -> bytes:
    """The bytes of the file: the same figure gives the same bytes (no date, no random names)."""
    memory = io.BytesIO()
    with matplotlib.rc_context(rc=_STYLE):
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(memory, format=form, dpi=dpi, metadata=metadata)
    return memory.getvalue()


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Atomic: written to a temporary file in the same folder, then renamed."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise Error(f"plot: cannot write {os.fspath(path)}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save(figure: Figure, *paths: str | os.PathLike[str], dpi: int = 150) -> None:
    """Writes the figure to every path, by its ending .svg or .png.

    All files are drawn before the first is written, and each is replaced whole.
    refuses  another ending, a folder that cannot be written to
    """
    contents = [(path, rendered(figure, form, dpi=dpi)) for path, form in [(path, format_of(path)) for path in paths]]
    for path, content in contents:
        write_atomically(path, content)
