"""The compiled part of phasor.parallel, which links MPI."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar, final

import numpy as np
import numpy.typing as npt

from ._core import Angles, Config, Encodes, RopeSpec

_Array = TypeVar("_Array")

TokenOrder: TypeAlias = Literal["contiguous", "zigzag", "striped"]
Strategy: TypeAlias = Literal["auto", "ring", "heads"]
Wire: TypeAlias = Literal["f32", "bf16"]

@final
class Communicator:
    """The ranks of a communicator of mpi4py, for many calls: made once, by every rank.

    Its messages do not meet those of `comm`. All ranks must run the same build of Phasor. A rank waits `patience` seconds
    for the others, then it raises phasor.Error. Functions that take `comm` take this or a communicator of mpi4py, from
    which they make one for the call.
    """

    def __init__(self, comm: object, *, patience: float = 60.0) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def patience(self) -> float: ...
    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to single ranks so far."""

def tokens_of(count: int, ranks: int, rank: int, order: str) -> npt.NDArray[np.int64]:
    """The tokens of a rank, in the order of its rows."""

def unshard(x: _Array, comm: object, *, order: TokenOrder = "zigzag", axis: int = -3) -> _Array:
    """The whole array, on every rank, from the shards that shard() cuts. Collective. x must be contiguous."""

@final
class AttentionPlan:
    """Softmax attention over ranks, planned once and run many times. Collective, as are its runs.

    q, k, v: this rank's shards [batch, tokens, heads, head_dim] or without batch, as shard() cuts them; only their shapes
    and types are read. float32, float16, bfloat16, or all float64. Everything else describes the whole sequence and is the
    same on every rank: key_padding [batch, keys], boundaries, positions and segments of all tokens, tables of the encoding.
    Options as phasor.attention.

    strategy: ring (keys and values travel from rank to rank while the ranks compute) or heads (each rank gets all tokens of
    some heads; the heads must be a multiple of the ranks); auto takes the one whose busiest rank sends fewer bytes, and the
    ring if they are equal. wire: how numbers travel; bf16 halves the bytes and rounds what is sent once.
    backward=True makes run_backward() possible.
    """

    def __init__(
        self,
        q: object,
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
        backward: bool = False,
    ) -> None: ...
    def run(self, q: _Array, k: object, v: object, *, log_sum_exp: object = None, out: _Array | None = None) -> _Array:
        """This rank's rows of the output. log_sum_exp: as in phasor.attention, for this rank's queries."""

    def run_backward(
        self,
        q: object,
        k: object,
        v: object,
        out: object,
        log_sum_exp: object,
        d_out: object,
        *,
        d_q: object,
        d_k: object,
        d_v: object,
        d_tables: Mapping[str, object] | None = None,
    ) -> None:
        """As phasor.attention_backward, for this rank's rows. Gradients of tables are summed over ranks and added to d_tables
        on every rank."""

    def update_tables(self) -> None:
        """Reads the encoding's arrays again, after their numbers have changed; every rank does so before its next run. r1 and
        r2 of kerple need a new plan."""

    @property
    def strategy(self) -> str: ...
    @property
    def tokens(self) -> int:
        """The queries of the whole sequence."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of keys, values and gradients that this rank has sent in all runs of the plan."""

    @property
    def nbytes(self) -> int:
        """Memory that the plan holds."""

@final
class LinearAttentionPlan:
    """Linear attention over ranks, planned once and run many times. Collective, as are its runs.

    As AttentionPlan, in contiguous order; options as phasor.linear_attention, for the whole sequence. Only sums of a fixed
    size travel, whatever the number of tokens. Not for float64.
    """

    def __init__(
        self,
        q: object,
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
        backward: bool = False,
    ) -> None: ...
    def run(self, q: _Array, k: object, v: object, *, out: _Array | None = None) -> _Array:
        """This rank's rows of the output."""

    def run_backward(
        self, q: object, k: object, v: object, d_out: object, *, d_q: object, d_k: object, d_v: object
    ) -> None:
        """As phasor.linear_attention_backward, for this rank's rows."""

    @property
    def tokens(self) -> int:
        """The queries of the whole sequence."""

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent in all runs of the plan."""

    @property
    def nbytes(self) -> int:
        """Memory that the plan holds."""
