# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 0: a step waits for its numbers, is decided before its update, and may run again.

Goals: the one place that reports a step to the core before its update, and runs it again where the core asks for it.
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
        step, limit = steps.number + 1, math.inf if max_norm is None else max_norm
        total, coefficient = parts.gradients.total(limit)
        outcome = parts.supervisor.report(
            step,
            numbers.norms,
            numbers.sampled,
            may_rerun=may_rerun,
            loss=loss_value,
            clip_coefficient=None if max_norm is None else coefficient,
        )
        if outcome.action == "rerun":
            assert rerun is not None
            run = self._trial if outcome.rerun == "trial" else self._replay
            return run(outcome, rerun, max_norm, loss_value)
        return self._apply(outcome, max_norm, total, coefficient, loss_value)

    def _skipped_step(self, max_norm: float | None, skipped: bool, loss: float | None) -> StepResult:
        """Some rank has no update: the step is no sample."""
        steps, supervisor = self._steps, self._parts.supervisor
        step = steps.number + 1
        outcome = supervisor.report(step, None, done="dropped", loss=loss)
        result = StepResult(step, applied=False, loss=loss, decided_step=step)
        if not skipped:
            # Another rank has no update; this one does what it was asked for.
            total, coefficient = self._parts.gradients.total(limit_of(max_norm))
            result = StepResult(step, total, coefficient, loss=loss, decided_step=step)
            return steps.finish(result, outcome)
        steps.end(self._parts.gradients.numbers.sampled)
        return steps.record(result, outcome)

    def _apply(
        self,
        outcome: _core.Outcome,
        max_norm: float | None,
        total: float,
        coefficient: float,
        loss: float | None,
        alarmed: bool = False,
    ) -> StepResult:
        """The end of a step whose gradients are those of its first run."""
        steps, gradients = self._steps, self._parts.gradients
        if outcome.clip:
            gradients.scale_units(outcome.clip)
            failure = self._read(RankStatus()).failure
            if failure is not None:
                raise failure
            total, coefficient = gradients.total(limit_of(max_norm))
        step = steps.number + 1
        applied, alarmed = outcome.action != "hold", alarmed or outcome.alarmed
        result = StepResult(step, total, coefficient, applied, alarmed, loss=loss, decided_step=step)
        return steps.finish(result, outcome)

    def _trial(self, alarm: _core.Outcome, rerun: Rerun, max_norm: float | None, loss: float | None) -> StepResult:
        """The step once more in high precision, each low path measured beside it."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step = steps.number + 1
        before, norm_before = gradients.squares(), gradients.total()[0]
        errors = ErrorSquares(len(steps.units), self._sites)
        now = set(steps.high)
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
            return self._apply(outcome, max_norm, total, coefficient, loss, alarmed=True)
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
        return steps.finish(result, outcome)

    def _replay(self, decided: _core.Outcome, rerun: Rerun, max_norm: float | None, loss: float | None) -> StepResult:
        """The step once more with the units high that it got admitted."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        step = steps.number + 1
        before, norm_before = gradients.squares(), gradients.total()[0]
        now = set(steps.high)
        supervisor.begin(step)
        wanted = now | set(supervisor.high)
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
        return steps.finish(result, decided)

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
