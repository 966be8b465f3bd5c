"""Heat maps over two positions: inner products of encodings, and softmax attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import Encoding, Error, RopeSpec
from .rotation import at_least
from .style import SEQUENTIAL, new_figure, styled

# After .style, which reports a missing matplotlib.
from matplotlib.axes import Axes  # isort: skip
from matplotlib.colors import LogNorm, Normalize  # isort: skip
from matplotlib.figure import Figure  # isort: skip
from matplotlib.image import AxesImage  # isort: skip

Floats = npt.NDArray[np.float32]


def _heat(axes: Axes, values: npt.NDArray[np.floating[Any]], title: str, norm: Normalize) -> AxesImage:
    image = axes.imshow(values, cmap=SEQUENTIAL, norm=norm, interpolation="nearest")
    axes.set_title(title)
    axes.set_xlabel("key position n")
    return image


def _queries_and_keys(shape: tuple[int, ...], agreement: float, seed: int) -> tuple[Floats, Floats]:
    """Two random arrays of unit variance, correlated by `agreement` along the last axis."""
    random = np.random.default_rng(seed)
    q = random.standard_normal(shape)
    k = agreement * q + math.sqrt(1 - agreement**2) * random.standard_normal(shape)
    return q.astype(np.float32), k.astype(np.float32)


@styled
def inner_products(
    spec: RopeSpec | None = None,
    *,
    positions: int = 128,
    agreement: float = 0.6,
    seed: int = 0,
    title: str | None = None,
) -> Figure:
    """Why a rotation is relative and an added vector is not: three maps of inner products over positions m and n.

    Left: p_m . p_n of the sinusoidal rows, RoFormer (4). Middle: (q + p_m) . (k + p_n), the same rows added to a fixed
    q and k: the score is not a function of m - n. Right: (R_m q) . (R_n k), RoFormer (16): every diagonal is constant.
    spec gives width and frequencies (none: head_dim 64, base 10000) and must rotate the whole head; q and k are random
    with the correlation `agreement`.
    """
    spec = spec if spec is not None else RopeSpec(head_dim=64, layout="half")
    at_least(positions, 2, "inner_products: positions")
    if spec.rotary_dim != spec.head_dim or spec.axes != 1:
        raise Error(
            "inner_products: the spec must rotate the whole head by one row of positions, got "
            f"rotary_dim {spec.rotary_dim} of {spec.head_dim} and {spec.axes} rows"
        )
    if spec.base is None:
        raise Error("inner_products: the spec must have a base, which the sinusoidal rows share, got frequencies")
    if not -1 <= agreement <= 1:
        raise Error(f"inner_products: agreement must be in [-1, 1], got {agreement:g}")
    q, k = (row[0] for row in _queries_and_keys((1, spec.head_dim), agreement, seed))
    rows = _core.sinusoidal(positions, spec.head_dim, base=spec.base, dtype="float64")
    base, spec = spec.base, spec.replace(layout=spec.layout or "half")
    everywhere = (positions, 1, 1)  # the same vector at every position, one head
    rotated_q = _core.rotate(np.tile(q.astype(np.float64), everywhere), spec, role="query")[:, 0]
    rotated_k = _core.rotate(np.tile(k.astype(np.float64), everywhere), spec, role="key")[:, 0]
    maps = (
        (rows @ rows.T, "sinusoidal: $p_m \\cdot p_n$"),
        ((q + rows) @ (k + rows).T, "added: $(q + p_m) \\cdot (k + p_n)$"),
        (rotated_q @ rotated_k.T, "rotary: $(R_m q) \\cdot (R_n k)$"),
    )
    heading = title or f"Inner products by position, width {spec.head_dim}, base {base:,.0f}"
    figure = new_figure(11.5, 4.0, heading, square=True)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (values, name) in zip(panels, maps):
        # Each panel has its own scale: the pattern is what tells them apart.
        image = _heat(axes, values, name, Normalize())
        figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    panels[0].set_ylabel("query position m")
    return figure


# The default of `attention_maps`: the encodings that need no trained tables, and T5 with a bias that falls with
# distance, as trained ones do.
def default_encodings(head_dim: int) -> dict[str, Encoding | RopeSpec | str | None]:
    """label -> encoding of one head: none, sinusoidal (added to q and k), RoPE, xPos, ALiBi and T5."""
    distances = np.concatenate([np.arange(16), np.geomspace(16, 128, 16)])
    bias = (-0.8 * np.log1p(distances)).astype(np.float32)[:, None]
    return {
        "no encoding": None,
        "sinusoidal, added": "sinusoidal",
        "RoPE": RopeSpec(head_dim, layout="half"),
        "xPos": Encoding("xpos", head_dim=head_dim, layout="half", scale_base=32),
        "ALiBi, slope 1/4": Encoding("alibi", slopes=[0.25]),
        "T5 buckets": Encoding(
            "t5", relative_attention_bias=bias, num_buckets=32, max_distance=128, bidirectional=False
        ),
    }


def attention_map(
    q: Floats, k: Floats, encoding: Encoding | RopeSpec | str | None, *, causal: bool
) -> npt.NDArray[np.float32]:
    """The mean softmax map [tokens, tokens] of q and k [samples, tokens, head_dim], one head.

    The values are the rows of the identity, so that attention's output is its own map.
    """
    samples, tokens, dim = q.shape
    if isinstance(encoding, str):
        if encoding != "sinusoidal":
            raise Error(f"attention_maps: unknown encoding \"{encoding}\"; the only name is \"sinusoidal\"")
        rows = _core.sinusoidal(tokens, dim)
        q, k, encoding = (q + rows).astype(np.float32), (k + rows).astype(np.float32), None
    identity = np.broadcast_to(np.eye(tokens, dtype=np.float32), (samples, tokens, tokens))[:, :, None].copy()
    # The same scale for all: T5's own is 1, and what differs should be the encoding alone.
    q, k = q[:, :, None].copy(), k[:, :, None].copy()
    out = _core.attention(q, k, identity, encoding=encoding, causal=causal, scale=dim**-0.5)
    return np.asarray(out[:, :, 0].mean(axis=0), dtype=np.float32)


@styled
def attention_maps(
    encodings: Mapping[str, Encoding | RopeSpec | str | None] | None = None,
    *,
    tokens: int = 48,
    head_dim: int = 64,
    causal: bool = True,
    samples: int = 64,
    likeness: float = 0.7,
    seed: int = 0,
    title: str | None = None,
) -> Figure:
    """Where queries look under each encoding: softmax attention over positions, the mean over random contents.

    encodings maps a label to an Encoding or RopeSpec of one head, None, or "sinusoidal" (rows added to q and k); None
    draws six. Every panel has the same q and k: a direction that all tokens share, of length `likeness` (0 to 1) per
    feature, and independent noise for every token, as in trained heads.
    """
    at_least(tokens, 2, "attention_maps: tokens")
    at_least(samples, 1, "attention_maps: samples")
    if not 0 <= likeness <= 1:
        raise Error(f"attention_maps: likeness must be in [0, 1], got {likeness:g}")
    chosen = default_encodings(head_dim) if encodings is None else dict(encodings)
    if not 1 <= len(chosen) <= 12:
        raise Error(f"attention_maps: encodings must be 1 to 12, got {len(chosen)}")
    random = np.random.default_rng(seed)
    noise = math.sqrt(1 - likeness**2)
    q, k = (
        (likeness + noise * random.standard_normal((samples, tokens, head_dim))).astype(np.float32) for _ in range(2)
    )
    columns = min(3, len(chosen))
    lines = math.ceil(len(chosen) / columns)
    heading = title or f"Attention by encoding, mean of {samples} random contents"
    figure = new_figure(3.3 * columns + 0.8, 3.3 * lines + 0.6, heading, square=True)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    maps = {label: attention_map(q, k, encoding, causal=causal) for label, encoding in chosen.items()}
    # One scale for all panels, logarithmic: from the first query, which has one key, to keys that a bias hides.
    norm = LogNorm(1e-3, 1.0, clip=True)
    for axes in panels.flat[len(chosen) :]:
        axes.set_axis_off()
    for order, (axes, (label, values)) in enumerate(zip(panels.flat, maps.items())):
        shown = np.ma.masked_array(values, np.triu(np.ones_like(values), 1) > 0) if causal else values
        image = _heat(axes, shown, label, norm)
        axes.set_facecolor("#dddddd")
        axes.label_outer()
        if order % columns == 0:
            axes.set_ylabel("query position m")
    figure.colorbar(image, ax=list(panels.flat), label="attention", extend="min", shrink=0.8, pad=0.02)
    return figure
