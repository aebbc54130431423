# SPDX-License-Identifier: Apache-2.0
"""Which modules are linear layers: torch.nn.Linear, and GPT-2's Conv1D of transformers, whose weight is [inputs,
outputs].

Goals: the rest of the package asks here and sees one layout, [outputs, inputs]; transformers is not imported, because
classes are known by their names. Non-goals: low paths (gnmr.low.linear, gnmr.low.conv1d).
"""

from typing import Any

from torch import nn


def linear_class(module: nn.Module) -> Any:
    """The class that makes the module a linear layer: torch.nn.Linear or transformers' Conv1D; None: it is none."""
    if isinstance(module, nn.Linear):
        return nn.Linear
    return next(
        (
            one
            for one in type(module).__mro__
            if one.__name__ == "Conv1D" and one.__module__.partition(".")[0] == "transformers"
        ),
        None,
    )


def is_linear(module: nn.Module) -> bool:
    """Whether the module multiplies by one matrix, and is known to."""
    return linear_class(module) is not None


def is_transposed(module: nn.Module) -> bool:
    """Whether a linear layer keeps its weight as [inputs, outputs]."""
    return linear_class(module) is not nn.Linear


def shape_of(module: nn.Module) -> tuple[int, int]:
    """Outputs and inputs of a linear layer."""
    layer: Any = module
    if not is_transposed(module):
        return layer.out_features, layer.in_features
    inputs, outputs = layer.weight.shape
    return outputs, inputs


def linear_cost(module: nn.Module) -> int:
    """Multiply-adds per token, of forward and backward together."""
    outputs, inputs = shape_of(module)
    return max(3 * inputs * outputs, 1)


def has_own_forward(module: nn.Module) -> bool:
    """Whether a class derived from a linear layer computes something else."""
    return type(module).forward is not linear_class(module).forward
