# SPDX-License-Identifier: Apache-2.0
"""Our own low path of a linear layer: operands are cast as a recipe says, products are made of the numbers that remain.

The layer stays what it is: its class, its name, its parameters and its state dict do not change. Only the instance's
`forward` is replaced, and `remove` puts it back.

Goals: the bits of the C++ engine's low path; the path of a backward is that of its forward; copies and pickles of the
model are plain models. Non-goals: real low-precision products (this is an emulation on the CPU); deciding.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnmr import _core
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

PLACES = ("forward", "input_gradient", "weight_gradient")


@dataclass
class StepClock:
    """What all layers of a model have in common in a step: random numbers are a function of it."""

    seed: int = 0
    step: int = 0
    micro_batch: int = 0


class ErrorSums:
    """How far a product's low path is from its high one, over the micro-batches of one step."""

    def __init__(self) -> None:
        self.difference = 0.0
        self.reference = 0.0
        self.measured = False

    def add(self, low: Tensor, high: Tensor) -> None:
        """Nothing is added where the high result is not finite."""
        reference = squared_norm(high)
        if not math.isfinite(reference):
            return
        difference = squared_norm(low - high)
        self.difference += difference if math.isfinite(difference) else math.inf
        self.reference += reference
        self.measured = True

    def error(self) -> float:
        """The relative error; NaN where nothing was measured."""
        if not self.measured:
            return math.nan
        if self.difference == 0:
            return 0.0
        return math.sqrt(self.difference / self.reference) if self.reference > 0 else math.inf


def squared_norm(matrix: Tensor) -> float:
    """The sum of squares of a matrix on the CPU, in double."""
    code = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}.get(matrix.dtype)
    if code is None:
        return float(matrix.detach().to(torch.float64).square().sum())
    plain = matrix.detach().contiguous()
    return _core.sum_squares(plain.data_ptr(), plain.numel(), code, threads=torch.get_num_threads())


def _product(product: int, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """The product of two operands as they are stored, in float32."""
    left_rows, right_rows = SUMS_OVER_ROWS[product]
    left, right = left.to(torch.float32), right.to(torch.float32)
    return torch.mm(left.t() if left_rows else left, right if right_rows else right.t()).to(dtype)


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """Products here have the types that they are given."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


class LowLinear:
    """The switch of one linear layer: `gnmr.switches.MeasuringSwitch`."""

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
        self.module.forward = _LowForward(self)  # type: ignore[method-assign]

    def remove(self) -> None:
        """The layer is as it was."""
        if isinstance(self.module.__dict__.get("forward"), _LowForward):
            del self.module.__dict__["forward"]

    def set_high(self, high: bool) -> None:
        self.high = high
        self.comparing = False

    def begin_step(self) -> None:
        """Forgets what was measured in the last step, or in the first run of this one."""
        self.memory.begin_step()
        self.calls = 0
        self.output_square = None

    def begin_trial(self) -> None:
        self.begin_step()
        self._errors = [ErrorSums() for _ in range(3)]
        self.comparing = True

    def end_trial(self) -> Sequence[float]:
        self.comparing = False
        return [sums.error() for sums in self._errors]

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


class _LowForward:
    """The `forward` of one instance. A copy or a pickle of the layer has its class's own again."""

    def __init__(self, low: LowLinear) -> None:
        self.low = low

    def __call__(self, input: Tensor) -> Tensor:
        low = self.low
        module = low.module
        weight: Tensor = module.weight
        bias: Tensor | None = module.bias
        trains = torch.is_grad_enabled()
        low.calls += trains
        observes = low.remembers or low.comparing or low.measures_output
        if low.high and not (observes and trains) and not low.comparing:
            return functional.linear(input, weight, bias)
        device = input.device.type
        if not torch.is_autocast_enabled(device):
            return _apply(input, weight, bias, low, trains)
        dtype = torch.get_autocast_dtype(device)
        bias = bias.to(dtype) if bias is not None else None
        with _without_autocast(device):
            return _apply(input.to(dtype), weight.to(dtype), bias, low, trains)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = self.low.module
        return MethodType(type(module).forward, memo.get(id(module), module))

    def __reduce__(self) -> Any:
        # Found when the instance has no attributes yet: the method of its class.
        return getattr, (self.low.module, "forward")


def _apply(input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
    result: Tensor = _LinearFunction.apply(input, weight, bias, low, trains)  # type: ignore[no-untyped-call]
    return result


class _LinearFunction(torch.autograd.Function):
    """Forward, and the two products of backward, each on its low path or with it beside."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
        matrix = input.reshape(-1, weight.shape[1])
        runs_low = not (low.high or low.comparing)
        low_input = low_weight = None
        if trains:
            low.observe(INPUT, matrix)
            low.observe(WEIGHT, weight)
        if runs_low:
            result, low_input, low_weight = low.low_forward(matrix, weight)
        else:
            result = torch.mm(matrix, weight.t())
            if trains:
                low.compare(FORWARD, lambda: low.low_forward(matrix, weight)[0], result)
        if bias is not None:
            result.add_(bias)
        ctx.low, ctx.runs_low, ctx.input_shape, ctx.has_bias = low, runs_low, input.shape, bias is not None
        ctx.save_for_backward(weight, low_weight, matrix if low_input is None else None, low_input)
        return result.view(*input.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        low: LowLinear = ctx.low
        weight, low_weight, matrix, low_input = ctx.saved_tensors
        gradient = output_gradient.reshape(-1, weight.shape[0])
        low.observe(OUTPUT_GRADIENT, gradient)
        if low.measures_output:
            low.output_square = (low.output_square or 0.0) + squared_norm(gradient)
        input_gradient = weight_gradient = bias_gradient = low_gradient = None
        with _without_autocast(gradient.device.type):
            if ctx.needs_input_grad[0]:
                if ctx.runs_low:
                    input_gradient, low_gradient = low.low_input_gradient(gradient, weight, low_weight)
                else:
                    input_gradient = torch.mm(gradient, weight)
                    low.compare(INPUT_GRADIENT, lambda: low.low_input_gradient(gradient, weight, None)[0],
                                input_gradient)
                input_gradient = input_gradient.view(ctx.input_shape)
            if ctx.needs_input_grad[1]:
                if ctx.runs_low:
                    weight_gradient = low.low_weight_gradient(gradient, low_gradient, matrix, low_input)
                else:
                    weight_gradient = torch.mm(gradient.t(), matrix)
                    low.compare(WEIGHT_GRADIENT, lambda: low.low_weight_gradient(gradient, None, matrix, None),
                                weight_gradient)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            bias_gradient = gradient.sum(0)
        return input_gradient, weight_gradient, bias_gradient, None, None
