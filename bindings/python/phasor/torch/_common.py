"""What every part of phasor.torch needs: refusals, the road past autograd, and specs as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from .._core import Error, RopeSpec

Code = Literal["invalid_argument", "shape_mismatch", "out_of_range", "unsupported"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The types that _core may read directly: a subclass (a fake tensor, a tensor of a mode) goes through the custom op.
_PLAIN = (Tensor, torch.nn.Parameter)


def refusal(code: Code, text: str) -> Error:
    """The error to raise: `where: what must hold, got what came`."""
    error = Error(text)
    error.code = code
    return error


def shape_text(tensor: Tensor) -> str:
    return f"[{', '.join(str(int(n)) for n in tensor.shape)}] {str(tensor.dtype).removeprefix('torch.')}"


def require_cpu(where: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            raise refusal("unsupported", f"{where}: {name} must be on the CPU, got one on {tensor.device}")


def require_no_grad(where: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise refusal("unsupported", f"{where}: {name} has no gradient, got a tensor that requires grad")


def direct(*tensors: Tensor | None) -> bool:
    """Whether _core may be called at once: plain tensors on the CPU, nobody traces, and nobody wants a gradient."""
    if torch.compiler.is_compiling():
        return False
    grad = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or not tensor.is_cpu or grad and tensor.requires_grad):
            return False
    return True


def bare(tensor: Tensor) -> Tensor:
    """The tensor without its history, features next to each other: what _core takes."""
    tensor = tensor.detach()
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def room_like(x: Tensor) -> Tensor:
    """Room for a result of x's shape: x's order in memory where that keeps features together, else row-major."""
    room = torch.empty_like(x)
    return room if room.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a function of constants, which torch.compile calls while it traces."""
    torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return function


# torch.compile then guards on the value of a spec instead of refusing what it cannot look into.
_register_constant = getattr(torch.utils._pytree, "register_constant", None)
if _register_constant is not None:
    _register_constant(RopeSpec)


@lru_cache(maxsize=256)
def _text_of(spec: RopeSpec) -> str:
    return json.dumps(spec.to_dict())


@constant
def spec_text(spec: RopeSpec) -> str:
    """The spec as the string that a custom op takes."""
    return _text_of(spec)


@lru_cache(maxsize=256)
def spec_of(text: str) -> RopeSpec:
    """The spec of spec_text(); one object for one text, so that what it resolved to last is kept."""
    return RopeSpec(**json.loads(text))


@constant
def amplitude_of(text: str, context: int | None) -> float:
    return spec_of(text).frequencies(context)[1]
