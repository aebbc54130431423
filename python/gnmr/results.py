# SPDX-License-Identifier: Apache-2.0
"""The result of a step."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gnmr._core import Error


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step. `alarmed`, `rerun`, `verdict`, `admitted`, `released` and `would_be` are about the step
    `decided_step`: with lag 0 it is `step`, with lag 1 the one before."""

    step: int
    total_norm: float = math.nan  # of all gradients, before clipping; NaN too where nothing was measured
    clip_coefficient: float = 1.0  # what they were multiplied with
    applied: bool = True  # whether the gradients are there for an update; False: they were dropped
    alarmed: bool = False
    rerun: str = ""  # `trial` or `replay`, where the step ran again
    verdict: str = "none"  # of a trial: numeric, common or unlocated
    admitted: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()  # in the next step
    standing: tuple[str, ...] = ()  # of these, in standing recovery: their errors are always far above those of others
    loss: float | None = None  # of the rerun, where there was one, else what was passed in
    would_be: bool = False  # in watch: nothing of it was carried out; admitted and so on are what would have been
    decided_step: int = 0  # 0: none was decided

    def wait(self) -> "StepResult":
        """The result with the numbers of its step. With lag 1 it waits for the device, else they are there."""
        return self


def limit_of(max_norm: float | None) -> float:
    """As a number; infinite: nothing is clipped."""
    return math.inf if max_norm is None else max_norm


def journal_coefficient(coefficient: float, max_norm: float | None) -> float | None:
    """For the journal: nothing where nobody asked for clipping."""
    return None if max_norm is None else coefficient


class LateResult(StepResult):
    """The result of a step with lag 1. Its norm is on the way: `wait` waits for it, reading it before is an error."""

    __slots__ = ("_known", "_numbers")
    _known: StepResult
    _numbers: Callable[[], tuple[float, float]]

    def __init__(self, known: StepResult, numbers: Callable[[], tuple[float, float]]) -> None:
        for name in StepResult.__slots__:
            if name not in ("total_norm", "clip_coefficient"):
                object.__setattr__(self, name, getattr(known, name))
        object.__setattr__(self, "_known", known)
        object.__setattr__(self, "_numbers", numbers)

    def wait(self) -> StepResult:
        total_norm, clip_coefficient = self._numbers()
        return replace(self._known, total_norm=total_norm, clip_coefficient=clip_coefficient)

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles have the numbers, which are waited for."""
        known = self.wait()
        return StepResult, tuple(getattr(known, name) for name in StepResult.__slots__)

    def __repr__(self) -> str:
        return f"<on its way: {self._known!r}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def total_norm(self) -> float:
        raise self._too_early("total_norm")

    @property
    def clip_coefficient(self) -> float:
        raise self._too_early("clip_coefficient")

    def _too_early(self, name: str) -> Error:
        return Error(
            f"{name} of step {self.step} is on its way (lag 1): result.wait().{name} waits for it; ctl.total_norm is "
            "the norm on its device, without a wait"
        )
