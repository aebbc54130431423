# SPDX-License-Identifier: Apache-2.0
"""Our low path for compilers: `torch.ops.gnmr.low_linear_4` and its backward.

While all layers of a block run low and nothing else is wanted of them (no patrol either), a compiler sees
quantizations and GEMMs one by one (gnmr.low.traced). Else the block holds these operators as they are and passes each
the number of its layer as a tensor. What the layer's switch says and its low path's state is looked up when the
operator runs: one graph serves every recovery set, and all blocks of one shape share it.

What the forward keeps for backward has the same shapes on both paths: a place for the quantized input and one for the
input itself. The one that is not filled holds no memory: it is a tensor of its shape whose storage is empty, which
nobody reads. Tensors alone hold what is kept, so it lives as long as autograd, or whoever makes activations again,
wants it.

Goals: no recompilation, whatever is switched; a backward takes the path of its forward, which the forward writes down.
Non-goals: fusion with what stands around the layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from gnmr import _core
from gnmr.low import fp8_matrix, traced
from gnmr.low.casts import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, operators, recipe_of
from gnmr.low.layer_handles import layer_of

if TYPE_CHECKING:
    from gnmr.low.linear import LowLinear

#: As the operators pass them on.
_PATHS = (_core.LayerPath.low, _core.LayerPath.recovery, _core.LayerPath.high)

# Compilers keep code on disk by the names of operators: one whose results change gets another name.
operators.define(  # type: ignore[no-untyped-call]
    "low_linear_4(Tensor matrix, Tensor weight, Tensor layer, str recipe, bool trains)"
    " -> (Tensor result, Tensor kept_input, Tensor input_scales, Tensor kept_weight, Tensor weight_scales,"
    " Tensor plain_input, Tensor path)",
    tags=(torch.Tag.cudagraph_unsafe,),
)
operators.define(  # type: ignore[no-untyped-call]
    "low_linear_4_backward(Tensor gradient, Tensor weight, Tensor kept_input, Tensor input_scales, Tensor kept_weight,"
    " Tensor weight_scales, Tensor plain_input, Tensor path, Tensor layer, bool wants_input, bool wants_weight)"
    " -> (Tensor, Tensor)",
    tags=(torch.Tag.cudagraph_unsafe,),
)


def _keeps(recipe: str, matrix: Tensor) -> tuple[bool, bool]:
    """Whether backward can use the quantized input and weight of the forward."""
    rules, codes = recipe_of(recipe), fp8_matrix.makes_codes(matrix)
    return (
        rules.shares_cast(FORWARD, 0, WEIGHT_GRADIENT, 1, codes),
        rules.shares_cast(FORWARD, 1, INPUT_GRADIENT, 1, codes),
    )


def _nothing(like: Tensor) -> Tensor:
    return like.new_empty(0, dtype=torch.float32)


def _room(recipe: str, place: int, operand: Tensor, keeps: bool) -> tuple[Tensor, Tensor]:
    """Tensors with the layout of what is kept of a quantized operand: numbers, or FP8 data and scales."""
    if not keeps:
        return _nothing(operand), _nothing(operand)
    if not fp8_matrix.makes_codes(operand):
        return operand.new_empty(operand.shape, dtype=torch.float32), _nothing(operand)
    rules = recipe_of(recipe)
    rows, columns = operand.shape
    scales = fp8_matrix.scale_shape(rules.fp8_groups(FORWARD, place), columns, rows)
    return (
        operand.new_empty((columns, rows), dtype=fp8_matrix.code_type(rules, FORWARD, place)),
        operand.new_empty(scales, dtype=torch.float32),
    )


def _without_memory(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same shapes with empty storages, unless somebody may copy what is saved for backward (offloading does)."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        for tensor in tensors:
            tensor.untyped_storage().resize_(0)
    return tensors


def _kept(low: LowLinear, place: int, operand: Tensor, made: list[Tensor | None], keeps: bool) -> tuple[Tensor, Tensor]:
    """A quantized operand (numbers, or FP8 data and scales) with the promised layout; or room without memory."""
    numbers, codes, scales = made
    if keeps and codes is not None and scales is not None:
        return codes, scales
    if keeps and numbers is not None:
        # An operator's results are its own: never its operands under another name.
        return numbers.to(torch.float32, copy=numbers is operand).contiguous(), _nothing(operand)
    room = _room(low.recipe, place, operand, keeps)
    if keeps:
        _without_memory(room)
    return room


def _low_linear(matrix: Tensor, weight: Tensor, layer: Tensor, recipe: str, trains: bool) -> tuple[Tensor, ...]:
    low: LowLinear = layer_of(layer)
    keeps_input, keeps_weight = (keeps and trains for keeps in _keeps(recipe, matrix))
    result, parts = low.forward_gemm(matrix, weight, trains, (keeps_input, keeps_weight))
    plain = _nothing(matrix)
    if keeps_input and low.runs_low and not low.patrolled:
        plain = _without_memory((torch.empty_like(matrix, memory_format=torch.contiguous_format),))[0]
    elif keeps_input:
        plain = matrix.clone(memory_format=torch.contiguous_format)
    return (
        result,
        *_kept(low, 0, matrix, parts[5:8], keeps_input),
        *_kept(low, 1, weight, parts[2:5], keeps_weight),
        plain,
        torch.tensor(_PATHS.index(low.path_now), device="cpu"),
    )


def _low_linear_shape(matrix: Tensor, weight: Tensor, layer: Tensor, recipe: str, trains: bool) -> tuple[Tensor, ...]:
    keeps_input, keeps_weight = (keeps and trains for keeps in _keeps(recipe, matrix))
    return (
        matrix.new_empty((matrix.shape[0], weight.shape[0])),
        *_room(recipe, 0, matrix, keeps_input),
        *_room(recipe, 1, weight, keeps_weight),
        matrix.new_empty(matrix.shape) if keeps_input else _nothing(matrix),
        torch.empty((), dtype=torch.int64, device="cpu"),
    )


def _low_linear_backward(
    gradient: Tensor,
    weight: Tensor,
    kept_input: Tensor,
    input_scales: Tensor,
    kept_weight: Tensor,
    weight_scales: Tensor,
    plain_input: Tensor,
    path: Tensor,
    layer: Tensor,
    wants_input: bool,
    wants_weight: bool,
) -> tuple[Tensor, Tensor]:
    low: LowLinear = layer_of(layer)
    keeps_input, keeps_weight = _keeps(low.recipe, gradient)
    codes, taken = fp8_matrix.makes_codes(gradient), _PATHS[int(path)]
    runs_low = taken == _core.LayerPath.low

    def quantized(values: Tensor, scales: Tensor) -> list[Tensor | None]:
        return [None, values, scales] if codes else [values, None, None]

    nothing: list[Tensor | None] = [None] * 3
    kept = plain_input if keeps_input else kept_input
    has_memory = kept.numel() == 0 or kept.untyped_storage().nbytes() > 0
    parts = [
        weight,
        None,
        *(quantized(kept_weight, weight_scales) if runs_low and keeps_weight else nothing),
        *(quantized(kept_input, input_scales) if runs_low and keeps_input else nothing),
        kept if has_memory else None,
        None,
    ]
    to_input, to_weight = low.backward_gemms(parts, taken, gradient, wants_input, wants_weight)
    empty = gradient.new_empty(0)
    return (
        empty if to_input is None else to_input.contiguous(),
        empty.clone() if to_weight is None else to_weight.contiguous(),
    )


def _low_linear_backward_shape(
    gradient: Tensor,
    weight: Tensor,
    kept_input: Tensor,
    input_scales: Tensor,
    kept_weight: Tensor,
    weight_scales: Tensor,
    plain_input: Tensor,
    path: Tensor,
    layer: Tensor,
    wants_input: bool,
    wants_weight: bool,
) -> tuple[Tensor, Tensor]:
    return (
        gradient.new_empty((gradient.shape[0], weight.shape[1]) if wants_input else (0,)),
        gradient.new_empty(weight.shape if wants_weight else (0,)),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    matrix, weight, layer, recipe, _ = inputs
    _, kept_input, *others = output
    ctx.save_for_backward(weight, kept_input if _keeps(recipe, matrix)[0] else matrix, *others, layer)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, gradient: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    wants_input, wants_weight = ctx.needs_input_grad[:2]
    to_input, to_weight = torch.ops.gnmr.low_linear_4_backward(gradient, *ctx.saved_tensors, wants_input, wants_weight)
    return to_input if wants_input else None, to_weight if wants_weight else None, None, None, None


for _name, _run, _shape in (
    ("low_linear_4", _low_linear, _low_linear_shape),
    ("low_linear_4_backward", _low_linear_backward, _low_linear_backward_shape),
):
    for _device in ("CPU", "CUDA"):
        operators.impl(_name, _run, _device)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"gnmr::{_name}", _shape, lib=operators)
torch.library.register_autograd("gnmr::low_linear_4", _backward, setup_context=_save, lib=operators)


def as_autocast(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """A layer's operands in the type of torch.autocast, which leaves float64 alone."""
    dtype = torch.get_autocast_dtype(input.device.type)
    if input.dtype is not torch.float64:
        input = input.to(dtype)
    if weight.dtype is not torch.float64:
        weight = weight.to(dtype)
    if bias is not None and bias.dtype is not torch.float64:
        bias = bias.to(dtype)
    return input, weight, bias


def are_alike(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether operands have one type. A plain layer refuses others, so the low path must not take them: its high path
    would refuse them later."""
    return input.dtype == weight.dtype and (bias is None or bias.dtype == weight.dtype)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear) -> Tensor:
    """The layer as a compiler sees it: switching makes two variants of what it compiles for other reasons."""
    trains = torch.is_grad_enabled()
    if torch.is_autocast_enabled(input.device.type):
        input, weight, bias = as_autocast(input, weight, bias)
    if not are_alike(input, weight, bias):
        return functional.linear(input, weight, bias)
    matrix = input.reshape(-1, weight.shape[1])
    result: Tensor
    if low.is_calm(input.device, trains):
        result = traced.product(matrix, weight, low.handle, traced.kinds[low.kind], trains)
    else:
        result = torch.ops.gnmr.low_linear_4(matrix, weight, low.handle, low.recipe, trains)[0]
    result = result.view(*input.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias
