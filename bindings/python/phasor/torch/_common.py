"""Shared by all of phasor.torch: errors, calls without autograd, and specs as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from .. import _core
from .._core import Error, RopeSpec

Code = Literal["invalid_argument", "shape_mismatch", "out_of_range", "unsupported"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The types that _core reads directly; a subclass (fake tensors, tensor modes) goes through the custom op.
_PLAIN = (Tensor, torch.nn.Parameter)


def refusal(code: Code, text: str) -> Error:
    """A phasor.Error with a code, to raise."""
    error = Error(text)
    error.code = code
    return error


def shape_text(tensor: Tensor) -> str:
    return f"[{', '.join(str(int(n)) for n in tensor.shape)}] {str(tensor.dtype).removeprefix('torch.')}"


def require_dense(where: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.layout != torch.strided:
            raise refusal(
                "unsupported", f"{where}: {name} must be a dense tensor, got the layout {tensor.layout}: call to_dense()"
            )


def require_readable(where: str, **tensors: Tensor | None) -> None:
    """Refuses tensors that are not dense or not on the CPU, and forward gradients, which a custom op would drop."""
    require_dense(where, **tensors)
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.device.type != "cpu":
            raise refusal("unsupported", f"{where}: {name} must be on the CPU, got {tensor.device}")
        if forward_ad._current_level >= 0 and _tangent_of(tensor) is not None:
            raise refusal(
                "unsupported",
                f"{where}: {name} is a dual tensor, and forward gradients (jvp) are not supported: use backward()",
            )


def _tangent_of(tensor: Tensor) -> object:
    return forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]


def require_no_grad(where: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise refusal("unsupported", f"{where}: {name} requires grad, and has no gradient here: detach() it")


_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms_active = torch._C._are_functorch_transforms_active
_is_tracing = torch._C._is_tracing


def transformed() -> bool:
    """Whether a transform of torch.func runs, or forward gradients are computed, in eager mode."""
    if _is_compiling() or _dispatch_modes() > 0:
        return False
    return _transforms_active() or forward_ad._current_level >= 0


def functional(where: str, *tensors: Tensor) -> bool:
    """Whether a transform of torch.func follows the calls in eager mode; refuses its forward gradients."""
    if not transformed():
        return False
    if forward_ad._current_level < 0:
        return True
    if any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors):
        raise refusal("unsupported", f"{where}: forward gradients (jvp, jacfwd, hessian) are not supported: use jacrev")
    return False


def unfollowed() -> bool:
    """Whether nothing follows the calls of torch: no tracer, no dispatch mode, no transform of torch.func."""
    return not (
        _is_compiling()
        or _dispatch_modes() > 0
        or _transforms_active()
        or forward_ad._current_level >= 0
        or _is_tracing()
    )


def direct(*tensors: Tensor | None) -> bool:
    """Whether _core can be called without a custom op: plain CPU tensors, and nothing that follows the calls of torch
    (a tracer, a dispatch mode, torch.func, forward gradients), which would not see it."""
    if not unfollowed():
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or not tensor.is_cpu):
            return False
    return True


def needs_grad(*tensors: Tensor | None) -> bool:
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def detached(x: Tensor) -> Tensor:
    return x.detach() if x.requires_grad else x


def applied(function: type[Function], *arguments: object) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def bare(tensor: Tensor) -> Tensor:
    """The tensor detached and, if it is dense, contiguous along the last axis: what _core takes."""
    tensor = tensor.detach()
    dense = tensor.layout == torch.strided and not tensor.is_nested
    return tensor.contiguous() if dense and tensor.stride(-1) != 1 else tensor


def room_like(x: Tensor) -> Tensor:
    """An empty tensor of x's shape: in x's memory order if that is contiguous along the last axis, else row-major."""
    room = torch.empty_like(x)
    return room if room.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def new_memory_like(x: Tensor) -> Tensor:
    """room_like() of a CPU tensor, to be written at once: in huge pages if it is large."""
    room = room_like(x)
    _core._prefer_huge_pages(room)
    return room


def spread(x: Tensor, axis: int | None, size: int) -> Tensor:
    """x with the axis of vmap in front."""
    return x.expand(size, *x.shape) if axis is None else x.movedim(axis, 0)


def folded(x: Tensor, axis: int | None, size: int) -> Tensor:
    """x [., ., dim] or [batch, ., ., dim] with the axis of vmap made part of the batch."""
    x = spread(x, axis, size)
    return x if x.dim() == 4 else x.flatten(0, 1)


def without(x: Tensor, axis: int | None) -> list[int]:
    shape = list(x.shape)
    if axis is not None:
        del shape[axis]
    return shape


def exact_or_own(exact: Tensor, kept: Tensor) -> Tensor:
    """float64 on the CPU: the exact numbers where a module keeps them rounded, else those that were trained, loaded or
    set. A module on meta has none of its own."""
    if kept.is_meta:
        return exact
    kept = kept.detach().cpu()
    return torch.where(kept == exact.to(kept.dtype), exact, kept.to(torch.float64))


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a function of constants that torch.compile calls while tracing."""
    torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return function


# torch.compile then guards on the value of a spec instead of failing on an opaque object.
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
    """The spec of spec_text(); cached, so that the spec keeps its last resolved rotation."""
    return RopeSpec(**json.loads(text))


@constant
def amplitude_of(text: str, context: int | None) -> float:
    return spec_of(text).frequencies(context)[1]
