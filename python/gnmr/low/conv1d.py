# SPDX-License-Identifier: Apache-2.0
"""Our own low path of GPT-2's Conv1D (transformers): a linear layer whose weight lies as [inputs, outputs].

Goals: operands are quantized as those of torch.nn.Linear with the transposed weight, along the same axes, to the same
bits; the high path is the layer's own kernel, bit for bit. Non-goals: importing transformers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnmr.low.front_end import CONV1D
from gnmr.low.instance_forward import switch_of
from gnmr.low.linear import LowLinear, run_layer


class LowConv1D(LowLinear):
    """The switch of one Conv1D; weights come and gradients go as [outputs, inputs], which is a view."""

    front_end = CONV1D

    @property
    def entry(self) -> Callable[..., Tensor]:
        return forward

    def plain(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        matrix = input.reshape(-1, self.inputs)
        assert bias is not None
        return torch.addmm(bias, matrix, weight.t()).view(*input.shape[:-1], self.outputs)


def forward(module: Any, x: Tensor) -> Tensor:
    """The `forward` of an instance that has a low path."""
    low: LowConv1D | None = switch_of(module)
    if low is None:
        plain: Tensor = type(module).forward(module, x)
        return plain
    return run_layer(low, x, module.weight.t(), module.bias)
