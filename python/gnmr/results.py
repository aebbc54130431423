# SPDX-License-Identifier: Apache-2.0
"""The result of a step."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from gnmr._core import Error

_ON_THE_WAY = ("total_norm", "clip_coefficient")  # of a step with lag 1
_AWAITED = (*_ON_THE_WAY, "applied")


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step. `alarmed`, `rerun`, `verdict`, `admitted`, `released` and `would_be` are about the step
    `decided_step`: with lag 0 it is `step`, with lag 1 the one before."""

    step: int
    total_norm: float = math.nan  # of all gradients, before clipping; NaN too where nothing was measured
    clip_coefficient: float = 1.0  # what they were multiplied with
    applied: bool = True  # whether there is an update; False: gradients were dropped, or optimizers leave it out
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


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class LateResult(StepResult):
    """The result of a step with lag 1. Its norm is on the way: `wait` waits for it, reading it before is an error."""

    total_norm: float = field(init=False)
    clip_coefficient: float = field(init=False)
    numbers: Callable[[], tuple[float, float]]  # these two, which it waits for

    def wait(self) -> StepResult:
        return self._with(*self.numbers(), self.applied)

    def _with(self, total_norm: float, clip_coefficient: float, applied: bool) -> StepResult:
        known = {name: getattr(self, name) for name in StepResult.__slots__ if name not in _AWAITED}
        return StepResult(total_norm=total_norm, clip_coefficient=clip_coefficient, applied=applied, **known)

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles have the numbers, which are waited for."""
        known = self.wait()
        return _plain(known, known.applied)

    def __repr__(self) -> str:
        return f"<on its way: {self._with(math.nan, math.nan, self.applied)!r}>"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        # What is not set.
        if name not in _ON_THE_WAY:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        raise Error(
            f"{name} of step {self.step} is on its way (lag 1): result.wait().{name} waits for it; ctl.total_norm is "
            "the norm on its device, without a wait"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GatedResult(LateResult):
    """Of a step that a gate on a device may hold: reading `applied` waits for it, and counts as going by it."""

    applied: bool = field(init=False)
    is_applied: Callable[[bool], bool]  # which waits; True: the loop goes by it

    def wait(self) -> "WaitedResult":
        return WaitedResult(self._with(*self.numbers(), True), self.is_applied)

    def __reduce__(self) -> tuple[object, ...]:
        return self.wait().__reduce__()

    def __repr__(self) -> str:
        return f"<on its way: {self._with(math.nan, math.nan, True)!r}>"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        return self.is_applied(True) if name == "applied" else LateResult.__getattr__(self, name)


class WaitedResult(StepResult):
    """The same with its numbers. Reading `applied` is going by it; numbers, copies, pickles and text are not."""

    __slots__ = ("_is_applied",)
    _is_applied: Callable[[bool], bool]

    def __init__(self, known: StepResult, is_applied: Callable[[bool], bool]) -> None:
        super().__init__(*(getattr(known, name) for name in StepResult.__slots__))
        object.__setattr__(self, "_is_applied", is_applied)
        object.__delattr__(self, "applied")  # so that `__getattr__` is asked

    def __reduce__(self) -> tuple[object, ...]:
        return _plain(self, self._is_applied(False))

    def __repr__(self) -> str:
        return repr(copy(self))

    def __getattr__(self, name: str) -> Any:
        if name != "applied":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return self._is_applied(True)


def _plain(result: StepResult, applied: bool) -> tuple[object, ...]:
    """What copies and pickles are made from."""
    return StepResult, tuple(applied if name == "applied" else getattr(result, name) for name in StepResult.__slots__)


def gated(result: LateResult, is_applied: Callable[[bool], bool]) -> GatedResult:
    """The result; `is_applied` waits for whether its update is made. Its argument: whether the loop goes by that."""
    known = {name: getattr(result, name) for name in StepResult.__slots__ if name not in (*_ON_THE_WAY, "applied")}
    return GatedResult(numbers=result.numbers, is_applied=is_applied, **known)
