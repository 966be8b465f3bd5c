"""Check the theory: every claim of docs/theory.md and docs/proof.md that has a number, computed by Phasor.

    python examples/python/check_the_theory.py

Each line is a claim, what was computed, and its value. A claim that fails ends the script with an error.
"""

import numpy as np

import phasor

random = np.random.default_rng(0)
dim, tokens = 64, 5


def claim(equation: str, text: str, value: float, *, below: float = np.inf, above: float = -np.inf) -> None:
    """One line; an error unless above < value < below."""
    print(f"{equation:10} {text:66} {value:.3g}")
    if not above < value < below:
        raise SystemExit(f"{equation} {text}: {value} is not between {above} and {below}")


def rotated(x: np.ndarray, spec: phasor.RopeSpec, position: float, role: str = "query") -> np.ndarray:
    """R_position x of one vector, in float64."""
    return phasor.rotate(x[None, None], spec, np.array([position]), role=role, context=1)[0, 0]


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def blocks(angles: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix (15) of these angles."""
    matrix = np.zeros((2 * len(angles), 2 * len(angles)))
    for i, angle in enumerate(angles):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = rotation(angle)
    return matrix


spec = phasor.RopeSpec(dim, layout="interleaved")
theta, _ = spec.frequencies()
q, k = random.standard_normal((2, dim))

# Forms of one rotation: (12) complex, (13) to (15) matrices, (34) elementwise; all against phasor.rotate.
m = 1234
ours = rotated(q, spec, m)
turned = (q[0::2] + 1j * q[1::2]) * np.exp(1j * m * theta)
cos, sin = np.repeat(np.cos(m * theta), 2), np.repeat(np.sin(m * theta), 2)
swapped = np.stack([-q[1::2], q[0::2]], axis=1).ravel()
claim(
    "(12)",
    "complex form against rotate",
    difference(ours, np.stack([turned.real, turned.imag], 1).ravel()),
    below=1e-11,
)
claim("(13)-(15)", "matrix form against rotate", difference(ours, blocks(m * theta) @ q), below=1e-11)
claim("(34)", "elementwise form against rotate", difference(ours, q * cos + swapped * sin), below=1e-11)
claim("(15)", "change of the norm, R_m is orthogonal", abs(np.linalg.norm(ours) - np.linalg.norm(q)), below=1e-13)
claim(
    "(14)", "R_m R_n - R_{m+n}", difference(rotated(rotated(q, spec, 7), spec, 30), rotated(q, spec, 37)), below=1e-13
)

# (16) a score depends on the distance alone; (4) the inner products of sinusoidal rows do so too, before projections.
near = rotated(q, spec, 7) @ rotated(k, spec, 3)
far = rotated(q, spec, 10**9 + 7) @ rotated(k, spec, 10**9 + 3)
claim("(16)", "score at 7 and 3, and the same a billion positions later", abs(near - far), below=1e-12)
rows = phasor.sinusoidal(300, dim, dtype="float64")
claim("(4)", "p(m) . p(n) - sum cos((m-n) theta)", abs(rows[207] @ rows[203] - np.cos(4 * theta).sum()), below=1e-12)
w_q, w_k = random.standard_normal((2, dim, dim)) / np.sqrt(dim)
spread = [(w_q @ rows[n + 4]) @ (w_k @ rows[n]) for n in range(200)]
claim("(3)", "after projections: spread of p(m) W p(n) at one distance", float(np.ptp(spread)), above=0.1)

# The general solution of (11): any invertible B, B^-T for queries.
b = random.standard_normal((6, 6))
small_q, small_k = random.standard_normal((2, 6))
power = np.linalg.matrix_power


def score_of(b_q: np.ndarray, b_k: np.ndarray, at: int, to: int) -> float:
    return float((power(b_q, at) @ small_q) @ (power(b_k, to) @ small_k))


inverse_transpose = np.linalg.inv(b).T
claim(
    "theorem 1", "any invertible B: score at (2, 5) and at (4, 7)",
    abs(score_of(inverse_transpose, b, 2, 5) / score_of(inverse_transpose, b, 4, 7) - 1), below=1e-9,
)  # fmt: skip
claim(
    "theorem 1",
    "the same B for queries too: its relative change",
    abs(score_of(b, b, 2, 5) / score_of(b, b, 4, 7) - 1),
    above=0.1,
)

# Theorem 2: an orthogonal matrix in any basis is RoPE after a change of basis that the projections absorb.
angles = np.array([0.3, 1.1, 2.5])
basis, _ = np.linalg.qr(random.standard_normal((6, 6)))
orthogonal = basis @ blocks(angles) @ basis.T
in_basis = phasor.RopeSpec(6, layout="interleaved", frequencies=angles)
ours = rotated(basis.T @ small_q, in_basis, 11) @ rotated(basis.T @ small_k, in_basis, 4)
claim(
    "theorem 2",
    "orthogonal B in a random basis against rotate",
    abs(ours - score_of(orthogonal, orthogonal, 11, 4)),
    below=1e-13,
)
values = np.sort(np.abs(np.angle(np.linalg.eigvals(orthogonal))))[::2]
claim("theorem 2", "frequencies from the eigenvalues of B", difference(values, angles), below=1e-13)

# Bounded powers of B, B not orthogonal: S R S^-1, absorbed by both projections.
s = random.standard_normal((6, 6))
bounded = s @ blocks(angles) @ np.linalg.inv(s)
ours = rotated(s.T @ small_q, in_basis, 11) @ rotated(np.linalg.inv(s) @ small_k, in_basis, 4)
theirs = score_of(np.linalg.inv(bounded).T, bounded, 11, 4)
claim("theorem 3", "B = S R S^-1 against rotate of S^T q and S^-1 k", abs(ours / theirs - 1), below=1e-11)

# xPos is B = R / zeta per pair: relative, and not orthogonal.
xpos = phasor.RopeSpec(dim, layout="interleaved", xpos={"scale_base": 512})
pairs = [rotated(q, xpos, at + 9) @ rotated(k, xpos, at, role="key") for at in (0, 1000)]
claim("theorem 1", "xPos at distance 9, here and 1000 positions later", abs(pairs[0] - pairs[1]), below=1e-11)
claim(
    "theorem 1",
    "xPos: norm of a query 1000 positions later, relative",
    np.linalg.norm(rotated(q, xpos, 1000)) / np.linalg.norm(q),
    below=0.99,
)

# Two axes: rotations that commute are relative, rotations of overlapping pairs are not.
about_z, about_x = np.eye(3), np.eye(3)


def turn(x_steps: float, y_steps: float) -> np.ndarray:
    """Rotations of space about two axes, one for each coordinate of a position: they do not commute."""
    about_z[:2, :2], about_x[1:, 1:] = rotation(0.5 * x_steps), rotation(0.5 * y_steps)
    return about_z @ about_x


def spread_of(place: object, vector_q: np.ndarray, vector_k: np.ndarray) -> float:
    """How much the score changes when both places move by the same step."""
    scores = [(place(1 + x, 2 + y) @ vector_q) @ (place(x, y) @ vector_k) for x in range(4) for y in range(4)]
    return float(np.ptp(scores))


axial = np.array([0.5, 0.2])
claim(
    "axes",
    "two rotations that do not commute: spread of one score",
    spread_of(turn, small_q[:3], small_k[:3]),
    above=0.1,
)
claim("axes", "two rotations of different pairs: spread of one score",
      spread_of(lambda x, y: blocks(axial * [x, y]), small_q[:4], small_k[:4]), below=1e-14)  # fmt: skip

# (35) to (37): the score as a sum over pairs, summation by parts, and the bound.
h = (q[0::2] + 1j * q[1::2]) * np.conj(k[0::2] + 1j * k[1::2])
distances = np.arange(1, 4097)
waves = np.exp(1j * distances[:, None] * theta)
scores = (waves @ h).real
claim(
    "(35)",
    "sum over pairs against rotated vectors",
    abs(scores[11] - rotated(q, spec, 20) @ rotated(k, spec, 8)),
    below=1e-12,
)
steps = np.diff(np.append(h, 0))
partial = np.cumsum(waves, axis=1)
claim("(36)", "summation by parts", difference(scores, -(partial @ steps).real), below=1e-11)
mean = phasor.decay(spec, distances)
claim("(37)", "mean of |S_j| against decay()", difference(np.abs(partial).mean(axis=1), mean), below=1e-12)
bound = np.abs(steps).max() * len(theta) * mean
claim("(37)", "largest |score| / bound over 4096 distances", float((np.abs(scores) / bound).max()), below=1.0)
claim(
    "(37)", "mean of |S_j| at distance 1024 as a part of distance 0", mean[1023] / phasor.decay(spec, [0])[0], below=0.3
)

# The mean of cos((m-n) theta_i) falls with the logarithm of the distance.
wide = phasor.RopeSpec(2048).frequencies()[0]
for r in (10, 100, 1000):
    line = 1 - (np.log(r) + np.euler_gamma) / np.log(10000)
    claim(
        "decay",
        f"mean of cos at distance {r} minus 1 - (ln r + gamma) / ln base",
        abs(np.cos(r * wide).mean() - line),
        below=0.02,
    )

zero = 0.6165 * 10000  # where Ci(r / base) = 0
claim("decay", "mean of cos at distance 0.6165 base", float(np.cos(zero * wide).mean()), above=-0.03, below=0.03)

# A bound on all scores of a pair of vectors does not make each score small: this key has its largest score at 500.
key = np.stack([np.cos(500 * theta), np.sin(500 * theta)], 1).ravel()
query = np.stack([np.ones(dim // 2), np.zeros(dim // 2)], 1).ravel()
at = [rotated(query, spec, 1000) @ rotated(key, spec, 1000 - r) for r in range(1, 1000)]
claim(
    "decay",
    "distance of the largest score of a query and a key made for it",
    float(np.argmax(at) + 1),
    above=499,
    below=501,
)

# (17) to (19): linear attention, the plain double sum against the sums over keys.
length, width = 40, 8
lq, lk, lv = random.standard_normal((3, length, 1, width))
small = phasor.RopeSpec(width, layout="interleaved")
feature = [np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))[:, 0] for x in (lq, lk)]
turned_q, turned_k = (phasor.rotate(x[:, None], small)[:, 0] for x in feature)
mask = np.tril(np.ones((length, length)))
weights = mask * (turned_q @ turned_k.T) / (mask * (feature[0] @ feature[1].T)).sum(axis=1, keepdims=True)
ours = phasor.linear_attention(lq, lk, lv, encoding=small, causal=True)
claim("(19)", "double sum against linear_attention", difference(ours[:, 0], weights @ lv[:, 0]), below=1e-13)
claim("(19)", "smallest weight of a value: weights may be negative", float(weights.min()), below=0)
claim(
    "(19)", "smallest sum of a query's weights: they need not add up to 1", float(weights.sum(axis=1).min()), below=0.99
)
print("every claim holds")
