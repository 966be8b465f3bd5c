"""Attention under torch.func: grad, vjp, jacrev and vmap, which need functions with a separate setup_context.

vmap calls attention once for each element of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ._attention_ops import attention_backward_op, attention_op, linear_attention_backward_op, linear_attention_op, no_second
from ._common import applied
from ._encodings import held, held_objects


def _looped(function: type[Function], info: Any, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> Any:
    """The rule of vmap for any function."""

    def element(at: int) -> list[Any]:
        pairs = zip(inputs, in_dims, strict=True)
        return [x.select(axis, at) if isinstance(x, Tensor) and axis is not None else x for x, axis in pairs]

    calls = [applied(function, *element(at)) for at in range(info.batch_size)]
    if isinstance(calls[0], Tensor):
        return torch.stack(calls), 0
    stacked = tuple(torch.stack(parts) for parts in zip(*calls, strict=True))
    return stacked, (0,) * len(stacked)


class _Attention(Function):
    """(encoding, objects, table count, choices, q, k, v, tables, arrays) -> out, log_sum_exp."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        encoding, objects, count, choices, q, k, v, *rest = inputs
        return attention_op(q, k, v, list(rest[:count]), encoding, objects, *rest[count:], *choices)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.encoding, objects, ctx.count, ctx.choices, *tensors = inputs
        ctx.objects = held_objects(objects)
        ctx.save_for_backward(*output, *tensors)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        with held(ctx.objects) as numbers:
            found = applied(
                _AttentionBackward, ctx.encoding, numbers, ctx.count, ctx.choices, grads[0], *ctx.saved_tensors
            )
        return (*(None,) * 4, *found, *(None,) * (len(ctx.saved_tensors) - 2 - len(found)))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _looped(_Attention, info, in_dims, inputs)


class _AttentionBackward(Function):
    """(encoding, objects, table count, choices, d_out, out, log_sum_exp, q, k, v, tables, arrays) -> gradients."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        encoding, objects, count, choices, d_out, out, log_sum_exp, q, k, v, *rest = inputs
        tables, arrays = list(rest[:count]), rest[count:]
        return tuple(
            attention_backward_op(q, k, v, out, log_sum_exp, d_out, tables, encoding, objects, *arrays, *choices)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        pass

    backward = staticmethod(no_second("attention"))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _looped(_AttentionBackward, info, in_dims, inputs)


class _Linear(Function):
    """The arguments of linear_attention_op."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return linear_attention_op(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:6])
        ctx.choices = inputs[6:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, *arrays = ctx.saved_tensors
        return (*applied(_LinearBackward, q, k, v, grads[0], *arrays, *ctx.choices), *(None,) * 12)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _looped(_Linear, info, in_dims, inputs)


class _LinearBackward(Function):
    """The arguments of linear_attention_backward_op."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return linear_attention_backward_op(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        pass

    backward = staticmethod(no_second("linear_attention"))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _looped(_LinearBackward, info, in_dims, inputs)


def transformed_attention(
    qkv: Sequence[Tensor],
    tables: Sequence[Tensor],
    encoding: str,
    objects: str,
    arrays: Sequence[Tensor | None],
    choices: Sequence[object],
) -> Tensor:
    """The output of attention_op."""
    out: Tensor = applied(_Attention, encoding, objects, len(tables), tuple(choices), *qkv, *tables, *arrays)[0]
    return out


def transformed_linear_attention(*arguments: object) -> Tensor:
    """The output of linear_attention_op, with its arguments."""
    out: Tensor = applied(_Linear, *arguments)
    return out


__all__ = ["transformed_attention", "transformed_linear_attention"]
