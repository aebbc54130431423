# SPDX-License-Identifier: Apache-2.0
"""What the steps of a control have in common, whatever its lag: where one ends and the next begins, who runs high in
it, modes, faults, counts.

Goals: the only place that moves switches between steps; a fault ends in `disarm`, never in the loop.
Non-goals: numbers and decisions (gnmr.step.prompt, gnmr.step.late), other ranks (gnmr.step.agreement).
"""

import math
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from gnmr import _core
from gnmr.ranks.exchange import RankFault
from gnmr.results import StepResult
from gnmr.step import registrations
from gnmr.step.agreement import Agreement
from gnmr.step.blind_units import BlindUnits
from gnmr.step.parts import ControlParts
from gnmr.step.rerun import HighUnits, RandomState, Rerun
from gnmr.step.switchboard import Switchboard
from gnmr.summary import Tally
from gnmr.switches import InstalledSwitch, set_path
from gnmr.telemetry.warning import warn


class Strategy(Protocol):
    """How the numbers of steps become decisions: with lag 0 (gnmr.step.prompt) or 1 (gnmr.step.late)."""

    lag: int

    def step(
        self, max_norm: float | None, skipped: bool, loss: float | Tensor | None, rerun: Rerun | None = None
    ) -> StepResult:
        """A step whose gradients are there; `rerun`: the loop can run it again."""

    @property
    def is_open(self) -> bool:
        """Whether the last step is not decided yet."""

    def total_norm(self) -> float | Tensor:
        """The norm of all gradients in the last step."""

    def catch_up(self) -> None:
        """Decides what is open now, unless all ranks must do that together."""

    def restored(self, is_open: bool) -> None:
        """Another state was taken over; `is_open`: the numbers of its last step were on their way."""

    def renumber(self, difference: int) -> None:
        """The state of rank 0 was taken over, which is so many steps further."""

    def report_fault(self, max_norm: float | None) -> None:
        """After a fault: the other ranks learn of it."""

    def clip(self, max_norm: float) -> tuple[float, float]:
        """After a fault: the norm of all gradients, and what they are multiplied with; NaN: not known."""

    def end(self) -> None:
        """The control is detached."""


