# SPDX-License-Identifier: Apache-2.0
"""Steps with lag 1: nothing waits for the numbers of a step; it is decided while the next one runs.

    step t      norms queued, gradients clipped, the ranks' sum entered; then step t - 1 is decided, and the switches
                are set for step t + 1

Goals: the host goes on while the device, and the other ranks, are still at it; every rank learns of a fault in the same
step. Non-goals: running a batch again: it is the loop's, so there is no trial, and `skip` is the only guard.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.low.device_stream import OnItsWay
from gnmr.norms.local_sums import LocalSums, OutputSquares, moved
from gnmr.ranks.exchange import PendingExchange, RankStatus
from gnmr.results import LateResult, StepResult, gated, limit_of
from gnmr.step import registrations
from gnmr.step.gate import Gate
from gnmr.step.held_update import Hold
from gnmr.step.patrol import PatrolErrors
from gnmr.step.prompt import Prompt
from gnmr.step.rerun import ErrorSquares, Rerun, is_number, number_of
from gnmr.step.steps import Steps


@dataclass
class PendingStep:
    """A step whose numbers are on their way."""

    step: int
    limit: float  # of clipping; infinite: there is none
    status: RankStatus
    loss: Callable[[], float | None] | None = None
    local: LocalSums | None = None  # None: nothing was measured
    outputs: OutputSquares | None = None
    patrolled: PatrolErrors | None = None  # on this rank
    exchange: PendingExchange | None = None  # None: there is one process
    held: bool | Hold = False  # whether its update is, or what the gate on a device says of it
    clip_failure: Exception | None = None  # of this rank alone
    differences_settled: bool = False  # rank 0's state was taken over since: what differs in it is no news


class Late:
    """Decides each step when the next one ends."""

    lag = 1

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._parts = steps.parts
        self._agreement = steps.agreement
        self._frozen = self._parts.joined.frozen
        self._pending: PendingStep | None = None  # the last step; None: it is decided
        self._settling: PendingStep | None = None  # what is being decided
        self._all_want_reruns = False  # all ranks call `trial`, and nobody has asked for lag 1
        self._has_warned = False  # that there are no trials
        # None: no step is ever held.
        self._gate = Gate(steps, self._decide_before) if self._parts.supervisor.options.guard != "none" else None

    def step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, rerun: Rerun | None = None
    ) -> StepResult:
        steps, parts, exchange = self._steps, self._parts, self._agreement.exchange
        may_rerun = rerun is not None and parts.lag_is_free
        if self._all_want_reruns or (may_rerun and exchange is None):
            return self.become_prompt().step(max_norm, skipped, loss, rerun)
        if rerun is not None and not parts.lag_is_free and not self._has_warned:
            self._has_warned = True
            steps.warn(
                "with lag 1 no batch comes again: ctl.trial does what ctl.step does. Take attach(lag=0) for trials"
            )
        limit = math.inf if max_norm is None else max_norm
        pending = PendingStep(steps.number + 1, limit, RankStatus(skipped=skipped, may_rerun=may_rerun))
        if self._gate is not None:
            self._gate.begin_step()
        if exchange is not None:
            self._measure_together(pending, loss)
        else:
            if registrations.changes != steps.known_registrations or steps.number % registrations.LOOK_EVERY == 0:
                steps.look_at_parameters()
            if loss is not None:
                pending.loss = _late_number(loss)
            if parts.patrol is not None:
                pending.patrolled = parts.patrol.end(sends=True)
            if not skipped:
                gradients = parts.gradients
                pending.local = local = gradients.measure(wait=False)
                if self._frozen:
                    pending.outputs = OutputSquares({index: switch.output_number for index, switch in self._frozen})
                try:
                    if self._gate is not None:
                        self._judge_alone(pending, self._gate)
                    if local is not None and local.device is not None:
                        local.finish(limit)  # on the device, by sums that the host has not seen
                    elif not math.isinf(limit):
                        gradients.scale(gradients.numbers.clip(limit)[1])
                except Exception as caught:
                    pending.clip_failure = caught  # the step before is decided all the same
        # Once the exchange is entered nothing more is clipped together, whatever went wrong on this rank.
        steps.is_clipped = pending.clip_failure is None or exchange is not None
        before, self._pending = self._pending, pending
        if before is not None:
            self._settle(before)
        if pending.clip_failure is not None and pending.status.failure is None:
            raise pending.clip_failure
        steps.end()
        supervisor = parts.supervisor
        decided = (
            steps.settled[-1]
            if steps.settled
            else StepResult(0, recovered=steps.names(supervisor.recovered), standing=steps.names(supervisor.standing))
        )
        result = LateResult(
            step=pending.step,
            numbers=lambda: self._numbers(pending),
            applied=not skipped and pending.held is not True,
            alarmed=decided.alarmed,
            admitted=decided.admitted,
            released=decided.released,
            recovered=decided.recovered,
            standing=decided.standing,
            loss=None if pending.loss is None or (isinstance(loss, Tensor) and loss.is_cuda) else pending.loss(),
            would_be=decided.would_be,
            decided_step=decided.decided_step,
        )
        if isinstance(pending.held, Hold):
            return gated(result, lambda asks: not self._is_held(pending, asks=asks))
        return result

    def _settle(self, pending: PendingStep) -> None:
        """Waits for the numbers of a step, and has it decided."""
        steps, supervisor, gradients = self._steps, self._parts.supervisor, self._parts.gradients
        self._settling = pending
        is_dropped, errors = pending.status.skipped, None
        if pending.exchange is not None:
            is_dropped, errors = self._finish_together(pending, pending.exchange)
        elif pending.local is not None:
            gradients.numbers.replace(pending.local.values or pending.local.on_host(), pending.local.sampled)
            if pending.outputs is not None:
                gradients.set_outputs(pending.outputs.on_host())
            if pending.patrolled is not None:
                errors = pending.patrolled.errors()
        loss = pending.loss() if pending.loss is not None else None
        if is_dropped:
            outcome = supervisor.report(pending.step, None, done="dropped", loss=loss)
            result = StepResult(pending.step, applied=not pending.status.skipped, loss=loss, decided_step=pending.step)
        else:
            total, coefficient = gradients.numbers.clip(pending.limit)
            is_held = self._gate is not None and self._is_held(pending)
            outcome = supervisor.report(
                pending.step,
                gradients.numbers.norms,
                gradients.numbers.sampled,
                errors,
                held=is_held,
                loss=loss,
                clip_coefficient=None if math.isinf(pending.limit) else coefficient,
            )
            if not steps.blind.is_over:
                steps.look_for_blind_units(gradients.numbers.sampled)
            result = StepResult(
                pending.step,
                total,
                coefficient,
                not is_held,
                outcome.alarmed,
                loss=loss,
                decided_step=pending.step,
            )
        steps.last_norm = result.total_norm
        steps.settled.append(steps.record(result, outcome))

    def _numbers(self, pending: PendingStep) -> tuple[float, float]:
        """The norm of all gradients of one of the last two steps, and what clipping multiplied them with; waits for
        them. NaN where this rank measured nothing."""
        local, numbers = pending.local, self._parts.gradients.numbers
        if local is None:
            return math.nan, 1.0
        if pending.exchange is not None:
            self._take(pending.exchange)
        else:
            numbers.replace(local.values or local.on_host(), local.sampled)
        return numbers.clip(pending.limit)

    # The gate.

    def _decide_before(self) -> None:
        before, self._pending = self._pending, None
        if before is not None:
            self._settle(before)

    def _judge_alone(self, pending: PendingStep, gate: Gate) -> None:
        """Whether the update is held, by the norms of this process."""
        gradients, local = self._parts.gradients, pending.local
        assert local is not None
        if local.device is None:
            gate.stand(torch.device("cpu"))
            gradients.numbers.replace(local.on_host(), local.sampled)
            if pending.outputs is not None:
                gradients.set_outputs(pending.outputs.on_host())
            pending.held = gate.holds(pending.limit)
            return
        gate.stand(local.device.device)
        squares, sampled = local.where_they_are()[: len(self._steps.units)].clone(), bytearray(local.sampled)
        for index, switch in self._frozen:
            square = switch.output_number
            squares[index], sampled[index] = (0.0 if square is None else square), square is not None
        pending.held = gate.judge(squares, moved(torch.frombuffer(sampled, dtype=torch.uint8), squares.device))

    def _judge_together(self, pending: PendingStep, exchange: PendingExchange, gate: Gate) -> None:
        """The same by the norms of all ranks, which thus hold it all or none. A step of which a rank reports trouble is
        not held, and is no sample."""
        assert self._agreement.exchange is not None
        numbers, units = exchange.numbers(), len(self._steps.units)
        trouble = exchange.trouble(self._agreement.exchange.ranks.size)
        gate.stand(numbers.device)
        if not numbers.is_cuda:
            if not trouble:
                self._take(exchange)
                pending.held = gate.holds(pending.limit)
            return
        squares = numbers[:units].clone()
        for index, holders in self._parts.joined.outputs.items():
            squares[index] /= holders**2
        sampled = (numbers[units + 1 : 2 * units + 1] > 0) & (trouble == 0)
        pending.held = gate.judge(squares, sampled.to(torch.uint8))

    def _is_held(self, pending: PendingStep, *, asks: bool = False) -> bool:
        """Whether the update of a step is left out; waits for a device. `asks`: the loop goes by it."""
        held, gate = pending.held, self._gate
        if isinstance(held, bool) or gate is None:
            return held is True
        is_over = gate.is_over(held)
        held.was_asked = held.was_asked or (asks and not is_over)
        if not held.is_closed():
            return False
        if is_over and not held.was_asked:
            pending.held = False
            gate.report_unasked(pending.step)
            return False
        return True

    # Several ranks.

    def _measure_together(self, pending: PendingStep, loss: float | Tensor | None) -> None:
        """What this rank has measured enters the exchange of all of them."""
        patrol, own = self._parts.patrol, pending.status
        # All ranks must ask for reruns: that is known with this step's numbers.
        status = pending.status = self._agreement.status(
            lambda: self._agreement.begun_checksum, skipped=own.skipped, may_rerun=own.may_rerun
        )
        try:
            if loss is not None:
                pending.loss = _late_number(loss)
            if patrol is not None:
                pending.patrolled = patrol.end()
        except Exception as fault:
            status.failure = status.failure or fault
        self._enter(pending)

    def _enter(self, pending: PendingStep) -> None:
        """Has all gradients read, enters the exchange of all ranks, and clips. A failure before the exchange is
        part of the status that all ranks learn; one after it is in `clip_failure`."""
        gradients, exchange, status = self._parts.gradients, self._agreement.exchange, pending.status
        assert exchange is not None
        numbers: Tensor | None = None
        errors: Tensor | None = None
        if status.failure is None and not status.skipped:
            try:
                pending.local = gradients.measure(wait=False)
                if self._frozen:
                    gradients.outputs = {index: switch.output_number for index, switch in self._frozen}
                numbers = gradients.contribution(pending.local)
                errors = pending.patrolled.numbers(numbers.device) if pending.patrolled is not None else None
            except Exception as caught:
                status.failure = caught
                pending.local = None
        if numbers is None:
            # Clipping goes by the gradients of all ranks, whatever went wrong here.
            numbers = gradients.nothing() if status.skipped else gradients.all_as_rest()
        pending.exchange = exchange.start(status, numbers, errors)
        if status.skipped:
            return
        try:
            if self._gate is not None:
                self._judge_together(pending, pending.exchange, self._gate)
            self._clip_together(pending, pending.exchange)
        except Exception as caught:
            pending.clip_failure = caught

    def _clip_together(self, pending: PendingStep, exchange: PendingExchange) -> None:
        """On a device, by sums that the host has not seen; elsewhere they are awaited. The status of the other ranks
        is not looked at here: that happens a step later, on all ranks together."""
        gradients, local = self._parts.gradients, pending.local
        if local is not None and local.device is not None:
            if exchange.numbers_are_on(local.device.device):
                gradients.put_back(exchange.numbers(), local, self._parts.joined.outputs)
                exchange.total.send()
                local.finish(pending.limit)
                return
            local.finish(math.inf)
        if math.isinf(pending.limit):
            return
        if local is None:
            gradients.find_anyway()
        self._take(exchange)
        gradients.scale(gradients.numbers.clip(pending.limit)[1])

    def _take(self, pending: PendingExchange) -> list[int]:
        """Norms and clipping are those of this step from here on; waits for the sums of all ranks. The units whose
        copies had different norms come back."""
        exchange = self._agreement.exchange
        assert exchange is not None
        return self._parts.gradients.take(exchange.numbers(pending), self._parts.joined.outputs)

    def _finish_together(self, pending: PendingStep, entered: PendingExchange) -> tuple[bool, Any]:
        """Waits for what all ranks report, and follows it: whether one of them skips the step; the patrol's errors."""
        exchange, errors = self._agreement.exchange, None
        assert exchange is not None
        common = exchange.finish(entered)
        unlike = self._take(entered)
        if pending.patrolled is not None:
            sums = ErrorSquares(1, len(pending.patrolled.nothing))
            sums.take(exchange.errors(entered))
            errors = sums.errors()
        differs = common.differs and not pending.differences_settled
        self._agreement.follow(replace(common, differs=differs), pending.status, unlike)
        self._all_want_reruns = self._parts.lag_is_free and common.may_rerun
        return common.skipped, errors

    def become_prompt(self) -> Prompt:
        """Lag 0 from here on, on all ranks: the loop can run a step again, and waits for that."""
        steps, parts = self._steps, self._parts
        pending, self._pending = self._pending, None
        if pending is not None:
            self._settle(pending)
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
        pending = self._pending
        if pending is None:
            return self._steps.last_norm
        there = pending.local.device if pending.local is not None else None
        if there is not None and (pending.exchange is None or pending.exchange.numbers_are_on(there.device)):
            return there.total_norm
        return self._numbers(pending)[0]

    def catch_up(self) -> None:
        pending, exchange = self._pending, self._agreement.exchange
        if pending is None or self._steps.fault:
            return
        if exchange is not None and pending.exchange is not None and exchange.is_troubled(pending.exchange):
            return  # all ranks must act on it together
        self._pending = None
        self._settle(pending)

    def restored(self, is_open: bool) -> None:
        self._pending = None
        if is_open:
            self._parts.supervisor.report(self._steps.number, None, done="dropped")
        if self._gate is not None:
            self._gate.begin_anew()

    def renumber(self, difference: int) -> None:
        if self._gate is not None:
            self._gate.begin_anew()
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
            failed = PendingStep(steps.number, limit_of(max_norm), RankStatus(Error(steps.fault)))
            steps.is_clipped = True
            self._enter(failed)
            self._pending = failed
            if before is not None and before.exchange is not None:
                common = exchange.finish(before.exchange)
                if common.failure is None and common.differs and not before.differences_settled:
                    self._agreement.take_over(common)
        except Exception as second:
            steps.is_clipped = not exchange.is_broken
            steps.say(f"nor could the other ranks be informed: {second}")

    def clip(self, max_norm: float) -> tuple[float, float]:
        if not self._steps.is_clipped:
            return self._steps.clip_anyway(max_norm)
        # They were clipped before the fault; with several ranks nobody waits for the others here.
        if self._agreement.exchange is None and self._pending is not None:
            return self._numbers(self._pending)
        return math.nan, math.nan

    def end(self) -> None:
        if self._gate is not None:
            self._gate.remove()


def _late_number(loss: float | Tensor | None) -> Callable[[], float | None]:
    """A loss as a number, which is awaited later where it is on a device."""
    if not (isinstance(loss, Tensor) and loss.is_cuda and is_number(loss)):
        number = number_of(loss)
        return lambda: number
    sent = OnItsWay(loss.detach().to(torch.float64).reshape(()))
    return lambda: float(sent.arrived())
