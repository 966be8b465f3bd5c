"""Compare encodings: the same queries, keys and values under every encoding, with one call.

    python examples/python/compare_encodings.py [FOLDER]

Prints how much attention the last token pays to the near, the middle and the far third of its past, and how long the
call took. Tables that come from training are small random numbers here, so Shaw, Transformer-XL and DeBERTa stay
close to no encoding at all; T5's bias falls with the distance as trained ones do. With a folder, also writes the maps.
"""

import sys
import time
from pathlib import Path

import numpy as np

import phasor

heads, head_dim, tokens = 4, 64, 384
random = np.random.default_rng(0)
# Tokens with a shared direction plus independent noise, similar to a trained model.
q, k = (0.7 + 0.7 * random.standard_normal((tokens, heads, head_dim), dtype=np.float32) for _ in range(2))
# Values that are rows of the identity: the output is then the attention itself.
v = np.broadcast_to(np.eye(tokens, dtype=np.float32)[:, None], (tokens, heads, tokens)).copy()


def small(*shape: int) -> np.ndarray:
    """A table of small random numbers, in place of a trained one."""
    return (0.1 * random.standard_normal(shape)).astype(np.float32)


falling = np.repeat(
    -0.6 * np.log1p(np.concatenate([np.arange(16), np.geomspace(16, 128, 16)]))[:, None], heads, axis=1
).astype(np.float32)
rope = phasor.RopeSpec(head_dim, layout="half")
encodings: dict[str, phasor.RopeSpec | phasor.Encoding | list[phasor.RopeSpec | phasor.Encoding] | None] = {
    "none": None,
    "RoPE": rope,
    "RoPE, base 500000": phasor.RopeSpec(head_dim, base=500000.0, layout="half"),
    "xPos": phasor.Encoding("xpos", head_dim=head_dim, layout="half"),
    "ALiBi": phasor.Encoding("alibi"),
    "T5": phasor.Encoding("t5", relative_attention_bias=falling, num_buckets=32, max_distance=128, bidirectional=False),
    "Shaw": phasor.Encoding("shaw", clip=16, rel_k=small(33, head_dim)),
    "Transformer-XL": phasor.Encoding(
        "transformer_xl",
        u_bias=small(heads, head_dim),
        v_bias=small(heads, head_dim),
        r_head=small(tokens, heads, head_dim),
    ),
    "DeBERTa v2": phasor.Encoding(
        "deberta_v2",
        max_relative_positions=512,
        position_buckets=32,
        pos_att_type=["c2p", "p2c"],
        pos_k=small(heads, 64, head_dim),
        pos_q=small(heads, 64, head_dim),
    ),
    "RoPE and ALiBi": [rope, phasor.Encoding("alibi")],
}

third = tokens // 3
# The same scale for all: the default of T5 is 1.
print(f"{'encoding':18} {'far':>7} {'middle':>7} {'near':>7}   milliseconds")
for name, encoding in encodings.items():
    begin = time.perf_counter()
    attention = phasor.attention(q, k, v, encoding=encoding, causal=True, scale=head_dim**-0.5)
    milliseconds = 1000 * (time.perf_counter() - begin)
    last = attention[-1].mean(axis=0)
    far, middle, near = (last[at * third : (at + 1) * third].sum() for at in range(3))
    print(f"{name:18} {far:7.3f} {middle:7.3f} {near:7.3f}   {milliseconds:8.1f}")

# Linear attention has a state of constant size, for any length.
state = phasor.LinearState(1, heads, head_dim, head_dim)
values = random.standard_normal((1, tokens, heads, head_dim), dtype=np.float32)
phasor.linear_attention(q[None], k[None], values, encoding=rope, causal=True, state=state)
print(f"linear attention with RoPE: {state.tokens} tokens in a state of {state.nbytes:,} bytes")

if len(sys.argv) > 1:
    from phasor import plot

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    plot.save(plot.attention_maps(), folder / "attention_maps.svg", folder / "attention_maps.png")
    print("wrote attention_maps.svg and attention_maps.png")
