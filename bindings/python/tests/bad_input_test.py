"""Thousands of calls with random arguments: each gives a result or an Error, never a crash.

A crash of the module ends the process, and with it this test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import phasor
import pytest

TYPES = ["f4", "f4", "f4", "f8", "f2", "i8", "i4", "?", "u1", "c8", ">f4"]
SCALINGS: list[dict[str, Any]] = [
    {"type": "linear", "factor": 2.0},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"type": "longrope", "factor": 2.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
     "original_max_position_embeddings": 4},
]  # fmt: skip


class Junk:
    """Arguments of every kind, right ones among them, from one seed."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)

    def one_of(self, *things: Any) -> Any:
        thing = self.choose.choice(things)
        return thing() if callable(thing) else thing

    def array(self) -> Any:
        shape = [self.one_of(0, 1, 2, 3, 5, 8) for _ in range(self.one_of(0, 1, 2, 3, 3, 4, 4, 4, 5))]
        array = self.numbers.standard_normal(shape).astype(self.one_of(*TYPES))
        if array.ndim >= 2 and self.one_of(True, False):
            array = array.transpose(self.numbers.permutation(array.ndim))
        if array.ndim and self.choose.random() < 0.2:
            array = array[..., :: self.one_of(1, -1, 2)]
        return np.broadcast_to(array, (2, *array.shape)) if self.choose.random() < 0.1 else array

    def heads(self) -> Any:
        shape = (self.one_of(1, 2), self.one_of(1, 3, 5), self.one_of(1, 2, 4), 8)
        return self.numbers.standard_normal(shape).astype(self.one_of("f4", "f8", "f2"))

    def spec(self) -> phasor.RopeSpec:
        layout = self.one_of(None, "half", "interleaved", "interleaved_to_half")
        return phasor.RopeSpec(8, layout=layout, scaling=self.one_of(None, None, *SCALINGS))

    def thing(self) -> Any:
        return self.one_of(None, 0, 1, -1, 2**62, 2**70, 1.5, float("nan"), "x", b"x", [1, 2], [[1], [2, 3]], (), {},
                           {"a": 1}, object, self.array, self.array, self.spec)  # fmt: skip

    def maybe(self) -> Any:
        return self.one_of(None, None, self.thing)

    def encoding(self) -> Any:
        return self.one_of(
            None, self.spec, lambda: [self.spec(), {"encoding": "alibi"}], "no such file", 3, {"encoding": "alibi"},
            lambda: {"encoding": "t5", "relative_attention_bias": self.array(), "num_buckets": self.thing()},
            lambda: {"encoding": "shaw", "clip": self.thing(), "rel_k": self.array()},
            lambda: {"encoding": "transformer_xl", "u_bias": self.array(), "r_head": self.array()},
            lambda: {"encoding": "deberta_v2", "pos_k": self.array(), "max_relative_positions": self.thing()},
        )  # fmt: skip

    def cache(self) -> None:
        cache = phasor.KVCache(key_heads=2, head_dim=8, capacity=8, spec=self.one_of(None, self.spec))
        for tokens in (1, 3, 2):
            rows = self.numbers.standard_normal((1, tokens, 2, 8)).astype("f4")
            cache.append(rows, rows, self.one_of(None, None, self.thing))
        at = self.choose.randint
        cache.evict(at(-1, 3), at(-1, 6))
        cache.shift(0, at(0, 7), at(-3, 3))
        cache.attention(self.heads(), encoding=self.encoding())
        cache.rerotate(self.one_of(self.spec, self.thing), self.thing())
        cache.truncate(at(-1, 6))
        cache.fork(self.one_of(None, 0, 3))

    def backward(self) -> None:
        x, room = self.heads(), np.zeros_like
        sums = np.zeros((x.shape[0], x.shape[2], x.shape[1]), self.one_of("f4", "f8"))
        phasor.attention_backward(x, x, x, x, sums, x, d_q=room(x), d_k=room(x), d_v=self.one_of(room(x), self.array),
                                  encoding=self.encoding(), d_tables=self.one_of(None, self.thing))  # fmt: skip

    def calls(self) -> list[Callable[[], object]]:
        thing, array, heads, spec = self.thing, self.array, self.heads, self.spec
        order, layout = ("tokens_first", "heads_first", "z"), ("half", "interleaved", "z")
        maybe = self.maybe
        return [
            lambda: phasor.rotate(array(), self.one_of(spec, thing), thing(), out=self.one_of(None, array)),
            lambda: phasor.rotate(heads(), spec(), thing(), order=self.one_of(*order), context=self.one_of(None, -1, 5)),
            lambda: phasor.rotate_qk(heads(), heads(), spec(), array()),
            lambda: phasor.rotate_by(heads(), array(), array(), layout=self.one_of(*layout),
                                     rotary_offset=self.one_of(0, 1, -1, 2**60)),
            lambda: phasor.cos_sin(spec(), thing()),
            lambda: phasor.CosSinTable(spec(), self.one_of(0, 5, -1), first=self.one_of(0, -5, 2**50)),
            lambda: phasor.attention(heads(), heads(), heads(), encoding=self.encoding(), window=self.one_of(None, 0, 3),
                                     mask=maybe(), key_lengths=maybe(), key_padding=maybe(), query_positions=maybe(),
                                     query_segments=maybe(), query_boundaries=maybe(), key_boundaries=maybe()),
            self.backward,
            lambda: phasor.linear_attention(heads(), heads(), heads(), encoding=self.one_of(None, spec),
                                            causal=self.one_of(True, False), key_padding=maybe(),
                                            features=self.one_of("elu_plus_one", "favor"),
                                            feature_count=self.one_of(0, 6, -1, 2**40),
                                            rotates=self.one_of("features", "inputs")),
            self.cache,
            lambda: phasor.convert_layout(array(), to=self.one_of(*layout), heads=self.one_of(None, 1, 0, -1, 2**40),
                                          rotary_dim=self.one_of(None, 2, 3, 2**60), axis=self.one_of(None, 0, 9)),
            lambda: phasor.diagnose(array(), array(), positions=thing()),
            lambda: phasor.audit(array(), array(), spec(), thing()),
            lambda: phasor.explain(thing()),
            lambda: phasor.sinusoidal(thing(), self.one_of(0, 3, 8, -1)),
            lambda: phasor.decay(spec(), thing()),
            lambda: phasor.Encoding(self.one_of("t5", "shaw", "nope", ""), rel_k=array(), clip=thing()),
            lambda: phasor.RopeSpec(self.one_of(8, 0, 7, 2**62), base=self.one_of(1.0, 0.0, float("nan"), 1e308),
                                    rotary_dim=self.one_of(None, 4, 2**40), scaling=thing(), mrope=thing()),
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_every_call_gives_a_result_or_a_refusal(seed: int) -> None:
    junk = Junk(seed)
    calls = junk.calls()
    answers: Counter[str] = Counter()
    for _ in range(2500):
        try:
            junk.choose.choice(calls)()
            answers["a result"] += 1
        except (phasor.Error, TypeError) as refusal:
            answers[type(refusal).__name__] += 1
    assert answers["a result"] > 100 and answers["Error"] > 1000
