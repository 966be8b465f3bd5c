#!/usr/bin/env python3
"""Draws the CSV file of `phasor eval`: perplexity against context, one line per scaling.

    python3 bench/plot_eval.py EVAL.csv OUT [--trained N] [--tail] [--title TEXT]

Writes OUT.svg and OUT.png. --tail draws the tokens in the last quarter of their window alone. Needs matplotlib.
"""
import argparse
import csv
import math
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_eval: matplotlib must be installed (pip install matplotlib), got no such module")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator  # noqa: E402

# Okabe and Ito's colours, which colour-blind readers tell apart; shapes and dashes say it again. The last one drawn is
# the smallest, so that lines that coincide still show.
STYLES = {
    "none": ("#000000", "o", "-"),
    "linear": ("#E69F00", "s", "--"),
    "ntk": ("#56B4E9", "^", "-."),
    "dynamic": ("#009E73", "D", (0, (5, 1, 1, 1))),
    "yarn": ("#CC79A7", "v", (0, (3, 1))),
    "longrope": ("#0072B2", "P", ":"),
}
NAMES = {"none": "none (plain RoPE)", "ntk": "NTK", "dynamic": "dynamic NTK", "yarn": "YaRN", "longrope": "LongRoPE"}


def read(path, tail):
    """scaling -> [(context, perplexity, least, most)], and the model's name."""
    lines, model = {}, ""
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            model = row["model"]
            nats = float(row["last_quarter_nats" if tail else "nats"])
            error = 0.0 if tail else float(row["standard_error"])
            lines.setdefault(row["scaling"], []).append(
                (int(row["context"]), math.exp(nats), math.exp(nats - error), math.exp(nats + error)))
    return {name: sorted(points) for name, points in lines.items()}, model


def number(value, _=None):
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def draw(lines, title, trained, tail):
    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "phasor", "svg.fonttype": "none"})
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    contexts = sorted({point[0] for points in lines.values() for point in points})
    names = [name for name in STYLES if name in lines] + sorted(set(lines) - set(STYLES))
    for order, name in enumerate(names):
        colour, marker, dashes = STYLES.get(name, ("#888888", "x", "-"))
        points = lines[name]
        x, y, least, most = (list(column) for column in zip(*points))
        axes.fill_between(x, least, most, color=colour, alpha=0.12, linewidth=0)
        axes.plot(x, y, color=colour, marker=marker, linestyle=dashes, linewidth=1.8,
                  markersize=9 - order, label=NAMES.get(name, name))
    if trained:
        axes.axvline(trained, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(f"trained to {trained:,}", (trained, 1), xycoords=("data", "axes fraction"), xytext=(-5, -6),
                      textcoords="offset points", ha="right", va="top", color="#555555")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(contexts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(number))
    low, high = axes.get_ylim()
    low, high = low / 1.05, high * 1.05
    axes.set_ylim(low, high)
    ticks = [step * 10**power for power in range(0, 8) for step in (1, 1.5, 2, 3, 5, 7)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < 4:
        ticks = [tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(number))
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("perplexity, last quarter of the window" if tail else "perplexity (lower is better)")
    axes.set_title(title, loc="left", fontsize=12)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(title="scaling", frameon=False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("out", help="without its ending")
    parser.add_argument("--trained", type=int, help="the length the model was trained at: a vertical line")
    parser.add_argument("--tail", action="store_true", help="only tokens in the last quarter of their window")
    parser.add_argument("--title")
    arguments = parser.parse_args()
    try:
        lines, model = read(arguments.csv, arguments.tail)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"plot_eval: {arguments.csv} must be a CSV file of phasor eval, got {error!r}")
    if not lines:
        sys.exit(f"plot_eval: {arguments.csv} must have rows, got none")
    title = arguments.title or f"Perplexity by context and RoPE scaling\n{model}"
    figure = draw(lines, title, arguments.trained, arguments.tail)
    figure.savefig(arguments.out + ".svg", metadata={"Date": None})
    figure.savefig(arguments.out + ".png", dpi=150)


if __name__ == "__main__":
    main()
