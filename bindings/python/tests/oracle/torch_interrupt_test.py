"""Ctrl-C during attention of phasor.torch, forward and backward."""

from __future__ import annotations

import phasor
import phasor.torch
import torch
from interrupts import interrupt


def test_forward() -> None:
    x = torch.ones(1, 250_000, 1, 32)
    interrupt(lambda: phasor.torch.attention(x, x, x, causal=True))


def test_backward() -> None:
    x = torch.ones(1, 20_000, 1, 32, requires_grad=True)
    y = phasor.torch.attention(x, x, x, causal=True).sum()
    interrupt(lambda: y.backward(retain_graph=True))
    assert x.grad is None  # it did not run to its end
    y.backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all())


def test_an_interrupted_write_counts() -> None:
    x, out = torch.ones(1, 250_000, 1, 32), torch.zeros(1, 250_000, 1, 32)
    interrupt(lambda: phasor.attention(x, x, x, out=out))
    assert out._version == 1 and x._version == 0
