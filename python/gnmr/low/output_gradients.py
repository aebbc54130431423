# SPDX-License-Identifier: Apache-2.0
"""The gradient of a module's output, measured on its way back: the norm of a unit in which nothing is trained.

Goals: neither the output nor its gradient is changed; in eager mode nothing is copied; compiled blocks stay whole.
Non-goals: what is done with the norm (gnmr.norms.measuring).
"""

from typing import Any

import torch
from torch import Tensor

from gnmr.low.casts import operators
from gnmr.low.layer_handles import layer_of
from gnmr.low.layer_switch import LayerSwitch

# Compilers keep code on disk by the names of operators: one whose results change gets another name.
operators.define(  # type: ignore[no-untyped-call]
    "measured_gradient_1(Tensor gradient, Tensor layer) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,)
)


def _measured(gradient: Tensor, layer: Tensor) -> Tensor:
    layer_of(layer).measure_output(gradient)
    return gradient.clone()  # an operator's results are its own


for _device in ("CPU", "CUDA"):
    operators.impl("measured_gradient_1", _measured, _device)  # type: ignore[no-untyped-call]
torch.library.register_fake(
    "gnmr::measured_gradient_1", lambda gradient, layer: torch.empty_like(gradient), lib=operators
)


class _Measured(torch.autograd.Function):
    """As compilers see it: hooks on what a graph makes within would break the graph."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, layer: Tensor) -> Tensor:
        ctx.save_for_backward(layer)
        return output.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.ops.gnmr.measured_gradient_1(gradient, *ctx.saved_tensors), None


def with_measured_gradient(switch: LayerSwitch[Any], output: Tensor) -> Tensor:
    """The output of a switch's module; its gradient is measured where that is the unit's norm."""
    if not (switch.measures_output and output.requires_grad):
        return output
    if torch.compiler.is_compiling():
        result: Tensor = _Measured.apply(output, switch.handle)  # type: ignore[no-untyped-call]
        return result
    output.register_hook(switch.measure_output)  # type: ignore[no-untyped-call]
    return output
