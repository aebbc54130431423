# SPDX-License-Identifier: Apache-2.0
"""Inside a step: numbers, decision, reruns, switches; modes and faults.

Goals: what goes wrong in here, on this rank or another, ends in `_disarm`, never in the loop.
Non-goals: what users call (gnmr.control), deciding (gnmr._core), collectives (gnmr.norms.measuring).
"""

import math
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from gnmr import _core
from gnmr._core import Error
from gnmr.ranks.exchange import Heard, RankFault, Word
from gnmr.results import StepResult, limit_of, told_coefficient
from gnmr.step import registrations
from gnmr.step.blind_units import BlindUnits
from gnmr.step.parts import ControlParts
from gnmr.step.rerun import ClosureFailed, ErrorSquares, RandomState, Rerun, failure_of, is_about_memory, number_of
from gnmr.step.switchboard import Switchboard
from gnmr.summary import Tally
from gnmr.switches import InstalledSwitch
from gnmr.telemetry.listeners import Listeners
from gnmr.telemetry.warning import warn

#: Decisions of ranks that differ before all of them stop.
MOST_DIFFERENCES = 3

#: Steps after which parameters are looked at though torch has told of none.
LOOK_EVERY = 100


class ControlSteps:
    """The steps of a control. It belongs to one thread, the one that trains."""

    def __init__(self, parts: ControlParts, *, strict: bool, quiet: bool) -> None:
        self._parts = parts
        self._units = parts.joined.found.units
        self._supervisor = parts.supervisor
        self._gradients = parts.gradients
        self._measurement = parts.measurement()
        self._exchange = parts.exchange
        self._own = [unit.switch for unit in self._units if isinstance(unit.switch, InstalledSwitch)]
        self._strict = strict
        self._quiet = quiet
        self._step = 0  # the last one that ended
        self._high: list[int] = []  # in force
        self._switchboard = Switchboard()
        self._words = list(parts.words)  # of the kill switch, for the next step
        self._differences = 0  # decisions of a rank that were not those of rank 0
        self._registrations = -1  # when the parameters were last looked at
        self._told_unlike = False
        self._is_settled = False  # the gradients of the step are as the update takes them
        self._settled_as: tuple[float, float, bool] | None = None  # norm, coefficient, applied, where it is known
        self._fault = ""  # why it does nothing any more
        self._blind = BlindUnits(self._units)
        self._tally = Tally()  # for the summary
        self._random = RandomState()
        self.listeners = Listeners()  # told of each step
        for own in self._own:
            own.install()
        self._hook = parts.model.register_forward_pre_hook(parts.first_forward(self._random))
        self._begin_step()

    def _guarded(self, run: Callable[[], StepResult], max_norm: float | None) -> StepResult:
        """What goes wrong in here is told once; the loop goes on, and is clipped as it would be."""
        self._is_settled, self._settled_as = False, None
        if not self._fault:
            before = self._step
            try:
                return run()
            except ClosureFailed as failed:
                self._step = before + 1
                self._begin_step()
                raise failed.cause from None
            except Exception as fault:
                if self._strict:
                    raise
                self._step = max(self._step, before + 1)
                self._disarm(fault)
        else:
            self._step += 1
            self._tell_others(max_norm)
        total, coefficient, applied = math.nan, 1.0, True
        try:
            if self._settled_as is not None:
                total, coefficient, applied = self._settled_as
            elif max_norm is not None:
                total, coefficient = self._clip_anyway(max_norm)
        except Exception as second:
            self._say(f"nor could gradients be clipped: {second}")
        self._gradients.forget()
        return StepResult(self._step, total, coefficient, applied)

    def _clip_anyway(self, max_norm: float) -> tuple[float, float]:
        """After a fault: the norm of all gradients, and what they are multiplied with; NaN: not known."""
        if self._exchange is None or self._exchange.fault_is_known or self._exchange.is_broken:
            return self._measurement.clip_by_torch(max_norm)
        # The other ranks know nothing and meet nobody; but the numbers of this step are those of all.
        total, coefficient = self._gradients.total(max_norm)
        if not self._is_settled:
            self._gradients.scale(coefficient)
        return total, coefficient

    def _plain_step(self, max_norm: float | None, skipped: bool, loss: float | Tensor | None) -> StepResult:
        heard, told = self._measure(loss, skipped=skipped)
        step = self._step + 1
        if heard.skipped:
            self._supervisor.hear(step, *self._parts.no_samples(), may_rerun=False)
            ruling = self._supervisor.decide(loss=told)
            if skipped:
                return self._finish(ruling, StepResult(step, applied=False, loss=told))
            # Another rank has no update; this one does what it was asked for.
            total, coefficient = self._gradients.total(limit_of(max_norm))
            self._settle_update(True, total, coefficient)
            return self._finish(ruling, StepResult(step, total, coefficient, loss=told))
        hearing = self._supervisor.hear(step, self._gradients.norms, self._gradients.sampled, may_rerun=False)
        return self._decide(hearing, max_norm, told)

    def _tried_step(self, rerun: Rerun, max_norm: float | None, loss_before: float | Tensor | None) -> StepResult:
        heard, loss = self._measure(loss_before, may_rerun=True)
        step = self._step + 1
        hearing = self._supervisor.hear(step, self._gradients.norms, self._gradients.sampled, may_rerun=heard.may_rerun)
        if hearing.action != "trial":
            return self._decide(hearing, max_norm, loss, rerun)
        before, norm_before = self._gradients.squares(), self._gradients.total()[0]
        now = set(self._high)
        errors = ErrorSquares(len(self._units), len(self._parts.joined.places))
        try:
            if not self._run_again(rerun, lambda: rerun.trial(now, errors), errors):
                # It has had its rerun; the gradients are those of the step as it first ran.
                return self._decide(hearing, max_norm, loss)
        except ClosureFailed:
            self._supervisor.decide(loss=loss)
            raise
        total, coefficient = self._gradients.total(limit_of(max_norm))
        applied = math.isfinite(total)
        context = rerun.context(before, norm_before, self._gradients.squares(), total, loss, applied)
        ruling = self._supervisor.conclude(
            step,
            self._gradients.norms,
            self._gradients.sampled,
            errors.errors(),
            context,
            loss=rerun.loss,
            clip_coefficient=told_coefficient(coefficient, max_norm),
        )
        self._settle_update(applied, total, coefficient)
        return self._finish(
            ruling, StepResult(step, total, coefficient, applied, True, "trial", ruling.verdict, loss=rerun.loss)
        )

    def _decide(
        self, hearing: _core.Hearing, max_norm: float | None, loss: float | None, rerun: Rerun | None = None
    ) -> StepResult:
        """A step without a trial."""
        total, coefficient = self._gradients.total(limit_of(max_norm))
        ruling = self._supervisor.decide(loss=loss, clip_coefficient=told_coefficient(coefficient, max_norm))
        if ruling.clip:
            self._gradients.scale_units(ruling.clip)
            failure = self._measurement.step(Word()).failure
            if failure is not None:
                raise failure
            total, coefficient = self._gradients.total(limit_of(max_norm))
        kind = ""
        if ruling.action == "replay" and rerun is not None:
            before, norm_before = self._gradients.squares(), total
            now = set(self._high)
            if self._run_again(rerun, lambda: rerun.with_high(now | set(ruling.decision.recovered), now)):
                kind = "replay"
                total, coefficient = self._gradients.total(limit_of(max_norm))
                self._supervisor.replayed(
                    self._step + 1,
                    rerun.context(before, norm_before, self._gradients.squares(), total, loss, math.isfinite(total)),
                )
                loss = rerun.loss
        applied = ruling.action != "hold" and not (kind and not math.isfinite(total))
        self._settle_update(applied, total, coefficient)
        return self._finish(
            ruling, StepResult(self._step + 1, total, coefficient, applied, hearing.alarmed, kind, loss=loss)
        )

    def _run_again(self, rerun: Rerun, run: Callable[[], None], errors: ErrorSquares | None = None) -> bool:
        """The step once more, and its gradients measured. False: there was no memory, and it has been run as before.
        What fails on one rank fails on all."""
        self._gradients.drop()
        failure = self._measurement.step(Word(failure_of(run)), errors).failure
        if failure is None:
            return True
        if isinstance(failure, ClosureFailed) and is_about_memory(failure.cause):
            self._say(f"step {self._step + 1}: a rerun failed for want of memory ({failure}); the step runs as before")
            self._gradients.drop()
            now = set(self._high)
            failure = self._measurement.step(Word(failure_of(lambda: rerun.with_high(now, now)))).failure
            if failure is None:
                return False
        # A fault of ours, or of a switch: the loop has its gradients all the same. A closure that fails once more, as
        # the step first ran, is the user's; one that does not was failed by us.
        self._gradients.drop()
        self._all_low()
        self._measurement.meet(failure_of(rerun.plain))
        if not isinstance(failure, ClosureFailed):
            raise failure
        if self._exchange is not None:
            self._exchange.fault_is_known = True
        raise failure.cause

    def _settle_update(self, applied: bool, total: float, coefficient: float) -> None:
        self._is_settled = True
        if not applied:
            self._gradients.drop()
        elif coefficient != 1.0:
            self._gradients.scale(coefficient)
        self._settled_as = (total, coefficient, applied)

    def _measure(
        self, loss: float | Tensor | None, *, skipped: bool = False, may_rerun: bool = False
    ) -> tuple[Heard, float | None]:
        """The numbers of all ranks, which have then heard of each other's faults and words; the loss as a number."""
        word, told = self._word(skipped, may_rerun), None
        try:
            told = number_of(loss)
        except Exception as fault:
            word.failure = word.failure or fault
        heard = self._measurement.step(word)
        self._heed(heard, word)
        return heard, told

    def _word(self, skipped: bool, may_rerun: bool) -> Word:
        """What this rank has to say; a fault is a part of it, since the other ranks are waiting."""
        word = Word(skipped=skipped, may_rerun=may_rerun)
        try:
            self._look_at_parameters()
            if self._exchange is not None:
                word.mode, word.why = self._asked_mode()
                word.checksum = self._checksum()
        except Exception as fault:
            word.failure = fault
        return word

    def _heed(self, heard: Heard, word: Word) -> None:
        """All ranks do together what one of them has said."""
        if heard.failure is not None:
            raise heard.failure
        if heard.mode:
            why = word.why if heard.mode == word.mode else "the kill switch of a rank says so"
            self._words.append((heard.mode, why))
        if heard.differs:
            self._take_over(heard)
        if self._measurement.unlike and not self._told_unlike:
            self._told_unlike = True
            self._warn(
                f"gradients of {len(self._measurement.unlike)} units are not the same on all ranks that have "
                f"them ({', '.join(self._names(self._measurement.unlike[:3]))}): are they averaged before "
                "ctl.step?"
            )

    def _look_at_parameters(self) -> None:
        """In the first step: a wrapper may have come after `attach`. Later: whoever loads or builds anew."""
        before, self._registrations = self._registrations, registrations.count()
        is_wrapped = before < 0 and self._parts.found_again()
        is_new, news = self._parts.look_again(before != self._registrations or self._step % LOOK_EVERY == 0)
        if is_wrapped or is_new:
            self._catch_up()
            self._gradients, self._measurement = self._parts.gradients, self._parts.measurement()
        if news:
            self._warn(news, always=True)

    def _catch_up(self) -> None:
        """Nothing is left to be decided."""

    def _asked_mode(self) -> tuple[str, str]:
        """What this rank's kill switch asks for, and why."""
        asked = ("", "")
        for mode, why in self._parts.kill_switch.news():
            if mode:
                asked = (mode, why)
            else:
                self._say(why)
        return asked

    def _finish(self, ruling: _core.Ruling, result: StepResult) -> StepResult:
        """The step ends, and the next one begins."""
        self._look_for_blind_units()
        self._end_step()
        return self._with_decision(result, ruling)

    def _look_for_blind_units(self) -> None:
        if not self._blind.is_over:
            for text in self._blind.look(self._gradients.sampled):
                self._warn(text, always=True)

    def _end_step(self) -> None:
        """What low paths remember takes the step in, and the switches are set for the next one."""
        for text in self._blind.look_at_calls():
            self._warn(text, always=True)
        for own in self._own:
            own.end_step()
        self._gradients.forget()
        self._step += 1
        self._begin_step()

    def _with_decision(self, result: StepResult, ruling: _core.Ruling) -> StepResult:
        # A decision takes effect in the next step, with lag 1 in the one after it; a rerun has taken effect.
        if not result.rerun and not self._supervisor.is_in_force(result.step + 1 + int(self._supervisor.options.lag)):
            result = replace(result, would_be=True)
        self._tally.add(self._units, result, ruling)
        decision = ruling.decision
        if not (decision.recovered or decision.released or decision.admitted):
            return result
        return replace(
            result,
            admitted=self._names(decision.admitted),
            released=self._names(decision.released),
            recovered=self._names(decision.recovered),
        )

    def _names(self, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._units[index].name for index in indices)

    def _begin_step(self) -> None:
        """The next step begins: who runs high in it. Nothing is switched again until it has ended."""
        if self._exchange is None:
            self._words += self._parts.kill_switch.news()
        words, self._words = self._words, []
        for mode, why in words:
            if mode:
                self._set_mode(mode, why)
            else:
                self._say(why)
        self._random.forget()
        self._parts.clock.step = self._step + 1
        self._parts.clock.micro_batch = 0
        for own in self._own:
            own.begin_step()
        self._supervisor.begin(self._step + 1)
        self._switch()

    def _checksum(self) -> int:
        """Of what all ranks must have in common."""
        return (self._supervisor.checksum() + self._step) & 0xFFFFFFFF

    def _switch(self) -> None:
        high = self._supervisor.high(self._step + 1)
        if high == self._high:
            return
        wanted = set(high)
        for index in wanted.symmetric_difference(self._high):
            switch = self._units[index].switch
            if switch is not None:
                switch.set_high(index in wanted)
        self._high = high

    # Modes, ranks and faults.

    @property
    def _leads(self) -> bool:
        return self._exchange is None or self._exchange.ranks.leads

    def _take_over(self, heard: Heard) -> None:
        """Some rank decided otherwise, or was told otherwise: what rank 0 has holds for all."""
        assert self._exchange is not None
        ranks = self._exchange.ranks
        differing = ranks.who(heard.differs_here)
        mine = (self._supervisor.save(), self._switchboard.rules, self._supervisor.mode, self._step, self._tally)
        # A rank with a fault of its own takes part, and has nothing to say: all will hear of that next.
        found = ranks.spread(None if self._fault else mine, 0)
        if found is None or self._fault:
            return
        state, rules, mode, step, self._tally = found
        # On all of them, so that states stay the same to the last byte.
        self._supervisor.restore(state)
        self._switchboard.rules, self._step = rules, step
        self._supervisor.set_rules(rules)
        self._supervisor.set_mode(mode, "rank 0 says so")
        self._supervisor.begin(step + 1)
        self._switch()
        self._differences += 1
        self._say(
            f"step {step + 1}: what rank {', '.join(map(str, differing))} had decided, or was told, was not what "
            "rank 0 has, which holds for all from here on"
        )
        if self._differences == MOST_DIFFERENCES:
            self._exchange.fault_is_known = True
            raise Error(f"ranks decided differently {self._differences} times")

    def _tell_others(self, max_norm: float | None) -> None:
        """A fault that came after its step's meeting: the other ranks hear of it in the next one."""
        if self._exchange is None or self._exchange.fault_is_known or self._exchange.is_broken:
            return
        try:
            self._measurement.step(Word(Error(self._fault)))
        except Exception as second:
            self._say(f"nor could the other ranks be told: {second}")

    def _set_mode(self, mode: str, why: str) -> None:
        if mode == self._supervisor.mode:
            return
        self._supervisor.set_mode(mode, why)
        self._say(f"{mode} from here on: {why}")

    def _disarm(self, fault: Exception) -> None:
        here = f"on rank {self._exchange.ranks.rank}: " if self._exchange is not None else ""
        self._fault = str(fault) if isinstance(fault, RankFault) else f"{here}{type(fault).__name__}: {fault}"
        self._warn(
            "a fault in gnmr, which watches and switches nothing from here on: all units run low, and "
            f"ctl.step(max_norm=...) only clips{self._parts.clipping_text}. {self._fault}",
            always=not isinstance(fault, RankFault),
        )
        if not self._quiet and not isinstance(fault, RankFault):
            traceback.print_exception(fault, file=sys.stderr)
        self._all_low()
        try:
            self._supervisor.set_mode("watch", self._fault)
            self._supervisor.note(f"disarmed by a fault: {self._fault}")
        except Exception as second:
            self._say(f"nor could the journal be told: {second}")

    def _all_low(self) -> None:
        for unit in self._units:
            try:
                if unit.switch is not None:
                    unit.switch.set_high(False)
            except Exception as fault:
                self._say(f"{unit.name} could not be set low: {fault}")
        self._high = []

    def _say(self, text: str) -> None:
        self._supervisor.note(text)
        if not self._quiet and self._leads:
            print(f"gnmr: {text}", file=sys.stderr)

    def _warn(self, text: str, always: bool = False) -> None:
        self._supervisor.note(text)
        if self._leads or always:
            warn(text, stacklevel=2)
