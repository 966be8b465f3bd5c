"""Attention over a sequence that no rank holds whole: each has its tokens, and gets its rows of the output.

    mpirun -n 2 python examples/python/mpi/attention_over_ranks.py

needs mpi4py and a phasor that was built with -DPHASOR_MPI=ON.
"""

import numpy as np
import phasor
from mpi4py import MPI
from phasor import parallel

TOKENS, HEADS, HEAD_DIM = 1000, 4, 32
spec = phasor.RopeSpec(HEAD_DIM, layout="half")


def rows(tokens: np.ndarray, seed: int) -> np.ndarray:
    """Numbers that a token alone decides, as the activations of a layer would be: each rank makes its own."""
    phase = np.sin(np.outer(tokens + 1, np.arange(1, HEADS * HEAD_DIM + 1)) * (0.37 + 0.11 * seed))
    return (2.0 * phase).astype(np.float32).reshape(1, -1, HEADS, HEAD_DIM)


# 1. The ranks, and the tokens of this one. zigzag: an early and a late part each, so that causal work is equal.
ranks = parallel.Communicator(MPI.COMM_WORLD)
mine = parallel.tokens(TOKENS, ranks, order="zigzag")
q, k, v = (rows(mine, seed) for seed in range(3))

# 2. A plan for these sizes, made once; positions come from the order, so no rank counts them itself.
plan = parallel.AttentionPlan(q, k, v, ranks, encoding=spec, causal=True, order="zigzag", threads=1, backward=True)
sums = np.empty((1, HEADS, len(mine)), np.float32)
out = plan.run(q, k, v, log_sum_exp=sums)

# 3. Gradients of the same rows.
d_q, d_k, d_v = (np.empty_like(x) for x in (q, k, v))
plan.run_backward(q, k, v, out, sums, np.ones_like(out), d_q=d_q, d_k=d_k, d_v=d_v)

# 4. The same as one rank computes with the whole sequence.
whole = parallel.unshard(out, ranks, order="zigzag")
expected = phasor.attention(*(rows(np.arange(TOKENS), seed) for seed in range(3)), encoding=spec, causal=True, threads=1)
difference = float(np.abs(whole - expected).max())
assert difference < 1e-5, difference
if ranks.rank == 0:
    print(f"{ranks.size} ranks, {TOKENS} tokens: rank 0 has {len(mine)}, of them {mine[:2].tolist()} ... {mine[-2:].tolist()}")
    print(f"largest difference from one rank: {difference:.1e}")
    print(f"sent by rank 0, forward and backward: {plan.bytes_sent} bytes")
