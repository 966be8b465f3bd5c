"""Signals that interrupt a call from inside."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


class Interrupted(Exception):
    """What the handler raises: not KeyboardInterrupt, which would end the test run if it came late."""


@contextmanager
def signals(call: Callable[[], object], number: int = signal.SIGINT) -> Iterator[None]:
    """Sends a signal to this process again and again; its handler raises if it runs inside `call`."""
    done = threading.Event()

    def send() -> None:
        while not done.wait(0.02):
            os.kill(os.getpid(), number)

    def handle(_: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is call.__code__:  # type: ignore[attr-defined]
                raise Interrupted
            frame = frame.f_back

    before = signal.signal(number, handle)
    faulthandler.dump_traceback_later(300, exit=True)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(number, before)


def interrupt(call: Callable[[], object]) -> None:
    with signals(call), pytest.raises(Interrupted):
        call()
