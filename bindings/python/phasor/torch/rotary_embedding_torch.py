"""The API of rotary-embedding-torch: RotaryEmbedding, apply_rotary_emb, apply_learned_rotations.

Neighbouring features are pairs. Positions and angles are float64 for any dtype of the queries; the original counts
positions in that dtype (in bfloat16 they are wrong after 256).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from torch import Tensor, nn

from ._device import widest
from ._common import exact_or_own, needs_grad, refusal, shape_text
from ._rotate_by import rotate_by

if TYPE_CHECKING:
    from .._core import Order


def rotate_half(x: Tensor) -> Tensor:
    """(a, b) -> (-b, a) for neighbours a and b: a rotation of every pair by 90 degrees."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def apply_rotary_emb(
    freqs: Tensor,
    t: Tensor,
    start_index: int = 0,
    scale: float | Tensor = 1.0,
    seq_dim: int = -2,
    freqs_seq_dim: int | None = None,
) -> Tensor:
    """Rotates features [start_index, start_index + width) of t by the angles freqs [..., width], neighbours as pairs.

    Feature i becomes (t_i cos(freqs_i) + h_i sin(freqs_i)) * scale_i, h = rotate_half(t). freqs is broadcast to t by the
    rules of torch, after its last t.shape[seq_dim] rows are taken (2 axes, or t with 3, or freqs_seq_dim given); scale,
    a number or a tensor, is broadcast to the rotated features. Both features of a pair usually have the same angle and
    the same scale: that is a rotation, which Phasor computes; anything else is computed by torch.
    """
    if freqs_seq_dim is None and (freqs.dim() == 2 or t.dim() == 3):
        freqs_seq_dim = 0
    if freqs_seq_dim is not None:
        for name, axis, of in (("seq_dim", seq_dim, t), ("freqs_seq_dim", freqs_seq_dim, freqs)):
            if not -of.dim() <= axis < of.dim():
                raise refusal(
                    "out_of_range", f"apply_rotary_emb: {name} must be an axis of {shape_text(of)}, got {axis}"
                )
        rows = min(freqs.shape[freqs_seq_dim], t.shape[seq_dim])
        freqs = freqs.narrow(freqs_seq_dim, freqs.shape[freqs_seq_dim] - rows, rows)
    width = freqs.shape[-1]
    first, last, _ = slice(start_index, start_index + width).indices(t.shape[-1])
    if last - first != width or width % 2 != 0:
        raise refusal(
            "shape_mismatch",
            f"apply_rotary_emb: freqs must have an even number of features, at most those of t from {start_index} on, "
            f"got {shape_text(freqs)} for {shape_text(t)}",
        )
    middle = t[..., first:last]
    for name, given in (("freqs", freqs), ("scale", scale)):
        if isinstance(given, Tensor) and not _broadcasts(given, middle):
            raise refusal(
                "shape_mismatch",
                f"apply_rotary_emb: {name} must broadcast to the rotated features {shape_text(middle)}, got "
                f"{shape_text(given)}",
            )
    angles, grow = _of_pairs(freqs), _of_pairs(scale)
    if angles is not None and grow is not None:
        wide = torch.float64 if t.dtype == torch.float64 else torch.float32
        return _rotate_broadcast(t, (angles.cos() * grow).to(wide), (angles.sin() * grow).to(wide), first)
    rotated = middle * freqs.cos() * scale + rotate_half(middle) * freqs.sin() * scale
    return torch.cat((t[..., :first], rotated, t[..., last:]), dim=-1).to(t.dtype)


def _broadcasts(given: Tensor, to: Tensor) -> bool:
    tail = to.shape[to.dim() - given.dim() :] if given.dim() <= to.dim() else ()
    return len(tail) == given.dim() and all(n in (1, m) for n, m in zip(given.shape, tail, strict=True))


_Number = TypeVar("_Number", Tensor, "float | Tensor")


def _of_pairs(numbers: _Number) -> _Number | None:
    """One number per pair; None if the features of a pair differ, or if each needs its own gradient."""
    if not isinstance(numbers, Tensor) or numbers.dim() == 0 or numbers.shape[-1] == 1:
        return numbers
    # On another device a comparison would wait for its result.
    if torch.compiler.is_compiling() or not numbers.is_cpu or needs_grad(numbers):
        return None
    if not torch.equal(numbers[..., ::2], numbers[..., 1::2]):
        return None
    return numbers[..., ::2]


