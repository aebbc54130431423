# SPDX-License-Identifier: Apache-2.0
"""What `gnmr.attach` returns: the control of one model in one training loop.

    loss.backward(); ctl.step(max_norm=1.0); optimizer.step()

Goals: one pass over the gradients a step; switches change between steps only; a fault in here never ends a run: GNMR
disarms, says so once, and the model goes on as its backend has it. Non-goals: deciding (gnmr._core), ranks.

It belongs to one thread, the one that trains.
"""

import math
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from gnmr import _core
from gnmr._core import Error
from gnmr.blind_units import BlindUnits
from gnmr.gradients import Gradients
from gnmr.kill_switch import KillSwitch
from gnmr.low_linear import LowLinear, StepClock
from gnmr.rerun import Closure, ClosureFailed, FirstForward, RandomState, Rerun, is_about_memory, number_of
from gnmr.step_result import StepResult
from gnmr.units import Coverage, FoundUnits, WatchedUnit

_STATE_VERSION = 1


@dataclass
class ControlParts:
    """What a control is made of."""

    model: nn.Module
    found: FoundUnits
    supervisor: _core.Supervisor
    gradients: Gradients
    kill_switch: KillSwitch
    clock: StepClock


class Control:
    """Watches the units of a model and switches them between steps. Made by `gnmr.attach`."""

    def __init__(self, parts: ControlParts, *, strict: bool, quiet: bool) -> None:
        self._parts = parts
        self._units = parts.found.units
        self._supervisor = parts.supervisor
        self._gradients = parts.gradients
        self._own = [unit.switch for unit in self._units if isinstance(unit.switch, LowLinear)]
        self._frozen = [(index, unit.switch) for index, unit in enumerate(self._units)
                        if isinstance(unit.switch, LowLinear) and unit.switch.measures_output]
        self._strict = strict
        self._quiet = quiet
        self._step = 0  # the last one that ended
        self._high: list[int] = []  # in force
        self._rules: list[str] = []
        self._fault = ""  # why it does nothing any more
        self._blind = BlindUnits(self._units)
        self._random = RandomState()
        for own in self._own:
            own.install()
        self._hook = parts.model.register_forward_pre_hook(FirstForward(self._random))
        self._begin_step()

    # What is there.

    @property
    def units(self) -> list[WatchedUnit]:
        """The units, in the order of the controller's."""
        return list(self._units)

    @property
    def coverage(self) -> Coverage:
        """How much of the model is watched."""
        return self._parts.found.coverage

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
        return self._guarded(lambda: self._plain_step(limit, skipped, number_of(loss)), limit)

    def trial(self, closure: Closure, *, max_norm: float | None = None,
              loss: float | Tensor | None = None) -> StepResult:
        """As `step`, for loops that can run a step again: `closure()` does forward and backward of the same step, all
        of its micro-batches, and returns the loss. The first run has been made.

        An alarmed step runs again in high precision with each low path measured beside it; the units at fault go to
        recovery, and the gradients that are left make the update. Where `applied` is False there are none.
        """
        rerun = Rerun(self._units, self._own, self._random, closure)
        return self._guarded(lambda: self._tried_step(rerun, max_norm, number_of(loss)), max_norm)

    def micro_batch(self, index: int) -> None:
        """Tells stochastic rounding which micro-batch of the step comes, from 0 on."""
        self._parts.clock.micro_batch = index

    # The switchboard.

    def set(self, pattern: str, path: str, steps: int | None = None) -> None:
        """Units whose names fit run `high` or `low` whatever the controller says, for so many steps (None: until told
        otherwise); `auto` takes earlier words about this pattern back. It holds from the next step on: the one that is
        going on is not changed."""
        first = self._step + (2 if self._random.begun else 1)
        rules = [rule for rule in self._rules if rule.rpartition("=")[0] != pattern and not self._is_over(rule)]
        if path in ("high", "low"):
            if steps is not None and steps < 1:
                raise Error(f"set: expected steps of at least 1, got {steps}")
            last = "" if steps is None else str(first + steps - 1)
            rules.append(f"{pattern}={path}@{first}:{last}")
        elif path != "auto":
            raise Error(f"set: expected the path high, low or auto, got {path!r}")
        self._supervisor.set_rules(rules)
        self._rules = rules
        if not self._random.begun:
            self._switch()

    def _is_over(self, rule: str) -> bool:
        last = rule.rpartition(":")[2]
        return last != "" and int(last) <= self._step

    def watch(self, why: str = "the program asked for it") -> None:
        """Decisions are only written from the next step on."""
        self._set_mode("watch", why)

    def arm(self, why: str = "the program asked for it") -> None:
        """Decisions are carried out from the next step on."""
        if self._fault:
            raise Error(f"arm: gnmr does nothing any more ({self._fault}): attach again")
        if not any(unit.switch is not None for unit in self._units):
            raise Error("arm: expected units that can be switched; this model has no low path")
        self._set_mode("armed", why)

    # Checkpoints and the end.

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decisions depend on, as plain values: torch.save takes it as it is."""
        memory = {unit.name: unit.switch.memory.save() for unit in self._units
                  if isinstance(unit.switch, LowLinear) and unit.switch.remembers}
        return {"version": _STATE_VERSION, "step": self._step, "supervisor": self._supervisor.save(),
                "rules": list(self._rules), "memory": memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> dict[str, object]:
        """Takes it over, between two steps. Histories go by unit names and current options win; the report says what
        is not as it was."""
        if state.get("version") != _STATE_VERSION:
            raise Error(f"load_state_dict: expected version {_STATE_VERSION}, got {state.get('version')!r}")
        missing = {"step", "supervisor", "rules", "memory"} - set(state)
        if missing:
            raise Error(f"load_state_dict: expected what state_dict() gave; {', '.join(sorted(missing))} is missing")
        report = self._supervisor.restore(bytes(state["supervisor"]))
        for unit in self._units:
            if isinstance(unit.switch, LowLinear) and unit.name in state["memory"]:
                unit.switch.memory.restore(state["memory"][unit.name])
        self._rules = list(state["rules"])
        self._supervisor.set_rules(self._rules)
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
        self._supervisor.close()
        self._fault = self._fault or "it was detached"

    # Inside a step.

    def _guarded(self, run: Callable[[], StepResult], max_norm: float | None) -> StepResult:
        """What goes wrong in here is told once; the loop goes on, and is clipped as it would be."""
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
        if max_norm is None:
            return StepResult(self._step)
        return StepResult(self._step, self._gradients.clip_by_torch(max_norm))

    def _plain_step(self, max_norm: float | None, skipped: bool, loss: float | None) -> StepResult:
        step = self._step + 1
        if skipped:
            nothing = memoryview(bytes(8 * len(self._units))).cast("d")
            self._supervisor.hear(step, nothing, bytes(len(self._units)), may_rerun=False)
            return self._finish(self._supervisor.decide(loss=loss), StepResult(step, applied=False, loss=loss))
        self._measure()
        hearing = self._supervisor.hear(step, self._gradients.norms, self._gradients.sampled, may_rerun=False)
        return self._decide(hearing, max_norm, loss)

    def _tried_step(self, rerun: Rerun, max_norm: float | None, loss: float | None) -> StepResult:
        step = self._step + 1
        self._measure()
        hearing = self._supervisor.hear(step, self._gradients.norms, self._gradients.sampled)
        if hearing.action != "trial":
            return self._decide(hearing, max_norm, loss, rerun)
        before, norm_before = self._gradients.squares(), self._gradients.total()[0]
        now = set(self._high)
        errors: list[memoryview] = []
        try:
            if not self._run_again(rerun, lambda: errors.append(rerun.trial(now))):
                # It has had its rerun; the gradients are those of the step as it first ran.
                return self._decide(hearing, max_norm, loss)
        except ClosureFailed:
            self._supervisor.decide(loss=loss)
            raise
        total, coefficient = self._gradients.total(_limit(max_norm))
        applied = math.isfinite(total)
        context = rerun.context(before, norm_before, self._gradients.squares(), total, loss, applied)
        ruling = self._supervisor.conclude(step, self._gradients.norms, self._gradients.sampled, errors[0], context,
                                           loss=rerun.loss, clip_coefficient=_told(coefficient, max_norm))
        self._settle_update(applied, coefficient)
        return self._finish(ruling, StepResult(step, total, coefficient, applied, True, "trial",
                                               ruling.verdict, loss=rerun.loss))

    def _decide(self, hearing: _core.Hearing, max_norm: float | None, loss: float | None,
                rerun: Rerun | None = None) -> StepResult:
        """A step without a trial."""
        total, coefficient = self._gradients.total(_limit(max_norm))
        ruling = self._supervisor.decide(loss=loss, clip_coefficient=_told(coefficient, max_norm))
        if ruling.clip:
            self._gradients.scale_units(ruling.clip)
            self._measure()
            total, coefficient = self._gradients.total(_limit(max_norm))
        kind = ""
        if ruling.action == "replay" and rerun is not None:
            before, norm_before = self._gradients.squares(), total
            now = set(self._high)
            if self._run_again(rerun, lambda: rerun.with_high(now | set(ruling.decision.recovered), now)):
                kind = "replay"
                total, coefficient = self._gradients.total(_limit(max_norm))
                self._supervisor.replayed(self._step + 1, rerun.context(
                    before, norm_before, self._gradients.squares(), total, loss, math.isfinite(total)))
                loss = rerun.loss
        applied = ruling.action != "hold" and not (kind and not math.isfinite(total))
        self._settle_update(applied, coefficient)
        return self._finish(ruling, StepResult(self._step + 1, total, coefficient, applied, hearing.alarmed, kind,
                                               loss=loss))

    def _run_again(self, rerun: Rerun, run: Callable[[], None]) -> bool:
        """The step once more, and its gradients measured. False: there was no memory, and it has been run as before."""
        self._gradients.drop()
        try:
            run()
            self._measure()
            return True
        except ClosureFailed as failed:
            if not is_about_memory(failed.cause):
                raise
            self._say(f"step {self._step + 1}: a rerun failed for want of memory ({failed}); the step runs as before")
        except Exception:
            # A fault of ours, or of a switch: the loop has its gradients all the same.
            self._gradients.drop()
            self._all_low()
            rerun.plain()
            raise
        self._gradients.drop()
        now = set(self._high)
        rerun.with_high(now, now)
        self._measure()
        return False

    def _settle_update(self, applied: bool, coefficient: float) -> None:
        if not applied:
            self._gradients.drop()
        elif coefficient != 1.0:
            self._gradients.scale(coefficient)

    def _measure(self) -> None:
        self._gradients.measure()
        for index, switch in self._frozen:
            self._gradients.set_norm(index, switch.output_square)

    def _finish(self, ruling: _core.Ruling, result: StepResult) -> StepResult:
        """The step ends: what low paths remember takes it in, and the switches are set for the next one."""
        if not self._blind.is_over:
            for text in self._blind.look(self._gradients.sampled):
                self._warn(text)
        for own in self._own:
            own.memory.end_step()
        self._step += 1
        self._begin_step()
        decision = ruling.decision
        if not (decision.recovered or decision.released or decision.admitted):
            return result
        return replace(result, admitted=self._names(decision.admitted), released=self._names(decision.released),
                       recovered=self._names(decision.recovered))

    def _names(self, indices: list[int]) -> tuple[str, ...]:
        return tuple(self._units[index].name for index in indices)

    def _begin_step(self) -> None:
        """The next step begins: who runs high in it. Nothing is switched again until it has ended."""
        for mode, why in self._parts.kill_switch.news():
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

    # Modes and faults.

    def _set_mode(self, mode: str, why: str) -> None:
        if mode == self._supervisor.mode:
            return
        self._supervisor.set_mode(mode, why)
        self._say(f"{mode} from here on: {why}")

    def _disarm(self, fault: Exception) -> None:
        self._fault = f"{type(fault).__name__}: {fault}"
        self._warn(f"a fault in gnmr, which does nothing from here on; training goes on as the backend has it. "
                   f"{self._fault}")
        if not self._quiet:
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
        if not self._quiet:
            print(f"gnmr: {text}", file=sys.stderr)

    def _warn(self, text: str) -> None:
        self._supervisor.note(text)
        warnings.warn(f"gnmr: {text}", stacklevel=2)


def _limit(max_norm: float | None) -> float:
    return math.inf if max_norm is None else max_norm


def _told(coefficient: float, max_norm: float | None) -> float | None:
    """For the journal: nothing where nobody asked for clipping."""
    return None if max_norm is None else coefficient
