"""What the tests of drop-ins share: random tensors, and results and gradients compared with an original's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(ours: Tensor, theirs: Tensor, steps: float = 4) -> None:
    """Equal to a few roundings of the narrower result."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    bound = steps * torch.finfo(ours.dtype).eps
    torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)


def same_gradients(ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Tensor) -> None:
    """The gradient of one loss through both, for every input."""
    gradients = []
    for function in (ours, theirs):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        results = function(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum((y.double() * (1 + torch.arange(y.numel()).reshape(y.shape) % 7)).sum() for y in results)
        gradients.append(torch.autograd.grad(loss, leaves))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