def _rotate_broadcast(t: Tensor, cos: Tensor, sin: Tensor, start_index: int) -> Tensor:
    """Rotates t by cos and sin [..., pairs] that broadcast to it: maps the axes of t to batch, tokens and heads."""
    if t.dim() == 1:
        return _rotate_broadcast(t[None], cos, sin, start_index)[0]
    lead = tuple(t.shape[:-1])
    rows = (1,) * (len(lead) - (cos.dim() - 1)) + tuple(cos.shape[:-1])
    pairs, dim = cos.shape[-1], t.shape[-1]
    spans = [i for i, r in enumerate(rows) if r != 1]
    first, last = (spans[0], spans[-1] + 1) if spans else (len(lead) - 1, len(lead))
    outer, tokens, inner = (math.prod(lead[a:b]) for a, b in ((0, first), (first, last), (last, len(lead))))
    # Angles with a broadcast axis between others, such as [batch, 1, tokens], are expanded.
    if any(rows[i] == 1 and lead[i] != 1 for i in range(first, last)):
        narrow, full = (*rows[first:last], pairs), (*lead[first:last], pairs)
        cos, sin = cos.reshape(narrow).expand(full), sin.reshape(narrow).expand(full)
    cos, sin = cos.reshape(tokens, pairs), sin.reshape(tokens, pairs)
    order: Order = "heads_first" if inner == 1 else "tokens_first"
    shape = (1, outer, tokens, dim) if inner == 1 else (outer, tokens, inner, dim)
    rotated = rotate_by(t.reshape(shape), cos, sin, layout="interleaved", rotary_offset=start_index, order=order)
    return rotated.reshape(t.shape)


def apply_learned_rotations(
    rotations: Tensor, t: Tensor, start_index: int = 0, freq_ranges: Tensor | None = None
) -> Tensor:
    """Rotates t by the learned angles rotations [..., pairs], times each of freq_ranges if given."""
    if freq_ranges is not None:
        rotations = (rotations[..., None] * freq_ranges).flatten(-2)
    return apply_rotary_emb(rotations.repeat_interleave(2, dim=-1), t, start_index=start_index)


def _grown(cos: Tensor, sin: Tensor, growth: Tensor) -> tuple[Tensor, Tensor]:
    growth = growth.to(cos.device, torch.float64 if cos.is_cpu else cos.dtype)
    return (cos * growth).to(cos.dtype), (sin * growth).to(sin.dtype)


