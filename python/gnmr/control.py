# SPDX-License-Identifier: Apache-2.0
"""What `gnmr.attach` returns: the control of one model in one training loop.

    loss.backward(); ctl.step(max_norm=1.0); optimizer.step()

Goals: one pass over the gradients a step; switches change between steps only; a fault in here never ends a run: GNMR
disarms, on all ranks together, says so once, and the model goes on as its backend has it. Non-goals: what happens
inside a step (gnmr.control_steps), deciding (gnmr._core).

It belongs to one thread, the one that trains. With several ranks all of them call the same members in the same order.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gnmr import _core
from gnmr._core import Error
from gnmr.control_state import checked_state, restore_memory, saved_state
from gnmr.control_steps import ControlSteps
from gnmr.rerun import Closure, Rerun
from gnmr.step_result import StepResult
from gnmr.units import Coverage, WatchedUnit


class Control(ControlSteps):
    """Watches the units of a model and switches them between steps. Made by `gnmr.attach`."""

    # What is there.

    @property
    def units(self) -> list[WatchedUnit]:
        """The units, in the order of the controller's."""
        return list(self._units)

    @property
    def coverage(self) -> Coverage:
        """How much of the model is watched."""
        return self._parts.joined.found.coverage

    @property
    def high(self) -> list[str]:
        """The units that run high in the step that is going on, or comes next."""
        return [self._units[index].name for index in self._high]

    @property
    def mode(self) -> str:
        """`armed`, `watch`, `high`; `disarmed` after a fault or `detach`."""
        return "disarmed" if self._fault else self._supervisor.mode

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._step

    @property
    def supervisor(self) -> _core.Supervisor:
        """The core's own object, for what is not here: signals, means, risks."""
        return self._supervisor

    # The step.

    def step(self, *, max_norm: float | None = None, skipped: bool = False,
             loss: float | Tensor | None = None) -> StepResult:
        """After the last backward of a step and before its update: norms, decision, switches for the next step.

        `max_norm` also clips, as torch.nn.utils.clip_grad_norm_ does, from the same pass. `skipped`: there will be no
        update (a GradScaler found an overflow): the step is no sample, nothing is clipped. `loss` is for the journal.
        """
        limit = None if skipped else max_norm
        return self.listeners.tell(self._guarded(lambda: self._plain_step(limit, skipped, loss), limit), self)

    def trial(self, closure: Closure, *, max_norm: float | None = None,
              loss: float | Tensor | None = None) -> StepResult:
        """As `step`, for loops that can run a step again: `closure()` does forward and backward of the same step, all
        of its micro-batches, and returns the loss. The first run has been made.

        An alarmed step runs again in high precision with each low path measured beside it; the units at fault go to
        recovery, and the gradients that are left make the update. Where `applied` is False there are none.
        """
        rerun = Rerun(self._units, self._own, self._random, closure, self._measurement.meet)
        return self.listeners.tell(self._guarded(lambda: self._tried_step(rerun, max_norm, loss), max_norm), self)

    def micro_batch(self, index: int) -> None:
        """Tells stochastic rounding which micro-batch of the step comes, from 0 on."""
        self._parts.clock.micro_batch = index

    # The switchboard.

    def set(self, pattern: str, path: str, steps: int | None = None) -> None:
        """Units whose names fit run `high` or `low` whatever the controller says, for so many steps (None: until told
        otherwise); `auto` takes earlier words about this pattern back. It holds from the next step on: the one that is
        going on is not changed."""
        rules = self._switchboard.changed(pattern, path, steps, self._step + (2 if self._random.begun else 1))
        self._supervisor.set_rules(rules)
        self._switchboard.rules = rules
        if not self._random.begun:
            self._switch()

    def watch(self, why: str = "the program asked for it") -> None:
        """Decisions are only written from the next step on."""
        self._set_mode("watch", why)

    def arm(self, why: str = "the program asked for it") -> None:
        """Decisions are carried out from the next step on."""
        if self._fault:
            raise Error(f"arm: gnmr does nothing any more ({self._fault}): attach again")
        if not self._parts.joined.switchable:
            raise Error("arm: expected units that can be switched; this model has no low path")
        self._set_mode("armed", why)

    # Checkpoints and the end.

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decisions depend on, as plain values: torch.save takes it as it is."""
        return saved_state(self._step, self._supervisor, self._switchboard.rules, self._units)

    def load_state_dict(self, state: Mapping[str, Any]) -> dict[str, object]:
        """Takes it over, between two steps. Histories go by unit names and current options win; the report says what
        is not as it was."""
        report = self._supervisor.restore(bytes(checked_state(state)["supervisor"]))
        restore_memory(state, self._units)
        self._switchboard.rules = list(state["rules"])
        self._supervisor.set_rules(self._switchboard.rules)
        self._step = int(state["step"])
        self._begin_step()
        if not report["exact"]:
            self._say(f"the state was not taken over as it is: {report}")
        return report

    def detach(self) -> None:
        """The model is as it was before `attach`, and the journal is complete."""
        self._hook.remove()
        self._all_low()
        for own in self._own:
            own.remove()
        self._parts.kill_switch.release()
        self.listeners.close()
        self._supervisor.close()
        self._fault = self._fault or "it was detached"
        if self._exchange is not None:
            self._exchange.fault_is_known = True
