"""Draws docs/figures/rotation.svg, the moving picture of the README: two tokens at a fixed distance, one dial a pair.

    PYTHONPATH=build/release/python python scripts/rotation_picture.py [FILE]

Every number is Phasor's own: frequencies of a RopeSpec, scores of rotated vectors. The animation is CSS, so that it runs
in an <img> on a code host, and stops for readers who asked their system for less motion.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

import phasor

SPEC = phasor.RopeSpec(8, base=100.0, layout="interleaved")
DISTANCE, STEPS = 5, 24  # q is DISTANCE ahead of k; both move STEPS positions
FORWARD, PERIOD = 90.0, 20  # the last tenth of the 20 seconds goes back to the start
WIDTH, HEIGHT = 840, 430
STRIP = 640
DIAL, RADIUS = 190, 70
# Length and angle (degrees) of q and k in each pair: any vectors would do, these can be told apart.
QUERY = ((0.95, 20), (0.8, 75), (0.9, 110), (0.7, 60))
KEY = ((0.75, 265), (0.95, 110), (0.7, 80), (0.9, 20))

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font: 15px system-ui, "Segoe UI", "Noto Sans", sans-serif; fill: #1f2328 }
  .small { font-size: 13px; fill: #59636e }
  .large { font-size: 18px; font-weight: 600 }
  .middle { text-anchor: middle }
  .ring, .axis { fill: none; stroke: #c3cad2; stroke-width: 1.5 }
  .q { stroke: #0969da; fill: #0969da } .k { stroke: #c2570c; fill: #c2570c }
  .arrow { stroke-width: 3.5; stroke-linecap: round }
  text.q, text.k { stroke: none }
  .wedge { fill: #8c6bb1; fill-opacity: .22 }
  .flat { fill: none; stroke: #1a7f37; stroke-width: 3 }
  .dot { fill: #1a7f37 }
  .alone { fill: none; stroke: #8b949e; stroke-width: 2 }
  .cover { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .card, .cover { fill: #161b22 } .card { stroke: #30363d }
    text { fill: #e6edf3 } .small { fill: #9da7b1 }
    .ring, .axis { stroke: #484f58 }
    .q { stroke: #58a6ff; fill: #58a6ff } .k { stroke: #f0883e; fill: #f0883e }
    .wedge { fill: #bc9be0 } .flat { stroke: #3fb950 } .dot { fill: #3fb950 }
  }
  @media (prefers-reduced-motion: reduce) { * { animation: none !important } .cover { display: none } }
"""


def vector(polar: tuple[tuple[float, float], ...]) -> np.ndarray:
    """Lengths and angles as features, pair i = features (2i, 2i + 1)."""
    return np.array([f(math.radians(angle)) * length for length, angle in polar for f in (math.cos, math.sin)])


def score(m: float, n: float) -> np.ndarray:
    """The part of each pair in q_m . k_n, after rotate()."""
    q, k = (phasor.rotate(vector(x)[None, None], SPEC, np.array([at]))[0, 0] for x, at in ((QUERY, m), (KEY, n)))
    return (q * k).reshape(-1, 2).sum(axis=1)


def keyframes(name: str, end: str, stepped: bool = False) -> str:
    """From no change to `end`, then back; in whole positions if stepped."""
    timing = f"steps({STEPS})" if stepped else "linear"
    start = end.split("(")[0] + "(0)"
    return (
        f"  @keyframes {name} {{ 0%, 100% {{ transform: {start} }} {FORWARD:g}%, {FORWARD + 2:g}% {{ transform: {end} }} }}\n"
        f"  .{name} {{ animation: {name} {PERIOD}s {timing} infinite }}\n"
    )


def arrow(kind: str, length: float, degrees: float) -> str:
    size = RADIUS * length
    return (
        f'<g transform="rotate({degrees:g})"><path class="arrow {kind}" d="M0 0H{size - 8:.1f}"/>'
        f'<path class="{kind}" d="M{size:.1f} 0l-11 5v-10z"/></g>'
    )


def dial(i: int, frequency: float, part: float) -> str:
    """Pair i: both arrows with the angle between them; the group turns by frequency radians a position."""
    # q starts at position DISTANCE and k at 0.
    start_q = QUERY[i][1] + math.degrees(DISTANCE * frequency)
    start_k = KEY[i][1]
    span = (start_q - start_k + 180) % 360 - 180
    ends = [
        (0.45 * RADIUS * math.cos(math.radians(a)), 0.45 * RADIUS * math.sin(math.radians(a)))
        for a in (start_k, start_k + span)
    ]
    wedge = (
        f'<path class="wedge" d="M0 0L{ends[0][0]:.1f} {ends[0][1]:.1f}A{0.45 * RADIUS:.1f} {0.45 * RADIUS:.1f} 0 0 '
        f'{int(span > 0)} {ends[1][0]:.1f} {ends[1][1]:.1f}z"/>'
    )
    x = WIDTH / 2 + (i - 1.5) * DIAL
    return (
        f'<g transform="translate({x:g} 177)"><circle class="ring" r="{RADIUS}"/>'
        f'<g transform="scale(1 -1)"><g class="turn{i}">{wedge}{arrow("q", QUERY[i][0], start_q)}{arrow("k", KEY[i][0], start_k)}</g></g>'
        f'<text class="small middle" y="94">θ{"₀₁₂₃"[i]} = {frequency:.3g}</text>'
        f'<text class="middle" y="116">{part:+.2f}</text></g>'
    )


