# SPDX-License-Identifier: Apache-2.0
"""What a step came to."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step came to."""

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
    loss: float | None = None  # of the rerun, where there was one, else what was passed in
    would_be: bool = False  # in watch: nothing of it was carried out; admitted and so on are what would have been


def limit_of(max_norm: float | None) -> float:
    """As a number; infinite: nothing is clipped."""
    return math.inf if max_norm is None else max_norm


def journal_coefficient(coefficient: float, max_norm: float | None) -> float | None:
    """For the journal: nothing where nobody asked for clipping."""
    return None if max_norm is None else coefficient


class LateResult(StepResult):
    """What is known of a step with lag 1 when it ends: what was decided is about the step before, and `recovered` is
    still who is in recovery in the next one. The numbers are those of this step; who asks for them waits for the
    device."""

    __slots__ = ("_numbers",)
    _numbers: Callable[[], tuple[float, float]]

    def __init__(self, known: StepResult, numbers: Callable[[], tuple[float, float]]) -> None:
        for name in StepResult.__slots__:
            if name not in ("total_norm", "clip_coefficient"):
                object.__setattr__(self, name, getattr(known, name))
        object.__setattr__(self, "_numbers", numbers)

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles have the numbers, which are waited for."""
        return StepResult, tuple(getattr(self, name) for name in StepResult.__slots__)

    @property
    def total_norm(self) -> float:
        return self._numbers()[0]

    @property
    def clip_coefficient(self) -> float:
        return self._numbers()[1]
