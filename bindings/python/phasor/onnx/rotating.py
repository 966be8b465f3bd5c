"""Rotation by the rows of cos_cache and sin_cache."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import Error
from .arguments import Array


def _rows(cache: Array, ids: Array | None, batch: int, tokens: int, where: str) -> npt.NDArray[np.float32]:
    """The rows of cos or sin, [batch, tokens, pairs]."""
    if ids is None:
        if cache.ndim != 3 or cache.shape[:2] != (batch, tokens):
            raise Error(
                f"{where} must have the shape [{batch}, {tokens}, pairs] without position_ids, got {list(cache.shape)}"
            )
        return np.ascontiguousarray(cache, dtype=np.float32)
    if cache.ndim != 2 or ids.shape != (batch, tokens):
        raise Error(
            f"{where} and position_ids must have the shapes [positions, pairs] and [{batch}, {tokens}], "
            f"got {list(cache.shape)} and {list(ids.shape)}"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < len(cache):
        raise Error(f"position_ids must be in [0, {len(cache)}), got {ids.min()} to {ids.max()}")
    return np.ascontiguousarray(cache[ids], dtype=np.float32)


def rotated(
    x: Array, cos_cache: Array, sin_cache: Array, ids: Array | None, rotary_dim: int, interleaved: bool, where: str
) -> Array:
    """x [batch, tokens, heads, dim] with its first rotary_dim features rotated.

    The caches are [positions, pairs] with ids [batch, tokens], or [batch, tokens, pairs] without.
    """
    batch, tokens = x.shape[:2]
    cos, sin = (
        _rows(cache, ids, batch, tokens, f"{where}: {name}")
        for cache, name in ((cos_cache, "cos_cache"), (sin_cache, "sin_cache"))
    )
    if cos.shape != sin.shape or 2 * cos.shape[2] != rotary_dim:
        raise Error(
            f"{where}: cos_cache and sin_cache must hold {rotary_dim // 2} pairs per row, "
            f"got {cos.shape[2]} and {sin.shape[2]}"
        )
    layout: _core.Layout = "interleaved" if interleaved else "half"
    return np.asarray(_core.rotate_by(x, cos, sin, layout=layout))