class Steps:
    """The steps of a control. It belongs to one thread, the one that trains."""

    strategy: Strategy  # set by whoever makes it
    plan: _core.StepPlan  # of the step that has begun

    def __init__(self, parts: ControlParts, *, quiet: bool) -> None:
        self.parts = parts
        self.units = parts.joined.found.units
        self.agreement = Agreement(self, parts.exchange)
        self.number = 0  # of the last step that ended
        self.high = HighUnits()  # in force
        self.switchboard = Switchboard()
        self.requests = list(parts.requests)  # modes that the kill switch asks for and why, for the next step
        self.fault = ""  # why it does nothing any more
        self.tally = Tally()  # for the summary
        self.random = RandomState()
        self.settled: list[StepResult] = []  # decided late, and not passed to listeners yet
        self.is_clipped = False  # the gradients of the step are as the update takes them
        self.clipped_as: tuple[float, float, bool] | None = None  # norm, coefficient, applied, where they are known
        self.last_norm = math.nan  # of all gradients, in the last step that was measured
        self.known_registrations = -1  # when the parameters were last looked at
        self.blind = BlindUnits(self.units)
        self.installed = [unit.switch for unit in self.units if isinstance(unit.switch, InstalledSwitch)]
        self._quiet = quiet
        registrations.listen()

    # From one step to the next.

    def begin(self) -> None:
        """The next step begins: who runs high in it. Nothing is switched again until it has ended."""
        parts = self.parts
        if self.agreement.exchange is None and parts.kill_switch.is_used:
            self.requests += parts.kill_switch.news()
        if self.requests:
            self._follow_requests()
        following = self.number + 1
        self.random.begun = False
        parts.clock.step = following
        parts.clock.micro_batch = 0
        for switch in self.installed:
            switch.begin_step()
        self.plan = plan = parts.supervisor.begin(following)
        if parts.supervisor.high != self.high.units or parts.supervisor.in_recovery != self.high.in_recovery:
            self.move_switches()
        if parts.refresh is not None and parts.refresh.is_on != parts.supervisor.is_in_force(following):
            parts.refresh.turn()
        if parts.patrol is not None:
            parts.patrol.begin(following, self.high.units, plan.measure)
        if self.agreement.exchange is not None:
            self.agreement.begun_checksum = self.checksum()

    def end(self, sampled: memoryview | None = None, coefficient: float = 1.0) -> None:
        """The gradients are multiplied with the coefficient, low paths take the step in, and the switches are set for
        the next one. `sampled`: of this step, where that is known."""
        self.parts.gradients.scale(coefficient, is_last=True)
        if sampled is not None and not self.blind.is_over:
            self.look_for_blind_units(sampled)
        if not self.blind.has_looked_at_calls:
            for text in self.blind.look_at_calls():
                self.warn(text, always=True)
        for switch in self.installed:
            switch.end_step()
        self.number += 1
        self.begin()

    def look_for_blind_units(self, sampled: memoryview) -> None:
        """In the first steps: units that never have a gradient."""
        for text in self.blind.look(sampled):
            self.warn(text, always=True)

    def record(self, result: StepResult, outcome: _core.Outcome) -> StepResult:
        """The result of a step that was decided, with names; it is counted."""
        supervisor, decision = self.parts.supervisor, outcome.decision
        # A decision takes effect in the next step, with lag 1 in the one after it; a rerun has taken effect.
        if not (result.rerun or supervisor.is_in_force(result.step + 1 + self.strategy.lag)):
            result = replace(result, would_be=True)
        self.tally.steps += 1
        recovered, admitted, released = decision.recovered, decision.admitted, decision.released
        eventful = recovered or admitted or decision.denied or decision.futile or outcome.findings
        if eventful or result.alarmed or result.rerun:
            self.tally.add(self.units, result, outcome)
        if not (recovered or released or admitted):
            return result
        return replace(
            result,
            admitted=self.names(admitted),
            released=self.names(released),
            recovered=self.names(recovered),
            standing=self.names(decision.standing),
        )

    def names(self, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.units[index].name for index in indices)

    def move_switches(self) -> None:
        """Puts the paths of all units in force that are those of the next step."""
        wanted, now = HighUnits(self.parts.supervisor.high, self.parts.supervisor.in_recovery), self.high
        if wanted == now:
            return
        high, in_recovery = set(wanted.units), set(wanted.in_recovery)
        for index in high.symmetric_difference(now.units) | in_recovery.symmetric_difference(now.in_recovery):
            switch = self.units[index].switch
            if switch is not None:
                set_path(switch, index in high, index in in_recovery)
        self.high = wanted

    def look_at_parameters(self) -> None:
        """In the first step: a wrapper may have come after `attach`. Later: whoever loads or builds anew."""
        before, self.known_registrations = self.known_registrations, registrations.changes
        is_wrapped = before < 0 and self.parts.found_again()
        is_new, news = self.parts.look_again()
        if is_wrapped or is_new:
            self.strategy.catch_up()
        if news:
            self.warn(news, always=True)

    def checksum(self) -> int:
        """Of what all ranks must have in common."""
        return (self.parts.supervisor.checksum() + self.number) & 0xFFFFFFFF

    # Modes and faults.

    def requested_mode(self) -> tuple[str, str]:
        """What this rank's kill switch asks for, and why."""
        asked = ("", "")
        for mode, why in self.parts.kill_switch.news():
            if mode:
                asked = (mode, why)
            else:
                self.say(why)
        return asked

    def _follow_requests(self) -> None:
        requests, self.requests = self.requests, []
        for mode, why in requests:
            if mode:
                self.set_mode(mode, why)
            else:
                self.say(why)

    def set_mode(self, mode: str, why: str) -> None:
        if mode == self.parts.supervisor.mode:
            return
        self.parts.supervisor.set_mode(mode, why)
        self.say(f"{mode} from here on: {why}")

    def clip_anyway(self, max_norm: float) -> tuple[float, float]:
        """After a fault: the norm of all gradients, and what they are multiplied with; NaN: not known."""
        gradients, exchange = self.parts.gradients, self.agreement.exchange
        if exchange is None or exchange.is_broken:
            return gradients.clip_by_torch(max_norm, None)
        if exchange.fault_is_known:
            return gradients.clip_by_torch(max_norm, self.agreement.sum)
        # The other ranks know nothing of it and enter no exchange; but the numbers of this step are those of all.
        total, coefficient = gradients.total(max_norm)
        if not self.is_clipped:
            gradients.scale(coefficient)
        return total, coefficient

    def after_fault(self, max_norm: float | None, skipped: bool) -> StepResult:
        """The step of a loop that goes on: gradients are clipped as they would be."""
        total, coefficient, applied = math.nan, 1.0, True
        try:
            if self.clipped_as is not None:
                total, coefficient, applied = self.clipped_as
            elif max_norm is not None:
                total, coefficient = self.strategy.clip(max_norm)
        except Exception as second:
            self.say(f"nor could gradients be clipped: {second}")
        self.parts.gradients.scale(1.0, is_last=True)
        return StepResult(self.number, total, coefficient, applied and not skipped)

    def disarm(self, fault: Exception) -> None:
        """Nothing is watched or switched from here on."""
        exchange = self.agreement.exchange
        here = f"on rank {exchange.ranks.rank}: " if exchange is not None else ""
        self.fault = str(fault) if isinstance(fault, RankFault) else f"{here}{type(fault).__name__}: {fault}"
        self.warn(
            "a fault in gnmr, which watches and switches nothing from here on: all units run low, and "
            f"ctl.step(max_norm=...) only clips{self.parts.clipping_text}. {self.fault}",
            always=not isinstance(fault, RankFault),
        )
        if not self._quiet and not isinstance(fault, RankFault):
            traceback.print_exception(fault, file=sys.stderr)
        self.all_low()
        try:
            self.parts.supervisor.set_mode("watch", self.fault)
            self.parts.supervisor.note(f"disarmed by a fault: {self.fault}")
        except Exception as second:
            self.say(f"nor could it be written to the journal: {second}")

    def all_low(self) -> None:
        for unit in self.units:
            try:
                if unit.switch is not None:
                    unit.switch.set_high(False)
            except Exception as fault:
                self.say(f"{unit.name} could not be set low: {fault}")
        self.high = HighUnits()

    # Messages.

    def say(self, text: str) -> None:
        """A line in the journal, printed by the first rank."""
        self.parts.supervisor.note(text)
        if not self._quiet and self._leads:
            print(f"gnmr: {text}", file=sys.stderr)

    def warn(self, text: str, always: bool = False) -> None:
        """A warning of the first rank, or `always` of this one."""
        self.parts.supervisor.note(text)
        if self._leads or always:
            warn(text, stacklevel=2)

    @property
    def _leads(self) -> bool:
        return self.agreement.exchange is None or self.agreement.exchange.ranks.leads
