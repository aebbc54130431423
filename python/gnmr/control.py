# SPDX-License-Identifier: Apache-2.0
"""What `gnmr.attach` returns: the control of one model in one training loop.

    loss.backward(); ctl.step(max_norm=1.0); optimizer.step()

Goals: one pass over the gradients per step; switches change between steps only; a fault in here never ends a run: GNMR
disarms, on all ranks together, says so once, and the model goes on as its backend has it. Non-goals: what happens
inside a step (gnmr.step: prompt.py with lag 0, late.py with lag 1), deciding (gnmr._core).

It belongs to one thread, the one that trains. With several ranks all of them call the same members in the same order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from gnmr import _core
from gnmr._core import Error
from gnmr.checks import mistakes
from gnmr.results import LateResult, StepResult
from gnmr.step.late import Late
from gnmr.step.parts import ControlParts
from gnmr.step.prompt import Prompt
from gnmr.step.rerun import Closure, ClosureFailed, Rerun
from gnmr.step.state import change_text, changes, check_memory, checked_state, restore_memory, saved_state
from gnmr.step.steps import Steps
from gnmr.summary import DETACHED, Summary, Tally, summarize
from gnmr.telemetry.advice import advised
from gnmr.telemetry.listeners import Listeners
from gnmr.units import Coverage, UnitList


class Control:
    """Watches the units of a model and switches them between steps. Made by `gnmr.attach`."""

    def __init__(self, parts: ControlParts, *, strict: bool, quiet: bool) -> None:
        self.listeners = Listeners()  # called after each step
        self._parts = parts
        self._strict = strict
        self._steps = steps = Steps(parts, quiet=quiet)
        steps.strategy = Late(steps) if parts.supervisor.has_gate else Prompt(steps)
        self._has_warned = False  # that forwards are not seen
        self._offered: Rerun | None = None  # by `trial`, for the step that ends now
        for switch in steps.installed:
            switch.install()
        self._hook = parts.model.register_forward_pre_hook(parts.first_forward(steps.random))
        steps.begin()

    # What is there.

    @property
    def units(self) -> UnitList:
        """The units, in the order of the controller's: a list that prints one line per unit."""
        return UnitList(self._steps.units)

    @property
    def coverage(self) -> Coverage:
        """How much of the model is watched."""
        return self._parts.joined.found.coverage

    @property
    def high(self) -> list[str]:
        """The units that run high in the step that is going on, or comes next."""
        return list(self._steps.names(self._steps.high.units))

    @property
    def mode(self) -> str:
        """`armed`, `watch`, `high`; `disarmed` after a fault or `detach`."""
        return "disarmed" if self._steps.fault else self._parts.supervisor.mode

    @property
    def lag(self) -> int:
        """What a step decides holds in the next one (0), or in the one after that (1)."""
        return self._steps.strategy.lag

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._steps.number

    @property
    def supervisor(self) -> _core.Supervisor:
        """The core's own object, for what is not here: signals, means, risks."""
        return self._parts.supervisor

    def summary(self) -> Summary:
        """What happened so far: units by admissions, errors over their limits, steps in recovery; totals; advice. It
        prints as a table. The same on all ranks; kept in checkpoints."""
        steps, parts = self._steps, self._parts
        can_try = bool(parts.joined.places) and (self.lag == 0 or parts.lag_is_free)
        count = parts.refresh.count() if parts.refresh is not None else 0
        return advised(summarize(steps.tally, steps.units, parts.supervisor, self.mode, steps.fault, can_try, count))

    def plan(self) -> _core.HighPlan:
        """Which units should always run high, by the errors that the patrol has measured so far: as data, as a table,
        and as a filter for torchao (`filter_fn`). An error before anything was measured."""
        return _core.plan_high_units(self._parts.supervisor, list(self._parts.joined.places))

    def __repr__(self) -> str:
        high = self.high
        names = f" ({', '.join(high[:3])}{', ...' if len(high) > 3 else ''})" if high else ""
        return (
            f"<gnmr.Control: {self.mode}, {self.steps} steps, lag {self.lag}; {len(self._steps.units)} units, "
            f"{len(high)} high{names}; alarms in {self._steps.tally.alarms} steps. summary() has more>"
        )

    # The step.

    def step(
        self, *, max_norm: float | None = None, skipped: bool = False, loss: float | Tensor | None = None
    ) -> StepResult:
        """After the last backward of a step and before its update: norms, decision, switches for the next step.

        `max_norm` also clips, as torch.nn.utils.clip_grad_norm_ does, from the same pass. `skipped`: there will be no
        update (a GradScaler found an overflow): the step is no sample, nothing is clipped. `loss` is for the journal.

        With lag 1 nothing waits for the device: the decision in the result is about `decided_step`, the step before,
        and `result.wait()` waits for the norm of this one (`total_norm` below does not).
        """
        limit = None if skipped or max_norm is None else float(max_norm)
        steps, order = self._steps, self._parts.order
        rerun, self._offered = self._offered, None
        if order.updated:
            text = order.report_update()
            if not steps.fault:
                steps.warn(text)
        steps.is_clipped, steps.clipped_as = False, None
        if steps.fault:
            steps.number += 1
            steps.strategy.report_fault(limit)
            result = steps.after_fault(limit, skipped)
        else:
            before = steps.number
            try:
                result = steps.strategy.step(limit, skipped, loss, rerun)
            except ClosureFailed as failed:
                steps.number = before + 1
                steps.begin()
                raise failed.cause from None
            except Exception as fault:
                if self._strict:
                    raise
                steps.number = max(steps.number, before + 1)
                steps.disarm(fault)
                result = steps.after_fault(limit, skipped)
        # Forwards of a rerun are none of the next step's.
        order.updated = order.forward_seen = False
        is_late = isinstance(result, LateResult)
        if not is_late:
            steps.last_norm = result.total_norm
        decided, steps.settled = steps.settled, []
        if self.listeners.active or order.is_looking:
            self._report(decided if is_late else [*decided, result], decided if decided or is_late else [result])
        return result

    def trial(
        self, closure: Closure, *, max_norm: float | None = None, loss: float | Tensor | None = None
    ) -> StepResult:
        """As `step`, for loops that can run a step again: `closure()` does forward and backward of the same step, all
        of its micro-batches, and returns the loss. The first run has been made.

        An alarmed step runs again in high precision with each low path measured beside it; the units at fault go to
        recovery, and the gradients that are left make the update. Where `applied` is False there are none. It waits for
        the norms: where `attach` chose lag 1 by itself, it is 0 from the first call on.
        """
        mistakes.check_closure(closure)
        steps, limit = self._steps, None if max_norm is None else float(max_norm)
        if not (steps.random.begun or self._has_warned or steps.fault):
            self._has_warned = True
            steps.warn(
                "no forward of the model was seen in this step: it is not in training mode, or not called as "
                "model(...). A step that runs again has other random numbers then, and ctl.set holds at once"
            )
        self._offered = Rerun(
            self._parts.model, steps.units, steps.installed, steps.random, closure, steps.agreement.check
        )
        # Not that of the instance: a loop may have put something around it.
        return Control.step(self, max_norm=limit, loss=loss)

    @property
    def total_norm(self) -> float | Tensor:
        """The norm of all gradients in the last step, before clipping; with lag 1 a tensor on their device, which is
        not waited for. NaN where nothing was measured."""
        strategy = self._steps.strategy
        if strategy.is_open and not self._steps.fault:
            return strategy.total_norm()
        return self._steps.last_norm

    def _report(self, results: Sequence[StepResult], measured: Sequence[StepResult]) -> None:
        """Listeners are called for steps whose numbers are there."""
        steps, order = self._steps, self._parts.order
        for one in measured:
            text = "" if steps.fault else order.look(one.total_norm, self._parts.gradients.numbers.norms)
            if text:
                steps.warn(text)
        for one in results:
            self.listeners.notify(one, self)

    def micro_batch(self, index: int) -> None:
        """For stochastic rounding: which micro-batch of the step comes, from 0 on."""
        self._parts.clock.micro_batch = index

    # The switchboard.

    def set(self, pattern: str, path: str, steps: int | None = None) -> None:
        """Units whose names fit run `high` or `low` whatever the controller says, for so many steps (None: until the
        next call); `auto` takes earlier calls for this pattern, and for what fits it, back. It holds from the next step
        on: the one that is going on is not changed."""
        own = self._steps
        if not any(_core.glob_matches(pattern, unit.name) for unit in own.units):
            own.warn(f"set: {pattern!r} fits the name of no unit")
        rules = own.switchboard.changed(pattern, path, steps, own.number + (2 if own.random.begun else 1))
        self._parts.supervisor.set_rules(rules)
        own.switchboard.rules = rules
        if not own.random.begun:
            own.move_switches()

    def watch(self, why: str = "the program asked for it") -> None:
        """Decisions are only written from the next step on."""
        self._steps.set_mode("watch", why)

    def arm(self, why: str = "the program asked for it") -> None:
        """Decisions are carried out from the next step on."""
        if self._steps.fault:
            raise Error(f"arm: gnmr does nothing any more ({self._steps.fault}): detach, then attach again")
        if not self._parts.joined.switchable:
            raise Error("arm: expected units that can be switched; this model has no low path")
        self._steps.set_mode("armed", why)

    # Checkpoints and the end.

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decisions depend on, as plain values: torch.save takes it as it is."""
        steps = self._steps
        steps.strategy.catch_up()
        return {
            **saved_state(
                steps.number,
                self._parts.supervisor,
                steps.switchboard.rules,
                steps.units,
                is_open=steps.strategy.is_open,
            ),
            "summary": steps.tally.save(),
            "asked": dict(self._parts.asked),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> dict[str, object]:
        """Takes it over, between two steps. Histories go by unit names and current options win; the report says what
        is not as it was: `options` has all options that changed, and `recipe`, each as it was and as it is."""
        # All of it is looked at before anything is taken.
        steps, supervisor = self._steps, self._parts.supervisor
        check_memory(checked_state(state), steps.units)
        changed = changes(state, supervisor, steps.units, self._parts.asked)
        tally = Tally.restored(state.get("summary"))
        report = supervisor.restore(bytes(state["supervisor"]))
        restore_memory(state, steps.units)
        steps.switchboard.rules = list(state["rules"])
        supervisor.set_rules(steps.switchboard.rules)
        steps.number, steps.tally, steps.settled = int(state["step"]), tally, []
        steps.strategy.restored(bool(state.get("is_open")))
        steps.begin()
        text = change_text(changed, report)
        if text:
            steps.warn(text)
        return {**report, "options": changed}

    def detach(self) -> None:
        """The model is as it was before `attach`, and the journal is complete."""
        steps, parts = self._steps, self._parts
        try:
            steps.strategy.catch_up()
        except Exception as fault:
            steps.say(f"the last step was not decided: {fault}")
        steps.strategy.end()
        for one in steps.settled:
            self.listeners.notify(one, self)
        self._hook.remove()
        parts.order.end()
        mistakes.disown(steps.units)
        steps.all_low()
        for switch in steps.installed:
            try:
                switch.remove()
            except Exception as fault:
                steps.say(f"a switch could not be removed: {fault}")
        parts.kill_switch.release()
        self.listeners.close()
        parts.supervisor.close()
        steps.fault = steps.fault or DETACHED
        if parts.exchange is not None:
            parts.exchange.fault_is_known = True
