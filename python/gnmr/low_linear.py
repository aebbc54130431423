# SPDX-License-Identifier: Apache-2.0
"""Our own low path of a linear layer: operands are cast as a recipe says, products are made of the numbers that remain.

The layer stays what it is: its class, its name, its parameters and its state dict do not change. Only the instance's
`forward` is replaced, and `remove` puts it back.

Goals: the bits of the C++ engine's low path; the path of a backward is that of its forward; copies and pickles of the
model are plain models. Non-goals: real low-precision products (this is an emulation on the CPU); deciding.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnmr import _core, instance_forward, low_linear_ops
from gnmr.casts import (
    FORWARD,
    INPUT,
    INPUT_GRADIENT,
    OUTPUT_GRADIENT,
    SUMS_OVER_ROWS,
    WEIGHT,
    WEIGHT_GRADIENT,
    cast_operand,
    finite_amax,
    recipe_of,
)
from gnmr.instance_forward import ForgottenInCopies, switch_of
from gnmr.product_errors import PLACES, ErrorSums, squared_norm
from gnmr.switches import ExtraBytes

@dataclass
class StepClock:
    """What all layers of a model have in common in a step: random numbers are a function of it."""

    seed: int = 0
    step: int = 0
    micro_batch: int = 0


def _product(product: int, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """The product of two operands as they are stored, in float32."""
    left_rows, right_rows = SUMS_OVER_ROWS[product]
    left, right = left.to(torch.float32), right.to(torch.float32)
    return torch.mm(left.t() if left_rows else left, right if right_rows else right.t()).to(dtype)


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """Products here have the types that they are given."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


