"""Figures of one rotation or several: decay, wavelengths, tables of cos and sin, the error of float32 angles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import Error, RopeSpec
from .style import (
    DIVERGING,
    GREY,
    PALETTE,
    line_style,
    new_figure,
    plain_number,
    power_of_two,
    styled,
    ticks_at,
    with_grid,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .._core import Config

Specs = RopeSpec | Sequence[RopeSpec] | Mapping[str, RopeSpec]


def describe(spec: RopeSpec) -> str:
    """A short label of a spec."""
    text = "listed frequencies" if spec.base is None else f"base {plain_number(spec.base)}"
    text += f", dim {spec.rotary_dim}"
    scaling = spec.scaling
    kind = scaling.get("type", scaling.get("rope_type", "default"))
    if kind != "default":
        text += f", {kind}"
        if scaling.get("factor") is not None:
            text += f" × {scaling['factor']:g}"
    return text


def _named(specs: Specs, where: str) -> dict[str, RopeSpec]:
    """label -> spec; a spec without a label is named by describe()."""
    named: dict[str, RopeSpec] = {}
    given: Sequence[tuple[str | None, object]]
    if isinstance(specs, Mapping):
        given = [(str(label), spec) for label, spec in specs.items()]
    else:
        given = [(None, spec) for spec in ([specs] if isinstance(specs, RopeSpec) else specs)]
    for label, spec in given:
        if not isinstance(spec, RopeSpec):
            raise Error(f"{where} must be RopeSpec, got {type(spec).__name__}")
        label = label if label is not None else describe(spec)
        while label in named:
            label += "'"
        named[label] = spec
    if not 1 <= len(named) <= len(PALETTE):
        raise Error(f"{where} must be 1 to {len(PALETTE)}, got {len(named)}")
    return named


def at_least(value: int, least: int, where: str) -> int:
    if value < least:
        raise Error(f"{where} must be at least {least}, got {value}")
    return value


# Every distance is drawn up to here, means of bands beyond: neighbouring distances then differ more than the specs.
EVERY_DISTANCE = 512


def _decay_line(
    spec: RopeSpec, distance: int, context: int | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Distances and the bound there: each one, or means over bands of a twelfth of an octave, 32 samples each."""
    if distance <= EVERY_DISTANCE:
        distances = np.arange(distance + 1, dtype=np.float64)
        return distances, _core.decay(spec, distances, context=context)
    edges = np.unique(np.geomspace(1, distance + 1, 12 * math.ceil(math.log2(distance + 1)) + 1).round())
    bands = [np.unique(np.linspace(low, high - 1, 32).round()) for low, high in zip(edges, edges[1:])]
    means = [_core.decay(spec, band, context=context).mean() for band in bands]
    return np.array([band.mean() for band in bands]), np.array(means)


@styled
def decay(specs: Specs, *, distance: int = 256, context: int | None = None, title: str | None = None) -> Figure:
    """The bound on a score by distance: RoFormer (37), figure 2 of the paper, one line per spec.

    specs is a RopeSpec, a sequence of them (each named by its base, width and scaling) or a mapping from label to
    spec; at most eight. distance is the last relative position; past 512 the axis is logarithmic and neighbouring
    distances are drawn as their mean. context resolves specs that depend on a length. Drawn is the mean length of the
    partial sums, which bounds every score at that distance up to a factor that depends on q and k alone.
    """
    named = _named(specs, "decay: specs")
    at_least(distance, 2, "decay: distance")
    figure = new_figure(8, 4.6)
    axes = figure.add_subplot()
    for order, (label, spec) in enumerate(named.items()):
        axes.plot(*_decay_line(spec, distance, context), label=label, **line_style(order))
    if distance <= EVERY_DISTANCE:
        axes.set_xlim(0, distance)
        axes.set_ylabel("mean length of the partial sums")
    else:
        axes.set_xscale("log", base=2)
        axes.set_xlim(1, distance)
        octaves = range(0, int(math.log2(distance)) + 1, 2)
        ticks_at(axes.xaxis, [2.0**power for power in octaves])
        axes.set_ylabel("mean length of the partial sums,\nmean of neighbouring distances")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("relative distance |m − n|, positions")
    axes.set_title(title or "Long-term decay of rotary scores (RoFormer, figure 2)")
    with_grid(axes)
    axes.legend()
    return figure


