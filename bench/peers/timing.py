"""Timing of the peers: alternating, in one process, medians of rounds."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Work = Callable[[], object]
HEAPS = ("cold", "warm")


@dataclass
class Row:
    """One line of the table: the operation, the peer, microseconds of both, and their ratio (peer / ours)."""

    name: str
    against: str
    ours_us: float
    against_us: float
    times: float

    def as_json(self) -> dict[str, object]:
        """The form of `phasor bench --json`: ratio is ours / theirs."""
        return {"name": self.name, "ours_us": self.ours_us, "against": self.against, "against_us": self.against_us,
                "ratio": 1.0 / self.times}


def contest(ours: dict[str, Work], against: str, theirs: Work, rounds: int, least: int = 4) -> Iterator[Row]:
    """A row for each of ours and the peer; the ratio is the median of the rounds' ratios.

    A round repeats its work for a while, `least` times or more, so that each side meets its own data in the caches, not
    the other's.
    """
    work, repeats = [*ours.values(), theirs], []
    for function in work:
        function()
        begin = time.perf_counter()
        function()
        repeats.append(max(least, int(0.15 / (time.perf_counter() - begin))))
    times: list[list[float]] = [[] for _ in work]
    for round_index in range(rounds):
        for step in range(len(work)):
            which = (round_index + step) % len(work)
            function, count = work[which], repeats[which]
            begin = time.perf_counter()
            for _ in range(count):
                function()
            times[which].append((time.perf_counter() - begin) * 1e6 / count)
    peer = times[-1]
    for name, mine in zip(ours, times):
        yield Row(name, against, statistics.median(mine), statistics.median(peer),
                  statistics.median(b / a for a, b in zip(mine, peer)))


def keep_heap_warm() -> None:
    """Makes glibc reuse freed memory instead of returning it to the system, as a long-running process does."""
    libc = ctypes.CDLL(None)
    m_trim_threshold, m_mmap_max = -1, -4
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, 2**31 - 1)


def aligned(shape: Sequence[int]) -> npt.NDArray[np.float32]:
    """An initialised array aligned to 64 bytes, as torch and ONNX Runtime allocate theirs."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 16, dtype=np.float32)
    first = (-memory.ctypes.data % 64) // 4
    return memory[first : first + count].reshape(shape)


def check(name: str, ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], tolerance: float) -> None:
    """Exits if a peer computes another result."""
    difference = float(np.abs(ours - theirs).max())
    if not difference < tolerance:
        raise SystemExit(f"{name}: not timed, result differs by {difference:.2g}")


def left_out(peer: str, error: BaseException) -> None:
    print(f"{peer}: not measured: {str(error).splitlines()[0]}", file=sys.stderr)