class LowLinear(ForgottenInCopies):
    """The switch of one linear layer: measuring, installed, frugal (gnmr.switches)."""

    backend = "gnmr's low linear"
    high_is_exact = True

    def __init__(self, module: nn.Linear, recipe: str, layer: int, clock: StepClock) -> None:
        rules = recipe_of(recipe)
        self.module = module
        self.recipe = recipe
        self.rules = rules
        self.cost = 3 * module.in_features * module.out_features
        self.places: Sequence[str] = PLACES
        self.expected: Sequence[float] = [rules.expected_error(product) for product in range(3)]
        self.memory = _core.DelayedMemory(rules)
        self.remembers = any(self.memory.wants(operand) for operand in range(3))
        self.handle = low_linear_ops.new_handle(self)
        self.high = False
        self.comparing = False
        self.calls = 0  # of forward with gradients, since the step began
        self.output_square: float | None = None  # of the output's gradient, where that is the unit's norm
        self.measures_output = False
        self._errors = [ErrorSums() for _ in range(3)]
        self._layer = layer
        self._clock = clock
        self._shares_input = rules.shares_cast(FORWARD, 0, WEIGHT_GRADIENT, 1)
        self._shares_weight = rules.shares_cast(FORWARD, 1, INPUT_GRADIENT, 1)
        self._shares_gradient = rules.shares_cast(INPUT_GRADIENT, 0, WEIGHT_GRADIENT, 0)

    def install(self) -> None:
        """The layer has a low path from here on."""
        instance_forward.install(self.module, self, forward)

    def remove(self) -> None:
        """The layer is as it was."""
        instance_forward.remove(self.module)

    def set_high(self, high: bool) -> None:
        self.high = high
        self.comparing = False

    def begin_step(self) -> None:
        """Forgets what was measured in the last step, or in the first run of this one."""
        self.memory.begin_step()
        self.calls = 0
        self.output_square = None

    def end_step(self) -> None:
        self.memory.end_step()

    def begin_trial(self) -> None:
        self.begin_step()
        self._errors = [ErrorSums() for _ in range(3)]
        self.comparing = True

    def end_trial(self) -> Sequence[float]:
        self.comparing = False
        return [sums.error() for sums in self._errors]

    def error_squares(self) -> Sequence[tuple[float, float]]:
        """What the errors of the last trial are made of, to be added to those of other ranks."""
        return [(sums.difference, sums.reference) for sums in self._errors]

    def recovery_bytes(self) -> ExtraBytes:
        # The low path keeps casts in float32, the high one the operands, which are there anyway. In a compiled block
        # the input is copied, and takes the place of its cast.
        return ExtraBytes()

    def trial_bytes(self) -> ExtraBytes:
        inputs, outputs = self.module.in_features, self.module.out_features
        # Casts of two operands, the low product and its difference from the high one, in float32.
        return ExtraBytes(4 * 3 * inputs * outputs, 4 * (2 * inputs + 2 * outputs))

    def compare(self, product: int, low: Callable[[], Tensor], high: Tensor) -> None:
        """In a trial: what the low path would have made."""
        if self.comparing:
            self._errors[product].add(low(), high)

    def observe(self, operand: int, matrix: Tensor) -> None:
        """What the low path remembers goes on whatever path is taken."""
        if self.remembers and self.memory.wants(operand):
            self.memory.note(operand, finite_amax(matrix))

    def cast(self, product: int, place: int, matrix: Tensor) -> Tensor:
        """The operand as the low path of a product sees it."""
        if not self.rules.casts(product, place):
            return matrix
        scale = self.memory.scale(product, place) if self.remembers else 0.0
        return cast_operand(matrix, self.recipe, product, place, scale, self._seed(product, place),
                            self._seed(product, 2))

    def _seed(self, product: int, purpose: int) -> int:
        clock = self._clock
        return _core.cast_seed(clock.seed, clock.step, clock.micro_batch, self._layer, product, purpose)

    def low_forward(self, matrix: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The low product, and of the two casts those that backward can use."""
        low_input = self.cast(FORWARD, 0, matrix)
        low_weight = self.cast(FORWARD, 1, weight)
        result = _product(FORWARD, low_input, low_weight, matrix.dtype)
        return result, low_input if self._shares_input else None, low_weight if self._shares_weight else None

    def low_input_gradient(self, gradient: Tensor, weight: Tensor, low_weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The low product, and the gradient's cast."""
        low = self.cast(INPUT_GRADIENT, 0, gradient)
        if low_weight is None:
            low_weight = self.cast(INPUT_GRADIENT, 1, weight)
        return _product(INPUT_GRADIENT, low, low_weight, gradient.dtype), low

    def low_weight_gradient(self, gradient: Tensor, low_gradient: Tensor | None, matrix: Tensor | None,
                            low_input: Tensor | None) -> Tensor:
        """The low product; `low_gradient` is the cast for the input's gradient, where there was one."""
        if low_gradient is None or not self._shares_gradient:
            low_gradient = self.cast(WEIGHT_GRADIENT, 0, gradient)
        if low_input is None:
            assert matrix is not None
            low_input = self.cast(WEIGHT_GRADIENT, 1, matrix)
        return _product(WEIGHT_GRADIENT, low_gradient, low_input, gradient.dtype)


def forward(module: nn.Linear, input: Tensor) -> Tensor:
    """The `forward` of an instance that has a low path."""
    low: LowLinear | None = switch_of(module)
    weight: Tensor = module.weight
    bias: Tensor | None = module.bias
    if low is None:
        return functional.linear(input, weight, bias)
    if torch.compiler.is_compiling():
        # What a compiler sees does not depend on any switch: the operator looks when it runs.
        return low_linear_ops.linear(input, weight, bias, low.handle, low.recipe)
    trains = torch.is_grad_enabled()
    observes = low.remembers or low.comparing or low.measures_output
    if low.high and not (observes and trains) and not low.comparing:
        low.calls += trains
        return functional.linear(input, weight, bias)
    device = input.device.type
    if not torch.is_autocast_enabled(device):
        return _apply(input, weight, bias, low, trains)
    dtype = torch.get_autocast_dtype(device)
    bias = bias.to(dtype) if bias is not None else None
    with _without_autocast(device):
        return _apply(input.to(dtype), weight.to(dtype), bias, low, trains)


def _apply(input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
    result: Tensor = _LinearFunction.apply(input, weight, bias, low, trains)  # type: ignore[no-untyped-call]
    return result


def forward_product(low: LowLinear, matrix: Tensor, weight: Tensor,
                    trains: bool) -> tuple[Tensor, bool, Tensor | None, Tensor | None]:
    """The layer's product without its bias, whether it was the low one, and the casts that backward can use."""
    low.calls += trains
    if trains:
        low.observe(INPUT, matrix)
        low.observe(WEIGHT, weight)
    if not (low.high or low.comparing):
        result, low_input, low_weight = low.low_forward(matrix, weight)
        return result, True, low_input, low_weight
    result = torch.mm(matrix, weight.t())
    if trains:
        low.compare(FORWARD, lambda: low.low_forward(matrix, weight)[0], result)
    return result, False, None, None


@dataclass
class Saved:
    """What the backward of one product finds: one of `matrix` and `low_input` is there."""

    runs_low: bool
    weight: Tensor
    low_weight: Tensor | None
    matrix: Tensor | None
    low_input: Tensor | None


def backward_products(low: LowLinear, saved: Saved, gradient: Tensor, wants_input: bool,
                      wants_weight: bool) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of input and weight, on the path of the forward."""
    low.observe(OUTPUT_GRADIENT, gradient)
    if low.measures_output:
        low.output_square = (low.output_square or 0.0) + squared_norm(gradient)
    weight, matrix = saved.weight, saved.matrix
    input_gradient = weight_gradient = low_gradient = None
    if wants_input and saved.runs_low:
        input_gradient, low_gradient = low.low_input_gradient(gradient, weight, saved.low_weight)
    elif wants_input:
        input_gradient = torch.mm(gradient, weight)
        low.compare(INPUT_GRADIENT, lambda: low.low_input_gradient(gradient, weight, None)[0], input_gradient)
    if wants_weight and saved.runs_low:
        weight_gradient = low.low_weight_gradient(gradient, low_gradient, matrix, saved.low_input)
    elif wants_weight:
        assert matrix is not None
        weight_gradient = torch.mm(gradient.t(), matrix)
        low.compare(WEIGHT_GRADIENT, lambda: low.low_weight_gradient(gradient, None, matrix, None), weight_gradient)
    return input_gradient, weight_gradient


class _LinearFunction(torch.autograd.Function):
    """Forward, and the two products of backward, each on its low path or with it beside."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
        matrix = input.reshape(-1, weight.shape[1])
        result, runs_low, low_input, low_weight = forward_product(low, matrix, weight, trains)
        if bias is not None:
            result.add_(bias)
        ctx.low, ctx.runs_low, ctx.input_shape, ctx.has_bias = low, runs_low, input.shape, bias is not None
        ctx.save_for_backward(weight, low_weight, matrix if low_input is None else None, low_input)
        return result.view(*input.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, low_weight, matrix, low_input = ctx.saved_tensors
        saved = Saved(ctx.runs_low, weight, low_weight, matrix, low_input)
        gradient = output_gradient.reshape(-1, weight.shape[0])
        with _without_autocast(gradient.device.type):
            input_gradient, weight_gradient = backward_products(ctx.low, saved, gradient, *ctx.needs_input_grad[:2])
        if input_gradient is not None:
            input_gradient = input_gradient.view(ctx.input_shape)
        bias_gradient = gradient.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return input_gradient, weight_gradient, bias_gradient, None, None
