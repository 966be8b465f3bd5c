"""Five minutes with Phasor: a rotation, its effect on scores, attention, and a cache."""

from typing import Literal

import numpy as np

import phasor

random = np.random.default_rng(0)

# A rotation is a value. The layout has no default: a wrong guess would be silent.
spec = phasor.RopeSpec(head_dim=64, base=10000.0, layout="half")
frequencies, amplitude = spec.frequencies()
print(spec)
print(
    f"{len(frequencies)} pairs, from {frequencies[0]:g} to {frequencies[-1]:.3g} radians per position, "
    f"amplitude {amplitude:g}"
)

# Queries and keys are [batch, tokens, heads, head_dim]; the result is a new array, or out= (which may be the input).
q = random.standard_normal((1, 6, 4, 64), dtype=np.float32)
k = random.standard_normal((1, 6, 2, 64), dtype=np.float32)
rotated_q, rotated_k = phasor.rotate_qk(q, k, spec)
print("lengths kept:", np.allclose(np.linalg.norm(q, axis=-1), np.linalg.norm(rotated_q, axis=-1), rtol=1e-5))


# RoFormer (16): a score depends on the distance alone. The same pair of tokens, a million positions later:
def score(m: int, n: int, angles: Literal["exact", "float32"] = "exact") -> float:
    rotated_q = phasor.rotate(q[:, :1, :1], spec, [m], angles=angles)
    rotated_k = phasor.rotate(k[:, :1, :1], spec, [n], angles=angles)
    return float(np.vdot(rotated_q, rotated_k))


print(f"score at positions 7 and 3: {score(7, 3):.4f}; a million later: {score(1_000_007, 1_000_003):.4f}")
# Engines that multiply position by frequency in float32 lose that:
print(f"the same with float32 angles: {score(1_000_007, 1_000_003, 'float32'):.4f}")

# attention() rotates q and k itself; 4 query heads share 2 key heads.
v = random.standard_normal((1, 6, 2, 64), dtype=np.float32)
whole = phasor.attention(q, k, v, encoding=spec, causal=True)

# The same, token by token, with a cache.
cache = phasor.KVCache(key_heads=2, head_dim=64, capacity=16, spec=spec)
rows = []
for token in range(6):
    cache.append(k[:, token : token + 1], v[:, token : token + 1])
    rows.append(cache.attention(q[:, token : token + 1]))
print(f"cache against batch: largest difference {np.abs(np.concatenate(rows, axis=1) - whole).max():.1e}")

# Invalid arguments raise phasor.Error: a ValueError that names the argument and its value.
try:
    phasor.RopeSpec(head_dim=64, rotary_dim=7)
except phasor.Error as error:
    print("refused:", error)
