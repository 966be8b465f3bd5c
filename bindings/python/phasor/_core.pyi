"""The compiled part of Phasor: everything in `import phasor`, with types.

Arrays are NumPy arrays, torch tensors on the CPU, JAX arrays, and anything with DLPack or the buffer protocol. They are
read and written in place, strided views included. A result is an array of the same library as the input. autograd is
told of every torch tensor that is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, TypeVar, final

import numpy as np
import numpy.typing as npt

_Array = TypeVar("_Array")
_Query = TypeVar("_Query")
_Key = TypeVar("_Key")

Layout: TypeAlias = Literal["half", "interleaved", "interleaved_to_half"]
Order: TypeAlias = Literal["tokens_first", "heads_first"]
Angles: TypeAlias = Literal["exact", "float32"]

class _HasToDict(Protocol):
    """A config object of transformers."""

    def to_dict(self) -> dict[str, Any]: ...

Config: TypeAlias = Mapping[str, object] | str | PathLike[str] | _HasToDict
Encodes: TypeAlias = "RopeSpec | Encoding | Mapping[str, object] | str | PathLike[str] | Sequence[RopeSpec | Encoding | Mapping[str, object]] | None"

__version__: Final[str]

class Error(ValueError):
    """An invalid argument, file or config: a one-line message, and the kind of error in `code`."""

    code: Literal["invalid_argument", "shape_mismatch", "out_of_range", "unsupported", "io", "internal"]

@final
class RopeSpec:
    """A rotation as a value: frozen, hashable, printable; equal specs hash alike and eval(repr(spec)) == spec.

    help(phasor.RopeSpec) lists every keyword, and every type of scaling with its keys; so does docs/rope_spec.md. A spec
    without a layout has frequencies and cos and sin, and its repr says layout=None; rotate() and attention() refuse it.
    """

    def __init__(
        self,
        head_dim: int | None = None,
        *,
        base: float = 10000.0,
        layout: Layout | None = None,
        rotary_dim: int | None = None,
        rotary_offset: int = 0,
        max_position_embeddings: int | None = None,
        scaling: Mapping[str, object] | None = None,
        mrope: Mapping[str, object] | None = None,
        axial: str | None = None,
        xpos: Mapping[str, object] | None = None,
        frequencies: npt.ArrayLike | None = None,
        frequency_factors: npt.ArrayLike | None = None,
        amplitude: float = 1.0,
    ) -> None: ...
    @staticmethod
    def from_hf(config: Config, layer: int | str | None = None) -> RopeSpec:
        """The rotation of a config.json: a dictionary, a path (file, folder or GGUF), or an object with to_dict().

        Keys of another scaling than the config's are a UserWarning.
        """
    @property
    def head_dim(self) -> int: ...
    @property
    def rotary_dim(self) -> int: ...
    @property
    def rotary_offset(self) -> int: ...
    @property
    def base(self) -> float | None:
        """None when a list of frequencies replaces it."""
    @property
    def layout(self) -> Layout | None: ...
    @property
    def scaling(self) -> dict[str, Any]: ...
    @property
    def axes(self) -> int:
        """How many rows of positions a token has: 1, one for each section of M-RoPE (3 or 4), or 2 (images)."""
    @property
    def depends_on_context(self) -> bool: ...
    def frequencies(self, context: int | None = None) -> tuple[npt.NDArray[np.float64], float]:
        """Radians per position, one per pair, and the amplitude."""
    def to_dict(self) -> dict[str, Any]:
        """The plain spec that RopeSpec(**...) takes again."""
    def replace(self, **changes: object) -> RopeSpec: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __getstate__(self) -> str: ...
    def __setstate__(self, plain: str, /) -> None: ...

@final
class CosSinTable:
    """cos and sin of positions first .. first + length - 1, float32, computed once: the table= of rotate.

    A spec that depends on the context is resolved at context, or at first + length.
    """

    def __init__(
        self,
        spec: RopeSpec,
        length: int,
        *,
        first: int = 0,
        context: int | None = None,
        angles: Angles = "exact",
        threads: int = 0,
    ) -> None: ...
    @property
    def first(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...

# Rotation --------------------------------------------------------------------------------------------------------

def rotate(
    x: _Array,
    spec: RopeSpec,
    positions: object = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
    role: Literal["query", "key"] = "query",
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    table: CosSinTable | None = None,
    threads: int = 0,
    out: _Array | None = None,
) -> _Array:
    """RoFormer (34): rotates every pair of x by the angle of its token's position.

    x [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]; order="heads_first" swaps tokens and heads.
    positions: None (0, 1, ...), an int (that offset), or an array [tokens], [batch, tokens] or [axes, batch, tokens].
    context: the length at which a spec that depends on it is resolved; None: the largest position + 1.
    table: rows computed before, of the same spec; not for float64 or xPos.
    inverse undoes a rotation, transpose is its backward pass (they differ if the amplitude is not 1).
    out=x rotates in place; None: a new array of the same library as x is returned.
    """

def rotate_qk(
    q: _Query,
    k: _Key,
    spec: RopeSpec,
    positions: object = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    table: CosSinTable | None = None,
    threads: int = 0,
    out: tuple[_Query, _Key] | None = None,
) -> tuple[_Query, _Key]:
    """rotate() of queries and keys in one call; each has its own number of heads."""

def rotate_by(
    x: _Array,
    cos: object,
    sin: object,
    *,
    layout: Layout,
    transpose: bool = False,
    rotary_offset: int = 0,
    order: Order = "tokens_first",
    threads: int = 0,
    out: _Array | None = None,
) -> _Array:
    """Rotates x by the given cos and sin, [tokens, pairs] or [batch, tokens, pairs]."""

def cos_sin(
    spec: RopeSpec,
    positions: object,
    *,
    context: int | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    angles: Angles = "exact",
) -> tuple[Any, Any]:
    """cos and sin times the amplitude, [positions, pairs] each; positions [n] or [axes, n], or an int n for 0..n-1.

    Arrays of the library of positions: torch for torch, JAX for JAX (float32 ones), else NumPy.
    """

def _prefer_huge_pages(array: object) -> None:
    """Asks for huge pages for a new array without gaps, if it is large."""

def query_scale(config: Config, positions: object, layer: int | str | None = None) -> npt.NDArray[np.float64]:
    """The factor on the query at each position: 1 + beta ln(1 + floor((position + offset) / length)) for models that
    scale queries by position (Ministral 3, Mistral 4, Llama 4), else 1. positions [...], or an int n for 0..n-1.
    """

def convert_layout(
    x: _Array,
    *,
    to: Literal["half", "interleaved"],
    heads: int | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    axis: int | None = None,
    out: _Array | None = None,
) -> _Array:
    """Reorders the features of each head along `axis` (length heads * head_dim) from the other layout to `to`.

    With heads: a projection's weight [heads * head_dim, hidden] or bias, along axis 0 unless axis is given.
    Without: activations [..., head_dim], along the last axis. out must not share memory with x.
    """

# Attention -------------------------------------------------------------------------------------------------------

@final
class Encoding:
    """An encoding by name, with the members of the JSON form; tables may be arrays, which every call reads again.

    help(phasor.Encoding) lists every name with its members.
    float32 arrays are read in place (copied for the call only if a row is not contiguous), float64 ones too by float64
    attention; float16 and bfloat16 are converted for each call. The constructor checks names, members, the rank of
    tables and their element type; attention checks what depends on q, k and v.
    """

    def __init__(self, name: str, *, scale: float | None = None, **members: object) -> None: ...
    @staticmethod
    def from_file(path: str | PathLike[str]) -> Encoding: ...
    @property
    def name(self) -> str: ...
    @property
    def tables(self) -> dict[str, Any]:
        """The arrays of the encoding, by member."""
    def with_tables(self, tables: Mapping[str, object]) -> Encoding:
        """The same encoding with some arrays replaced, by member; the others are kept."""

def attention(
    q: _Array,
    k: object,
    v: object,
    *,
    encoding: Encodes = None,
    causal: bool = False,
    window: int | None = None,
    query_offset: int | None = None,
    scale: float | None = None,
    soft_cap: float = 0.0,
    mask: object = None,
    key_lengths: object = None,
    key_padding: object = None,
    query_boundaries: object = None,
    key_boundaries: object = None,
    query_positions: object = None,
    key_positions: object = None,
    query_segments: object = None,
    key_segments: object = None,
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
    log_sum_exp: object = None,
    out: _Array | None = None,
) -> _Array:
    """Softmax attention with any encoding, computed in tiles: no N x N matrix.

    q [batch, tokens, heads, head_dim] or without batch; k and v with their own number of heads, v with its own width.
    All float64, or each float32, float16 or bfloat16; the result has the type of q. log_sum_exp: a contiguous array
    [batch, heads, queries] that is written (float32; float64 for float64 inputs).
    causal: aligned bottom-right, the last query sees every key. query_offset: the token of query 0 among the keys, for
    causal and window, in place of keys - queries; for calls over a part of the keys, which may begin after the queries.
    mask: bool or uint8 (0 hides the key), or floats that are added to the scores; [queries, keys],
    [heads, queries, keys] or [batch, heads, queries, keys], axes of length 1 broadcast, any strides; floats other than
    float32 are converted in a copy (float64 ones of float64 attention are not). key_lengths [batch]; key_padding [batch, keys], 0 hides the key; boundaries
    [0, ..., tokens] of packed sequences, batch 1; segments [batch, tokens].
    query_positions, key_positions: as for rotate(); rotations read them, and every encoding that reads a distance or a
    position (whole numbers then, one axis; row p of tupe's tables is position p). None: keys at 0, 1, ..., queries are
    the last of them. causal and window count tokens, not positions.
    """

def attention_backward(
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
    encoding: Encodes = None,
    causal: bool = False,
    window: int | None = None,
    query_offset: int | None = None,
    scale: float | None = None,
    soft_cap: float = 0.0,
    mask: object = None,
    key_lengths: object = None,
    key_padding: object = None,
    query_boundaries: object = None,
    key_boundaries: object = None,
    query_positions: object = None,
    key_positions: object = None,
    query_segments: object = None,
    key_segments: object = None,
    context: int | None = None,
    order: Order = "tokens_first",
    angles: Angles = "exact",
    threads: int = 0,
) -> None:
    """The gradient of sum(out * d_out), written to d_q, d_k and d_v and added to d_tables.

    d_tables: member name -> array of the shape of its table; with several encodings "index.member".
    """

@final
class LinearState:
    """The sums over the keys so far: linear_attention(state=...) continues from them. Its size is constant."""

    def __init__(self, batch: int, key_heads: int, head_dim: int, value_dim: int) -> None: ...
    @property
    def tokens(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def reset(self) -> None: ...
    def fork(self) -> LinearState: ...

def linear_attention(
    q: _Array,
    k: object,
    v: object,
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
    order: Order = "tokens_first",
    threads: int = 0,
    state: LinearState | None = None,
    out: _Array | None = None,
) -> _Array:
    """Linear attention with rotation, RoFormer (19).

    features "favor" (Performer's FAVOR+) has feature_count random features, which depend on the seed alone; a state then
    has head_dim=feature_count. rotates "inputs" rotates q and k before the map instead of the features after it: encoding
    is for head_dim then, and for feature_count with rotated features of "favor".
    """

def linear_attention_backward(
    q: object,
    k: object,
    v: object,
    d_out: object,
    *,
    d_q: object,
    d_k: object,
    d_v: object,
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
    order: Order = "tokens_first",
    threads: int = 0,
) -> None: ...
@final
class KVCache:
    """Keys and values of the tokens so far; keys are rotated when they are appended."""

    def __init__(
        self,
        *,
        key_heads: int,
        head_dim: int,
        capacity: int,
        value_dim: int | None = None,
        batch: int = 1,
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
        spec: RopeSpec | None = None,
        context: int | None = None,
        mode: Literal["compact", "drift_free"] = "compact",
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def next_position(self) -> int: ...
    @property
    def spec(self) -> RopeSpec | None: ...
    def positions(self) -> npt.NDArray[np.float64]: ...
    def append(self, k: object, v: object, positions: object = None, *, order: Order = "tokens_first", threads: int = 0) -> None: ...
    def truncate(self, tokens: int) -> None: ...
    def evict(self, first: int, last: int) -> None: ...
    def shift(self, first: int, last: int, delta: int, *, threads: int = 0) -> None: ...
    def rerotate(self, spec: RopeSpec, positions: object = None, *, context: int | None = None, threads: int = 0) -> None: ...
    def fork(self, capacity: int | None = None) -> KVCache: ...
    @property
    def keys(self) -> npt.NDArray[Any]:
        """A copy of the rotated keys, [batch, tokens, key_heads, head_dim]; bfloat16 as float32."""
    @property
    def values(self) -> npt.NDArray[Any]: ...
    def attention(
        self,
        q: _Array,
        *,
        encoding: Encodes = None,
        causal: bool = True,
        window: int | None = None,
        scale: float | None = None,
        soft_cap: float = 0.0,
        mask: object = None,
        key_padding: object = None,
        query_positions: object = None,
        order: Order = "tokens_first",
        threads: int = 0,
        out: _Array | None = None,
    ) -> _Array: ...

def sinusoidal(
    positions: object,
    dim: int,
    *,
    base: float = 10000.0,
    variant: Literal["interleaved", "concat", "fairseq"] = "interleaved",
    dtype: Literal["float32", "float64"] = "float32",
) -> Any:
    """RoFormer (4): the rows that are added to the input, [..., dim] for integers [...]; an int n means 0..n-1.

    An array of the library of positions, as for cos_sin().
    """

def decay(spec: RopeSpec, distances: object, *, context: int | None = None) -> Any:
    """RoFormer (37), figure 2: the mean length of the partial sums at each distance, float64; an int n means 0..n-1.

    An array of the library of distances, as for cos_sin().
    """

# Porting ---------------------------------------------------------------------------------------------------------

def explain(config: Config, *, context: int | None = None) -> dict[str, Any]:
    """Every layer's encoding, resolved: what `phasor explain --json` prints."""

def diagnose(
    before: object,
    after: object,
    *,
    positions: object = None,
    axes: Sequence[str] | None = None,
    config: RopeSpec | Config | None = None,
    context: int | None = None,
) -> dict[str, Any]:
    """Finds the rotation between two arrays: what `phasor diagnose --json` prints; with a config, also "verdict" and "cause".

    [tokens, head_dim], [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], leading axes in any order. Both
    arrays are copied for the call. positions [tokens] or [batch, tokens], for M-RoPE and images [axes, batch, tokens];
    None: consecutive, from an offset that is searched for.
    """

def audit(
    cos: object,
    sin: object,
    spec: RopeSpec | Config,
    positions: object = None,
    *,
    context: int | None = None,
    threshold: float = 1e-3,
) -> dict[str, Any]:
    """The errors of another engine's table: what `phasor audit --json` prints.

    cos and sin [rows, pairs] of the same float type; positions [rows] (None: 0, 1, ...) or [axes, rows].
    """

def diff(
    config: Config,
    *,
    between: Sequence[str] = ...,
    context: int | None = None,
    layer: int | str | None = None,
    max_length: int | None = None,
    shifts: int = 0,
) -> dict[str, Any]:
    """Where engines differ on a config: what `phasor diff --json` prints."""

def plan(config: Config, *, to: int, trained: int | None = None, layer: int | str | None = None) -> dict[str, Any]:
    """Methods to reach a longer context: what `phasor plan --json` prints."""

# Models ----------------------------------------------------------------------------------------------------------

@final
class Model:
    """A decoder or a RoFormer, with its tokenizer."""

    @staticmethod
    def load(path: str | PathLike[str], *, precision: Literal["exact", "fast"] = "exact", threads: int = 0) -> Model: ...
    @property
    def kind(self) -> Literal["decoder", "roformer"]: ...
    @property
    def facts(self) -> dict[str, Any]:
        """Layers, widths, vocabulary, parameters ..."""
    def encode(self, text: str, *, special: Literal["parse", "as_text"] = "parse") -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def logits(self, ids: object, *, mask: object = None, token_types: object = None) -> npt.NDArray[np.float32]:
        """[tokens, vocabulary] for ids [tokens], [batch, tokens, vocabulary] for ids [batch, tokens].

        A roformer that classifies gives [labels] or [batch, labels]; one that labels tokens, or marks the start and end
        of an answer, has labels in place of the vocabulary. mask, in the shape of ids: 0 is padding, on either side, and
        gives zeros. token_types (roformer): the sentence that each token belongs to.
        """
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        context: int = 0,
        when_full: Literal["refuse", "shift"] = "refuse",
        stops: Sequence[int] | None = None,
    ) -> Iterator[str]:
        """Yields the answer as text while it is computed: whole characters, special tokens omitted.

        Arguments are checked by this call; the first piece is computed by the first next(). Drop the iterator to
        cancel. Several can run on one model: each has its own cache, and the model computes one step at a time.
        """
    def generate_ids(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        context: int = 0,
        when_full: Literal["refuse", "shift"] = "refuse",
        stops: Sequence[int] | None = None,
    ) -> Iterator[int]:
        """generate() as token ids; needs no tokenizer if the prompt is token ids."""
    def chat(self, messages: Sequence[Mapping[str, str]], *, format: str | None = None) -> str:
        """The conversation as the prompt that generate() takes."""
    def fill(self, text: str, *, count: int = 5) -> list[dict[str, Any]]:
        """The most likely tokens at each [MASK]: {"slot", "choices": [{"id", "token", "probability", "logit"}]}."""

# Machine ---------------------------------------------------------------------------------------------------------

class _BuildInfo(TypedDict):
    version: str
    compiler: str
    limited_api: bool
    command: bool
    mpi: bool
    onednn: bool
    sentencepiece: bool
    zlib: bool

def build_info() -> _BuildInfo:
    """What this build was made with: the version, the compiler, whether one module serves several versions of Python
    (`limited_api`), and which optional parts it has: the `command` phasor, `mpi` (phasor.parallel), and the
    libraries `onednn` (without it prompts of many tokens are slower), `sentencepiece` (without it such tokenizers
    are unsupported) and `zlib` (without it compressed members of .npz and .pt files are unsupported)."""

def instruction_sets() -> list[str]:
    """The instruction sets of this build that this CPU supports, lowest first."""
