# SPDX-License-Identifier: Apache-2.0
"""torchao's Float8Linear: its own forward is the low path, the same layer without float8 the high one.

The module stays what it is. While it is attached its instance has a `forward` that asks its switch; in a compiled block
it asks for all layers of the block at once (gnmr.backends.torchao_compiled).

Goals: a layer that runs low computes what it computes without us, bit for bit; high is `torch.nn.Linear` with the same
weight. All scales of torchao's recipes are made from the operand at hand, so there is nothing to keep fresh.
Weights that FSDP2 gathers in float8 are gathered as they are while a layer runs high (gnmr.backends.torchao_gather).
Non-goals: converting models (torchao.float8.convert_to_float8_training does).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnmr import _core
from gnmr.backends.torchao_compiled import compiled_forward
from gnmr.backends.torchao_gather import Gathered
from gnmr.backends.torchao_patrol import can_be_sampled, sampled_forward
from gnmr.low.autograd import differentiable_once, unviewed
from gnmr.low.casts import recipe_of
from gnmr.low.instance_forward import is_replaced, switch_of
from gnmr.low.layer_switch import as_matrix
from gnmr.low.neighbours import NeighbourSwitch
from gnmr.low.output_gradients import with_measured_gradient
from gnmr.switches import ExtraBytes


def make(name: str, module: nn.Linear) -> "Float8Switch | str":
    """The switch of a Float8Linear, or why it has none."""
    if is_replaced(module):
        return "its forward is replaced on the instance already"
    # Others derive from it to build it otherwise (torchtitan), which changes nothing of what it computes.
    known: Any = next(
        one
        for one in type(module).__mro__
        if one.__name__ == "Float8Linear" and one.__module__.partition(".")[0] == "torchao"
    )
    if type(module).forward is not known.forward:
        return f"{type(module).__name__} has a forward of its own: use register_switch to say how to switch it"
    return Float8Switch(module)


def gathers_float8(module: nn.Module) -> bool:
    """Whether FSDP2 gathers the layer's weight in float8."""
    config = getattr(module, "config", None)
    return bool(getattr(config, "enable_fsdp_float8_all_gather", False))


