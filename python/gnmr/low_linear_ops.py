# SPDX-License-Identifier: Apache-2.0
"""Our low path for compilers: `torch.ops.gnmr.low_linear` and its backward.

A compiled block holds these operators as they are and passes each the number of its layer as a tensor. What the layer's
switch says, what its low path remembers and what a trial measures is looked up when the operator runs: one graph serves
every recovery set, and all blocks of one shape share it.

Goals: no recompilation, whatever is switched; a backward takes the path of its forward, which the forward writes down.
Non-goals: fusion with what stands around the layer.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.casts import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, operators, recipe_of

if TYPE_CHECKING:
    from gnmr.low_linear import LowLinear

_numbers = count(1)
_layers: WeakValueDictionary[int, LowLinear] = WeakValueDictionary()

operators.define(  # type: ignore[no-untyped-call]
    "low_linear(Tensor matrix, Tensor weight, Tensor layer, str recipe, bool trains)"
    " -> (Tensor result, Tensor kept_input, Tensor kept_weight, Tensor path)"
)
operators.define(  # type: ignore[no-untyped-call]
    "low_linear_backward(Tensor gradient, Tensor weight, Tensor kept_input, Tensor kept_weight, Tensor path,"
    " Tensor layer, bool wants_input, bool wants_weight) -> (Tensor, Tensor)"
)


def new_handle(low: LowLinear) -> Tensor:
    """The number of a layer, as a tensor: compilers take it as an input and do not look at its value."""
    number = next(_numbers)
    _layers[number] = low
    return torch.tensor(number)


def _layer_of(handle: Tensor) -> LowLinear:
    low = _layers.get(int(handle))
    if low is None:
        raise Error("low_linear: expected a layer that is attached; a compiled block outlived its control")
    return low


def _keeps(recipe: str) -> tuple[bool, bool]:
    """Whether backward can use the forward's casts of input and weight."""
    rules = recipe_of(recipe)
    return rules.shares_cast(FORWARD, 0, WEIGHT_GRADIENT, 1), rules.shares_cast(FORWARD, 1, INPUT_GRADIENT, 1)


def _kept(cast: Tensor | None, plain: Tensor, keeps: bool) -> Tensor:
    """A cast with the layout that was promised; where the high path ran, the operand itself in its place."""
    if not keeps:
        return plain.new_empty(0, dtype=torch.float32)
    # An operator's results are its own: never its operands under another name.
    return (plain if cast is None else cast).to(torch.float32, copy=cast is None or cast is plain).contiguous()


def _low_linear(matrix: Tensor, weight: Tensor, layer: Tensor, recipe: str,
                trains: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from gnmr.low_linear import forward_product

    keeps_input, keeps_weight = _keeps(recipe)
    result, runs_low, low_input, low_weight = forward_product(_layer_of(layer), matrix, weight, trains)
    # The high path never asks for the cast of the weight: one that has its shape is not filled.
    kept_weight = torch.empty(weight.shape, dtype=torch.float32) if keeps_weight and low_weight is None else \
        _kept(low_weight, weight, keeps_weight)
    return result, _kept(low_input, matrix, keeps_input), kept_weight, torch.tensor(runs_low)


def _low_linear_shape(matrix: Tensor, weight: Tensor, layer: Tensor, recipe: str,
                      trains: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    keeps_input, keeps_weight = _keeps(recipe)
    float32 = torch.float32
    return (matrix.new_empty((matrix.shape[0], weight.shape[0])),
            matrix.new_empty(matrix.shape if keeps_input else (0,), dtype=float32),
            weight.new_empty(weight.shape if keeps_weight else (0,), dtype=float32),
            torch.empty((), dtype=torch.bool))


def _low_linear_backward(gradient: Tensor, weight: Tensor, kept_input: Tensor, kept_weight: Tensor, path: Tensor,
                         layer: Tensor, wants_input: bool, wants_weight: bool) -> tuple[Tensor, Tensor]:
    from gnmr.low_linear import Saved, backward_products

    low = _layer_of(layer)
    keeps_input, keeps_weight = _keeps(low.recipe)
    runs_low = bool(path)
    saved = Saved(runs_low, weight, kept_weight if runs_low and keeps_weight else None, None, None)
    if runs_low and keeps_input:
        saved.low_input = kept_input
    else:
        saved.matrix = kept_input.to(gradient.dtype)
    to_input, to_weight = backward_products(low, saved, gradient, wants_input, wants_weight)
    nothing = gradient.new_empty(0)
    return (nothing if to_input is None else to_input.contiguous(),
            nothing.clone() if to_weight is None else to_weight.contiguous())


def _low_linear_backward_shape(gradient: Tensor, weight: Tensor, kept_input: Tensor, kept_weight: Tensor, path: Tensor,
                               layer: Tensor, wants_input: bool, wants_weight: bool) -> tuple[Tensor, Tensor]:
    return (gradient.new_empty((gradient.shape[0], weight.shape[1]) if wants_input else (0,)),
            gradient.new_empty(weight.shape if wants_weight else (0,)))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    matrix, weight, layer, recipe, _ = inputs
    _, kept_input, kept_weight, path = output
    ctx.save_for_backward(weight, kept_input if _keeps(recipe)[0] else matrix, kept_weight, path, layer)
    ctx.mark_non_differentiable(kept_input, kept_weight, path)


def _backward(ctx: Any, gradient: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    weight, kept_input, kept_weight, path, layer = ctx.saved_tensors
    wants_input, wants_weight = ctx.needs_input_grad[:2]
    to_input, to_weight = torch.ops.gnmr.low_linear_backward(gradient, weight, kept_input, kept_weight, path, layer,
                                                             wants_input, wants_weight)
    return to_input if wants_input else None, to_weight if wants_weight else None, None, None, None


for _name, _run, _shape in (("low_linear", _low_linear, _low_linear_shape),
                            ("low_linear_backward", _low_linear_backward, _low_linear_backward_shape)):
    operators.impl(_name, _run, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"gnmr::{_name}", _shape, lib=operators)
torch.library.register_autograd("gnmr::low_linear", _backward, setup_context=_save, lib=operators)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None, layer: Tensor, recipe: str) -> Tensor:
    """The layer as a compiler sees it."""
    device = input.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        input, weight, bias = input.to(dtype), weight.to(dtype), bias.to(dtype) if bias is not None else None
    matrix = input.reshape(-1, weight.shape[1])
    result: Tensor = torch.ops.gnmr.low_linear(matrix, weight, layer, recipe, torch.is_grad_enabled())[0]
    result = result.view(*input.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias
