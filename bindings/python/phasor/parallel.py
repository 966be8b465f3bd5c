"""Attention over the ranks of MPI, for sequences that one machine cannot hold: arrays in, arrays out, with mpi4py.

Each rank has a shard of the tokens of q, k and v and gets the same shard of the output:

    mpirun -n 4 python program.py

    from mpi4py import MPI
    import phasor.parallel as parallel

    ranks = parallel.Communicator(MPI.COMM_WORLD)
    q, k, v = (parallel.shard(x, ranks) for x in (q, k, v))     # [batch, tokens, heads, head_dim]
    out = parallel.attention(q, k, v, ranks, encoding=spec, causal=True)

Every function that takes a communicator, but not tokens() and shard(), is collective: all ranks call it, in the same order,
from one thread. A rank whose arguments are wrong, or differ from those of the others, raises phasor.Error on every rank,
with the same line; a rank that stops or is late raises it on the others, within the patience of the communicator.

The module is built with -DPHASOR_MPI=ON, for the MPI library of the machine; mpi4py must use the same one.
phasor.torch.parallel does with torch.distributed what torch programs need, without MPI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

try:
    from mpi4py import MPI as _MPI  # noqa: F401 - starts MPI
except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError if it finds no MPI library
    raise ImportError(
        "phasor.parallel: mpi4py cannot be imported (" + str(error).split("\n")[0] + "); run: pip install mpi4py, with Open MPI"
        " installed (Debian: apt-get install openmpi-bin libopenmpi-dev)"
    ) from error
try:
    from ._phasor_parallel import AttentionPlan, Communicator, LinearAttentionPlan, tokens_of as _tokens_of, unshard
except ModuleNotFoundError as error:
    if error.name != "phasor._phasor_parallel":
        raise
    raise ImportError(
        "phasor.parallel: this phasor was built without MPI; build it on a machine with libopenmpi-dev: "
        "pip install . --config-settings cmake.define.PHASOR_MPI=ON (or cmake -DPHASOR_BUILD_PYTHON=ON -DPHASOR_MPI=ON)"
    ) from error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ._core import Angles, Config, Encodes, RopeSpec
    from ._phasor_parallel import Strategy, TokenOrder, Wire

_Array = TypeVar("_Array")


class _Ranks(Protocol):
    """What tokens() and shard() read of a communicator."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


def tokens(count: int, comm: _Ranks, *, order: TokenOrder = "zigzag") -> npt.NDArray[np.int64]:
    """The tokens that this rank has of a sequence of `count`, in the order of its rows. Not collective.

    contiguous: rank r of R has the r-th of R parts. zigzag: parts r and 2R - 1 - r of 2R, which gives every rank the same
    work under a causal mask. striped: tokens r, r + R, r + 2R, ...
    """
    return _tokens_of(count, comm.size, comm.rank, order)


def shard(x: _Array, comm: _Ranks, *, order: TokenOrder = "zigzag", axis: int = -3) -> _Array:
    """This rank's tokens of an array that it has whole: a copy; `axis` is that of the tokens. Not collective.

    unshard(x, comm, order=..., axis=...) makes the whole array from the shards of all ranks.
    """
    whole: Any = x
    chosen = tokens(whole.shape[axis], comm, order=order)
    part = whole[(slice(None),) * (axis % len(whole.shape)) + (chosen,)]
    return part.copy() if hasattr(part, "flags") and not part.flags.c_contiguous else part  # type: ignore[no-any-return]


def attention(
    q: _Array,
    k: object,
    v: object,
    comm: object,
    *,
    encoding: Encodes = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    soft_cap: float = 0.0,
    key_padding: object = None,
    query_boundaries: object = None,
    key_boundaries: object = None,
    query_positions: object = None,
    key_positions: object = None,
    query_segments: object = None,
    key_segments: object = None,
    context: int | None = None,
    order: TokenOrder = "zigzag",
    strategy: Strategy = "auto",
    wire: Wire = "f32",
    angles: Angles = "exact",
    threads: int = 0,
    log_sum_exp: object = None,
    out: _Array | None = None,
) -> _Array:
    """phasor.attention of a sequence whose tokens are divided between ranks: this rank's rows. Collective.

    An AttentionPlan that is run once; see there. For repeated calls of the same sizes, and for gradients, make the plan.
    """
    plan = AttentionPlan(
        q,
        k,
        v,
        comm,
        encoding=encoding,
        causal=causal,
        window=window,
        scale=scale,
        soft_cap=soft_cap,
        key_padding=key_padding,
        query_boundaries=query_boundaries,
        key_boundaries=key_boundaries,
        query_positions=query_positions,
        key_positions=key_positions,
        query_segments=query_segments,
        key_segments=key_segments,
        context=context,
        order=order,
        strategy=strategy,
        wire=wire,
        angles=angles,
        threads=threads,
    )
    return plan.run(q, k, v, log_sum_exp=log_sum_exp, out=out)


def linear_attention(
    q: _Array,
    k: object,
    v: object,
    comm: object,
    *,
    encoding: RopeSpec | Config | None = None,
    causal: bool = False,
    features: Literal["elu_plus_one", "softmax_exp", "favor"] = "elu_plus_one",
    feature_count: int = 0,
    seed: int = 0,
    rotates: Literal["features", "inputs"] = "features",
    key_padding: object = None,
    query_positions: object = None,
    key_positions: object = None,
    context: int | None = None,
    threads: int = 0,
    out: _Array | None = None,
) -> _Array:
    """phasor.linear_attention of a sequence whose tokens are divided between ranks, in contiguous order. Collective.

    A LinearAttentionPlan that is run once; see there.
    """
    plan = LinearAttentionPlan(
        q,
        k,
        v,
        comm,
        encoding=encoding,
        causal=causal,
        features=features,
        feature_count=feature_count,
        seed=seed,
        rotates=rotates,
        key_padding=key_padding,
        query_positions=query_positions,
        key_positions=key_positions,
        context=context,
        threads=threads,
    )
    return plan.run(q, k, v, out=out)


__all__ = [
    "AttentionPlan",
    "Communicator",
    "LinearAttentionPlan",
    "attention",
    "linear_attention",
    "shard",
    "tokens",
    "unshard",
]
