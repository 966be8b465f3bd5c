"""Phasor compared with every library that people call from Python, in one run and one table.

    python bench/peers/peers.py [rotary|attention|overhead ...] [--rounds 15] [--json] [--heap cold|warm|both]
                                [--only ENCODING or PEER] [--tokens N] [--backward]

Needs phasor and NumPy; measures each peer that can be imported: torch (the forms of Hugging Face and of LLaMA, eager
and compiled; fused and composed attention), rotary-embedding-torch, ONNX Runtime. Both sides are called from Python,
one thread each, alternating in one process: a figure is the rounds' median, a ratio the median of the rounds' ratios.
`rotary` is 1 x 4096 x 32 x 128 float32, `overhead` one decode token of it, `attention` 8 heads of 64, causal. torch and
ONNX Runtime allocate their results: they are measured with a cold heap, as a script has it, and with a warm one, as a
long-running process ends up with.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator

import phasor
import rotary_peers
from timing import HEAPS, Row, keep_heap_warm, left_out

PARTS = ("rotary", "overhead", "attention")
PACKAGES = ("numpy", "torch", "rotary-embedding-torch", "onnxruntime")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    # Cold measurements come first: a warm heap stays warm.
    parts = arguments.parts or PARTS
    rotation = rotary_peers.Rotation() if "rotary" in parts else None
    if "overhead" in parts:
        yield from rotary_peers.call_rows(arguments.rounds)
    for heap in HEAPS:
        if arguments.heap not in (heap, "both"):
            continue
        if heap == "warm":
            keep_heap_warm()
        if rotation is not None:
            yield from rotation.rows(heap, arguments.rounds, arguments.only or "")
        if "attention" in parts:
            try:
                import attention_peers

                yield from attention_peers.rows(heap, arguments.rounds, arguments.tokens, arguments.only,
                                                arguments.backward)
            except ImportError as error:
                left_out("attention of torch", error)


def versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="rotary|attention|overhead", help="what to measure; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--heap", choices=(*HEAPS, "both"), default="both")
    parser.add_argument("--only", help="attention: one encoding (none, rope, t5, ...); rotary: peers with it in their name")
    parser.add_argument("--tokens", type=int, default=2048, help="attention; none is measured at twice as many too")
    parser.add_argument("--backward", action="store_true", help="attention: of every encoding, not of none alone")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"unknown part {part}; known are {', '.join(PARTS)}")
    if not arguments.json:
        print(f"Python {platform.python_version()}, phasor {phasor.__version__} ({phasor.instruction_sets()[-1]}) "
              f"compared with {versions()}; 1 thread each, medians of {arguments.rounds} alternating rounds, us")
        print(f"{'ours':<62} {'peer':<46} {'peer us':>11} {'ours us':>10} {'ratio':>7}")
    printed = []
    for row in rows(arguments):
        printed.append(row.as_json())
        if not arguments.json:
            print(f"{row.name:<62} {row.against:<46} {row.against_us:11.1f} {row.ours_us:10.1f} {row.times:6.2f}x",
                  flush=True)
    if arguments.json:
        print(json.dumps(printed, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
