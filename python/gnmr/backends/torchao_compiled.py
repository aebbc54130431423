# SPDX-License-Identifier: Apache-2.0
"""torchao's Float8Linear for compilers: `torch.ops.gnmr.float8_linear_1` and its backward.

While all layers of a block run low and none is compared, a compiler sees torchao's own code. Else the block holds these
operators as they are, and passes each the number of its layer: what its switch says is looked up when it runs, so one
graph serves every recovery set and every turn of the patrol (gnmr.low.neighbours).

Goals: results are those of the same layer uncompiled; a backward takes the path of its forward, which the forward
writes down. Non-goals: speed: torchao's backward needs its forward once more; weights that are no plain tensors here
(gathered in float8, tensor parallel): compilers guard on the flag of each such layer, and no patrol measures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from gnmr.backends.torchao_patrol import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Layer, can_be_sampled, compare
from gnmr.low.casts import operators, without_autocast
from gnmr.low.layer_handles import layer_of

if TYPE_CHECKING:
    from gnmr.backends.torchao_float8 import Float8Switch

_AUTOGRAD = tuple(
    getattr(torch._C.DispatchKey, name)
    for name in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")
)

# Compilers keep code on disk by the names of operators: one whose results change gets another name.
operators.define(  # type: ignore[no-untyped-call]
    "float8_linear_1(Tensor input, Tensor weight, Tensor? bias, Tensor layer, bool trains)"
    " -> (Tensor result, Tensor is_high)",
    tags=(torch.Tag.cudagraph_unsafe,),
)
operators.define(  # type: ignore[no-untyped-call]
    "float8_linear_1_backward(Tensor gradient, Tensor input, Tensor weight, Tensor is_high, Tensor layer,"
    " bool wants_input, bool wants_weight, bool wants_bias) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.cudagraph_unsafe,),
)


def compiled_forward(switch: Float8Switch, input: Tensor) -> Tensor:
    """As a compiler sees the layer."""
    module, trains = switch.module, torch.is_grad_enabled()
    if not can_be_sampled(module, input):
        return switch.high_forward(input) if switch.high else switch.low_forward(input)
    result: Tensor
    if switch.neighbours.trains_calm if trains else switch.neighbours.calm:
        result = type(module).forward(module, input)
        return result
    if torch.is_autocast_enabled():
        input = input.to(torch.get_autocast_dtype("cuda"))  # as torchao
    result = torch.ops.gnmr.float8_linear_1(input, module.weight, module.bias, switch.handle, trains)[0]
    return result


@contextmanager
def _as_uncompiled(input: Tensor) -> Iterator[None]:
    """Torch's operators run as outside of an operator of ours, whose kernels are below autograd: torchao's tensors know
    what these are made of. Autocast has done its part."""
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        exclude = exclude.remove(key)
    with (
        torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude),
        torch.no_grad(),
        without_autocast("cuda"),
        without_autocast(input.device.type),
    ):
        yield


def _low(switch: Float8Switch, input: Tensor, weight: Tensor) -> Tensor:
    """torchao's GEMM, without the bias and planted faults."""
    module = switch.module
    result: Tensor = type(module).forward(Layer(module, weight), input)
    return result


def _with_rest(switch: Float8Switch, made: Tensor, bias: Tensor | None) -> Tensor:
    result = made if bias is None else made + bias.to(made.dtype)
    return result if switch.factor is None else result * switch.factor


def _float8_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, layer: Tensor, trains: bool
) -> tuple[Tensor, Tensor]:
    switch: Float8Switch = layer_of(layer)
    if trains:
        switch.note_call()
    is_high = switch.high or switch.comparing
    with _as_uncompiled(input):
        if is_high:
            same_type = None if bias is None else bias.to(input.dtype)
            result = functional.linear(input, weight.to(input.dtype), same_type)
            if switch.comparing and trains:
                switch.add_error(FORWARD, _with_rest(switch, _low(switch, input, weight), bias), result)
        else:
            made = _low(switch, input, weight)
            if switch.patrolled and trains and switch.counts_forward(torch._C._current_graph_task_id() >= 0):
                compare(switch, FORWARD, _with_rest(switch, made, None), input, weight)
            result = _with_rest(switch, made, bias)
    return result.to(input.dtype).contiguous(), torch.tensor(is_high, device="cpu")