METHODS = ("none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope", "present")
METHOD_NAMES = {
    "none": "none (plain RoPE)",
    "linear": "linear",
    "ntk": "NTK",
    "dynamic": "dynamic NTK",
    "yarn": "YaRN",
    "llama3": "llama3",
    "longrope": "LongRoPE",
    "present": "present",
}


def _methods_of(config: Config, planned: Mapping[str, object], methods: Sequence[str] | None) -> list[str]:
    """The methods to draw: those asked for, or the general ones and the config's own."""
    if methods is None:
        own = {str(layer["scaling"]["type"]) for layer in _core.explain(config)["layers"] if layer.get("scaling")}
        methods = [name for name in METHODS if name not in ("llama3", "longrope") or name in own]
        return [name for name in methods if name in planned]
    for name in methods:
        if name not in METHODS:
            raise Error(f"wavelengths: unknown method {name}; known are {', '.join(METHODS)}")
        if name not in planned:
            raise Error(f"wavelengths: the method {name} does not apply to this config")
    return list(dict.fromkeys(methods))


def _wavelengths_of(pairs: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
    """2 pi / frequency, in positions; NaN for pairs that do not rotate."""
    frequencies = np.array([pair["frequency"] for pair in pairs], dtype=np.float64)
    waves = np.full(len(pairs), np.nan)
    waves[frequencies > 0] = 2 * math.pi / frequencies[frequencies > 0]
    return waves


@styled
def wavelengths(config: Config, *, to: int, methods: Sequence[str] | None = None, title: str | None = None) -> Figure:
    """The wavelength of every pair under every scaling that could take a config to the length `to`.

    config is what phasor.plan takes: a dictionary, or a config.json, folder or GGUF file. Left: wavelengths in
    positions, with the trained length and `to` as lines: a pair whose wavelength is above the trained length
    never completed a rotation in training. Right: how far each scaling stretches a pair. methods is a choice of none,
    linear, ntk, dynamic, yarn, llama3, longrope and present; by default the first five, and llama3 and longrope if
    the config has them. A config that is extended already has present in place of none.
    """
    plan = _core.plan(config, to=to)
    planned = {str(method["method"]): method for method in plan["methods"] if method["applies"]}
    chosen = _methods_of(config, planned, methods)
    trained = float(plan["trained"])
    figure = new_figure(10.5, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1), sharex=True)
    # A config that is extended already starts from its present frequencies.
    start = "present" if "present" in planned else "none"
    plain = _wavelengths_of(planned[start]["pairs"])
    pairs = np.arange(len(plain))
    for name in chosen:
        waves = _wavelengths_of(planned[name]["pairs"])
        style = line_style(METHODS.index(name))
        left.plot(pairs, waves, label=METHOD_NAMES[name], **style)
        right.plot(pairs, waves / plain, **style)
    left.set_yscale("log")
    for length, text in ((trained, "trained length"), (float(to), "target length")):
        left.axhline(length, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
        left.annotate(f"{text} {length:,.0f}", (0, length), xytext=(4, 3), textcoords="offset points", color=GREY)
    left.set_ylabel("wavelength, positions")
    left.set_title("wavelength of each pair")
    right.set_yscale("log", base=2)
    low, high = right.get_ylim()
    ends = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    ticks_at(right.yaxis, [2.0**power for power in ends if low <= 2.0**power <= high])
    right.set_ylabel(f"wavelength / {'unscaled' if start == 'none' else 'present'} wavelength")
    right.set_title(f"stretch of each pair (the context grows × {to / trained:g})")
    for axes in (left, right):
        axes.set_xlabel("pair, fastest first")
        axes.set_xlim(0, max(1, len(pairs) - 1))
        with_grid(axes)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(chosen),
        columnspacing=1.2,
        handlelength=2.2,
    )
    model = str(plan.get("model_type") or "plain spec")
    figure.suptitle(
        title or f"From {trained:,.0f} to {to:,} positions: {model}, base {plan['base']:,.0f}", x=0.01, ha="left"
    )
    return figure


