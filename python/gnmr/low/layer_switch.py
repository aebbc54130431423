# SPDX-License-Identifier: Apache-2.0
"""What the switches of our backends have in common: a flag, a forward of the instance, what a trial has measured.

Goals: a backend says only what its two paths are. Non-goals: switches of users, which need no base (gnmr.switches).
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from gnmr.low import instance_forward, layer_handles
from gnmr.low.amax_history import AmaxHistory
from gnmr.low.gemm_errors import PLACES, ErrorSums, SquareSum
from gnmr.low.instance_forward import ForgottenInCopies

_Module = TypeVar("_Module", bound=nn.Module)


class LayerSwitch(ForgottenInCopies, Generic[_Module]):
    """The switch of one module: measuring and installed."""

    places: Sequence[str] = PLACES

    def __init__(self, module: _Module, forward: Callable[..., Any], cost: int, expected: Sequence[float]) -> None:
        """`forward` takes the place of the instance's (gnmr.low.instance_forward)."""
        self.module = module
        self.cost = max(cost, 1)
        self.expected = expected
        self.high = False
        self.comparing = False
        self.calls = 0  # of forward with gradients, since the step began, or 1
        self.errors = [ErrorSums() for _ in PLACES]
        self.history: AmaxHistory | None = None  # of delayed scaling, where the low path has it
        self.measures_output = False  # the unit's norm is that of its output's gradient: nothing in it is trained
        self._output_square = SquareSum()
        self.handle = layer_handles.new_handle(self)
        self._forward = forward

    def install(self) -> None:
        """The module has two paths from here on."""
        instance_forward.install(self.module, self, self._forward)

    def remove(self) -> None:
        """The module is as it was."""
        instance_forward.remove(self.module)

    def set_high(self, high: bool) -> None:
        self.high = high
        self.comparing = False

    def begin_step(self) -> None:
        """Forgets what was measured in the last step, or in the first run of this one."""
        self.calls = 0
        if self.measures_output:
            self._output_square = SquareSum()
        if self.history is not None:
            self.history.begin_step()

    def note_call(self) -> None:
        """The module is called, with gradients."""
        # Compilers break their graph where a change outside of it is made under activation checkpointing.
        if not torch.compiler.is_compiling():
            self.calls = 1

    def end_step(self) -> None:
        """The amax history takes the step in."""
        if self.history is not None:
            self.history.end_step()

    def measure_output(self, gradient: Tensor) -> None:
        """Adds the output's gradient of a micro-batch to its squared norm."""
        self._output_square.add(gradient)

    @property
    def output_square(self) -> float | None:
        """The squared norm of the output's gradient in this step, where that is the unit's norm; waits for a device."""
        return self._output_square.value()

    @property
    def output_number(self) -> float | Tensor | None:
        """The same, without a wait: a tensor where it is on a device."""
        return self._output_square.number()

    def begin_trial(self) -> None:
        self.begin_step()
        self.errors = [ErrorSums() for _ in PLACES]
        self.comparing = True

    def end_trial(self) -> Sequence[float]:
        self.comparing = False
        return [sums.error() for sums in self.errors]

    def error_squares(self) -> Sequence[tuple[float, float]]:
        """What the errors of the last trial are made of, to be added to those of other ranks."""
        return [(sums.difference, sums.reference) for sums in self.errors]
