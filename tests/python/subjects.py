# SPDX-License-Identifier: Apache-2.0
"""Models of three backends for the conformance suite: our own low linear, torchao's layer, a user's module."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from devices import DEVICE, needs_own_low_path, to_float8
from gnmr.checks.conformance import Subject
from gnmr.checks.doctor import float8_layers_as_linear
from gnmr.checks.planted_faults import planted_fault
from small_model import batch, make_model
from torch import Tensor, nn
from torch.nn import functional


def loss_of(model: nn.Module) -> Tensor:
    inputs, targets = batch(1)
    return functional.cross_entropy(model(inputs), targets)


def our_subject(recipe: str = "fp8-tensorwise", dropout: float = 0.0) -> Subject:
    needs_own_low_path(recipe)
    return Subject(make_model(blocks=2, dropout=dropout), loss_of, recipe=recipe, plant=planted_fault)


def torchao_subject(**config: object) -> Subject:
    model = make_model(blocks=2)
    to_float8(model, **config)
    return Subject(model, loss_of, reference=float8_layers_as_linear, plant=planted_fault)


class RoundedLinear(nn.Linear):
    """A user's own module: bfloat16 products beside float32 ones, with a flag."""

    low = True

    def forward(self, input: Tensor) -> Tensor:
        if not self.low:
            return functional.linear(input, self.weight, self.bias)
        small = functional.linear(input.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16())
        return small.float()


class RoundedSwitch:
    def __init__(self, module: RoundedLinear) -> None:
        self.module = module
        self.cost = 3 * module.weight.numel()

    def set_high(self, high: bool) -> None:
        self.module.low = not high


@contextmanager
def without_rounding(model: nn.Module) -> Iterator[None]:
    layers = [module for module in model.modules() if isinstance(module, RoundedLinear)]
    for layer in layers:
        layer.forward = nn.Linear.forward.__get__(layer)
    yield
    for layer in layers:
        del layer.forward


def user_subject() -> Subject:
    torch.manual_seed(0)
    model = nn.Sequential(RoundedLinear(32, 64), nn.GELU(), RoundedLinear(64, 32), nn.GELU(), nn.Linear(32, 8))
    return Subject(model.to(DEVICE), loss_of, reference=without_rounding, options={"deny": ["4"]})
