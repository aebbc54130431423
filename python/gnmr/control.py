# SPDX-License-Identifier: Apache-2.0
"""What `gnmr.attach` returns: the control of one model in one training loop.

    loss.backward(); ctl.step(max_norm=1.0); optimizer.step()

Goals: one pass over the gradients a step; switches change between steps only; a fault in here never ends a run: GNMR
disarms, on all ranks together, says so once, and the model goes on as its backend has it. Non-goals: what happens
inside a step (gnmr.step.steps), deciding (gnmr._core).

It belongs to one thread, the one that trains. With several ranks all of them call the same members in the same order.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from gnmr import _core
from gnmr._core import Error
from gnmr.checks import mistakes
from gnmr.results import LateResult, StepResult
from gnmr.step.late import LateSteps
from gnmr.step.rerun import Closure, Rerun
from gnmr.step.state import change_text, changes, check_memory, checked_state, restore_memory, saved_state
from gnmr.summary import DETACHED, Summary, Tally, summarize
from gnmr.telemetry.advice import advised
from gnmr.units import Coverage, UnitList


class Control(LateSteps):
    """Watches the units of a model and switches them between steps. Made by `gnmr.attach`."""

    _told_outside = False  # that forwards are not seen

    # What is there.

    @property
    def units(self) -> UnitList:
        """The units, in the order of the controller's: a list that prints one line per unit."""
        return UnitList(self._units)

    @property
    def coverage(self) -> Coverage:
        """How much of the model is watched."""
        return self._parts.joined.found.coverage

    @property
    def high(self) -> list[str]:
        """The units that run high in the step that is going on, or comes next."""
        return [self._units[index].name for index in self._high]

    @property
    def mode(self) -> str:
        """`armed`, `watch`, `high`; `disarmed` after a fault or `detach`."""
        return "disarmed" if self._fault else self._supervisor.mode

    @property
    def lag(self) -> int:
        """What a step decides holds in the next one (0), or in the one after that (1)."""
        return 1 if self._is_late else 0

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._step

    @property
    def supervisor(self) -> _core.Supervisor:
        """The core's own object, for what is not here: signals, means, risks."""
        return self._supervisor

    def summary(self) -> Summary:
        """What happened so far: units by admissions, errors over their limits, steps in recovery; totals; advice. It
        prints as a table. The same on all ranks; kept in checkpoints."""
        return advised(
            summarize(
                self._tally,
                self._units,
                self._supervisor,
                self.mode,
                self._fault,
                bool(self._parts.joined.places) and (not self._is_late or self._parts.lag_is_free),
            )
        )

    def __repr__(self) -> str:
        high = self.high
        names = f" ({', '.join(high[:3])}{', ...' if len(high) > 3 else ''})" if high else ""
        return (
            f"<gnmr.Control: {self.mode}, {self._step} steps, lag {self.lag}; {len(self._units)} units, "
            f"{len(high)} high{names}; alarms in {self._tally.alarms} steps. summary() has more>"
        )

    # The step.

    def step(
        self, *, max_norm: float | None = None, skipped: bool = False, loss: float | Tensor | None = None
    ) -> StepResult:
        """After the last backward of a step and before its update: norms, decision, switches for the next step.

        `max_norm` also clips, as torch.nn.utils.clip_grad_norm_ does, from the same pass. `skipped`: there will be no
        update (a GradScaler found an overflow): the step is no sample, nothing is clipped. `loss` is for the journal.

        With lag 1 nothing waits for the device, and what was decided is about the step before; who asks the result for
        this step's norm waits for it (`total_norm` below does not).
        """
        self._look_at_order()
        limit = None if skipped or max_norm is None else float(max_norm)
        result = self._guarded(lambda: self._plain_step(limit, skipped, loss), limit)
        return self._told(replace(result, applied=False) if skipped and self._fault else result)

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
        self._look_at_order()
        limit = None if max_norm is None else float(max_norm)
        if not (self._random.begun or self._told_outside or self._fault):
            self._told_outside = True
            self._warn(
                "no forward of the model was seen in this step: it is not in training mode, or not called as "
                "model(...). A step that runs again has other random numbers then, and ctl.set holds at once"
            )
        rerun = Rerun(self._parts.model, self._units, self._own, self._random, closure, self._measurement.meet)
        return self._told(self._guarded(lambda: self._tried_step(rerun, limit, loss), limit))

    @property
    def total_norm(self) -> float | Tensor:
        """The norm of all gradients in the last step, before clipping; with lag 1 a tensor on their device, which is
        not waited for. NaN where nothing was measured."""
        if self._pending is not None and not self._fault:
            return self._measurement.norm(self._pending)
        return self._last_norm

    def _told(self, result: StepResult) -> StepResult:
        """Listeners hear of steps whose numbers are there."""
        self._parts.order.end_step()
        settled, self._settled = self._settled, []
        for one in settled if settled or isinstance(result, LateResult) else [result]:
            text = "" if self._fault else self._parts.order.look(one.total_norm, self._gradients.norms)
            if text:
                self._warn(text)
        for one in settled:
            self.listeners.tell(one, self)
        if not isinstance(result, LateResult):
            self._last_norm = result.total_norm
            self.listeners.tell(result, self)
        return result

    def _look_at_order(self) -> None:
        text = self._parts.order.step()
        if text and not self._fault:
            self._warn(text)

    def micro_batch(self, index: int) -> None:
        """Tells stochastic rounding which micro-batch of the step comes, from 0 on."""
        self._parts.clock.micro_batch = index

    # The switchboard.

    def set(self, pattern: str, path: str, steps: int | None = None) -> None:
        """Units whose names fit run `high` or `low` whatever the controller says, for so many steps (None: until told
        otherwise); `auto` takes earlier words about this pattern, and about what fits it, back. It holds from the next
        step on: the one that is going on is not changed."""
        if not any(_core.glob_matches(pattern, unit.name) for unit in self._units):
            self._warn(f"set: {pattern!r} fits the name of no unit")
        rules = self._switchboard.changed(pattern, path, steps, self._step + (2 if self._random.begun else 1))
        self._supervisor.set_rules(rules)
        self._switchboard.rules = rules
        if not self._random.begun:
            self._switch()

    def watch(self, why: str = "the program asked for it") -> None:
        """Decisions are only written from the next step on."""
        self._set_mode("watch", why)

    def arm(self, why: str = "the program asked for it") -> None:
        """Decisions are carried out from the next step on."""
        if self._fault:
            raise Error(f"arm: gnmr does nothing any more ({self._fault}): detach, then attach again")
        if not self._parts.joined.switchable:
            raise Error("arm: expected units that can be switched; this model has no low path")
        self._set_mode("armed", why)

    # Checkpoints and the end.

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decisions depend on, as plain values: torch.save takes it as it is."""
        self._catch_up()
        return {
            **saved_state(
                self._step, self._supervisor, self._switchboard.rules, self._units, is_open=self._pending is not None
            ),
            "summary": self._tally.save(),
            "asked": dict(self._parts.asked),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> dict[str, object]:
        """Takes it over, between two steps. Histories go by unit names and current options win; the report says what
        is not as it was: `options` has all options that changed, and `recipe`, each as it was and as it is."""
        # All of it is looked at before anything is taken.
        check_memory(checked_state(state), self._units)
        changed = changes(state, self._supervisor, self._units, self._parts.asked)
        tally = Tally.restored(state.get("summary"))
        report = self._supervisor.restore(bytes(state["supervisor"]))
        restore_memory(state, self._units)
        self._switchboard.rules = list(state["rules"])
        self._supervisor.set_rules(self._switchboard.rules)
        self._step, self._tally = int(state["step"]), tally
        self._pending, self._settled = None, []
        if state.get("is_open") and self._is_late:
            # Its numbers were on their way when the state was taken.
            self._supervisor.settle(self._step, *self._parts.no_samples())
        self._begin_step()
        text = change_text(changed, report)
        if text:
            self._warn(text)
        return {**report, "options": changed}

    def detach(self) -> None:
        """The model is as it was before `attach`, and the journal is complete."""
        self._catch_up_at_the_end()
        for one in self._settled:
            self.listeners.tell(one, self)
        self._hook.remove()
        self._parts.order.end()
        mistakes.disown(self._units)
        self._all_low()
        for own in self._own:
            try:
                own.remove()
            except Exception as fault:
                self._say(f"a switch could not be removed: {fault}")
        self._parts.kill_switch.release()
        self.listeners.close()
        self._supervisor.close()
        self._fault = self._fault or DETACHED
        if self._exchange is not None:
            self._exchange.fault_is_known = True