def odometer(x: float, first: int, kind: str) -> str:
    """The numbers first, first + 1, ... in a window of one line."""
    lines = "".join(f'<text class="large {kind}" y="{22 * line}">{first + line}</text>' for line in range(STEPS + 1))
    return f'<svg x="{x:g}" y="20" width="30" height="24" viewBox="0 -19 30 24"><g class="count">{lines}</g></svg>'


def sequence() -> str:
    """A row of positions along which q and k move."""
    last = DISTANCE + STEPS
    step = STRIP / last
    left = (WIDTH - STRIP) / 2
    ticks = "".join(f"M{left + step * at:.1f} 66v6" for at in range(last + 1))
    return (
        f'<path class="axis" d="M{left:g} 72H{left + STRIP:g}{ticks}"/>'
        f'<g class="walk"><circle class="k" cx="{left:g}" cy="72" r="6"/>'
        f'<circle class="q" cx="{left + step * DISTANCE:.1f}" cy="72" r="6"/></g>'
    )


def picture() -> str:
    frequencies, _ = SPEC.frequencies()
    parts = score(DISTANCE, 0)
    total = parts.sum()
    for n in range(STEPS + 1):
        assert abs(score(n + DISTANCE, n).sum() - total) < 1e-12, "a score must depend on the distance alone"

    left, right, top, height = 245, 640, 330, 72  # the plot: the score by m
    along = np.linspace(0, STEPS, 8 * STEPS + 1)
    alone = np.array([score(DISTANCE + step, 0).sum() for step in along])
    low, high = min(alone.min(), total, 0.0), max(alone.max(), total)
    xs = left + (right - left) * along / STEPS
    ys = top + height * (high - alone) / (high - low)
    level = top + height * (high - total) / (high - low)
    zero = top + height * high / (high - low)
    curve = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys))

    style = STYLE + "".join(
        keyframes(f"turn{i}", f"rotate({math.degrees(STEPS * frequency):.3f}deg)")
        for i, frequency in enumerate(frequencies)
    )
    style += keyframes("count", f"translateY({-22 * STEPS}px)", stepped=True)
    style += keyframes("walk", f"translateX({STRIP * STEPS / (DISTANCE + STEPS):.2f}px)")
    style += keyframes("slide", f"translateX({right - left}px)")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title">',
            '<title id="title">A query and a key five positions apart move along a sequence: every pair rotates, the score stays the same</title>',
            f"<style>{style}</style>",
            f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>',
            '<text class="large q" x="206" y="39">q</text><text x="226" y="39">m =</text>',
            odometer(262, DISTANCE, "q"),
            '<text class="large k" x="372" y="39">k</text><text x="392" y="39">n =</text>',
            odometer(424, 0, "k"),
            f'<text x="530" y="39">m − n = {DISTANCE}</text>',
            sequence(),
            *(dial(i, frequency, part) for i, (frequency, part) in enumerate(zip(frequencies, parts))),
            f'<text class="large" x="40" y="{top + 30}">Σ = q · k = {total:.2f}</text>',
            # An inner <svg> cuts off the cover, which hides the part that is not reached yet.
            f'<svg x="{left}" y="{top - 8}" width="{right - left + 6}" height="{height + 16}" viewBox="{left} {top - 8} {right - left + 6} {height + 16}">'
            f'<path class="alone" d="{curve}"/><path class="flat" d="M{left} {level:.1f}H{right}"/>'
            f'<g class="slide"><rect class="cover" x="{left}" y="{top - 8}" width="{right - left + 6}" height="{height + 16}"/>'
            f'<circle class="dot" cx="{left}" cy="{level:.1f}" r="5"/></g></svg>',
            f'<path class="axis" d="M{left} {zero:.1f}H{right}M{left} {top - 4}V{top + height + 4}"/>',
            f'<text x="{right + 12}" y="{level + 5:.1f}">n = m − {DISTANCE}</text>',
            f'<text class="small" x="{right + 12}" y="{ys[-1] + 5:.1f}">n = 0</text>',
            f'<text class="small" x="{right - 10}" y="{top + height + 20}">m</text>',
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    default = Path(__file__).resolve().parent.parent / "docs" / "figures" / "rotation.svg"
    Path(sys.argv[1] if len(sys.argv) > 1 else default).write_text(picture(), encoding="utf-8")