@styled
def cos_sin_tables(
    spec: RopeSpec, *, positions: int = 256, context: int | None = None, title: str | None = None
) -> Figure:
    """The two tables that a rotation multiplies with: cos and sin (times the amplitude) over position and pair.

    spec reads one row of positions; positions is how many are drawn, from 0 on.
    """
    at_least(positions, 2, "cos_sin_tables: positions")
    _one_axis(spec, "cos_sin_tables")
    tables = _core.cos_sin(spec, positions, context=context)
    frequencies, amplitude = spec.frequencies(context)
    figure = new_figure(10.5, 4.2, title or f"cos and sin by position and pair: {describe(spec)}")
    panels = figure.subplots(1, 2, sharey=True)
    pairs = len(frequencies)
    for axes, table, name in zip(panels, tables, ("cos", "sin")):
        image = axes.imshow(
            table.T,
            aspect="auto",
            cmap=DIVERGING,
            vmin=-amplitude,
            vmax=amplitude,
            interpolation="nearest",
            extent=(-0.5, positions - 0.5, pairs - 0.5, -0.5),
        )
        axes.set_title(f"{name}(position × frequency)" + ("" if amplitude == 1 else f" × {amplitude:.4g}"))
        axes.set_xlabel("position")
    panels[0].set_ylabel("pair, fastest first")
    figure.colorbar(image, ax=panels, pad=0.01, label="value")
    marks = [
        pair
        for pair in np.unique(np.linspace(0, pairs - 1, min(pairs, 5)).round().astype(int))
        if frequencies[pair] > 0
    ]
    waves = panels[1].secondary_yaxis("right")
    waves.set_yticks(marks, [f"{_short(2 * math.pi / frequencies[pair])}" for pair in marks])
    waves.set_ylabel("wavelength, positions")
    return figure


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _one_axis(spec: RopeSpec, where: str) -> None:
    if spec.axes != 1:
        raise Error(f"{where}: the spec must read one row of positions, got {spec.axes}")


def angle_errors(
    spec: RopeSpec, positions: npt.NDArray[np.int64], *, context: int | None = None
) -> npt.NDArray[np.float64]:
    """|angle of a float32 engine - exact angle| in radians, from 0 to pi, [positions, pairs]."""
    exact_cos, exact_sin = _core.cos_sin(spec, positions, context=context, dtype="float64")
    cos, sin = _core.cos_sin(spec, positions, context=context, angles="float32")
    # The angle between the two unit vectors; atan2 keeps small angles exact where acos would not.
    across = sin * exact_cos - cos * exact_sin
    along = cos * exact_cos + sin * exact_sin
    return np.asarray(np.abs(np.arctan2(across, along)), dtype=np.float64)


@styled
def float32_error(
    specs: Specs, *, last: int = 1 << 20, context: int | None = None, samples: int = 128, title: str | None = None
) -> Figure:
    """The angle error of engines that multiply position by frequency in float32, in radians.

    One line per spec: the worst pair among `samples` positions of each octave up to `last`. The grey line is the
    resolution of float32 cos and sin; Phasor's own tables stay at it for every position.
    """
    named = _named(specs, "float32_error: specs")
    at_least(last, 16, "float32_error: last")
    at_least(samples, 1, "float32_error: samples")
    figure = new_figure(8, 4.8)
    axes = figure.add_subplot()
    edges = [1 << power for power in range(int(math.log2(last)) + 1)]
    edges = edges + [last] if edges[-1] < last else edges
    resolution = float(np.finfo(np.float32).eps) / 2
    for order, (label, spec) in enumerate(named.items()):
        _one_axis(spec, "float32_error")
        worst = []
        for low, high in zip(edges, edges[1:]):
            inside = np.unique(np.linspace(low + 1, high, min(samples, high - low)).round().astype(np.int64))
            worst.append(float(angle_errors(spec, inside, context=context).max()))
        style = line_style(order)
        # A first octave without any error has no place on a logarithmic axis.
        drawn = [error if error > 0 else math.nan for error in worst]
        axes.plot(edges[1:], drawn, label=label, marker="o", markersize=4, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.axhline(resolution, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    axes.annotate(
        "exact angles: half a unit in the last place of float32",
        (edges[-1], resolution),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        color=GREY,
    )
    ticks_at(axes.xaxis, [edge for edge in edges[1:] if math.log2(edge) % 2 == 0 or edge == edges[-1]], power_of_two)
    axes.set_xlabel("position (Ki = 1024, Mi = 1024 × 1024)")
    axes.set_ylabel("largest angle error, radians")
    axes.set_title(title or "Angles computed in float32 drift from the exact ones")
    with_grid(axes)
    axes.legend(loc="upper left")
    return figure
