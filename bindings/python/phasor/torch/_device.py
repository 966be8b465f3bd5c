"""Exact rows of cos and sin on any device of torch, from tables that C++ computes once on the CPU.

A position on a device is not read back. It is split into m = 4096 h + l; the rows of 4096 h and of l are kept on the
device in float64, and their product is the row of m:

    R_m = R_(4096 h) R_l      e^(i m theta) = e^(i 4096 h theta) e^(i l theta)

so no call waits for the device, no table depends on the length of a sequence, and nothing on the device computes a cos.
A position outside +-kMaxPosition (2^24; above it from 2^24 + 4096 on) gives NaN there: refusing it would need its value.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from .. import _core
from ._common import refusal, spec_of

if TYPE_CHECKING:
    from .._core import Angles, RopeSpec

_STEP = 4096  # rows of each of the two tables
_BITS = _STEP.bit_length() - 1
_TABLE_ROWS = 1 << 16  # ranges that end before it share one table
_CACHE_BYTES = 256 << 20  # of all devices together

# What a test may force on CPU tensors: the path of other devices, with or without float64 there.
_forced: Literal["", "float64", "float32"] = ""


@contextmanager
def forced(widest: Literal["float64", "float32"] = "float64") -> Iterator[None]:
    """For tests: CPU tensors take the path of other devices; widest="float32" is that of a device without float64."""
    global _forced
    before, _forced = _forced, widest
    try:
        yield
    finally:
        _forced = before


def by_torch(*tensors: Tensor | None) -> bool:
    """Whether torch's own operations rotate: a tensor is not on the CPU."""
    if _forced:
        return True
    for tensor in tensors:
        if tensor is not None and not tensor.is_cpu:
            return True
    return False


def require_one_device(where: str, **tensors: Tensor | None) -> None:
    """Refuses tensors that are not on the device of the first."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    first = next(iter(given))
    for name, tensor in given.items():
        if tensor.device != given[first].device:
            raise refusal(
                "unsupported",
                f"{where}: {first} and {name} must be on one device, got {given[first].device} and {tensor.device}",
            )


@lru_cache(maxsize=64)
def _has_float64(device: torch.device) -> bool:
    try:
        one = torch.ones(1, dtype=torch.complex128, device=device)
        return bool((one * one).real.item() == 1.0)
    except (TypeError, RuntimeError, NotImplementedError):
        return False


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in float64 (MPS and some XPU do not)."""
    if device.type == "cpu":
        return _forced != "float32"
    return device.type == "meta" or _has_float64(device)


def widest(device: torch.device) -> torch.dtype:
    return torch.float64 if has_float64(device) else torch.float32


# The cache ----------------------------------------------------------------------------------------------------------


