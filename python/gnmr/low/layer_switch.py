# SPDX-License-Identifier: Apache-2.0
"""What the switches of our backends have in common: a flag, a forward of the instance, what was measured in a step.

Goals: a backend says only what its two paths are. Non-goals: switches of users, which need no base (gnmr.switches).
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from gnmr import _core
from gnmr.low import instance_forward, layer_handles
from gnmr.low.front_end import LINEAR
from gnmr.low.instance_forward import ForgottenInCopies

_Module = TypeVar("_Module", bound=nn.Module)

#: The GEMMs of a linear layer, as trials name them.
PLACES = ("forward", "input_gradient", "weight_gradient")


class LayerSwitch(ForgottenInCopies, Generic[_Module]):
    """The switch of one module: measuring and installed."""

    places: Sequence[str] = PLACES

    def __init__(
        self,
        module: _Module,
        forward: Callable[..., Any],
        cost: int,
        expected: Sequence[float],
        layer: _core.LowLayer | None = None,
    ) -> None:
        """`forward` takes the place of the instance's (gnmr.low.instance_forward); `layer`: our low path, if it is."""
        self.module = module
        self.cost = max(cost, 1)
        self.expected = expected
        self.high = False
        self.comparing = False  # in a trial
        self.calls = 0  # of forward with gradients, since the step began, or 1
        self.measures_output = False  # the unit's norm is that of its output's gradient: nothing in it is trained
        self.layer = layer if layer is not None else _core.LowLayer(LINEAR, None)
        self.handle = layer_handles.new_handle(self)
        self._forward = forward

    @property
    def has_state(self) -> bool:
        """Whether the low path depends on earlier steps."""
        return False

    def install(self) -> None:
        """The module has two paths from here on."""
        instance_forward.install(self.module, self, self._forward)

    def remove(self) -> None:
        """The module is as it was."""
        instance_forward.remove(self.module)

    def set_high(self, high: bool) -> None:
        self.high = high
        self._compare(False)

    def begin_step(self) -> None:
        """Forgets what was measured in the last step, or in the first run of this one."""
        self.calls = 0
        if self.has_state or self.measures_output:
            self.layer.begin_step()

    def note_call(self) -> None:
        """The module is called, with gradients."""
        # Compilers break their graph where a change outside of it is made under activation checkpointing.
        if not torch.compiler.is_compiling():
            self.calls = 1

    def end_step(self) -> None:
        """The amax history takes the step in."""
        if self.has_state:
            self.layer.end_step()

    def measure_output(self, gradient: Tensor) -> None:
        """Adds the output's gradient of a micro-batch to its squared norm."""
        self.layer.add_square(as_matrix(gradient))

    def add_error(self, product: int, low: Tensor, high: Tensor) -> None:
        """In a trial: what the low path made beside the high one."""
        self.layer.add_error(product, as_matrix(low).to(high.dtype), as_matrix(high))

    @property
    def output_square(self) -> float | None:
        """The squared norm of the output's gradient in this step, where that is the unit's norm; waits for a device."""
        return self.layer.square()

    @property
    def output_number(self) -> float | Tensor | None:
        """The same, without a wait: a tensor where it is on a device, until the step ends."""
        # Sums of other kinds may be on a device without it.
        there = self.layer.sums_on_device() if self.layer.has_square else None
        if there is None:
            return self.layer.square()
        first: Tensor = there[:8].view(torch.float64)[0]
        return first

    def begin_trial(self) -> None:
        self.calls = 0
        self.layer.begin_step()
        self._compare(True)

    def end_trial(self) -> Sequence[float]:
        self._compare(False)
        return self.layer.errors()

    def _compare(self, wanted: bool) -> None:
        self.comparing = wanted
        self.layer.comparison = _core.Comparison.trial if wanted else _core.Comparison.none

    def error_squares(self) -> Sequence[tuple[float, float]]:
        """What the errors of the last trial are made of, to be added to those of other ranks."""
        return self.layer.error_sums()


def as_matrix(result: Tensor) -> Tensor:
    """A result, or an operand, with rows of tokens."""
    return result.detach().reshape(-1, result.shape[-1])
