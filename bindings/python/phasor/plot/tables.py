"""Figures of the tables that the command line writes: `phasor eval --csv` and the lab's losses."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence

import numpy as np

from .._core import Error
from .rotation import METHOD_NAMES, METHODS
from .style import DASHES, GREY, MARKERS, PALETTE, new_figure, styled, ticks_at, with_grid

# After .style, which reports a missing matplotlib.
from matplotlib.axes import Axes  # isort: skip
from matplotlib.figure import Figure  # isort: skip
from matplotlib.ticker import MaxNLocator  # isort: skip

EVAL_COLUMNS = ("model", "scaling", "context", "nats", "standard_error", "last_quarter_nats")
OFFSET_COLUMNS = ("model", "scaling", "context", "nats", "offset", "angles")
# In the order of their errors.
ANGLES = {
    "exact": "exact",
    "float32": "float32",
    "bfloat16_frequencies": "float32, frequencies in bfloat16",
    "float16": "angles in float16",
    "bfloat16": "angles in bfloat16",
}
LAB_OPTIONAL = ("seed",)

Row = dict[str, str]


def _rows(
    path: str | os.PathLike[str], needed: Sequence[str], where: str, *, allowed: Sequence[str] | None = None
) -> list[Row]:
    """The rows of a CSV file with the needed columns; if `allowed` is given, with no other columns than those two."""
    name = os.fspath(path)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or ())
            rows = list(reader)
    except OSError as error:
        raise Error(f"{where}: cannot open {name}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Error(f"{where}: {name} is not a CSV file: {error}") from error
    missing = [column for column in needed if column not in columns]
    if missing:
        found = ', '.join(columns) or 'no columns'
        raise Error(f"{where}: {name}: missing column {', '.join(missing)}; the file has {found}")
    unknown = [column for column in columns if allowed is not None and column not in (*needed, *allowed)]
    if unknown:
        raise Error(
            f"{where}: {name}: unknown column {', '.join(unknown)}; known are {', '.join((*needed, *(allowed or ())))}"
        )
    if not rows:
        raise Error(f"{where}: {name} has no rows")
    return rows


def _number(row: Row, column: str, line: int, where: str) -> float:
    text = row[column]
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise Error(f"{where}: {column} of row {line} must be a finite number, got {text}")
    return value


Points = list[tuple[float, float, float, float]]  # context, perplexity, least and most within a standard error


def _eval_label(row: Row) -> str:
    """As `phasor eval` names a row; files without offsets and angles have none."""
    angles, offset = row.get("angles", "exact"), row.get("offset", "0")
    moved = (angles if angles != "exact" else "", f"offset {offset}" if offset != "0" else "")
    return ", ".join(part for part in (row["scaling"], *moved) if part)


def _eval_lines(rows: Sequence[Row], *, tail: bool) -> dict[str, Points]:
    lines: dict[str, Points] = {}
    for line, row in enumerate(rows, start=1):
        nats = _number(row, "last_quarter_nats" if tail else "nats", line, "eval_table")
        # The last quarter has no standard error of its own.
        error = 0.0 if tail else _number(row, "standard_error", line, "eval_table")
        point = (
            _number(row, "context", line, "eval_table"),
            math.exp(nats),
            math.exp(nats - error),
            math.exp(nats + error),
        )
        lines.setdefault(_eval_label(row), []).append(point)
    return {name: sorted(points) for name, points in lines.items()}


def _log_ticks(axes: Axes) -> None:
    """A handful of round numbers on a logarithmic y axis, whether it spans a third or six decades."""
    low, high = axes.get_ylim()
    low, high = low / 1.05, high * 1.05
    axes.set_ylim(low, high)
    steps = (1, 1.5, 2, 3, 5, 7) if high < 100 * low else (1, 3) if high < 1e4 * low else (1,)
    ticks = [step * 10.0**power for power in range(-6, 9) for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < 4:
        ticks = [float(tick) for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    ticks_at(axes.yaxis, ticks)


@styled
def eval_table(
    csv_file: str | os.PathLike[str], *, trained: int | None = None, tail: bool = False, title: str | None = None
) -> Figure:
    """Perplexity against context, one line per scaling: the file that `phasor eval --csv` writes.

    trained draws the length the model was trained at; tail takes only the tokens in the last quarter of their window.
    The bands are one standard error. Reads the columns model, scaling, context, nats, standard_error and
    last_quarter_nats.
    """
    rows = _rows(csv_file, EVAL_COLUMNS, "eval_table")
    lines = _eval_lines(rows, tail=tail)
    figure = new_figure(8, 5)
    axes = figure.add_subplot()
    names = [name for name in METHODS if name in lines] + sorted(set(lines) - set(METHODS))
    for order, name in enumerate(names):
        style = METHODS.index(name) if name in METHODS else len(PALETTE) - 1
        x, y, least, most = (list(column) for column in zip(*lines[name]))
        axes.fill_between(x, least, most, color=PALETTE[style], alpha=0.12, linewidth=0)
        # The last one drawn has the smallest marks, so that lines that coincide still show.
        axes.plot(
            x,
            y,
            color=PALETTE[style],
            marker=MARKERS[style],
            linestyle=DASHES[style],
            markersize=max(4, 9 - order),
            label=METHOD_NAMES.get(name, name),
        )
    if trained is not None:
        axes.axvline(trained, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            f"trained to {trained:,}",
            (trained, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-5, -6),
            textcoords="offset points",
            ha="right",
            va="top",
            color=GREY,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks_at(axes.xaxis, sorted({point[0] for points in lines.values() for point in points}))
    _log_ticks(axes)
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("perplexity, last quarter of the window" if tail else "perplexity (lower is better)")
    axes.set_title(title or f"Perplexity by context and RoPE scaling\n{rows[-1]['model']}")
    with_grid(axes)
    axes.legend(title="scaling")
    return figure


@styled
def offset_table(csv_file: str | os.PathLike[str], *, title: str | None = None) -> Figure:
    """How far perplexity moves with the offset of the positions, one line per kind of angles, one panel per context.

    The file is that of `phasor eval --offset 0,10000,... --angles exact,float32,... --csv`, of one scaling. Drawn is
    |perplexity / perplexity of exact angles at offset 0 - 1|, which RoPE says is 0; below 1e-7 as 1e-7. Reads the
    columns model, scaling, context, nats, offset and angles.
    """
    where = "offset_table"
    rows = _rows(csv_file, OFFSET_COLUMNS, where)
    scalings = sorted({row["scaling"] for row in rows})
    if len(scalings) > 1:
        raise Error(f"{where}: rows must be of one scaling, got {', '.join(scalings)}")
    nats: dict[float, dict[str, dict[float, float]]] = {}
    for line, row in enumerate(rows, start=1):
        if row["angles"] not in ANGLES:
            raise Error(f"{where}: angles of row {line} must be one of {', '.join(ANGLES)}, got {row['angles']}")
        points = nats.setdefault(_number(row, "context", line, where), {}).setdefault(row["angles"], {})
        points[_number(row, "offset", line, where)] = _number(row, "nats", line, where)
    offsets = sorted({offset for kinds in nats.values() for points in kinds.values() for offset in points})
    title = title or f"Perplexity when every position moves\n{rows[-1]['model']}"
    figure = new_figure(max(8.0, 5.5 * len(nats)), 5, title)
    panels = figure.subplots(1, len(nats), squeeze=False, sharey=True)
    for axes, (context, kinds) in zip(panels.flat, sorted(nats.items())):
        if 0.0 not in kinds.get("exact", {}):
            raise Error(f"{where}: context {context:.0f} needs a row of exact angles at offset 0")
        start = kinds["exact"][0.0]
        for order, (name, label) in enumerate(ANGLES.items()):
            if name not in kinds:
                continue
            places = sorted(kinds[name])
            moved = [max(1e-7, abs(math.expm1(kinds[name][offset] - start))) for offset in places]
            # By rank: 0 has no place on a logarithmic axis.
            ranks = [offsets.index(offset) for offset in places]
            axes.plot(ranks, moved, color=PALETTE[order], marker=MARKERS[order], linestyle=DASHES[order], label=label)
        axes.set_yscale("log")
        ticks_at(axes.xaxis, range(len(offsets)), lambda rank, _tick: f"{offsets[int(rank)]:,.0f}")
        axes.tick_params(axis="x", rotation=30)
        axes.set_title(f"context {context:,.0f}")
        axes.set_xlabel("offset, positions")
        with_grid(axes)
    panels[0, 0].set_ylabel("relative change of perplexity")
    handles = {text: handle for axes in panels.flat for handle, text in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def _lab_figure(
    csv_file: str | os.PathLike[str], column: str, where: str, title: str, label: str
) -> tuple[Figure, list[Axes], list[float]]:
    """Loss against `column`, one line per encoding, one panel per experiment; means over seeds with their range."""
    rows = _rows(csv_file, ("experiment", "encoding", column, "loss"), where, allowed=LAB_OPTIONAL)
    losses: dict[str, dict[str, dict[float, list[float]]]] = {}
    for line, row in enumerate(rows, start=1):
        points = losses.setdefault(row["experiment"], {}).setdefault(row["encoding"], {})
        points.setdefault(_number(row, column, line, where), []).append(_number(row, "loss", line, where))
    encodings = list(dict.fromkeys(row["encoding"] for row in rows))
    if len(encodings) > len(PALETTE) * len(DASHES):
        raise Error(f"{where}: encodings must be at most {len(PALETTE) * len(DASHES)}, got {len(encodings)}")
    columns = min(3, len(losses))
    lines = math.ceil(len(losses) / columns)
    legend = math.ceil(len(encodings) / 4)
    figure = new_figure(max(8.0, 4.6 * columns), 3.6 * lines + 0.6 + 0.3 * legend, title)
    panels = figure.subplots(lines, columns, squeeze=False)
    for axes in panels.flat[len(losses) :]:
        axes.set_axis_off()
    for axes, (experiment, curves) in zip(panels.flat, losses.items()):
        for name, points in curves.items():
            order = encodings.index(name)
            # Beyond the palette, a colour comes back with other dashes.
            colour, dashes = PALETTE[order % len(PALETTE)], DASHES[(order + order // len(PALETTE)) % len(DASHES)]
            places = sorted(points)
            if any(len(points[place]) > 1 for place in places):
                least, most = [min(points[place]) for place in places], [max(points[place]) for place in places]
                axes.fill_between(places, least, most, color=colour, alpha=0.15, linewidth=0)
            mean = [math.fsum(points[place]) / len(points[place]) for place in places]
            alone = MARKERS[order % len(MARKERS)] if len(places) == 1 else None
            axes.plot(places, mean, color=colour, linestyle=dashes, marker=alone, label=name)
        axes.set_title(experiment)
        axes.set_xlabel(label)
        axes.set_ylabel("loss, nats per token")
        with_grid(axes)
    handles = {text: handle for axes in panels.flat for handle, text in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, len(handles)))
    used = sorted({place for curves in losses.values() for points in curves.values() for place in points})
    return figure, list(panels.flat[: len(losses)]), used


@styled
def lab_table(csv_file: str | os.PathLike[str], *, title: str | None = None) -> Figure:
    """Loss against training step, one line per encoding, one panel per experiment.

    The file has a header and the columns experiment, encoding, step and loss (nats per token), and may have seed; other
    columns are refused. Rows of several seeds are drawn as their mean and the band from least to most.
    """
    figure, panels, _ = _lab_figure(csv_file, "step", "lab_table", title or "Loss by encoding", "step")
    for axes in panels:
        # The first tenth falls from the loss of a guess: drawn whole, it would flatten what follows.
        points = np.concatenate([np.asarray(line.get_xydata(), dtype=np.float64) for line in axes.lines])
        late = points[points[:, 0] >= 0.1 * points[:, 0].max(), 1].tolist()
        if len(late) > 4 * len(axes.lines):
            margin = 0.05 * (max(late) - min(late))
            axes.set_ylim(min(late) - margin, max(late) + margin)
    return figure


@styled
def lab_contexts(csv_file: str | os.PathLike[str], *, title: str | None = None) -> Figure:
    """Loss against the length of the rows, one line per encoding, from columns experiment, encoding, context, loss[, seed].

    As lab_table otherwise.
    """
    figure, panels, contexts = _lab_figure(
        csv_file, "context", "lab_contexts", title or "Loss beyond the trained length", "tokens of a row"
    )
    if contexts[0] <= 0:
        raise Error(f"lab_contexts: context must be positive, got {contexts[0]:g}")
    for axes in panels:
        axes.set_xscale("log", base=2)
        ticks_at(axes.xaxis, contexts)
    return figure
