# SPDX-License-Identifier: Apache-2.0
"""The gate of steps with lag 1: whether the update of a step is held, while the step before is not decided.

    on the host    where the norms are there (on a CPU, over gloo): gradients of a held step are dropped
    on a device    the device judges, and nobody waits: gnmr.step.held_update keeps optimizers from the update

Goals: the same norms and plans close both (docs/algorithm.md, "With a gate"). Non-goals: which steps may be held: the
core plans that, by the option `guard`; held batches, which are not run again here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.device_stream import stream_on
from gnmr.norms.local_sums import moved
from gnmr.step.held_update import HeldUpdate, Hold

if TYPE_CHECKING:
    from gnmr.step.steps import Steps

_HOST = torch.device("cpu")


class Gate:
    """Histories of the norms of all steps, one step ahead of the controller's."""

    def __init__(self, steps: Steps, decide: Callable[[], None]) -> None:
        """`decide`: has the steps decided that are not."""
        self._steps = steps
        self._decide = decide
        self._judge: Any = None  # _core.HostGate or _core.DeviceGate; None: its histories are to be those of the core's
        self._place = _HOST  # where it judges
        self._update: HeldUpdate | None = None  # None: it has not judged on a device yet
        self._has_warned = False  # of updates that do not ask

    def begin_step(self) -> None:
        """Until it is judged nothing is held."""
        if self._update is not None:
            self._update.release()

    def begin_anew(self) -> None:
        """The state is another one: the histories are those of the core's again."""
        self._judge = None

    def stand(self, place: torch.device) -> None:
        """Where the norms of the next step are. To be called before these are taken over: steps may be decided."""
        if self._judge is not None and self._place == place:
            return
        self._decide()
        supervisor = self._steps.parts.supervisor
        if place.type == "cpu":
            self._judge = _core.HostGate(supervisor)
        else:
            with stream_on(place) as stream:
                self._judge = _core.DeviceGate(supervisor, stream)
            self._update = self._update or HeldUpdate(self._steps)
        self._place = place

    def holds(self, limit: float) -> bool | Hold:
        """Judges the norms that were taken over; drops the gradients where it holds the update."""
        steps, gradients = self._steps, self._steps.parts.gradients
        is_held = bool(self._judge.holds(steps.plan, gradients.numbers.norms, gradients.numbers.sampled))
        if is_held:
            gradients.drop()
            steps.clipped_as = (*gradients.numbers.clip(limit), False)
        return is_held

    def judge(self, squares: Tensor, sampled: Tensor) -> bool | Hold:
        """Judges squared norms on a device; optimizers ask for what comes of it. `sampled`: bytes, 0: the unit has no
        gradient."""
        assert self._update is not None
        plan, device = self._steps.plan, squares.device
        norms = squares.sqrt()
        flags = moved(torch.frombuffer(bytearray(plan.gate_flags), dtype=torch.uint8), device)
        alarm = torch.empty(_core.DeviceGate.ALARM_BYTES, dtype=torch.uint8, device=device)
        places = [one.data_ptr() for one in (norms, sampled, flags, alarm)]
        with stream_on(device) as stream:
            self._judge.judge(plan, *places, stream)
        if not plan.may_hold:
            return False
        held = alarm[_core.DeviceGate.HELD_AT :][:4].view(torch.int32)[0]
        return self._update.hold(held.to(torch.float32))

    def report_unasked(self, step: int) -> None:
        """The update of a step that was to be held was made: the warning, once."""
        if not self._has_warned:
            self._has_warned = True
            self._steps.warn(
                f"step {step} was to be held, but no optimizer of torch.optim asked (or it takes a closure, or is "
                "compiled): go by result.applied, which waits for the device, or use lag=0"
            )

    def is_over(self, hold: Hold) -> bool:
        """Whether it is too late to ask."""
        return self._update is None or self._update.is_over(hold)

    def remove(self) -> None:
        """Optimizers are as they were."""
        if self._update is not None:
            self._update.remove()
