"""`python -m phasor.plot FIGURE [options] -o FILE`: the figures of phasor.plot, from the command line.

exit  0 written, 2 invalid arguments or input (one line on stderr, nothing written)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .._core import Error, RopeSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_USAGE = """\
examples
  python -m phasor.plot decay -o decay.svg
  python -m phasor.plot decay --config llama2/config.json --config llama3/config.json --distance 4096 -o decay.png
  python -m phasor.plot wavelengths --config model/config.json --to 131072 -o waves.svg -o waves.png
  python -m phasor.plot float32_error --config '{"head_dim": 128, "base": 500000}' -o error.svg
  python -m phasor.plot eval_table eval.csv --trained 8192 --tail -o eval.svg
  python -m phasor.plot --all figures/

A config is a config.json, a folder that holds one, a GGUF file, or a plain spec written out as JSON.
"""

# The configs of figures without --config: the base of the paper, and one for long contexts.
_DEFAULTS = (
    {"head_dim": 128, "base": 10000.0, "layout": "half", "max_position_embeddings": 4096},
    {"head_dim": 128, "base": 500000.0, "layout": "half", "max_position_embeddings": 8192},
)


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"plot: {message} (see --help)\n")


def _config(text: str) -> dict[str, object] | str:
    if not text.lstrip().startswith("{"):
        return text
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise Error(f"plot: --config is not a file, and not valid JSON: {error}") from error
    assert isinstance(config, dict)
    return config


def _spec(config: dict[str, object] | str) -> RopeSpec:
    return RopeSpec.from_hf(config)


def _configs(options: argparse.Namespace) -> list[dict[str, object] | str]:
    given: list[str] = options.config or []
    return [_config(text) for text in given] or [dict(config) for config in _DEFAULTS]


def _specs(options: argparse.Namespace) -> list[RopeSpec]:
    return [_spec(config) for config in _configs(options)]


def _single(options: argparse.Namespace) -> dict[str, object] | str:
    configs = _configs(options)
    if options.config and len(configs) > 1:
        raise Error(f"plot: {options.figure} takes one --config, got {len(configs)}")
    return configs[0]


def _decay(options: argparse.Namespace) -> Figure:
    from . import decay

    return decay(_specs(options), distance=options.distance, context=options.context, title=options.title)


def _inner_products(options: argparse.Namespace) -> Figure:
    from . import inner_products

    spec = _spec(_single(options)) if options.config else None
    return inner_products(spec, positions=options.positions, seed=options.seed, title=options.title)


def _wavelengths(options: argparse.Namespace) -> Figure:
    from . import wavelengths

    methods = options.methods.split(",") if options.methods else None
    return wavelengths(_single(options), to=options.to, methods=methods, title=options.title)


def _cos_sin_tables(options: argparse.Namespace) -> Figure:
    from . import cos_sin_tables

    spec = _spec(_single(options))
    return cos_sin_tables(spec, positions=options.positions, context=options.context, title=options.title)


def _float32_error(options: argparse.Namespace) -> Figure:
    from . import float32_error

    return float32_error(_specs(options), last=options.last, context=options.context, title=options.title)


def _attention_maps(options: argparse.Namespace) -> Figure:
    from . import attention_maps

    return attention_maps(tokens=options.tokens, causal=not options.both_ways, seed=options.seed, title=options.title)


def _eval_table(options: argparse.Namespace) -> Figure:
    from . import eval_table

    return eval_table(options.csv, trained=options.trained, tail=options.tail, title=options.title)


def _offset_table(options: argparse.Namespace) -> Figure:
    from . import offset_table

    return offset_table(options.csv, title=options.title)


def _lab_table(options: argparse.Namespace) -> Figure:
    from . import lab_table

    return lab_table(options.csv, title=options.title)


def _lab_contexts(options: argparse.Namespace) -> Figure:
    from . import lab_contexts

    return lab_contexts(options.csv, title=options.title)


_FIGURES: dict[str, tuple[Callable[[argparse.Namespace], Figure], str]] = {
    "decay": (_decay, "the bound on a score by distance, figure 2 of the RoFormer paper, a line per config"),
    "inner_products": (_inner_products, "inner products of sinusoidal and rotary positions as heat maps"),
    "wavelengths": (_wavelengths, "wavelengths against the trained length, for every scaling of a config"),
    "cos_sin_tables": (_cos_sin_tables, "the tables of cos and sin as heat maps"),
    "float32_error": (_float32_error, "the angle error of float32 engines, by position"),
    "attention_maps": (_attention_maps, "softmax attention under each encoding"),
    "eval_table": (_eval_table, "perplexity by context and scaling, from the CSV file of `phasor eval --csv`"),
    "offset_table": (_offset_table, "perplexity by offset and angles, from `phasor eval --offset --angles --csv`"),
    "lab_table": (_lab_table, "loss by step and encoding, from a CSV file: experiment, encoding, step, loss[, seed]"),
    "lab_contexts": (_lab_contexts, "loss by length and encoding: experiment, encoding, context, loss[, seed]"),
}
_FROM_CSV = ("eval_table", "offset_table", "lab_table", "lab_contexts")


def _add_options(parser: argparse.ArgumentParser, figure: str) -> None:
    if figure in ("decay", "inner_products", "wavelengths", "cos_sin_tables", "float32_error"):
        several = " (may be given several times)" if figure in ("decay", "float32_error") else ""
        parser.add_argument(
            "--config", action="append", metavar="C", help=f"config.json, folder, GGUF or JSON{several}"
        )
    if figure in ("decay", "cos_sin_tables", "float32_error"):
        parser.add_argument("--context", type=int, metavar="N", help="the length that dynamic and longrope resolve for")
    if figure == "decay":
        parser.add_argument("--distance", type=int, default=256, metavar="N", help="the last distance (256)")
    if figure == "wavelengths":
        parser.add_argument("--to", type=int, default=32768, metavar="N", help="the length to reach (32768)")
        parser.add_argument(
            "--methods", metavar="A,B", help="none,linear,ntk,dynamic,yarn,llama3,longrope: those to draw"
        )
    if figure in ("inner_products", "cos_sin_tables"):
        default = 128 if figure == "inner_products" else 256
        parser.add_argument(
            "--positions", type=int, default=default, metavar="N", help=f"how many positions ({default})"
        )
    if figure == "float32_error":
        parser.add_argument("--last", type=int, default=1 << 20, metavar="N", help="the last position (1048576)")
    if figure == "attention_maps":
        parser.add_argument("--tokens", type=int, default=48, metavar="N", help="queries and keys (48)")
        parser.add_argument("--both-ways", action="store_true", help="without the causal mask")
    if figure in ("inner_products", "attention_maps"):
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random q and k (0)")
    if figure in _FROM_CSV:
        parser.add_argument("csv", help="the table")
    if figure == "eval_table":
        parser.add_argument("--trained", type=int, metavar="N", help="the length the model was trained at")
        parser.add_argument("--tail", action="store_true", help="only tokens in the last quarter of their window")
    parser.add_argument("--title", metavar="TEXT", help="instead of the figure's own")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m phasor.plot",
        description="Draws one figure, or all of them, as SVG and PNG.",
        epilog=_USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--all", metavar="DIR", help="every figure that needs no table, into this folder, as SVG and PNG"
    )
    figures = parser.add_subparsers(dest="figure", metavar="FIGURE", parser_class=_Parser)
    for name, (_, summary) in _FIGURES.items():
        own = figures.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example  python -m phasor.plot {name}{' table.csv' if name in _FROM_CSV else ''} -o {name}.svg",
        )
        _add_options(own, name)
        own.add_argument(
            "-o",
            "--output",
            action="append",
            required=True,
            metavar="FILE",
            help=".svg or .png; may be given several times",
        )
    return parser


def _draw_all(folder: str) -> None:
    from . import save

    parser = _parser()
    drawn = {}
    for name, (draw, _) in _FIGURES.items():
        if name not in _FROM_CSV:
            drawn[name] = draw(parser.parse_args([name, "-o", f"{name}.svg"]))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"plot: cannot create the folder {folder}: {error.strerror or error}") from error
    for name, figure in drawn.items():
        save(figure, *(Path(folder) / f"{name}.{form}" for form in ("svg", "png")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.all is None) == (options.figure is None):
        missing = options.all is None
        parser.error("FIGURE or --all DIR is missing" if missing else "FIGURE cannot be combined with --all")
    try:
        from .style import format_of, save

        if options.all is not None:
            _draw_all(options.all)
        else:
            for path in options.output:
                format_of(path)
            save(_FIGURES[options.figure][0](options), *options.output)
    except (Error, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
