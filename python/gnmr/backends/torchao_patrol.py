# SPDX-License-Identifier: Apache-2.0
"""A call of torchao's Float8Linear whose three GEMMs are compared with high ones by samples, beside the step.

Torchao's own forward and backward run between two places where we look: input and weight go in through a function that
passes them on, and whose backward gets their gradients for this call alone; a hook gets the gradient of the output.

Goals: results of the step are torchao's, bit for bit; nothing is kept for backward that torchao does not keep; each
call counts once, however often it is computed again. Non-goals: compiled blocks (gnmr.backends.torchao_compiled);
weights that are no plain tensors here (gathered in float8, tensor parallel): these calls are not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from gnmr.backends.torchao_float8 import Float8Switch

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def can_be_sampled(module: nn.Linear, input: Tensor) -> bool:
    """Whether a call has plain operands, of a type that we know."""
    operands = (input, module.weight)
    return all(type(one) in (Tensor, nn.Parameter) and one.dtype in _TYPES for one in operands)


def sampled_forward(switch: Float8Switch, input: Tensor) -> Tensor:
    """torchao's own result."""
    if torch.is_autocast_enabled():
        # What torchao does with it first, so that the same tensor is kept once.
        input = input.to(torch.get_autocast_dtype("cuda"))
    weight, bias = switch.module.weight, switch.module.bias
    call = _Call(switch)
    inner_input, inner_weight = _Entry.apply(input, weight, call)  # type: ignore[no-untyped-call]
    made: Tensor = type(switch.module).forward(Layer(switch.module, inner_weight), inner_input)
    if switch.counts_forward(torch._C._current_graph_task_id() >= 0):
        compare(switch, FORWARD, made if switch.factor is None else made * switch.factor, input, weight)
    if made.requires_grad:
        made.register_hook(call.take_gradient)  # type: ignore[no-untyped-call]
    # Hooks of others on the result do not come before ours.
    result: Tensor = torch.ops.aten._unsafe_view.default(made, made.shape)
    if bias is not None:
        result = result + bias.to(result.dtype)
    return result if switch.factor is None else result * switch.factor


def compare(switch: Float8Switch, product: int, low: Tensor, left: Tensor, right: Tensor) -> None:
    """The result of a GEMM with what the high path would make of its operands."""
    # Selective checkpointing counts the operators of a forward, and these are not made again.
    with torch.no_grad(), _disable_current_modes(), torch.autocast(left.device.type, enabled=False):
        switch.add_sampled_error(product, low, left, right)


class Layer:
    """A layer as its forward sees it, with another tensor in the place of its weight, and no bias."""

    bias = None

    def __init__(self, module: nn.Linear, weight: Any) -> None:
        self._module, self.weight = module, weight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Call:
    """One call, from its forward to its backward."""

    def __init__(self, switch: Float8Switch) -> None:
        self._switch = switch
        self._factor = switch.factor
        self._gradient: Tensor | None = None  # of the output

    def take_gradient(self, gradient: Tensor) -> None:
        """On its way to torchao's backward."""
        self._gradient = gradient if self._factor is None else gradient / self._factor

    def compare_gradients(
        self, to_input: Tensor | None, to_weight: Tensor | None, input: Tensor, weight: Tensor
    ) -> None:
        """What torchao's backward has made, if it is wanted."""
        gradient, self._gradient = self._gradient, None
        if gradient is None or not self._switch.patrolled:
            return
        if to_input is not None:
            compare(self._switch, INPUT_GRADIENT, to_input, gradient, weight)
        if to_weight is not None:
            compare(self._switch, WEIGHT_GRADIENT, to_weight, gradient, input)


class _Entry(torch.autograd.Function):
    """Input and weight on their way to torchao; both gradients come back together."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input, weight)
        made = input.view_as(input), weight.view_as(weight)
        ctx.mark_non_differentiable(*(one for one, wants in zip(made, ctx.needs_input_grad, strict=False) if not wants))
        return made

    @staticmethod
    def backward(
        ctx: Any, to_input: Tensor | None, to_weight: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        ctx.call.compare_gradients(to_input, to_weight, *ctx.saved_tensors)
        return to_input, to_weight, None