def _float8_linear_shape(
    input: Tensor, weight: Tensor, bias: Tensor | None, layer: Tensor, trains: bool
) -> tuple[Tensor, Tensor]:
    result = input.new_empty((*input.shape[:-1], weight.shape[0]))
    return result, torch.empty((), dtype=torch.bool, device="cpu")


def _low_gradients(switch: Float8Switch, gradient: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """By torchao's own backward; and what the gradient is with a planted fault."""
    with torch.enable_grad():
        leaves = input.detach().requires_grad_(), weight.detach().requires_grad_()
        made = _low(switch, *leaves)
    scaled = gradient if switch.factor is None else gradient * switch.factor
    return *torch.autograd.grad(made, leaves, scaled), scaled


def _float8_linear_backward(
    gradient: Tensor,
    input: Tensor,
    weight: Tensor,
    is_high: Tensor,
    layer: Tensor,
    wants_input: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    switch: Float8Switch = layer_of(layer)
    to_input = to_weight = empty = gradient.new_empty(0)
    to_result = gradient
    with _as_uncompiled(input):
        if bool(is_high):
            rows, matrix = gradient.reshape(-1, weight.shape[0]), input.reshape(-1, weight.shape[1])
            if wants_input:
                to_input = torch.mm(rows, weight.to(rows.dtype)).view(input.shape)
            if wants_weight:
                to_weight = torch.mm(rows.t(), matrix)
            if switch.comparing:
                low_input, low_weight, _ = _low_gradients(switch, gradient, input, weight)
                if wants_input:
                    switch.add_error(INPUT_GRADIENT, low_input, to_input)
                if wants_weight:
                    switch.add_error(WEIGHT_GRADIENT, low_weight, to_weight)
        else:
            to_input, to_weight, to_result = _low_gradients(switch, gradient, input, weight)
            if switch.patrolled and wants_input:
                compare(switch, INPUT_GRADIENT, to_input, gradient, weight)
            if switch.patrolled and wants_weight:
                compare(switch, WEIGHT_GRADIENT, to_weight, gradient, input)
    return (
        to_input.contiguous() if wants_input else empty,
        to_weight.to(weight.dtype).contiguous() if wants_weight else empty.clone(),
        to_result.reshape(-1, weight.shape[0]).sum(0) if wants_bias else empty.clone(),
    )


def _float8_linear_backward_shape(
    gradient: Tensor,
    input: Tensor,
    weight: Tensor,
    is_high: Tensor,
    layer: Tensor,
    wants_input: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    nothing = gradient.new_empty(0)
    return (
        torch.empty_like(input, memory_format=torch.contiguous_format) if wants_input else nothing,
        torch.empty_like(weight, memory_format=torch.contiguous_format) if wants_weight else nothing.clone(),
        gradient.new_empty(weight.shape[0]) if wants_bias else nothing.clone(),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    input, weight, bias, layer, _ = inputs
    ctx.bias_type = None if bias is None else bias.dtype
    ctx.save_for_backward(input, weight, output[1], layer)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, gradient: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    wants = ctx.needs_input_grad[:3]
    made = torch.ops.gnmr.float8_linear_1_backward(gradient, *ctx.saved_tensors, *wants)
    to_input, to_weight, to_bias = (one if wanted else None for one, wanted in zip(made, wants, strict=True))
    return to_input, to_weight, None if to_bias is None else to_bias.to(ctx.bias_type), None, None


for _name, _run, _shape in (
    ("float8_linear_1", _float8_linear, _float8_linear_shape),
    ("float8_linear_1_backward", _float8_linear_backward, _float8_linear_backward_shape),
):
    for _device in ("CPU", "CUDA"):
        operators.impl(_name, _run, _device)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"gnmr::{_name}", _shape, lib=operators)
torch.library.register_autograd("gnmr::float8_linear_1", _backward, setup_context=_save, lib=operators)