class Float8Switch(NeighbourSwitch[Any]):
    """The switch of one layer: measuring, patrolled, installed, frugal."""

    backend = "torchao Float8Linear"
    high_is_exact = True

    def __init__(self, module: Any) -> None:
        super().__init__(module, forward, 3 * module.in_features * module.out_features, _expected(module.config))
        self._gathered = Gathered(module) if gathers_float8(module) else None
        self.factor: float | None = None  # a fault that is planted
        self._has_counted = False  # a forward outside of backward, in this patrol

    def set_high(self, high: bool) -> None:
        self._gather(high)
        super().set_high(high)

    def _gather(self, high: bool) -> None:
        if self._gathered is not None:
            self._gathered.set_high(high)

    def begin_trial(self) -> None:
        self._gather(True)
        super().begin_trial()

    def patrol_cost(self, tokens: int) -> float:
        if self._gathered is not None:
            return 0.0  # what is gathered has lost the weight that it would be compared with
        module = self.module
        size = _element_size(module)
        return _core.patrol_cost(tokens, module.in_features, module.out_features, size, module.weight.is_cuda)

    def begin_patrol(self) -> None:
        self.layer.begin_step()
        self._has_counted = False
        self.patrolled, self.comparing = not self.high, self.high
        self.tell_neighbours()

    def end_patrol(self) -> Sequence[tuple[float, float]] | Tensor:
        self.patrolled = self.comparing = False
        self.tell_neighbours()
        sums: Sequence[tuple[float, float]] | Tensor = self.layer.patrol_sums()
        return sums

    def counts_forward(self, is_in_backward: bool) -> bool:
        """Whether a patrolled forward is compared: not where a checkpoint makes it again. Where the first one had no
        gradients (a reentrant checkpoint), the one in backward is the first."""
        if is_in_backward:
            return not self._has_counted
        self._has_counted = True
        return True

    def add_sampled_error(self, product: int, low: Tensor, left: Tensor, right: Tensor) -> None:
        """In a patrol: what a GEMM made, and its operands."""
        dtype = left.dtype
        self.layer.add_sampled_error(product, as_matrix(low).to(dtype), as_matrix(left), as_matrix(right).to(dtype))

    def recovery_bytes(self) -> ExtraBytes:
        # A compiled low path may keep its input in float8, one byte an element.
        extra = _element_size(self.module) - 1
        gathered = self.module.in_features * self.module.out_features if self._gathered is not None else 0
        return ExtraBytes(gathered * extra, self.module.in_features * extra)

    def trial_bytes(self) -> ExtraBytes:
        size, inputs, outputs = _element_size(self.module), self.module.in_features, self.module.out_features
        # The low results beside the high ones, their difference, and the operands in float8, the weight both ways.
        return ExtraBytes((2 * size + 2) * inputs * outputs, (2 * size + 1) * (inputs + outputs))

    def low_forward(self, input: Tensor) -> Tensor:
        """torchao's own forward, whatever the flag says."""
        result: Tensor = type(self.module).forward(self.module, input)
        return result if self.factor is None else result * self.factor

    def plant_factor(self, factor: float | None) -> None:
        self.factor = factor
        self.tell_neighbours()

    @property
    def is_faulty(self) -> bool:
        return self.factor is not None

    def high_forward(self, input: Tensor) -> Tensor:
        """The layer without float8, in the type that its low path has."""
        return functional.linear(*self.high_operands(input))

    def high_operands(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Input, weight and bias of the GEMM in high precision, in one type."""
        weight, bias = self.module.weight, self.module.bias
        if torch.is_autocast_enabled():
            # As the low path: it asks for the type of the GPU's autocast.
            input = input.to(torch.get_autocast_dtype("cuda"))
        if weight.dtype != input.dtype:
            weight = weight.to(input.dtype)
        if bias is not None and bias.dtype != input.dtype:
            bias = bias.to(input.dtype)
        return input, weight, bias


def forward(module: nn.Linear, input: Tensor) -> Tensor:
    """The `forward` of an instance that can be switched."""
    switch: Float8Switch | None = switch_of(module)
    if switch is None:
        plain: Tensor = type(module).forward(module, input)
        return plain
    if torch.compiler.is_compiling():
        return with_measured_gradient(switch, compiled_forward(switch, input))
    if torch.is_grad_enabled():
        switch.note_call()
    if switch.comparing:
        result = _compared(switch, input)
    elif _is_sampled(switch, input):
        result = sampled_forward(switch, input)
    else:
        result = switch.high_forward(input) if switch.high else switch.low_forward(input)
    return with_measured_gradient(switch, result)


def _is_sampled(switch: Float8Switch, input: Tensor) -> bool:
    return switch.patrolled and torch.is_grad_enabled() and can_be_sampled(switch.module, input)


def _compared(switch: Float8Switch, input: Tensor) -> Tensor:
    input, weight, bias = switch.high_operands(input)
    result: Tensor = _Compared.apply(input, weight, bias, switch)  # type: ignore[no-untyped-call]
    return result


class _Compared(torch.autograd.Function):
    """The high path, with the low one run beside it in forward and backward."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, switch: Float8Switch) -> Tensor:
        result = functional.linear(input, weight, bias)
        switch.add_error(0, switch.low_forward(input), result)
        ctx.switch, ctx.has_bias = switch, bias is not None
        ctx.save_for_backward(input, weight)
        return unviewed(result)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        switch: Float8Switch = ctx.switch
        rows, matrix = gradient.reshape(-1, weight.shape[0]), input.reshape(-1, weight.shape[1])
        to_input, to_weight = torch.mm(rows, weight).view(input.shape), torch.mm(rows.t(), matrix)
        with torch.enable_grad():
            leaf = input.detach().requires_grad_()
            low = switch.low_forward(leaf)
        trained = [leaf, switch.module.weight] if switch.module.weight.requires_grad else [leaf]
        lows = torch.autograd.grad(low, trained, gradient)
        for product, (one, high) in enumerate(zip(lows, (to_input, to_weight), strict=False), 1):
            switch.add_error(product, one, high)
        wants_input, wants_weight, wants_bias, _ = ctx.needs_input_grad
        return (
            to_input if wants_input else None,
            to_weight if wants_weight else None,
            rows.sum(0) if ctx.has_bias and wants_bias else None,
            None,
        )


def _element_size(module: nn.Linear) -> int:
    return module.weight.element_size()


def _expected(config: Any) -> list[float]:
    """What the formats of a configuration do to each GEMM, by the recipe of ours that has the same ones."""
    row_wise = config.cast_config_input.scaling_granularity.value == "axiswise"
    rules = recipe_of("fp8-rowwise" if row_wise else "fp8-tensorwise")
    casts = (config.cast_config_input, config.cast_config_grad_output, config.cast_config_grad_output_for_grad_weight)
    return [
        0.0 if cast.scaling_type.value == "disabled" else rules.expected_error(product)
        for product, cast in enumerate(casts)
    ]
