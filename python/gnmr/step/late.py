# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 1: nothing waits for the numbers of a step; it is decided while the next one runs.

    step t      norms queued, gradients clipped, the ranks' sum entered; then step t - 1 is heard and decided, and the
                switches are set for step t + 1

Goals: the host goes on while the device, and the other ranks, are still at it; every rank hears of a fault in the same
step. Non-goals: holding a step (the update is somebody else's, and does not wait), so there is neither trial nor guard.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.low.device_stream import OnItsWay
from gnmr.norms.measuring import Pending
from gnmr.ranks.exchange import Heard, Word
from gnmr.results import LateResult, StepResult, limit_of
from gnmr.step.parts import ControlParts
from gnmr.step.rerun import Rerun, is_number, number_of
from gnmr.step.steps import ControlSteps


class LateSteps(ControlSteps):
    """The steps of a control, with lag 0 or 1. It belongs to one thread, the one that trains."""

    def __init__(self, parts: ControlParts, *, strict: bool, quiet: bool) -> None:
        self._pending: Pending | None = None  # of the last step; None: it is decided
        self._settled: list[StepResult] = []  # steps that were decided, and that nobody has been told of
        self._begun_checksum = 0
        self._settling: Pending | None = None  # what is being decided
        self._all_want_reruns = False  # all ranks call `trial`, and nobody has asked for lag 1
        self._told_no_trial = False
        self._last_norm: float = math.nan
        super().__init__(parts, strict=strict, quiet=quiet)

    @property
    def _is_late(self) -> bool:
        return self._supervisor.has_gate

    def _plain_step(self, max_norm: float | None, skipped: bool, loss: float | Tensor | None) -> StepResult:
        if not self._is_late:
            return super()._plain_step(max_norm, skipped, loss)
        if self._all_want_reruns:
            self._become_prompt()
            return super()._plain_step(max_norm, skipped, loss)
        return self._late_step(max_norm, skipped, loss, may_rerun=False)

    def _late_step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, *, may_rerun: bool
    ) -> StepResult:
        pending = Pending(self._step + 1, self._word(skipped, may_rerun), limit_of(max_norm), lambda: None)
        try:
            pending.loss = _late_number(loss)
        except Exception as fault:
            pending.word.failure = pending.word.failure or fault
        measurement = self._measurement
        measurement.start(pending)
        if pending.heard is not None and pending.heard.failure is not None:
            raise pending.heard.failure
        # Once the ranks have met nothing more is clipped together, whatever went wrong on this one.
        self._is_settled = pending.clip_failure is None or self._exchange is not None
        before, self._pending = self._pending, pending
        if before is not None:
            self._settled.append(self._settle(before))
        if pending.clip_failure is not None and pending.word.failure is None:
            raise pending.clip_failure
        self._end_step()
        decided = (
            self._settled[-1] if self._settled else StepResult(0, recovered=self._names(self._supervisor.recovered))
        )
        return LateResult(
            replace(
                decided,
                step=pending.step,
                applied=not skipped,
                loss=None if isinstance(loss, Tensor) and loss.is_cuda else pending.loss(),
            ),
            lambda: measurement.numbers(pending),
        )

    def _settle(self, pending: Pending) -> StepResult:
        """Waits for the numbers of a step, and has it decided."""
        self._settling = pending
        heard = self._measurement.complete(pending)
        self._heed(replace(heard, differs=heard.differs and not pending.is_answered), pending.word)
        self._all_want_reruns = self._parts.lag_is_free and heard.may_rerun
        told = pending.loss()
        if heard.skipped:
            ruling = self._supervisor.settle(pending.step, *self._parts.no_samples(), loss=told)
            result = StepResult(pending.step, applied=not pending.word.skipped, loss=told)
        else:
            total, coefficient = self._gradients.total(pending.limit)
            ruling = self._supervisor.settle(
                pending.step,
                self._gradients.norms,
                self._gradients.sampled,
                loss=told,
                clip_coefficient=None if math.isinf(pending.limit) else coefficient,
            )
            self._look_for_blind_units()
            result = StepResult(pending.step, total, coefficient, alarmed=bool(self._supervisor.risks()), loss=told)
        self._last_norm = result.total_norm
        return self._with_decision(result, ruling)

    def _catch_up(self) -> None:
        """Decides the last step now, unless a rank has something to say that all must hear together."""
        pending = self._pending
        if pending is None or self._fault or self._measurement.is_troubled(pending):
            return
        self._pending = None
        self._settled.append(self._settle(pending))

    def _catch_up_at_the_end(self) -> None:
        """So that the journal is complete; whatever goes wrong is too late."""
        try:
            self._catch_up()
        except Exception as fault:
            self._say(f"the last step was not decided: {fault}")

    def _tried_step(self, rerun: Rerun, max_norm: float | None, loss_before: float | Tensor | None) -> StepResult:
        if not self._is_late:
            return super()._tried_step(rerun, max_norm, loss_before)
        if self._all_want_reruns or (self._parts.lag_is_free and self._exchange is None):
            self._become_prompt()
            return super()._tried_step(rerun, max_norm, loss_before)
        if self._parts.lag_is_free:
            # With several ranks all must ask for it: that is heard with this step's numbers.
            return self._late_step(max_norm, False, loss_before, may_rerun=True)
        if not self._told_no_trial:
            self._told_no_trial = True
            self._warn("with lag 1 no step can be held, so ctl.trial does what ctl.step does: attach(lag=0) for trials")
        return self._late_step(max_norm, False, loss_before, may_rerun=False)

    def _become_prompt(self) -> None:
        """Lag 0 from here on, on all ranks: the loop can run a step again, and waits for that."""
        pending, self._pending = self._pending, None
        self._all_want_reruns = False
        if pending is not None:
            self._settled.append(self._settle(pending))
        self._all_want_reruns = False
        state, rules, mode = self._supervisor.save(), self._switchboard.rules, self._supervisor.mode
        self._supervisor.close()
        self._supervisor = self._parts.supervisor = self._parts.make_supervisor(0, self._step + 1)
        self._supervisor.restore(state)
        self._supervisor.set_rules(rules)
        self._supervisor.set_mode(mode, "as before, with lag 0")
        self._supervisor.begin(self._step + 1)
        self._switch()

    def _take_over(self, heard: Heard) -> None:
        before = self._step
        super()._take_over(heard)
        for pending in (self._settling, self._pending):
            if pending is not None:
                # It was entered before, with what differed then; steps have the numbers of rank 0's.
                pending.is_answered = True
                pending.step += self._step - before

    def _begin_step(self) -> None:
        super()._begin_step()
        if self._exchange is not None:
            self._begun_checksum = super()._checksum()

    def _checksum(self) -> int:
        # The last step may be decided on one rank, and not yet on another.
        return self._begun_checksum if self._is_late else super()._checksum()

    def _tell_others(self, max_norm: float | None) -> None:
        """As for lag 0; but what a rank says is heard a step later, when all have entered one meeting more."""
        exchange = self._exchange
        if not self._is_late or exchange is None or exchange.fault_is_known or exchange.is_broken:
            super()._tell_others(max_norm)
            return
        before, self._pending = self._pending, None
        try:
            failed = Pending(self._step, Word(Error(self._fault)), limit_of(max_norm), lambda: None)
            self._is_settled = True
            self._measurement.start(failed)
            self._pending = failed
            if before is not None:
                heard = self._measurement.complete(before)
                if heard.failure is None and heard.differs and not before.is_answered:
                    self._take_over(heard)
        except Exception as second:
            self._is_settled = not exchange.is_broken
            self._say(f"nor could the other ranks be told: {second}")

    def _clip_anyway(self, max_norm: float) -> tuple[float, float]:
        if not (self._is_late and self._is_settled):
            return super()._clip_anyway(max_norm)
        # They were clipped before the fault; with several ranks nobody waits for the others here.
        if self._exchange is None and self._pending is not None:
            return self._measurement.numbers(self._pending)
        return math.nan, math.nan


def _late_number(loss: float | Tensor | None) -> Callable[[], float | None]:
    """A loss as a number, which is awaited later where it is on a device."""
    if not (isinstance(loss, Tensor) and loss.is_cuda and is_number(loss)):
        told = number_of(loss)
        return lambda: told
    sent = OnItsWay(loss.detach().to(torch.float64).reshape(()))
    return lambda: float(sent.arrived())