class RotaryEmbedding(nn.Module):
    """Rotary embedding with the methods of rotary-embedding-torch.

    dim: the rotated features. freqs_for: "lang" (powers of theta, the base), "pixel" (pi times 1 .. max_freq / 2) or
    "constant" (num_freqs ones); custom_freqs [pairs] replaces them. learned_freq makes them trainable: the gradient
    reaches `freqs`. theta_rescale_factor stretches the base (NTK), interpolate_factor divides positions. use_xpos grows
    queries and shrinks keys. Queries are [..., tokens, dim] or, with seq_before_head_dim, [..., tokens, heads, dim].
    cache_if_possible keeps cos and sin of up to cache_max_seq_len positions while freqs are unchanged.
    """

    freqs: nn.Parameter
    scale: Tensor

    def __init__(
        self,
        dim: int,
        custom_freqs: Tensor | None = None,
        freqs_for: Literal["lang", "pixel", "constant"] = "lang",
        theta: float = 10000,
        max_freq: float = 10,
        num_freqs: int = 1,
        learned_freq: bool = False,
        use_xpos: bool = False,
        xpos_scale_base: int = 512,
        interpolate_factor: float = 1.0,
        theta_rescale_factor: float = 1.0,
        seq_before_head_dim: bool = False,
        cache_if_possible: bool = True,
        cache_max_seq_len: int = 8192,
    ) -> None:
        super().__init__()
        if interpolate_factor < 1.0:
            raise refusal(
                "out_of_range", f"RotaryEmbedding: interpolate_factor must be at least 1, got {interpolate_factor}"
            )
        if custom_freqs is not None:
            exact = custom_freqs.detach().to(torch.float64)
        elif freqs_for == "lang":
            base = theta * theta_rescale_factor ** (dim / (dim - 2)) if theta_rescale_factor != 1.0 else theta
            exact = float(base) ** (-torch.arange(0, dim - 1, 2, dtype=torch.float64) / dim)
        elif freqs_for == "pixel":
            exact = torch.linspace(1.0, max_freq / 2, dim // 2, dtype=torch.float64) * math.pi
        elif freqs_for == "constant":
            exact = torch.ones(num_freqs, dtype=torch.float64)
        else:
            raise refusal(
                "invalid_argument",
                f'RotaryEmbedding: freqs_for must be "lang", "pixel" or "constant", got {freqs_for!r}',
            )
        self.freqs_for = freqs_for
        self.learned_freq = learned_freq
        self.freqs = nn.Parameter(exact.to(torch.float32), requires_grad=learned_freq)
        # A plain attribute: model.half() must not round it.
        self._exact = exact
        self.interpolate_factor = interpolate_factor
        self.seq_before_head_dim = seq_before_head_dim
        self.default_seq_dim = -3 if seq_before_head_dim else -2
        self.use_xpos = use_xpos
        self.scale_base = xpos_scale_base
        if use_xpos:
            scale = (torch.arange(0, dim, 2, dtype=torch.float64) + 0.4 * dim) / (1.4 * dim)
            self.register_buffer("scale", scale.to(torch.float32), persistent=False)
            self._exact_scale = scale
        self.cache_if_possible = cache_if_possible
        self.cache_max_seq_len = cache_max_seq_len
        self._cached: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return self.freqs.device

    def _frequencies(self) -> Tensor:
        """float64: the exact ones while `freqs` holds them rounded, else those that were trained or loaded; on the CPU.
        If they are learned: on their device, in its widest type."""
        if self.learned_freq:
            return self.freqs.to(widest(self.freqs.device))
        return exact_or_own(self._exact, self.freqs)

    def get_seq_pos(
        self,
        seq_len: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        offset: int = 0,
    ) -> Tensor:
        """Positions offset, offset + 1, ... over interpolate_factor, [seq_len], float64 unless dtype is given."""
        positions = torch.arange(seq_len, device=device, dtype=torch.float64) + offset
        return (positions / self.interpolate_factor).to(torch.float64 if dtype is None else dtype)

    def forward(self, t: Tensor, seq_len: int | None = None, offset: int = 0) -> Tensor:
        """Angles of the positions t [...]: [..., 2 * pairs], each pair's twice, in the dtype of freqs.

        seq_len and offset say which cached rows the original may take instead; the angles are those of t here.
        """
        angles = self._angles(t)
        return angles.to(self.freqs.device, self.freqs.dtype).repeat_interleave(2, dim=-1)

    def _angles(self, t: Tensor) -> Tensor:
        frequencies = self._frequencies()
        return t.to(frequencies.device, frequencies.dtype)[..., None] * frequencies

    def get_scale(self, t: Tensor, seq_len: int | None = None, offset: int = 0) -> Tensor:
        """xPos: the growth of queries at positions t [tokens], centred at half their number: [tokens, dim]."""
        return self._growth(t).to(self.scale.device, self.scale.dtype).repeat_interleave(2, dim=-1)

    def _growth(self, t: Tensor) -> Tensor:
        if not self.use_xpos:
            raise refusal("invalid_argument", "get_scale: needs use_xpos=True, got use_xpos=False")
        power = (t.to("cpu", torch.float64) - len(t) // 2) / self.scale_base
        return self._exact_scale ** power[:, None]

    def get_axial_freqs(self, *dims: int, offsets: tuple[float, ...] | Tensor | None = None) -> Tensor:
        """Angles over a grid: [*dims, 2 * pairs * len(dims)], the angles of each axis end to end.

        Positions are 0 .. n - 1, or -1 .. 1 for "pixel", plus the axis' offset.
        """
        if offsets is not None and len(offsets) != len(dims):
            raise refusal(
                "shape_mismatch", f"get_axial_freqs: offsets must be {len(dims)}, one per axis, got {len(offsets)}"
            )
        parts = []
        for axis, size in enumerate(dims):
            if self.freqs_for == "pixel":
                positions = torch.linspace(-1, 1, steps=size, dtype=torch.float64)
            else:
                positions = torch.arange(size, dtype=torch.float64)
            if offsets is not None:
                positions = positions + offsets[axis]
            shape = [1] * len(dims)
            shape[axis] = size
            parts.append(self.forward(positions).reshape(*shape, -1).expand(*dims, -1))
        return torch.cat(parts, dim=-1)

    def rotate_queries_or_keys(
        self, t: Tensor, seq_dim: int | None = None, offset: int = 0, scale: float | Tensor | None = None
    ) -> Tensor:
        """t rotated, its tokens at offset, offset + 1, ...; scale multiplies it (a number, or a tensor as in
        apply_rotary_emb)."""
        if self.use_xpos and scale is None:
            raise refusal(
                "invalid_argument",
                "rotate_queries_or_keys: scale is missing: use_xpos needs it; or call rotate_queries_and_keys",
            )
        seq_dim = self._seq_dim(t, seq_dim)
        if isinstance(scale, Tensor):
            angles = self._angles(self.get_seq_pos(t.shape[seq_dim], offset=offset)).repeat_interleave(2, dim=-1)
            angles = angles.to(t.device, torch.float64 if t.dtype == torch.float64 else widest(t.device))
            return apply_rotary_emb(angles if seq_dim == -2 else angles[:, None], t, scale=scale, seq_dim=seq_dim)
        cos, sin = self._cos_sin(t.shape[seq_dim], offset, t)
        if scale is not None:
            cos, sin = cos * scale, sin * scale
        return self._rotate(t, cos, sin, seq_dim)

    def rotate_queries_with_cached_keys(
        self, q: Tensor, k: Tensor, seq_dim: int | None = None, offset: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Keys at 0, 1, ...; queries at the last key positions, plus offset.

        With use_xpos queries are centred at half their own number and keys at half theirs, as in the original.
        """
        q_dim, k_dim = self._seq_dim(q, seq_dim), self._seq_dim(k, seq_dim)
        queries, keys = q.shape[q_dim], k.shape[k_dim]
        if queries > keys:
            raise refusal(
                "shape_mismatch",
                f"rotate_queries_with_cached_keys: keys must be at least as many as queries, got {keys} and {queries}",
            )
        cos_q, sin_q = self._cos_sin(queries, keys - queries + offset, q)
        cos_k, sin_k = self._cos_sin(keys, 0, k)
        if self.use_xpos:
            positions = self.get_seq_pos(keys)
            cos_q, sin_q = _grown(cos_q, sin_q, self._growth(positions[keys - queries :]))
            cos_k, sin_k = _grown(cos_k, sin_k, 1 / self._growth(positions))
        return self._rotate(q, cos_q, sin_q, q_dim), self._rotate(k, cos_k, sin_k, k_dim)

    def rotate_queries_and_keys(self, q: Tensor, k: Tensor, seq_dim: int | None = None) -> tuple[Tensor, Tensor]:
        """xPos: queries rotated and grown, keys rotated and shrunk, both at 0, 1, ..., centred at half their number."""
        q_dim, k_dim = self._seq_dim(q, seq_dim), self._seq_dim(k, seq_dim)
        tokens = q.shape[q_dim]
        grow = self._growth(self.get_seq_pos(tokens))
        rows = self._cos_sin(tokens, 0, q)
        return self._rotate(q, *_grown(*rows, grow), q_dim), self._rotate(k, *_grown(*rows, 1 / grow), k_dim)

    def _seq_dim(self, t: Tensor, seq_dim: int | None) -> int:
        chosen = self.default_seq_dim if seq_dim is None else seq_dim
        chosen = chosen - t.dim() if chosen >= 0 else chosen
        if chosen not in (-2, -3) or t.dim() < -chosen:
            raise refusal(
                "shape_mismatch",
                "RotaryEmbedding: seq_dim must be the axis before the features or the one before the heads, got "
                f"{seq_dim} for {shape_text(t)}",
            )
        return chosen

    def _rotate(self, t: Tensor, cos: Tensor, sin: Tensor, seq_dim: int) -> Tensor:
        dim = t.shape[-1]
        if 2 * cos.shape[-1] > dim:
            raise refusal(
                "shape_mismatch",
                f"RotaryEmbedding: t must have at least {2 * cos.shape[-1]} features, got {shape_text(t)}",
            )
        if seq_dim == -2:
            x = t if t.dim() == 4 else t.reshape(1, math.prod(t.shape[:-2]), t.shape[-2], dim)
            rotated = rotate_by(x, cos, sin, layout="interleaved", order="heads_first")
        else:
            x = t if t.dim() == 4 else t.reshape(math.prod(t.shape[:-3]), *t.shape[-3:])
            rotated = rotate_by(x, cos, sin, layout="interleaved")
        return rotated if t.dim() == 4 else rotated.reshape(t.shape)

    def _cos_sin(self, tokens: int, offset: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [tokens, pairs] of positions offset .., float32 (float64 for float64), on the device of `like`."""
        wide, device = torch.float64 if like.dtype == torch.float64 else torch.float32, like.device
        end = offset + tokens
        may_cache = self.cache_if_possible and not self.learned_freq and 0 <= offset and end <= self.cache_max_seq_len
        if not may_cache or torch.compiler.is_compiling():
            angles = self._angles(self.get_seq_pos(tokens, offset=offset))
            return angles.cos().to(device, wide), angles.sin().to(device, wide)
        # A parameter that was trained, loaded or cast since is another one, or has another version.
        key = (id(self.freqs), self.freqs._version, self.freqs.dtype, self.interpolate_factor, wide, device)
        if self._cached is None or self._cached[0] != key or self._cached[1].shape[0] < end:
            rows = min(max(64, 1 << (end - 1).bit_length()), self.cache_max_seq_len)
            with torch.no_grad():
                angles = self._angles(self.get_seq_pos(rows))
                self._cached = (key, angles.cos().to(device, wide), angles.sin().to(device, wide))
        return self._cached[1].narrow(0, offset, tokens), self._cached[2].narrow(0, offset, tokens)


__all__ = ["RotaryEmbedding", "apply_learned_rotations", "apply_rotary_emb", "rotate_half"]
