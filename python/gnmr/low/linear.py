# SPDX-License-Identifier: Apache-2.0
"""Our own low path of a linear layer: gnmr/low as an autograd function.

On a CUDA device operands are real FP8 data and backward keeps nothing but these; on the CPU they are numbers that were
rounded. The layer stays what it is: its class, its name, its parameters and its state dict do not change. Only the
instance's `forward` is replaced, and `remove` puts it back.

Goals: the path of a backward is that of its forward; copies and pickles of the model are plain models. Non-goals:
arithmetic (gnmr/low, which the C++ engine uses too), deciding.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnmr import _core
from gnmr._core import Error
from gnmr.low import fp8_matrix, ops
from gnmr.low.autograd import differentiable_once, unviewed
from gnmr.low.casts import INPUT, WEIGHT, recipe_of, without_autocast
from gnmr.low.fp8_matrix import makes_codes
from gnmr.low.front_end import LINEAR
from gnmr.low.instance_forward import switch_of
from gnmr.low.linear_layers import shape_of
from gnmr.low.neighbours import Neighbours, NeighbourSwitch
from gnmr.low.shared_inputs import shared_operands
from gnmr.low.traced import kind_of, kinds, traced_layer
from gnmr.switches import ExtraBytes

#: Tensors that a forward leaves for its backward, in the order of `low::Saved::parts`; None: there is none.
Parts = list[Tensor | None]

#: Places in it: what is kept of the weight and of the input, plain and quantized (numbers, FP8 data, scales).
PLAIN_WEIGHT, PROJECTED_INPUT, LOW_WEIGHT, LOW_INPUT, PLAIN_INPUT = 0, 1, slice(2, 5), slice(5, 8), 8
PARTS = 10


class LowLinear(NeighbourSwitch[Any]):
    """The switch of one linear layer: measuring, patrolled, installed, frugal (gnmr.switches)."""

    backend = "gnmr's low linear"
    counts_compiled_calls = True
    high_is_exact = True
    front_end = LINEAR

    def __init__(
        self, module: nn.Module, recipe: str, layer: int, clock: _core.StepClock, neighbours: Neighbours | None = None
    ) -> None:
        """`neighbours`: the layers that may be compiled together with it."""
        rules = recipe_of(recipe)
        self.outputs, self.inputs = shape_of(module)
        super().__init__(
            module,
            self.entry,
            3 * self.inputs * self.outputs,
            [rules.expected_error(product) for product in range(3)],
            _core.LowLayer(self.front_end, rules, layer, clock),
            neighbours,
        )
        self.path_now = _core.LayerPath.low  # that of its GEMMs; in a trial high
        self.layer.set_path(self.path_now)
        self.recipe = recipe
        self.recovers = False  # its high path is what the recipe recovers to
        self._has_ladder = rules.has_ladder
        self._has_state = any(rules.is_delayed(product, place) for product in range(3) for place in range(2))
        traced = traced_layer(recipe, rules)
        self.kind = -1 if traced is None else kind_of(traced)  # for compilers, of gnmr.low.traced; -1: none
        self._is_faulty = False
        self._may_run_on: torch.device | None = None  # that is no CPU, and was looked at

    @property
    def entry(self) -> Callable[..., Tensor]:
        """What takes the place of the instance's forward."""
        return forward

    def plain(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer without us, by its own kernel."""
        return functional.linear(input, weight, bias)

    def stand_among(self, neighbours: Neighbours) -> None:
        device = self.module.weight.device
        if self.kind >= 0 and device.type == "cuda" and kinds[self.kind].has_codes:
            plans = fp8_matrix.plans_of_layer(self.recipe, self.inputs, self.outputs, device)
            self.kind = kind_of(replace(kinds[self.kind], plans=plans))
        super().stand_among(neighbours)

    @property
    def is_faulty(self) -> bool:
        return self._is_faulty

    @property
    def has_state(self) -> bool:
        return self._has_state

    @property
    def runs_low(self) -> bool:
        """Whether results are those of the low path."""
        return not (self.high or self.comparing)

    @property
    def runs_plain(self) -> bool:
        """Whether the layer runs by its own kernel, with nothing beside it."""
        return self.high and not (self.recovers or self.comparing)

    def set_recovery(self, recovers: bool) -> None:
        self.recovers = recovers and self._has_ladder

    def _compare(self, wanted: bool) -> None:
        super()._compare(wanted)
        self.path_now = _core.LayerPath.high
        if not wanted and not self.high:
            self.path_now = _core.LayerPath.low
        elif not wanted and self.recovers:
            self.path_now = _core.LayerPath.recovery
        self.layer.set_path(self.path_now)

    def plant_factor(self, factor: float | None) -> None:
        self.layer.plant_factor(factor)
        self._is_faulty = factor is not None
        self.tell_neighbours()

    def begin_step(self) -> None:
        self.calls = 0
        if self._has_state or self.measures_output:
            self.layer.begin_step()

    def end_step(self) -> None:
        if self._has_state:
            self.layer.end_step()

    @property
    def refresh(self) -> float:
        """The factor by which a scale is renewed early; 0: never."""
        return self.layer.refresh

    @refresh.setter
    def refresh(self, factor: float) -> None:
        self.layer.refresh = factor

    def refreshes(self) -> int:
        return self.layer.refreshes

    def patrol_cost(self, tokens: int) -> float:
        weight = self.module.weight
        return _core.patrol_cost(tokens, self.inputs, self.outputs, weight.element_size(), makes_codes(weight))

    def begin_patrol(self) -> None:
        self.layer.begin_step()
        self.patrolled, self.comparing = not self.high, self.high
        self.layer.comparison = _core.Comparison.trial if self.high else _core.Comparison.patrol
        around = self.neighbours  # told without a call: it is done for each layer, before and after each step
        around.patrolled.add(self.number)
        around.trains_calm = around.calm and not around.can_patrol

    def end_patrol(self) -> Sequence[tuple[float, float]] | Tensor:
        self.patrolled = self.comparing = False
        self.layer.comparison = _core.Comparison.none
        around = self.neighbours
        around.patrolled.discard(self.number)
        around.trains_calm = around.calm and not (around.can_patrol and around.patrolled)
        sums: Sequence[tuple[float, float]] | Tensor = self.layer.patrol_sums()
        return sums

    def state(self) -> str:
        return self.layer.save() if self.has_state else ""

    def check_state(self, state: str) -> None:
        _core.LowLayer(self.front_end, recipe_of(self.recipe)).restore(state)

    def load_state(self, state: str) -> None:
        self.layer.restore(state)

    def recovery_bytes(self) -> ExtraBytes:
        if not makes_codes(self.module.weight):
            # The low path keeps quantized operands in float32, the high one the operands, which are there anyway. In a
            # compiled block the input is copied, and takes the place of what it is quantized to.
            return ExtraBytes()
        # The low path keeps a byte of each element of the input; that it also keeps one of each weight is to the good.
        return ExtraBytes(0, (self.module.weight.element_size() - 1) * self.inputs)

    def trial_bytes(self) -> ExtraBytes:
        inputs, outputs, weight = self.inputs, self.outputs, self.module.weight
        if not (makes_codes(weight) and fp8_matrix.has_real_products(self.recipe, inputs, outputs, weight.device)):
            # Two quantized operands, the low result and its difference from the high one, in float32.
            return ExtraBytes(4 * 3 * inputs * outputs, 4 * (2 * inputs + 2 * outputs))
        size = self.module.weight.element_size()
        # FP8 data of two operands with at most a scale for each row and 128 elements, and the low result.
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

    def is_calm(self, device: torch.device, trains: bool) -> bool:
        """For compilers: whether nothing is wanted of it but the low result, nor of its neighbours."""
        return (
            self.kind >= 0
            and (self.neighbours.trains_calm if trains else self.neighbours.calm)
            and not self.measures_output
            and (device.type == "cpu" or (device.type == "cuda" and kinds[self.kind].has_codes))
        )

    def observe_forward(self, matrix: Tensor, weight: Tensor) -> None:
        """The low path's state is updated while the layer runs high by its own kernel."""
        self.calls += 1
        if self.has_state:
            self.layer.observe(INPUT, matrix)
            self.layer.observe(WEIGHT, weight)

    def forward_gemm(
        self,
        matrix: Tensor,
        weight: Tensor,
        trains: bool,
        keeps: tuple[bool, bool],
        shared: _core.SharedOperands | None = None,
    ) -> tuple[Tensor, Parts]:
        """The result without the bias, and what backward needs; `keeps`: whether it has a use for the quantized input
        and weight."""
        self.check_device(matrix.device)
        self.calls += trains
        result: tuple[Tensor, Parts] = self.layer.forward(matrix, weight, trains, *keeps, shared)
        return result

    def backward_gemms(
        self, parts: Parts, path: _core.LayerPath, gradient: Tensor, wants_input: bool, wants_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of input and weight, on the path of the forward."""
        if self.measures_output:
            self.measure_output(gradient)
        return self.layer.backward(parts, path, gradient, wants_input, wants_weight)


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
    observes = low.has_state or low.comparing or low.measures_output
    if low.runs_plain and not (observes and trains):
        low.calls += trains
        return low.plain(input, weight, bias)
    given, device = input, input.device.type
    casts = torch.is_autocast_enabled(device)
    if casts:
        input, weight, bias = ops.as_autocast(input, weight, bias)
    shared = shared_operands(given, input.dtype) if low.runs_low else None
    if not casts:
        return _apply(input, weight, bias, low, trains, shared)
    with without_autocast(device):
        return _apply(input, weight, bias, low, trains, shared)


def _apply(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    low: LowLinear,
    trains: bool,
    shared: _core.SharedOperands | None,
) -> Tensor:
    if not ops.are_alike(input, weight, bias):
        return low.plain(input, weight, bias)
    result: Tensor = _LinearFunction.apply(input, weight, bias, low, trains, shared)  # type: ignore[no-untyped-call]
    return result


def _needed(parts: Parts, wants_input: bool, wants_weight: bool, is_patrolled: bool) -> Parts:
    """What backward reads of it: memory is kept for nothing else."""
    has_low_weight = any(part is not None for part in parts[LOW_WEIGHT])
    if not wants_input or (has_low_weight and not is_patrolled):
        parts[PLAIN_WEIGHT] = None
    if not wants_input:
        parts[LOW_WEIGHT] = [None] * 3
    if not wants_weight:
        parts[LOW_INPUT] = [None] * 3
        parts[PLAIN_INPUT] = parts[PROJECTED_INPUT] = None
    return parts


class _LinearFunction(torch.autograd.Function):
    """Forward, and the two GEMMs of backward."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        low: LowLinear,
        trains: bool,
        shared: _core.SharedOperands | None,
    ) -> Tensor:
        matrix = input.reshape(-1, weight.shape[1])
        ctx.low, ctx.input_shape, ctx.outputs, ctx.has_bias = low, input.shape, weight.shape[0], bias is not None
        ctx.path = low.path_now
        wants_input, wants_weight = ctx.needs_input_grad[:2]
        if low.runs_plain:
            # The plain layer's own kernel: a bias that is added apart can differ in the last bit.
            low.check_device(input.device)
            if trains:
                low.observe_forward(matrix, weight)
            parts: Parts = [None] * PARTS
            parts[PLAIN_WEIGHT], parts[PLAIN_INPUT] = weight, matrix
            ctx.save_for_backward(*_needed(parts, wants_input, wants_weight, False))
            return unviewed(low.plain(input, weight, bias))
        keeps = trains and wants_weight, trains and wants_input
        result, parts = low.forward_gemm(matrix, weight, trains, keeps, shared)
        if bias is not None:
            result = result + bias  # in place it would change what selective checkpointing keeps
        if parts[PLAIN_WEIGHT] is not None:
            parts[PLAIN_WEIGHT] = weight  # as an input: autograd sees changes in place
        if parts[PLAIN_INPUT] is not None:
            parts[PLAIN_INPUT] = matrix
        ctx.save_for_backward(*_needed(parts, wants_input, wants_weight, low.patrolled))
        # Without a view where there need be none: selective checkpointing sees changes in place of what it keeps then.
        return result if input.dim() == 2 else unviewed(result.view(*input.shape[:-1], weight.shape[0]))

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient = output_gradient.reshape(-1, ctx.outputs)
        with without_autocast(gradient.device.type):
            input_gradient, weight_gradient = ctx.low.backward_gemms(
                list(ctx.saved_tensors), ctx.path, gradient, *ctx.needs_input_grad[:2]
            )
        if input_gradient is not None:
            input_gradient = input_gradient.view(ctx.input_shape)
        bias_gradient = gradient.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return input_gradient, weight_gradient, bias_gradient, None, None, None
