"""Draws the figures of docs/theory.md, proof.md, encodings.md and choosing.md into docs/figures.

    PYTHONPATH=build/release/python python scripts/doc_figures.py [FOLDER]

Every number comes from the package; `python -m phasor.plot` draws the figures that it has. Labels are symbols or short
English, since the English and the Chinese page show the same file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import phasor
from phasor import plot
from phasor.plot.style import DIVERGING, GREY, PALETTE, line_style, new_figure, styled, ticks_at, with_grid

DOCS = Path(__file__).resolve().parent.parent / "docs"
PLAIN = phasor.RopeSpec(128, layout="interleaved")


@styled
def scores() -> Figure:
    """The score by distance for three kinds of q and k, under the bound (37), and the logarithmic fall of its mean."""
    distances = np.arange(1, 257)
    theta, _ = PLAIN.frequencies()
    pairs = len(theta)
    waves = np.exp(1j * distances[:, None] * theta)
    random = np.random.default_rng(1)
    q, k = random.standard_normal((2, pairs, 2)) @ [1, 1j]
    figure = new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    bound = pairs * phasor.decay(PLAIN, distances)
    for order, (label, h) in enumerate((("$h_i = 1$", np.ones(pairs)), ("random q, k", q * np.conj(k)))):
        steps = np.abs(np.diff(np.append(h, 0))).max()
        left.plot(distances, np.abs((waves @ h).real) / pairs, label=f"|score|, {label}", **line_style(2 + order))
        left.plot(distances, steps * bound / pairs, label=f"bound (37), {label}", **line_style(order))
    left.set_yscale("log")
    left.set_ylim(1e-5, 300)
    left.set_xlim(0, 256)
    left.set_ylabel("divided by the number of pairs")
    left.legend(fontsize=9, loc="lower left")
    far = np.unique(np.geomspace(1, 10**6, 400).round())
    for order, base in enumerate((10000.0, 500000.0)):
        own, _ = phasor.RopeSpec(128, base=base, layout="half").frequencies()
        mean = np.cos(far[:, None] * own).mean(axis=1)
        right.plot(far, mean, label=f"base {base:,.0f}", **line_style(order))
        inside = far[far < base]
        right.plot(inside, 1 - (np.log(inside) + np.euler_gamma) / math.log(base), color=GREY, linewidth=1)
    right.axhline(0, color=GREY, linewidth=0.6)
    right.set_xscale("log")
    right.set_ylabel(r"mean of $\cos((m-n)\,\theta_i)$")
    right.annotate(r"$1 - (\ln|m-n| + \gamma)\, /\, \ln\,$base", (1500, 0.72), color=GREY, fontsize=11)
    right.legend()
    for axes in (left, right):
        axes.set_xlabel("distance m − n")
        with_grid(axes)
    return figure


def linear_map(encoding: phasor.RopeSpec | None, q: np.ndarray, k: np.ndarray, *, softmax: bool) -> np.ndarray:
    """The weights of all values: attention over the rows of the identity."""
    tokens = q.shape[0]
    v = np.eye(tokens)[:, None]
    attend = phasor.attention if softmax else phasor.linear_attention
    return np.asarray(attend(q, k, v, encoding=encoding, causal=True))[:, 0]


@styled
def linear() -> Figure:
    """Weights of values in linear attention without and with RoPE, and in softmax attention with RoPE."""
    tokens, dim = 48, 32
    random = np.random.default_rng(2)
    q, k = 0.7 + 0.7 * random.standard_normal((2, tokens, 1, dim))
    spec = phasor.RopeSpec(dim, layout="interleaved")
    panels = {
        "linear (18), no position": linear_map(None, q, k, softmax=False),
        "linear (19), RoPE": linear_map(spec, q, k, softmax=False),
        "softmax (2), RoPE": linear_map(spec, q, k, softmax=True),
    }
    figure = new_figure(11, 3.9, square=True)
    for axes, (title, weights) in zip(figure.subplots(1, 3, sharey=True), panels.items()):
        shown = np.ma.masked_array(weights, np.triu(np.ones_like(weights), 1) > 0)
        image = axes.imshow(shown, cmap=DIVERGING, vmin=-0.12, vmax=0.12, interpolation="nearest")
        axes.set_facecolor("#dddddd")
        axes.set_title(title)
        axes.set_xlabel("n")
    figure.axes[0].set_ylabel("m")
    figure.colorbar(image, ax=figure.axes, extend="both", shrink=0.85, pad=0.02)
    return figure


@styled
def solutions() -> Figure:
    """Solutions of (11) in two dimensions: where q_m goes, and the score at a fixed distance."""
    theta, last = 0.35, 40
    turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    cases = {
        "rotation": turn,
        "rotation × 0.95": 0.95 * turn,
        "reflection": np.array([[math.cos(1), math.sin(1)], [math.sin(1), -math.cos(1)]]),
        "shear": np.array([[1.0, 0.02], [0.0, 1.0]]),
    }
    q, k = np.array([0.8, 0.6]), np.array([0.3, 0.9])
    power = np.linalg.matrix_power
    figure = new_figure(11, 5.2)
    panels = figure.subplots(2, 4, height_ratios=(2.4, 1), sharey="row")
    for column, (name, matrix) in enumerate(cases.items()):
        for_keys = np.linalg.inv(matrix).T
        path = np.array([power(matrix, m) @ q for m in range(last)])
        keys = np.array([power(for_keys, m) @ k for m in range(last)])
        above, below = panels[:, column]
        above.plot(*path.T, "-", color=PALETTE[6], alpha=0.35, linewidth=1)
        above.scatter(*path.T, c=np.arange(last), cmap="viridis", s=14, zorder=3)
        above.annotate("$q_0$", q, xytext=(4, 7), textcoords="offset points")
        above.set_aspect("equal")
        above.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        above.set_title(name)
        with_grid(above)
        below.plot([path[m + 3] @ keys[m] for m in range(last - 3)], color=PALETTE[3])
        below.set_ylim(0, 1)
        below.set_xlabel("n")
        with_grid(below)
    panels[0, 0].set_ylabel("$q_m$, m = 0 ... 39")
    panels[1, 0].set_ylabel("$q_{n+3} \\cdot k_n$")
    return figure


@styled
def commuting() -> Figure:
    """One displacement from every place of a grid: constant for rotations that commute, not for others."""
    size = 24

    def rotation(angle: float, first: int, second: int) -> np.ndarray:
        matrix = np.eye(4)
        matrix[[first, second], [first, second]] = math.cos(angle)
        matrix[first, second], matrix[second, first] = -math.sin(angle), math.sin(angle)
        return matrix

    random = np.random.default_rng(3)
    q, k = random.standard_normal((2, 4))
    cases = {
        "pairs (0, 1) and (2, 3)": lambda x, y: rotation(0.3 * x, 0, 1) @ rotation(0.3 * y, 2, 3),
        "overlapping: (0, 1) and (1, 2)": lambda x, y: rotation(0.3 * x, 0, 1) @ rotation(0.3 * y, 1, 2),
    }
    figure = new_figure(8.6, 3.9, square=True)
    for axes, (name, place) in zip(figure.subplots(1, 2, sharey=True), cases.items()):
        values = [[(place(x + 2, y + 1) @ q) @ (place(x, y) @ k) for x in range(size)] for y in range(size)]
        image = axes.imshow(values, cmap="viridis", vmin=-3, vmax=3, origin="lower", interpolation="nearest")
        axes.set_title(name)
        axes.set_xlabel("x")
    figure.axes[0].set_ylabel("y")
    figure.colorbar(image, ax=figure.axes, label="score at displacement (2, 1)", shrink=0.85, pad=0.02)
    return figure


@styled
def ratios() -> Figure:
    """What each scaling does to the frequency of each pair: factor 8, trained length 4096, target 32768."""
    trained, factor = 4096, 8.0
    plain, _ = phasor.RopeSpec(128, layout="half").frequencies()
    turns = trained * plain / (2 * math.pi)
    dynamic = {"type": "dynamic", "factor": 1.0}
    scalings = {
        "linear": {"type": "linear", "factor": factor},
        "NTK": {"type": "ntk", "factor": factor},
        "dynamic, at 8192": dynamic,
        "dynamic, at 32768": dynamic,
        "YaRN": {"type": "yarn", "factor": factor, "original_max_position_embeddings": trained},
        "llama3": {
            "type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": trained,
        },
    }
    figure = new_figure(10.5, 4.6)
    left, right = figure.subplots(1, 2)
    pairs = np.arange(len(plain))
    for order, (name, scaling) in enumerate(scalings.items()):
        spec = phasor.RopeSpec(128, layout="half", max_position_embeddings=trained, scaling=scaling)
        scaled, _ = spec.frequencies(8192 if name == "dynamic, at 8192" else 32768)
        left.plot(pairs, scaled / plain, label=name, **line_style(order))
        right.plot(pairs, 32768 * scaled / (2 * math.pi), **line_style(order))
    right.plot(pairs, turns, color=GREY, linewidth=3, alpha=0.5, label=f"in training, {trained:,}")
    right.plot(pairs, 32768 * plain / (2 * math.pi), color=GREY, linewidth=1, linestyle=":", label="unscaled, 32,768")
    once = float(np.interp(0, -np.log(turns), pairs))
    for axes in (left, right):
        axes.axvline(once, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_xlabel("pair i, fastest first")
        axes.set_xlim(0, len(pairs) - 1)
        with_grid(axes)
    left.annotate("one rotation\nin training", (once, 0.9), xytext=(4, 0), textcoords="offset points", color=GREY)
    left.set_yscale("log", base=2)
    ticks_at(left.yaxis, [1 / 8, 1 / 4, 1 / 2, 1], lambda value, _: "1" if value == 1 else f"1/{1 / value:.0f}")
    left.set_ylabel(r"scaled $\theta_i$ / unscaled $\theta_i$")
    left.legend(loc="lower left", bbox_to_anchor=(0, 0.06), fontsize=10)
    right.set_yscale("log")
    right.axhline(1, color=GREY, linewidth=0.8)
    right.set_ylabel("rotations within 32,768 positions")
    right.legend(loc="upper right", fontsize=10)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "cos_sin": lambda: plot.cos_sin_tables(phasor.RopeSpec(64, layout="half"), positions=256),
    "inner_products": plot.inner_products,
    "decay": lambda: plot.decay(
        [phasor.RopeSpec(128), phasor.RopeSpec(128, base=500000.0), phasor.RopeSpec(128, base=100.0)]
    ),
    "scores": scores,
    "linear": linear,
    "solutions": solutions,
    "commuting": commuting,
    "attention_maps": plot.attention_maps,
    "ratios": ratios,
    "eval_embedded": lambda: plot.eval_table(
        DOCS / "eval-embedded.csv", tail=True, title="1.2 million parameters, trained to 256 bytes"
    ),
}


def main(folder: Path) -> None:
    for name, draw in FIGURES.items():
        plot.save(draw(), folder / f"{name}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "figures")
