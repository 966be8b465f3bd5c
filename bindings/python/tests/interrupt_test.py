"""Ctrl-C during calls that would take minutes."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading

import numpy as np
import phasor
import pytest
from golden_cases import GOLDEN
from interrupts import Interrupted, interrupt, signals

SPEC = phasor.RopeSpec(64, layout="half")


def heads(tokens: int, dim: int = 64, dtype: type = np.float32) -> np.ndarray:
    return np.ones((tokens, 1, dim), dtype)


def golden_model(name: str, threads: int = 0) -> phasor.Model:
    return phasor.Model.load(GOLDEN / "models" / name / "model", threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_attention(threads: int) -> None:
    x = heads(250_000)
    interrupt(lambda: phasor.attention(x, x, x, encoding=SPEC, threads=threads))
    few = heads(8)
    np.testing.assert_allclose(phasor.attention(few, few, few, threads=threads), few, rtol=1e-6)


def test_attention_in_float64() -> None:
    x = heads(100_000, 16, np.float64)
    interrupt(lambda: phasor.attention(x, x, x, causal=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attention_backward(dtype: type) -> None:
    x = heads(150_000, 16, dtype)
    sums = np.zeros((1, len(x)), dtype)
    d = {name: np.zeros_like(x) for name in ("d_q", "d_k", "d_v")}
    interrupt(lambda: phasor.attention_backward(x, x, x, x, sums, x, **d))


def test_linear_attention_leaves_its_state() -> None:
    x = heads(40_000, 1024)
    state = phasor.LinearState(1, 1, 1024, 1024)
    few = heads(2, 1024)
    before = phasor.linear_attention(few, few, few, causal=True, state=state)
    # One call may be over before the signal: the state then has its tokens.
    call = lambda: phasor.linear_attention(x, x, x, causal=True, state=state)  # noqa: E731
    with signals(call), pytest.raises(Interrupted):
        for _ in range(10_000):
            call()
    assert (state.tokens - len(few)) % len(x) == 0
    state.reset()
    np.testing.assert_array_equal(phasor.linear_attention(few, few, few, causal=True, state=state), before)


def test_linear_attention_in_float64() -> None:
    x = heads(8_000, 2048, np.float64)
    interrupt(lambda: phasor.linear_attention(x, x, x))


def test_a_cache_stays_as_it_was() -> None:
    cache = phasor.KVCache(capacity=250_000, key_heads=1, head_dim=64)
    x = heads(250_000)
    cache.append(x, x)
    interrupt(lambda: cache.attention(x))
    assert len(cache) == 250_000


@pytest.mark.parametrize("threads", [1, 2])
def test_logits_and_generation(threads: int) -> None:
    model = golden_model("llama_gqa_llama3", threads)
    ids = np.arange(14) % 97
    before = model.logits(ids)
    long = np.arange(300_000) % 97
    interrupt(lambda: model.logits(long))
    answer = model.generate_ids(long, tokens=1, context=300_001)
    interrupt(lambda: next(answer))
    np.testing.assert_array_equal(model.logits(ids), before)


def test_a_call_that_waits_for_another_is_interrupted() -> None:
    model = golden_model("llama_gqa_llama3", 1)
    long = np.arange(12_000) % 97
    answers: list[int] = []
    running = threading.Thread(target=lambda: answers.extend(model.generate_ids(long, tokens=1, context=12_001)))
    call = lambda: model.logits([1, 2, 3])  # noqa: E731
    with signals(call), pytest.raises(Interrupted):
        running.start()
        while running.is_alive():
            call()
    # Only the main thread is interrupted.
    running.join()
    assert len(answers) == 1


def test_diagnose() -> None:
    x = np.random.default_rng(0).standard_normal((1, 300_000, 1, 64), dtype=np.float32)
    y = phasor.rotate(x, SPEC)
    call = lambda: phasor.diagnose(x, y)  # noqa: E731
    with signals(call), pytest.raises(Interrupted):
        for _ in range(1000):
            call()


def test_keyboard_interrupt_is_what_python_raises_by_default() -> None:
    x = heads(250_000)
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(300, exit=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            phasor.attention(x, x, x)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_interrupts_nothing() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: calls.append(number))
    done = threading.Event()

    def send() -> None:
        while not done.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    x = heads(10_000)
    sender.start()
    try:
        while not calls:
            y = phasor.attention(x, x, x, threads=1)
    finally:
        done.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    np.testing.assert_allclose(y, x, rtol=1e-4)


def test_other_threads_are_not_interrupted() -> None:
    x = heads(10_000)
    results: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: results.append(phasor.attention(x, x, x, threads=1)))
    never = threading.Event()
    call = lambda: never.wait()  # noqa: E731
    with signals(call), pytest.raises(Interrupted):
        thread.start()
        call()
    thread.join()
    np.testing.assert_allclose(results[0], x, rtol=1e-4)
