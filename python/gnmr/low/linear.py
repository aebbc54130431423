# SPDX-License-Identifier: Apache-2.0
"""Our own low path of a linear layer: operands are cast as a recipe says, products are made of what remains.

On a CUDA device operands are real FP8 codes (gnmr.low.fp8_matrix) and backward keeps nothing but these; on the CPU they
are numbers that were rounded. The layer stays what it is: its class, its name, its parameters and its state dict do
not change. Only the instance's `forward` is replaced, and `remove` puts it back.

Goals: the C++ engine's low path, on the CPU bit for bit; the path of a backward is that of its forward; copies and
pickles of the model are plain models. Non-goals: deciding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnmr import _core
from gnmr._core import Error
from gnmr.low import fp8_matrix, ops
from gnmr.low.amax_history import AmaxHistory
from gnmr.low.autograd import differentiable_once, unviewed
from gnmr.low.casts import (
    FORWARD,
    INPUT,
    INPUT_GRADIENT,
    OPERANDS,
    OUTPUT_GRADIENT,
    SUMS_OVER_ROWS,
    WEIGHT,
    WEIGHT_GRADIENT,
    cast_operand,
    recipe_of,
    without_autocast,
)
from gnmr.low.fp8_matrix import Fp8Cast, Fp8Matrix, Fp8Side, cast_to_fp8, makes_codes
from gnmr.low.instance_forward import switch_of
from gnmr.low.layer_switch import LayerSwitch
from gnmr.low.linear_layers import shape_of
from gnmr.low.traced import Neighbours, kind_of, kinds, traced_layer
from gnmr.switches import ExtraBytes

#: An operand as the low path has it: numbers, or codes with their scales.
LowOperand = Tensor | Fp8Matrix


@dataclass
class StepClock:
    """What all layers of a model have in common in a step: random numbers are a function of it."""

    seed: int = 0
    step: int = 0
    micro_batch: int = 0


def _numbers(operand: LowOperand, sums_over_rows: bool) -> Tensor:
    return operand.values(sums_over_rows) if isinstance(operand, Fp8Matrix) else operand.to(torch.float32)


class LowLinear(LayerSwitch[Any]):
    """The switch of one linear layer: measuring, installed, frugal (gnmr.switches)."""

    backend = "gnmr's low linear"
    counts_compiled_calls = True
    high_is_exact = True

    def __init__(
        self, module: nn.Module, recipe: str, layer: int, clock: StepClock, neighbours: Neighbours | None = None
    ) -> None:
        """`neighbours`: the layers that may be compiled together with it."""
        rules = recipe_of(recipe)
        self.outputs, self.inputs = shape_of(module)
        super().__init__(
            module, self.entry, 3 * self.inputs * self.outputs, [rules.expected_error(product) for product in range(3)]
        )
        self.recipe = recipe
        self.rules = rules
        self.memory = AmaxHistory(rules)
        self.remembers = any(self.memory.wants(operand) for operand in range(3))
        self.history = self.memory if self.remembers else None
        traced = traced_layer(recipe, rules)
        self.kind = -1 if traced is None else kind_of(traced)  # for compilers, of gnmr.low.traced; -1: none
        self.neighbours = neighbours or Neighbours()
        self._layer = layer
        self._clock = clock
        self._may_run_on: torch.device | None = None  # that is no CPU, and was looked at

    @property
    def entry(self) -> Callable[..., Tensor]:
        """What takes the place of the instance's forward."""
        return forward

    def plain(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer without us, by its own kernel."""
        return functional.linear(input, weight, bias)

    def high_weight_gradient(self, gradient: Tensor, matrix: Tensor) -> Tensor:
        """As the layer without us makes it, [outputs, inputs]."""
        return torch.mm(gradient.t(), matrix)

    def stand_among(self, neighbours: Neighbours) -> None:
        """Before a compiler sees it: the layers that it is compiled together with."""
        self.neighbours.hear(self._layer, False)
        self.neighbours = neighbours
        device = self.module.weight.device
        if self.kind >= 0 and device.type == "cuda" and kinds[self.kind].has_codes:
            plans = fp8_matrix.plans_of_layer(self.recipe, self.inputs, self.outputs, device)
            self.kind = kind_of(replace(kinds[self.kind], plans=plans))
        neighbours.hear(self._layer, self.high or self.comparing)

    def set_high(self, high: bool) -> None:
        super().set_high(high)
        self.neighbours.hear(self._layer, high)

    def begin_trial(self) -> None:
        super().begin_trial()
        self.neighbours.hear(self._layer, True)

    def end_trial(self) -> Sequence[float]:
        self.neighbours.hear(self._layer, self.high)
        return super().end_trial()

    def state(self) -> str:
        return self.memory.save() if self.remembers else ""

    def check_state(self, state: str) -> None:
        self.memory.check(state)

    def load_state(self, state: str) -> None:
        self.memory.restore(state)

    def recovery_bytes(self) -> ExtraBytes:
        if not makes_codes(self.module.weight):
            # The low path keeps casts in float32, the high one the operands, which are there anyway. In a compiled
            # block the input is copied, and takes the place of its cast.
            return ExtraBytes()
        # The low path keeps a byte of each element of the input; that it also keeps one of each weight is to the good.
        return ExtraBytes(0, (self.module.weight.element_size() - 1) * self.inputs)

    def trial_bytes(self) -> ExtraBytes:
        inputs, outputs, weight = self.inputs, self.outputs, self.module.weight
        if not (makes_codes(weight) and fp8_matrix.has_real_products(self.recipe, inputs, outputs, weight.device)):
            # Casts of two operands, the low product and its difference from the high one, in float32.
            return ExtraBytes(4 * 3 * inputs * outputs, 4 * (2 * inputs + 2 * outputs))
        size = self.module.weight.element_size()
        # Codes of two operands with at most a scale for each row and 128 codes, and the low product.
        return ExtraBytes(
            (1 + size) * inputs * outputs + inputs * outputs // 16 + 8 * (inputs + outputs),
            inputs + outputs + (inputs + outputs) // 16 + 16 + size * max(inputs, outputs),
        )

    def check_device(self, device: torch.device) -> None:
        """Before anything is computed: raises where the low path cannot run there."""
        if device.type == "cpu" or device == self._may_run_on:
            return
        reason = fp8_matrix.refusal(self.recipe, device)
        if reason:
            raise Error(f"recipe={self.recipe!r}: {reason}")
        self._may_run_on = device

    def is_calm(self, device: torch.device) -> bool:
        """For compilers: whether nothing is wanted of it but the low product, nor of its neighbours."""
        return (
            self.kind >= 0
            and self.neighbours.calm
            and not self.measures_output
            and (device.type == "cpu" or (device.type == "cuda" and kinds[self.kind].has_codes))
        )

    def compare(self, product: int, low: Callable[[], Tensor], high: Tensor) -> None:
        """In a trial: what the low path would have made."""
        if self.comparing:
            self.errors[product].add(low(), high)

    def observe(self, operand: int, matrix: Tensor) -> None:
        """What the low path remembers goes on whatever path is taken."""
        if not (self.remembers and self.memory.wants(operand)):
            return
        if not makes_codes(matrix):
            self.memory.note(operand, matrix)
        elif matrix.numel():
            product, place = self._delayed_place(operand)
            self._note_codes(operand, matrix, lambda amax: Fp8Cast(self.rules, product, place, amax=amax))

    def _delayed_place(self, operand: int) -> tuple[int, int]:
        return next(
            (product, place)
            for product in range(3)
            for place in range(2)
            if OPERANDS[product][place] == operand and self.rules.is_delayed(product, place)
        )

    def _note_codes(self, operand: int, matrix: Tensor, make: Callable[[int], Fp8Cast]) -> Fp8Matrix:
        """A cast that also finds the amax that is remembered."""
        made: list[Fp8Matrix] = []
        self.memory.note_on_device(operand, matrix.device, lambda amax: made.append(cast_to_fp8(matrix, make(amax))))
        return made[0]

    def notes_in_cast(self, product: int, matrix: Tensor) -> bool:
        """Whether the cast of a product's left operand and, in forward, of the weight finds the amax on the way."""
        return (
            self.remembers
            and makes_codes(matrix)
            and matrix.numel() > 0
            and all(self.rules.is_delayed(product, place) for place in range(1 + (product == FORWARD)))
        )

    def shares(self, matrix: Tensor, product: int, place: int, other_product: int, other_place: int) -> bool:
        """Whether one cast of a matrix is what two products need."""
        return self.rules.shares_cast(product, place, other_product, other_place, makes_codes(matrix))

    def cast(
        self, product: int, place: int, matrix: Tensor, both_sides: bool = False, notes: bool = False
    ) -> LowOperand:
        """The operand as the low path of a product sees it. Codes: for the other direction too, and with their amax."""
        if not self.rules.casts(product, place):
            return matrix
        if not makes_codes(matrix):
            scale = self.memory.scale(product, place) if self.remembers else 0.0
            return cast_operand(
                matrix, self.recipe, product, place, scale, self._seed(product, place), self._seed(product, 2)
            )
        sums_over_rows = SUMS_OVER_ROWS[product][place]
        scale_at = self.memory.scale_address(product, place, matrix.device) if self.remembers else 0

        def make(amax: int) -> Fp8Cast:
            return Fp8Cast(
                self.rules,
                product,
                place,
                both_sides or not sums_over_rows,
                both_sides or sums_over_rows,
                scale_at,
                amax,
            )

        return self._note_codes(OPERANDS[product][place], matrix, make) if notes else cast_to_fp8(matrix, make(0))

    def _cast(self, product: int, place: int, matrix: Tensor, both_sides: bool, notes: bool) -> LowOperand:
        return (
            self.cast(product, place, matrix, both_sides, notes)
            if makes_codes(matrix)
            else self.cast(product, place, matrix)
        )

    def _multiply(self, product: int, left: LowOperand, right: LowOperand, dtype: torch.dtype) -> Tensor:
        """The product of two operands as they are stored."""
        if isinstance(left, Fp8Matrix) and isinstance(right, Fp8Matrix):
            return fp8_matrix.multiply(self.recipe, product, left, right, dtype)
        left_rows, right_rows = SUMS_OVER_ROWS[product]
        one, other = _numbers(left, left_rows), _numbers(right, right_rows)
        return torch.mm(one.t() if left_rows else one, other if right_rows else other.t()).to(dtype)

    def _seed(self, product: int, purpose: int) -> int:
        clock = self._clock
        return _core.cast_seed(clock.seed, clock.step, clock.micro_batch, self._layer, product, purpose)

    def low_forward(
        self, matrix: Tensor, weight: Tensor, keeps: tuple[bool, bool] = (False, False), notes: bool = False
    ) -> tuple[Tensor, LowOperand | None, LowOperand | None]:
        """The low product, and of the two casts, where backward wants them, those that it can use."""
        keeps_input = keeps[0] and self.shares(matrix, FORWARD, 0, WEIGHT_GRADIENT, 1)
        keeps_weight = keeps[1] and self.shares(weight, FORWARD, 1, INPUT_GRADIENT, 1)
        low_input = self._cast(FORWARD, 0, matrix, keeps_input, notes)
        low_weight = self._cast(FORWARD, 1, weight, keeps_weight, notes)
        result = self._multiply(FORWARD, low_input, low_weight, matrix.dtype)
        return result, low_input if keeps_input else None, low_weight if keeps_weight else None

    def low_input_gradient(
        self,
        gradient: Tensor,
        weight: Tensor | None,
        low_weight: LowOperand | None,
        shared: bool = False,
        notes: bool = False,
    ) -> tuple[Tensor, LowOperand | None]:
        """The low product, and the gradient's cast where the weight's gradient wants it and can use it."""
        shared = shared and self.shares(gradient, INPUT_GRADIENT, 0, WEIGHT_GRADIENT, 0)
        low = self._cast(INPUT_GRADIENT, 0, gradient, shared, notes)
        if low_weight is None:
            assert weight is not None
            low_weight = self._cast(INPUT_GRADIENT, 1, weight, False, False)
        return self._multiply(INPUT_GRADIENT, low, low_weight, gradient.dtype), low if shared else None

    def low_weight_gradient(
        self, gradient: Tensor, low_gradient: LowOperand | None, matrix: Tensor | None, low_input: LowOperand | None
    ) -> Tensor:
        """The low product; `low_gradient` is the cast for the input's gradient, where it is the same."""
        if low_gradient is None:
            low_gradient = self._cast(WEIGHT_GRADIENT, 0, gradient, False, False)
        if low_input is None:
            assert matrix is not None
            low_input = self._cast(WEIGHT_GRADIENT, 1, matrix, False, False)
        return self._multiply(WEIGHT_GRADIENT, low_gradient, low_input, gradient.dtype)

    def flat(self, operand: LowOperand | None) -> tuple[Tensor | None, Tensor | None]:
        """What backward needs of a cast that is kept, as two tensors: it sums over the rows."""
        if isinstance(operand, Fp8Matrix):
            side = operand.side(True)
            return side.codes, side.scales
        return operand, None

    def operand_of(self, place: int, values: Tensor | None, scales: Tensor | None) -> LowOperand | None:
        """The cast of a forward's operand that these two tensors are."""
        if values is None or scales is None:
            return values
        return Fp8Matrix(self.rules.fp8_groups(FORWARD, place), None, Fp8Side(values, scales))


def forward(module: nn.Linear, input: Tensor) -> Tensor:
    """The `forward` of an instance that has a low path."""
    low: LowLinear | None = switch_of(module)
    if low is None:
        return functional.linear(input, module.weight, module.bias)
    return run_layer(low, input, module.weight, module.bias)


def run_layer(low: LowLinear, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer on the path that its switch says; `weight` is [outputs, inputs]."""
    if torch.compiler.is_compiling():
        return ops.linear(input, weight, bias, low)
    trains = torch.is_grad_enabled()
    observes = low.remembers or low.comparing or low.measures_output
    if low.high and not (observes and trains) and not low.comparing:
        low.calls += trains
        return low.plain(input, weight, bias)
    device = input.device.type
    if not torch.is_autocast_enabled(device):
        return _apply(input, weight, bias, low, trains)
    input, weight, bias = ops.as_autocast(input, weight, bias)
    with without_autocast(device):
        return _apply(input, weight, bias, low, trains)


def _apply(input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
    if not ops.are_alike(input, weight, bias):
        return low.plain(input, weight, bias)
    result: Tensor = _LinearFunction.apply(input, weight, bias, low, trains)  # type: ignore[no-untyped-call]
    return result


def observe_forward(low: LowLinear, matrix: Tensor, weight: Tensor, runs_low: bool) -> bool:
    """A forward with gradients: what is remembered takes in its operands. Whether their casts are to note them."""
    low.calls += 1
    if runs_low and low.notes_in_cast(FORWARD, matrix):
        return True
    low.observe(INPUT, matrix)
    low.observe(WEIGHT, weight)
    return False


def forward_product(
    low: LowLinear, matrix: Tensor, weight: Tensor, trains: bool, keeps: tuple[bool, bool]
) -> tuple[Tensor, bool, LowOperand | None, LowOperand | None]:
    """The layer's product without its bias, whether it was the low one, and the casts that backward can use; `keeps`:
    whether it wants those of input and weight."""
    low.check_device(matrix.device)
    runs_low = not (low.high or low.comparing)
    notes = observe_forward(low, matrix, weight, runs_low) if trains else False
    if runs_low:
        result, low_input, low_weight = low.low_forward(matrix, weight, keeps, notes)
        return result, True, low_input, low_weight
    result = torch.mm(matrix, weight.t())
    if trains:
        low.compare(FORWARD, lambda: low.low_forward(matrix, weight)[0], result)
    return result, False, None, None


@dataclass
class Saved:
    """What the backward of one product finds: of each operand itself or its cast, or both."""

    runs_low: bool
    weight: Tensor | None
    low_weight: LowOperand | None
    matrix: Tensor | None
    low_input: LowOperand | None


def backward_products(
    low: LowLinear, saved: Saved, gradient: Tensor, wants_input: bool, wants_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of input and weight, on the path of the forward."""
    notes = saved.runs_low and wants_input and low.notes_in_cast(INPUT_GRADIENT, gradient)
    if not notes:
        low.observe(OUTPUT_GRADIENT, gradient)
    if low.measures_output:
        low.measure_output(gradient)
    weight, matrix = saved.weight, saved.matrix
    input_gradient = weight_gradient = low_gradient = None
    if wants_input and saved.runs_low:
        input_gradient, low_gradient = low.low_input_gradient(gradient, weight, saved.low_weight, wants_weight, notes)
    elif wants_input:
        assert weight is not None
        input_gradient = torch.mm(gradient, weight)
        low.compare(INPUT_GRADIENT, lambda: low.low_input_gradient(gradient, weight, None)[0], input_gradient)
    if wants_weight and saved.runs_low:
        weight_gradient = low.low_weight_gradient(gradient, low_gradient, matrix, saved.low_input)
    elif wants_weight:
        assert matrix is not None
        weight_gradient = low.high_weight_gradient(gradient, matrix)
        low.compare(WEIGHT_GRADIENT, lambda: low.low_weight_gradient(gradient, None, matrix, None), weight_gradient)
    return input_gradient, weight_gradient


class _LinearFunction(torch.autograd.Function):
    """Forward, and the two products of backward, each on its low path or with it beside."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, low: LowLinear, trains: bool) -> Tensor:
        matrix = input.reshape(-1, weight.shape[1])
        ctx.low, ctx.input_shape, ctx.outputs, ctx.has_bias = low, input.shape, weight.shape[0], bias is not None
        if low.high and not low.comparing:
            # The plain layer's own kernel: a bias that is added apart can differ in the last bit.
            low.check_device(input.device)
            if trains:
                observe_forward(low, matrix, weight, False)
            ctx.runs_low = False
            ctx.save_for_backward(weight, None, None, matrix, None, None)
            return unviewed(low.plain(input, weight, bias))
        keeps = trains and ctx.needs_input_grad[1], trains and ctx.needs_input_grad[0]
        result, ctx.runs_low, low_input, low_weight = forward_product(low, matrix, weight, trains, keeps)
        if bias is not None:
            result = result + bias  # in place it would change what selective checkpointing keeps
        ctx.save_for_backward(
            weight if low_weight is None else None,
            *low.flat(low_weight),
            matrix if low_input is None else None,
            *low.flat(low_input),
        )
        # Without a view where there need be none: selective checkpointing sees changes in place of what it keeps then.
        return result if input.dim() == 2 else unviewed(result.view(*input.shape[:-1], weight.shape[0]))

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, *cast_weight, matrix, input_values, input_scales = ctx.saved_tensors
        low: LowLinear = ctx.low
        saved = Saved(
            ctx.runs_low, weight, low.operand_of(1, *cast_weight), matrix, low.operand_of(0, input_values, input_scales)
        )
        gradient = output_gradient.reshape(-1, ctx.outputs)
        with without_autocast(gradient.device.type):
            input_gradient, weight_gradient = backward_products(low, saved, gradient, *ctx.needs_input_grad[:2])
        if input_gradient is not None:
            input_gradient = input_gradient.view(ctx.input_shape)
        bias_gradient = gradient.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return input_gradient, weight_gradient, bias_gradient, None, None
