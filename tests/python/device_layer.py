# SPDX-License-Identifier: Apache-2.0
"""A linear layer on a CUDA device beside the same one on the CPU, and what the CPU's casts leave of its operands."""

import copy
import math

import pytest
import torch
from gnmr.low.casts import cast_operand
from torch import Tensor, nn

import gnmr

#: The recipes that run on a GPU.
RECIPES = ["fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek"]
PLACES = [(product, place) for product in range(3) for place in range(2)]
DTYPES = [torch.float32, torch.bfloat16]

needs_device = pytest.mark.skipif(
    not (torch.cuda.is_available() and gnmr.kernels_available()), reason="no CUDA device, or built without kernels"
)


def uneven(rows: int, columns: int, seed: int) -> Tensor:
    """Rows and columns of very different sizes, so that scales matter."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(rows, columns, generator=generator)
    plain *= torch.exp2(torch.randint(-4, 4, (columns,), generator=generator))
    return plain * torch.exp2(torch.randint(-3, 3, (rows, 1), generator=generator))


def off(found: Tensor, expected: Tensor) -> float:
    """How far a tensor is from another, relative to that, as numbers on the CPU."""
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    return float((found - expected).norm() / expected.norm())


def attach(model: nn.Module, recipe: str | None, **options: object) -> gnmr.Control:
    """Each step is decided by its own numbers."""
    return gnmr.attach(model, recipe=recipe, quiet=True, strict=True, lag=0, **options)


class Layer:
    """A linear layer, an input and the gradient of its output, of numbers that both types have."""

    def __init__(
        self, tokens: tuple[int, ...], inputs: int, outputs: int, dtype: torch.dtype, bias: bool = True
    ) -> None:
        count = math.prod(tokens)
        self.model = nn.Sequential(nn.Linear(inputs, outputs, bias=bias))
        with torch.no_grad():
            self.model[0].weight.copy_((0.1 * uneven(outputs, inputs, 3)).bfloat16())
            if bias:
                self.model[0].bias.copy_(torch.linspace(-1, 1, outputs).bfloat16())
        self.input = uneven(count, inputs, 4).bfloat16().float().view(*tokens, inputs)
        self.gradient = (1e-3 * uneven(count, outputs, 5)).bfloat16().float().view(*tokens, outputs)
        self.dtype = dtype

    def on_device(self) -> nn.Module:
        return copy.deepcopy(self.model).to("cuda", self.dtype)

    def run(self, model: nn.Module, between: object = None) -> list[Tensor]:
        """Output, gradient of the input and those of the parameters."""
        parameter = next(model.parameters())
        leaf = self.input.detach().to(parameter.device, parameter.dtype).requires_grad_(True)
        model.zero_grad()
        output = model(leaf)
        if callable(between):
            between()
        output.backward(self.gradient.to(output))
        return [output.detach(), leaf.grad, *(one.grad.clone() for one in model.parameters())]

    def expected(self, recipe: str) -> list[Tensor]:
        """The same of what the CPU's casts leave of the operands, in float64; without the bias's gradient."""
        module = self.model[0]
        rows, gradient = self.input.flatten(0, -2), self.gradient.flatten(0, -2)
        operands = ((rows, module.weight), (gradient, module.weight), (gradient, rows))
        cast = [
            [
                cast_operand(operand.detach(), recipe, product, place, 0.0, 0, 0).double()
                for place, operand in enumerate(pair)
            ]
            for product, pair in enumerate(operands)
        ]
        output = cast[0][0] @ cast[0][1].t()
        if module.bias is not None:
            output = output + module.bias.detach().double()
        return [
            output.view(self.gradient.shape),
            (cast[1][0] @ cast[1][1]).view(self.input.shape),
            cast[2][0].t() @ cast[2][1],
        ]
