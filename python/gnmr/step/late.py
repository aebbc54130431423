# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 1: nothing waits for the numbers of a step; it is decided while the next one runs.

    step t      norms queued, gradients clipped, the ranks' sum entered; then step t - 1 is decided, and the switches
                are set for step t + 1

Goals: the host goes on while the device, and the other ranks, are still at it; every rank learns of a fault in the same
step. Non-goals: holding a step (the update is somebody else's, and does not wait), so there is neither trial nor guard.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.low.device_stream import OnItsWay
from gnmr.norms.late_numbers import LateNumbers, PendingStep
from gnmr.ranks.exchange import RankStatus
from gnmr.results import LateResult, StepResult, limit_of
from gnmr.step import registrations
from gnmr.step.prompt import Prompt
from gnmr.step.rerun import Rerun, is_number, number_of
from gnmr.step.steps import Steps


class Late:
    """Decides each step when the next one ends."""

    lag = 1

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._parts = steps.parts
        self._agreement = steps.agreement
        self._numbers = self._measured()
        self._pending: PendingStep | None = None  # the last step; None: it is decided
        self._settling: PendingStep | None = None  # what is being decided
        self._all_want_reruns = False  # all ranks call `trial`, and nobody has asked for lag 1
        self._has_warned = False  # that there are no trials

    def _measured(self) -> LateNumbers:
        return LateNumbers(self._parts.gradients, self._parts.joined, self._agreement.exchange)

    def step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, rerun: Rerun | None = None
    ) -> StepResult:
        may_rerun = rerun is not None and self._parts.lag_is_free
        if self._all_want_reruns or (may_rerun and self._agreement.exchange is None):
            return self.become_prompt().step(max_norm, skipped, loss, rerun)
        if rerun is not None and not self._parts.lag_is_free and not self._has_warned:
            self._has_warned = True
            self._steps.warn(
                "with lag 1 no step can be held, so ctl.trial does what ctl.step does: attach(lag=0) for trials"
            )
        steps, patrol, supervisor = self._steps, self._parts.patrol, self._parts.supervisor
        if self._agreement.exchange is not None:
            # All ranks must ask for reruns: that is known with this step's numbers.
            status = self._agreement.status(lambda: steps.begun_checksum, skipped=skipped, may_rerun=may_rerun)
        else:
            status = RankStatus(skipped=skipped)
            if registrations.changes != steps.known_registrations or steps.number % registrations.LOOK_EVERY == 0:
                steps.look_at_parameters()
        pending = PendingStep(steps.number + 1, status, math.inf if max_norm is None else max_norm)
        try:
            if loss is not None:
                pending.loss = _late_number(loss)
            if patrol is not None:
                pending.patrolled = patrol.end(sends=self._agreement.exchange is None)
        except Exception as fault:
            status.failure = status.failure or fault
        if self._numbers.gradients is not self._parts.gradients:
            self._numbers = self._measured()
        numbers = self._numbers
        numbers.start(pending)
        if pending.common is not None and pending.common.failure is not None:
            raise pending.common.failure
        # Once the exchange is entered nothing more is clipped together, whatever went wrong on this rank.
        steps.is_clipped = pending.clip_failure is None or self._agreement.exchange is not None
        before, self._pending = self._pending, pending
        if before is not None:
            steps.settled.append(self._settle(before))
        if pending.clip_failure is not None and status.failure is None:
            raise pending.clip_failure
        steps.end()
        decided = (
            steps.settled[-1]
            if steps.settled
            else StepResult(0, recovered=steps.names(supervisor.recovered), standing=steps.names(supervisor.standing))
        )
        return LateResult(
            replace(
                decided,
                step=pending.step,
                total_norm=math.nan,
                clip_coefficient=math.nan,
                applied=not skipped,
                loss=None if pending.loss is None or (isinstance(loss, Tensor) and loss.is_cuda) else pending.loss(),
            ),
            lambda: numbers.numbers(pending),
        )

    def _settle(self, pending: PendingStep) -> StepResult:
        """Waits for the numbers of a step, and has it decided."""
        steps, numbers, supervisor = self._steps, self._numbers, self._parts.supervisor
        self._settling = pending
        common = numbers.complete(pending)
        if self._agreement.exchange is not None:
            self._agreement.follow(
                replace(common, differs=common.differs and not pending.differences_settled),
                pending.status,
                numbers.unlike,
            )
            self._all_want_reruns = self._parts.lag_is_free and common.may_rerun
        loss = pending.loss() if pending.loss is not None else None
        if common.skipped:
            outcome = supervisor.report(pending.step, None, done="dropped", loss=loss)
            result = StepResult(pending.step, applied=not pending.status.skipped, loss=loss, decided_step=pending.step)
        else:
            gradients = numbers.gradients
            total, coefficient = gradients.numbers.clip(pending.limit)
            outcome = supervisor.report(
                pending.step,
                gradients.numbers.norms,
                gradients.numbers.sampled,
                pending.errors,
                loss=loss,
                clip_coefficient=None if math.isinf(pending.limit) else coefficient,
            )
            if not steps.blind.is_over:
                steps.look_for_blind_units(gradients.numbers.sampled)
            result = StepResult(
                pending.step,
                total,
                coefficient,
                alarmed=outcome.alarmed,
                loss=loss,
                decided_step=pending.step,
            )
        steps.last_norm = result.total_norm
        return steps.record(result, outcome)

    def become_prompt(self) -> Prompt:
        """Lag 0 from here on, on all ranks: the loop can run a step again, and waits for that."""
        steps, parts = self._steps, self._parts
        pending, self._pending = self._pending, None
        if pending is not None:
            steps.settled.append(self._settle(pending))
        supervisor, rules = parts.supervisor, steps.switchboard.rules
        state, mode = supervisor.save(), supervisor.mode
        supervisor.close()
        supervisor = parts.supervisor = parts.make_supervisor(0, steps.number + 1)
        supervisor.restore(state)
        supervisor.set_rules(rules)
        supervisor.set_mode(mode, "as before, with lag 0")
        supervisor.begin(steps.number + 1)
        steps.move_switches()
        steps.strategy = prompt = Prompt(steps)
        return prompt

    # Between steps.

    @property
    def is_open(self) -> bool:
        return self._pending is not None

    def total_norm(self) -> float | Tensor:
        return self._steps.last_norm if self._pending is None else self._numbers.norm(self._pending)

    def catch_up(self) -> None:
        pending = self._pending
        if pending is None or self._steps.fault or self._numbers.is_troubled(pending):
            return
        self._pending = None
        self._steps.settled.append(self._settle(pending))

    def restored(self, is_open: bool) -> None:
        self._pending = None
        if is_open:
            self._parts.supervisor.report(self._steps.number, None, done="dropped")

    def renumber(self, difference: int) -> None:
        for pending in (self._settling, self._pending):
            if pending is not None:
                # It was entered before, with what differed then; steps have the numbers of rank 0's.
                pending.differences_settled = True
                pending.step += difference

    # After a fault.

    def report_fault(self, max_norm: float | None) -> None:
        """As for lag 0; but the other ranks learn of it a step later, when all have entered one exchange more."""
        steps, exchange = self._steps, self._agreement.exchange
        if not self._agreement.is_open or exchange is None:
            return
        before, self._pending = self._pending, None
        try:
            failed = PendingStep(steps.number, RankStatus(Error(steps.fault)), limit_of(max_norm))
            steps.is_clipped = True
            self._numbers.start(failed)
            self._pending = failed
            if before is not None:
                common = self._numbers.complete(before)
                if common.failure is None and common.differs and not before.differences_settled:
                    self._agreement.take_over(common)
        except Exception as second:
            steps.is_clipped = not exchange.is_broken
            steps.say(f"nor could the other ranks be told: {second}")

    def clip(self, max_norm: float) -> tuple[float, float]:
        if not self._steps.is_clipped:
            return self._steps.clip_anyway(max_norm)
        # They were clipped before the fault; with several ranks nobody waits for the others here.
        if self._agreement.exchange is None and self._pending is not None:
            return self._numbers.numbers(self._pending)
        return math.nan, math.nan


def _late_number(loss: float | Tensor | None) -> Callable[[], float | None]:
    """A loss as a number, which is awaited later where it is on a device."""
    if not (isinstance(loss, Tensor) and loss.is_cuda and is_number(loss)):
        number = number_of(loss)
        return lambda: number
    sent = OnItsWay(loss.detach().to(torch.float64).reshape(()))
    return lambda: float(sent.arrived())