class _Cache:
    """Tensors by key; those used longest ago are dropped beyond _CACHE_BYTES."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[Tensor, ...]] = OrderedDict()
        self._captured: set[tuple[object, ...]] = set()

    def get(self, key: tuple[object, ...], make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                # Usable in any later call: neither of inference mode nor of a graph.
                with torch.inference_mode(False), torch.no_grad():
                    found = self._kept[key] = make()
            self._kept.move_to_end(key)
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                self._captured.add(key)  # a CUDA graph reads this memory whenever it is replayed
            held = self.nbytes
            for old in list(self._kept):
                if held <= _CACHE_BYTES:
                    break
                if old != key and old not in self._captured:
                    held -= _bytes_of(self._kept.pop(old))
            return found

    @property
    def nbytes(self) -> int:
        return sum(map(_bytes_of, self._kept.values()))

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._captured.clear()


def _bytes_of(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


cache = _Cache()


# Rows ---------------------------------------------------------------------------------------------------------------


def host_rows(
    spec: RopeSpec, positions: Tensor, context: int | None, wide: bool, angles: str, role: str
) -> tuple[Tensor, Tensor]:
    """Rows by C++, float64 if `wide`, else float32, for CPU positions [..., tokens], or [axes, ..., tokens].

    role: "query" or "key" multiplies in the growth of xPos; "" leaves it out.
    """
    flat = positions.detach().reshape(-1) if spec.axes == 1 else positions.detach().reshape(spec.axes, -1)
    shape = positions.shape if spec.axes == 1 else positions.shape[1:]
    cos: Tensor
    sin: Tensor
    if role and grows(spec):
        # A rotated (1, 0) is (g cos, g sin).
        pairs, first = spec.rotary_dim // 2, spec.rotary_offset
        unit = torch.zeros(flat.shape[-1], 1, spec.head_dim, dtype=torch.float64 if wide else torch.float32)
        unit[..., first : first + pairs] = 1
        half = spec.replace(layout="half")
        given = {"role": cast("Any", role), "context": context, "angles": cast("Any", angles)}
        turned = _core.rotate(unit, half, flat, **given)[:, 0]
        cos, sin = (turned[:, at : at + pairs].clone() for at in (first, first + pairs))
    else:
        dtype: Literal["float32", "float64"] = "float64" if wide else "float32"
        cos, sin = _core.cos_sin(spec, flat, context=context, dtype=dtype, angles=cast("Angles", angles))
    return cos.reshape(*shape, -1), sin.reshape(*shape, -1)


@lru_cache(maxsize=256)
def grows(spec: RopeSpec) -> bool:
    """Whether the rotation is xPos, with rows that differ between queries and keys."""
    return spec.to_dict().get("xpos") is not None


def rows_at(
    positions: Tensor, context: int | None, text: str, dtype: torch.dtype, angles: str, role: str
) -> tuple[Tensor, Tensor]:
    """cos and sin in `dtype` on the device of positions.

    Integers of exact rows need no synchronisation if the device has float64 and the spec does not depend on the context.
    """
    spec, device = spec_of(text), positions.device
    if dtype == torch.float64 and not has_float64(device):
        raise refusal("unsupported", f"cos_sin: float64 is not supported on {device}: use float32")
    whole = not positions.is_floating_point() and positions.dtype != torch.bool
    if not whole or angles != "exact" or (role and grows(spec)) or not has_float64(device):
        rows = host_rows(spec, positions.cpu(), context, dtype == torch.float64, angles, role)
        return rows[0].to(device, dtype), rows[1].to(device, dtype)
    if spec.depends_on_context and context is None:
        context = int(positions.max()) + 1 if positions.numel() > 0 else None
    fine, coarse = _factors(text, context, device)
    m = positions.to(torch.int64)
    low = m & (_STEP - 1)
    # The first and the last row of `coarse` are NaN.
    high = ((m >> _BITS) + _STEP + 1).clamp(0, 2 * _STEP + 2)
    if spec.axes == 1:
        turn = fine[low] * coarse[high]
    else:
        axis, pair = _axes(text, context, device)
        turn = fine[low[axis].movedim(0, -1), pair] * coarse[high[axis].movedim(0, -1), pair]
    # float64, float32, then the narrower type: as C++ rounds.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return turn.real.to(wide, copy=True).to(dtype), turn.imag.to(wide, copy=True).to(dtype)


def _factors(text: str, context: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """e^(i l theta) times the amplitude for l = 0 .. 4095, and e^(i 4096 h theta) for h = -4096 .. 4096 between two
    rows of NaN: complex128 [., pairs]."""

    def make() -> tuple[Tensor, ...]:
        spec = spec_of(text)
        low, high = torch.arange(_STEP), _STEP * torch.arange(-_STEP, _STEP + 1)
        amplitude = spec.frequencies(context)[1]
        fine, coarse = (
            torch.complex(*host_rows(spec, m if spec.axes == 1 else m.expand(spec.axes, -1), context, True, "exact", ""))
            for m in (low, high)
        )
        edge = torch.full_like(coarse[:1], complex("nan+nanj"))
        coarse = torch.cat((edge, coarse / amplitude, edge))
        return fine.to(device), coarse.to(device)

    found = cache.get(("factors", text, context, device), make)
    return found[0], found[1]


def _axes(text: str, context: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row of positions that each pair reads, and 0 .. pairs - 1."""

    def make() -> tuple[Tensor, ...]:
        spec = spec_of(text)
        # A position of 1 in one row has a sine in the pairs that read it. A pair without a sine has no frequency.
        found = torch.zeros(spec.rotary_dim // 2, dtype=torch.int64)
        for axis in range(spec.axes):
            one = torch.zeros(spec.axes, 1, dtype=torch.int64)
            one[axis] = 1
            found[host_rows(spec, one, context, True, "exact", "")[1][0] != 0] = axis
        return found.to(device), torch.arange(len(found)).to(device)

    found = cache.get(("axes", text, context, device), make)
    return found[0], found[1]


def rows_from(
    first: int, count: int, context: int | None, text: str, dtype: torch.dtype, device: torch.device, angles: str, role: str
) -> tuple[Tensor, Tensor]:
    """cos and sin of positions first .. first + count - 1, computed by C++, on the device; kept for later calls."""
    spec, end = spec_of(text), first + count
    if dtype == torch.float64 and not has_float64(device):
        raise refusal("unsupported", f"cos_sin: float64 is not supported on {device}: use float32")
    if spec.depends_on_context and context is None:
        context = max(end, 1)
    shared = 0 <= first and end <= _TABLE_ROWS
    start, rows = (0, 1 << max(10, (end - 1).bit_length())) if shared else (first, count)

    def make() -> tuple[Tensor, ...]:
        at = torch.arange(start, start + rows)
        at = at if spec.axes == 1 else at.expand(spec.axes, -1)
        cos, sin = host_rows(spec, at, context, dtype == torch.float64, angles, role)
        return cos.to(device, dtype), sin.to(device, dtype)

    role = role if grows(spec) else ""
    cos, sin = cache.get(("rows", text, context, dtype, device, angles, role, start, rows), make)
    return cos.narrow(0, first - start, count), sin.narrow(0, first - start, count)


__all__ = ["by_torch", "cache", "forced", "grows", "has_float64", "host_rows", "require_one_device", "rows_at", "rows_from", "widest"]
