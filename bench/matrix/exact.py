"""What the numbers of an engine are compared with, and the comparison.

Angles are products of the position and the exact frequency (float64, from 50-digit arithmetic) in long double, so that
an exact cos or sin is off by 2e-9 at most at position 2^24: a thirtieth of a float32 rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from case import Case, Floats, Positions

Exact = npt.NDArray[np.longdouble]
LAYOUTS = ("half", "interleaved", "interleaved_to_half")
SAME_FREQUENCY = 1e-4  # relative; float32 frequencies are within 2e-6
SCORE_HEADS = 2


def pair_features(layout: str, pairs: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Features (read a, read b, written a, written b) of each pair."""
    i = np.arange(pairs)
    halves, neighbours = (i, i + pairs), (2 * i, 2 * i + 1)
    return {
        "half": (*halves, *halves),
        "interleaved": (*neighbours, *neighbours),
        "interleaved_to_half": (*neighbours, *halves),
    }[layout]


def cos_sin(contexts: list[tuple[list[float], float]], positions: Positions) -> tuple[Exact, Exact]:
    """[tokens, pairs] each; (frequencies, amplitude) of each token."""
    frequencies = np.array([f for f, _ in contexts], np.longdouble)
    amplitude = np.array([a for _, a in contexts], np.longdouble)[:, None]
    angles = positions[:, None].astype(np.longdouble) * frequencies
    return amplitude * np.cos(angles), amplitude * np.sin(angles)


def rotated(x: Floats, cos: Exact, sin: Exact, layout: str) -> Exact:
    """RoFormer (34) for x [tokens, heads, head_dim]."""
    a, b, to_a, to_b = pair_features(layout, cos.shape[1])
    y = x.astype(np.longdouble)
    cos, sin = cos[:, None], sin[:, None]
    first, second = y[..., a].copy(), y[..., b].copy()
    y[..., to_a] = first * cos - second * sin
    y[..., to_b] = first * sin + second * cos
    return y


def layout_of(y: Floats, pairs: int, sine: float) -> str:
    """The layout of an engine, from what becomes of the first two unit vectors; `sine` is that of the first pair."""
    for layout in LAYOUTS:
        a, b, to_a, to_b = (int(f[0]) for f in pair_features(layout, pairs))
        outside = [f for f in range(y.shape[-1]) if f not in (to_a, to_b)]
        if not y[a, outside].any() and not y[b, outside].any() and y[a, to_b] != 0:
            return layout if y[a, to_b] * sine > 0 else f"{layout}, inverse"
    return "unknown"


@dataclass
class Window:
    """Tokens that an engine rotates in one call: unit vectors, then queries, then keys, as heads."""

    positions: Positions
    x: Floats
    queries: int

    @staticmethod
    def of(head_dim: int, positions: Positions, q: Floats, k: Floats) -> Window:
        units = np.broadcast_to(np.eye(head_dim, dtype=np.float32), (len(positions), head_dim, head_dim))
        return Window(positions, np.concatenate((units, q, k), axis=1), q.shape[1])

    @staticmethod
    def at(head_dim: int, positions: Positions) -> Window:
        """The same random queries and keys at every position."""
        random = np.random.default_rng(21)
        q, k = random.standard_normal((2, len(positions), SCORE_HEADS, head_dim)).astype(np.float32)
        return Window.of(head_dim, positions, q, k)


def digits(value: Any, count: int = 4) -> float:
    """A number of the result, without the digits that say nothing."""
    return float(f"{value:.{count}g}")


def scores(y: Exact | Floats, head_dim: int, queries: int) -> Exact:
    """q of every token with k of every token, by head, as attention scales them."""
    q = y[:, head_dim : head_dim + queries].astype(np.longdouble)
    k = y[:, head_dim + queries :].astype(np.longdouble)
    k = np.repeat(k, queries // k.shape[1], axis=1)
    product: Exact = np.einsum("mhd,nhd->hmn", q, k) / np.longdouble(math.sqrt(head_dim))
    return product


def compared(
    case: Case, window: Window, contexts: list[tuple[list[float], float]], y: Floats, layout: str
) -> dict[str, Any]:
    """The errors of one answer. `contexts` are the exact frequencies and amplitude of each token."""
    if not np.isfinite(y).all():
        return {"failed": "NaN or infinity"}
    if layout not in LAYOUTS:
        return {"failed": f"layout {layout}"}
    head_dim, pairs = case.head_dim, len(contexts[0][0])
    cos, sin = cos_sin(contexts, window.positions)
    difference = np.abs(y - rotated(window.x, cos, sin, layout))
    a, _, to_a, to_b = pair_features(layout, pairs)
    got_cos, got_sin = y[:, a, to_a].astype(float), y[:, a, to_b].astype(float)
    want_cos, want_sin = cos.astype(float), sin.astype(float)
    turned = np.abs(np.arctan2(got_sin * want_cos - got_cos * want_sin, got_cos * want_cos + got_sin * want_sin))
    last = int(np.argmax(window.positions))
    want = scores(rotated(window.x, cos, sin, layout), head_dim, window.queries)
    result: dict[str, Any] = {
        "cos_sin": digits(difference[:, :head_dim].max()),
        "vectors": digits(difference[:, head_dim:].max()),
        "scores": digits(np.abs(scores(y, head_dim, window.queries) - want).max()),
        "angle": digits(turned[last].max()),
    }
    ones = np.flatnonzero(window.positions == 1)
    if len(ones):
        frequencies, amplitude = contexts[ones[0]]
        result |= frequencies_found(got_cos[ones[0]], got_sin[ones[0]], frequencies, amplitude)
    return result


def frequencies_found(
    cos: npt.NDArray[np.float64], sin: npt.NDArray[np.float64], frequencies: list[float], amplitude: float
) -> dict[str, Any]:
    """The frequencies and the amplitude of an engine, from cos and sin at position 1."""
    found, want = np.arctan2(sin, cos), np.array(frequencies)
    relative = np.abs(found - want) / np.where(want == 0, 1.0, np.abs(want))
    size = float(np.median(np.hypot(cos, sin)))
    result: dict[str, Any] = {"frequency": digits(relative.max()), "amplitude": digits(size, 8)}
    if result["frequency"] > SAME_FREQUENCY:
        result["frequencies"] = [digits(value, 7) for value in found]
    return result
