# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 0: a step waits for its numbers, is decided before its update, and may run again.

Goals: the one place that asks the core for a decision before the update (`hear`, `decide`, `conclude`, `replayed`).
Non-goals: what lies between two steps (gnmr.step.steps).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gnmr import _core
from gnmr.norms.late_numbers import frozen_units
from gnmr.ranks.exchange import CommonStatus, RankStatus
from gnmr.results import StepResult, journal_coefficient, limit_of
from gnmr.step import registrations
from gnmr.step.rerun import ClosureFailed, ErrorSquares, Rerun, failure_of, is_about_memory, number_of
from gnmr.step.steps import Steps


class Prompt:
    """Decides each step at once."""

    lag = 0
    is_open = False

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._parts = steps.parts
        self._agreement = steps.agreement
        self._frozen = frozen_units(self._parts.joined)
        self._unlike: list[int] = []  # units whose copies had different norms in the last step
        self._sites = len(self._parts.joined.places)

    def step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, rerun: Rerun | None = None
    ) -> StepResult:
        steps, parts = self._steps, self._parts
        may_rerun, loss_value = rerun is not None, None
        if self._agreement.exchange is not None:
            common, loss_value = self._measure_together(loss, skipped, may_rerun)
            may_rerun = may_rerun and common.may_rerun
            if common.skipped:
                return self._skipped_step(max_norm, skipped, loss_value)
        else:
            if registrations.changes != steps.known_registrations or steps.number % registrations.LOOK_EVERY == 0:
                steps.look_at_parameters()
            if loss is not None:
                loss_value = number_of(loss)
            if skipped:
                return self._skipped_step(max_norm, skipped, loss_value)
            parts.gradients.measure()
            if self._frozen:
                self._measure_outputs()
        numbers = parts.gradients.numbers
        hearing = parts.supervisor.hear(steps.number + 1, numbers.norms, numbers.sampled, may_rerun=may_rerun)
        if rerun is not None and hearing.action == "trial":
            return self._trial(hearing, rerun, max_norm, loss_value)
        return self._decide(hearing, max_norm, loss_value, rerun)

    def _skipped_step(self, max_norm: float | None, skipped: bool, loss: float | None) -> StepResult:
        """Some rank has no update: the step is no sample."""
        steps, supervisor = self._steps, self._parts.supervisor
        step = steps.number + 1
        supervisor.hear(step, *self._parts.no_samples(), may_rerun=False)
        ruling = supervisor.decide(loss=loss)
        result = StepResult(step, applied=False, loss=loss, decided_step=step)
        if not skipped:
            # Another rank has no update; this one does what it was asked for.
            total, coefficient = self._parts.gradients.total(limit_of(max_norm))
            result = StepResult(step, total, coefficient, loss=loss, decided_step=step)
            return steps.finish(result, ruling)
        steps.end(self._parts.gradients.numbers.sampled)
        return steps.record(result, ruling)

    def _trial(self, hearing: _core.Hearing, rerun: Rerun, max_norm: float | None, loss: float | None) -> StepResult:
        """A step that is to run again."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step = steps.number + 1
        before, norm_before = gradients.squares(), gradients.total()[0]
        now = set(steps.high)
        errors = ErrorSquares(len(steps.units), self._sites)
        try:
            if not self._run_again(rerun, lambda: rerun.trial(now, errors), errors):
                # It has had its rerun; the gradients are those of the step as it first ran.
                return self._decide(hearing, max_norm, loss)
        except ClosureFailed:
            supervisor.decide(loss=loss)
            raise
        total, coefficient = gradients.total(limit_of(max_norm))
        applied = math.isfinite(total)
        context = rerun.context(before, norm_before, gradients.squares(), total, loss, applied)
        ruling = supervisor.conclude(
            step,
            gradients.numbers.norms,
            gradients.numbers.sampled,
            errors.errors(),
            context,
            loss=rerun.loss,
            clip_coefficient=journal_coefficient(coefficient, max_norm),
        )
        result = StepResult(
            step, total, coefficient, applied, True, "trial", ruling.verdict, loss=rerun.loss, decided_step=step
        )
        return steps.finish(result, ruling)

    def _decide(
        self, hearing: _core.Hearing, max_norm: float | None, loss: float | None, rerun: Rerun | None = None
    ) -> StepResult:
        """A step without a trial."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step, limit = steps.number + 1, math.inf if max_norm is None else max_norm
        total, coefficient = gradients.total(limit)
        ruling = supervisor.decide(loss=loss, clip_coefficient=None if max_norm is None else coefficient)
        if ruling.clip:
            gradients.scale_units(ruling.clip)
            failure = self._read(RankStatus()).failure
            if failure is not None:
                raise failure
            total, coefficient = gradients.total(limit)
        kind = ""
        if ruling.action == "replay" and rerun is not None:
            before, norm_before = gradients.squares(), total
            now = set(steps.high)
            if self._run_again(rerun, lambda: rerun.with_high(now | set(ruling.decision.recovered), now)):
                kind = "replay"
                total, coefficient = gradients.total(limit)
                supervisor.replayed(
                    step,
                    rerun.context(before, norm_before, gradients.squares(), total, loss, math.isfinite(total)),
                )
                loss = rerun.loss
        applied = ruling.action != "hold" and not (kind and not math.isfinite(total))
        result = StepResult(step, total, coefficient, applied, hearing.alarmed, kind, loss=loss, decided_step=step)
        return steps.finish(result, ruling)

    def _run_again(self, rerun: Rerun, run: Callable[[], None], errors: ErrorSquares | None = None) -> bool:
        """The step once more, and its gradients measured. False: there was no memory, and it has been run as before.
        What fails on one rank fails on all."""
        steps, gradients = self._steps, self._parts.gradients
        gradients.drop()
        failure = self._read(RankStatus(failure_of(run)), errors).failure
        if failure is None:
            return True
        if isinstance(failure, ClosureFailed) and is_about_memory(failure.cause):
            steps.say(
                f"step {steps.number + 1}: a rerun failed for want of memory ({failure}); the step runs as before"
            )
            gradients.drop()
            now = set(steps.high)
            failure = self._read(RankStatus(failure_of(lambda: rerun.with_high(now, now)))).failure
            if failure is None:
                return False
        # A fault of ours, or of a switch: the loop has its gradients all the same. A closure that fails once more, as
        # the step first ran, is the user's; one that does not was failed by us.
        gradients.drop()
        steps.all_low()
        self._agreement.check(failure_of(rerun.plain))
        if not isinstance(failure, ClosureFailed):
            raise failure
        if self._agreement.exchange is not None:
            self._agreement.exchange.fault_is_known = True
        raise failure.cause

    def _measure_together(
        self, loss: float | Tensor | None, skipped: bool, may_rerun: bool
    ) -> tuple[CommonStatus, float | None]:
        """The numbers of all ranks, which then know each other's status; the loss as a number."""
        status = self._agreement.status(self._steps.checksum, skipped=skipped, may_rerun=may_rerun)
        loss_value = None
        try:
            loss_value = number_of(loss)
        except Exception as fault:
            status.failure = status.failure or fault
        common = self._read(status)
        self._agreement.follow(common, status, self._unlike)
        return common, loss_value

    def _read(self, status: RankStatus, errors: ErrorSquares | None = None) -> CommonStatus:
        """Reads all gradients, or nothing where the status has a failure or a skipped step; then ranks exchange."""
        gradients = self._parts.gradients
        alone = self._agreement.exchange is None
        numbers: Tensor | None = None
        if status.failure is None and not status.skipped:
            try:
                gradients.measure()
                if self._frozen:
                    self._measure_outputs()
                numbers = None if alone else gradients.contribution()
            except Exception as caught:
                status.failure = caught
        if alone:
            return self._agreement.read(status)[0]
        if numbers is None:
            numbers = gradients.nothing()
        own = numbers if errors is None else torch.cat([numbers, errors.numbers()])
        common, total = self._agreement.read(status, own)
        assert total is not None
        self._unlike = gradients.take(total[: len(numbers)], self._parts.joined.outputs)
        if errors is not None:
            errors.take(total[len(numbers) :])
        return common

    def _measure_outputs(self) -> None:
        self._parts.gradients.set_outputs({index: switch.output_square for index, switch in self._frozen})

    # What is asked between steps, and after a fault: nothing is ever open.

    def total_norm(self) -> float | Tensor:
        return self._steps.last_norm

    def catch_up(self) -> None:
        pass

    def restored(self, is_open: bool) -> None:
        pass

    def renumber(self, difference: int) -> None:
        pass

    def report_fault(self, max_norm: float | None) -> None:
        self._agreement.report_fault(self._steps.fault)

    def clip(self, max_norm: float) -> tuple[float, float]:
        return self._steps.clip_anyway(max_norm)
