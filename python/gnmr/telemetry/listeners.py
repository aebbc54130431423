# SPDX-License-Identifier: Apache-2.0
"""Listeners of steps, and the numbers of a step.

Goals: a listener that fails is reported once and removed; the loop goes on. Non-goals: waiting for a listener.
"""

import math
from typing import TYPE_CHECKING, Protocol

from gnmr.results import StepResult
from gnmr.telemetry.warning import warn

if TYPE_CHECKING:
    from gnmr.control import Control


class Listener(Protocol):
    """Something that wants to know of steps. It is called in the thread that trains, and must not wait."""

    def step(self, result: StepResult, control: "Control") -> None:
        """A step has ended; `control` is as it is before the next one."""

    def close(self) -> None:
        """There are no more."""


class Listeners:
    """The listeners of one control."""

    def __init__(self) -> None:
        self.active: list[Listener] = []

    def add(self, listener: Listener) -> None:
        """It is called for each step from the next on."""
        self.active.append(listener)

    def remove(self, listener: Listener) -> None:
        """It is called no more, and is not closed."""
        self.active.remove(listener)

    def notify(self, result: StepResult, control: "Control") -> StepResult:
        """Calls all of them; the result is what it was given."""
        # A copy: one that fails leaves.
        for listener in tuple(self.active) if self.active else ():
            try:
                listener.step(result, control)
            except Exception as fault:
                self.active.remove(listener)
                warn(
                    f"{type(listener).__name__} failed in step {result.step} and is not called any "
                    f"more: {type(fault).__name__}: {fault}",
                    stacklevel=3,
                )
        return result

    def close(self) -> None:
        """All are closed and gone; a second call does nothing."""
        while self.active:
            listener = self.active.pop()
            try:
                listener.close()
            except Exception as fault:
                warn(f"{type(listener).__name__} could not be closed: {fault}", stacklevel=2)


def numbers_of(result: StepResult, control: "Control") -> dict[str, float]:
    """A step as named numbers; what is not known is left out."""
    supervisor = control.supervisor
    numbers = {
        "clip_coefficient": result.clip_coefficient,
        "applied": float(result.applied),
        "alarmed": float(result.alarmed),
        "rerun": float(bool(result.rerun)),
        "risks": float(len(supervisor.risks())),
        "admitted": float(len(result.admitted)),
        "released": float(len(result.released)),
        "recovered": float(len(result.recovered)),
        "standing": float(len(result.standing)),
        "high": float(len(control.high)),
        "would_be": float(result.would_be),
        "journal_dropped": float(supervisor.dropped),
    }
    if not math.isnan(result.total_norm):
        numbers["total_norm"] = result.total_norm
    if result.loss is not None:
        numbers["loss"] = result.loss
    return numbers


def is_eventful(result: StepResult) -> bool:
    """Whether something happened that no thinning should leave out."""
    return bool(result.alarmed or result.rerun or result.admitted or result.released or not result.applied)
