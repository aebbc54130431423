# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 0: a step waits for its numbers, is decided before its update, and may run again.

Goals: the one place that reports a step to the core before its update, and runs it again where the core asks for it.
Non-goals: what lies between two steps (gnmr.step.steps).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gnmr import _core
from gnmr.ranks.exchange import CommonStatus, RankStatus
from gnmr.results import StepResult, journal_coefficient, limit_of
from gnmr.step import registrations
from gnmr.step.rerun import ClosureFailed, ErrorSquares, HighUnits, Rerun, failure_of, is_about_memory, number_of
from gnmr.step.steps import Steps


class Prompt:
    """Decides each step at once."""

    lag = 0
    is_open = False

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._parts = steps.parts
        self._agreement = steps.agreement
        self._frozen = self._parts.joined.frozen
        self._unlike: list[int] = []  # units whose copies had different norms in the last step
        self._sites = len(self._parts.joined.places)

    def step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, rerun: Rerun | None = None
    ) -> StepResult:
        steps, parts = self._steps, self._parts
        may_rerun, loss_value, errors = rerun is not None, None, None
        if self._agreement.exchange is not None:
            common, loss_value, errors = self._measure_together(loss, skipped, may_rerun)
            may_rerun, is_dropped = may_rerun and common.may_rerun, common.skipped
        else:
            is_dropped = skipped
            if registrations.changes != steps.known_registrations or steps.number % registrations.LOOK_EVERY == 0:
                steps.look_at_parameters()
            if loss is not None:
                loss_value = number_of(loss)
            measured = parts.patrol.end() if parts.patrol is not None else None
            if not skipped:
                parts.gradients.measure()
                if self._frozen:
                    self._measure_outputs()
                errors = measured.errors() if measured is not None else None
        gradients, step, limit = parts.gradients, steps.number + 1, math.inf if max_norm is None else max_norm
        if is_dropped:
            # Some rank has no update: the step is no sample. Where that is another one, this one clips.
            outcome = parts.supervisor.report(step, None, done="dropped", loss=loss_value)
            if skipped:
                steps.end(gradients.numbers.sampled)
                return steps.record(StepResult(step, applied=False, loss=loss_value, decided_step=step), outcome)
            result = StepResult(step, *gradients.total(limit), loss=loss_value, decided_step=step)
        else:
            total, coefficient = gradients.numbers.clip(limit)
            outcome = parts.supervisor.report(
                step,
                gradients.numbers.norms,
                gradients.numbers.sampled,
                errors,
                may_rerun=may_rerun,
                loss=loss_value,
                clip_coefficient=None if max_norm is None else coefficient,
            )
            if outcome.action == "rerun":
                assert rerun is not None
                run = self._trial if outcome.rerun == "trial" else self._replay
                result, outcome = run(outcome, rerun, max_norm, loss_value)
            else:
                if outcome.clip:
                    total, coefficient = self._clip_units(outcome.clip, limit)
                result = StepResult(
                    step,
                    total,
                    coefficient,
                    outcome.action != "hold",
                    outcome.alarmed,
                    loss=loss_value,
                    decided_step=step,
                )
        # The step was decided before its update: the gradients are those that the update takes.
        steps.is_clipped = True
        if not result.applied:
            gradients.drop()
        steps.clipped_as = (result.total_norm, result.clip_coefficient, result.applied)
        steps.end(gradients.numbers.sampled, result.clip_coefficient if result.applied else 1.0)
        return steps.record(result, outcome)

    def _clip_units(self, coefficients: Sequence[float], limit: float) -> tuple[float, float]:
        """Guard `clip`: gradients of units are scaled; the norm of what is left, and what clips it."""
        gradients = self._parts.gradients
        gradients.scale_units(coefficients)
        failure = self._read(RankStatus()).failure
        if failure is not None:
            raise failure
        return gradients.total(limit)

    def _trial(
        self, alarm: _core.Outcome, rerun: Rerun, max_norm: float | None, loss: float | None
    ) -> tuple[StepResult, _core.Outcome]:
        """The step once more in high precision, each low path measured beside it."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step = steps.number + 1
        before, norm_before = gradients.squares(), gradients.total()[0]
        errors = ErrorSquares(len(steps.units), self._sites)
        now = steps.high
        supervisor.begin(step)
        try:
            has_run = self._run_again(rerun, lambda: rerun.trial(now, errors), errors)
        except (ClosureFailed, KeyboardInterrupt):
            supervisor.report(step, None, done="rerun_failed", loss=loss)
            raise
        total, coefficient = gradients.total(limit_of(max_norm))
        clip = journal_coefficient(coefficient, max_norm)
        if not has_run:
            # It has had its rerun; the gradients are those of the step as it first ran.
            outcome = supervisor.report(step, None, done="rerun_failed", loss=loss, clip_coefficient=clip)
            if outcome.clip:
                total, coefficient = self._clip_units(outcome.clip, limit_of(max_norm))
            applied = outcome.action != "hold"
            return StepResult(step, total, coefficient, applied, True, loss=loss, decided_step=step), outcome
        applied = math.isfinite(total)
        outcome = supervisor.report(
            step,
            gradients.numbers.norms,
            gradients.numbers.sampled,
            errors.errors(),
            loss=rerun.loss,
            clip_coefficient=clip,
            rerun=rerun.context(before, norm_before, gradients.squares(), total, loss, applied),
        )
        result = StepResult(
            step, total, coefficient, applied, True, "trial", outcome.verdict, loss=rerun.loss, decided_step=step
        )
        return result, outcome

    def _replay(
        self, decided: _core.Outcome, rerun: Rerun, max_norm: float | None, loss: float | None
    ) -> tuple[StepResult, _core.Outcome]:
        """The step once more with the units high that it got admitted."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step = steps.number + 1
        before, norm_before = gradients.squares(), gradients.total()[0]
        now = steps.high
        supervisor.begin(step)
        wanted = HighUnits([*now.units, *supervisor.high], [*now.in_recovery, *supervisor.in_recovery])
        try:
            has_run = self._run_again(rerun, lambda: rerun.with_high(wanted, now))
        except (ClosureFailed, KeyboardInterrupt):
            supervisor.report(step, None, done="rerun_failed", loss=loss)
            raise
        total, coefficient = gradients.total(limit_of(max_norm))
        applied = math.isfinite(total) if has_run else True
        if has_run:
            context = rerun.context(before, norm_before, gradients.squares(), total, loss, applied)
            supervisor.report(step, gradients.numbers.norms, gradients.numbers.sampled, rerun=context)
            loss = rerun.loss
        else:
            supervisor.report(step, None, done="rerun_failed", loss=loss)
        kind = "replay" if has_run else ""
        result = StepResult(step, total, coefficient, applied, decided.alarmed, kind, loss=loss, decided_step=step)
        return result, decided

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
            now = steps.high
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
    ) -> tuple[CommonStatus, float | None, Any]:
        """The numbers of all ranks, which then know each other's status; the loss as a number; the patrol's errors."""
        status = self._agreement.status(self._steps.checksum, skipped=skipped, may_rerun=may_rerun)
        loss_value, patrol = None, self._parts.patrol
        errors = ErrorSquares(len(self._steps.units), self._sites) if patrol is not None else None
        try:
            loss_value = number_of(loss)
            if patrol is not None and errors is not None:
                errors.take(patrol.end().numbers(errors.difference.device))
        except Exception as fault:
            status.failure = status.failure or fault
        common = self._read(status, errors)
        self._agreement.follow(common, status, self._unlike)
        return common, loss_value, None if errors is None else errors.errors()

    def _read(self, status: RankStatus, errors: ErrorSquares | None = None) -> CommonStatus:
        """Reads all gradients, or nothing where the status has a failure or a skipped step; then ranks exchange, also
        errors that they have measured."""
        gradients = self._parts.gradients
        exchange = self._agreement.exchange
        numbers: Tensor | None = None
        if status.failure is None and not status.skipped:
            try:
                gradients.measure()
                if self._frozen:
                    self._measure_outputs()
                numbers = None if exchange is None else gradients.contribution()
            except Exception as caught:
                status.failure = caught
        if exchange is None:
            return self._agreement.read(status)
        if numbers is None:
            numbers = gradients.nothing()
        common, total, error_sums = exchange.run(status, numbers, None if errors is None else errors.numbers())
        self._unlike = gradients.take(total, self._parts.joined.outputs)
        if errors is not None:
            errors.take(error_sums)
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

    def end(self) -> None:
        pass
