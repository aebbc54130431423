# SPDX-License-Identifier: Apache-2.0
"""The patrol: low paths that are compared with high ones beside plain steps, some units in each.

Goals: after the first steps units take turns by the number of the step, so all ranks compare the same ones; a share of
a step's multiply-adds pays for it; nothing waits for a device before the errors are wanted. Non-goals: comparing
(gnmr.switches), judging.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnmr import _core
from gnmr._core import Error
from gnmr.low.device_stream import OnItsWay
from gnmr.switches import PatrolledSwitch
from gnmr.units import WatchedUnit

#: Of the micro-batches that rounds are made for: how many there will be is not known before the first step.
TOKENS = 2048

#: At the beginning of a run, in which all are compared in each step.
SURVEY_STEPS: int = _core.SURVEY_STEPS


def patrol_rounds(share: float, costs: Sequence[float], unit_costs: Sequence[int]) -> list[int]:
    """The round of each unit, below 0: it is never compared. `costs`: multiply-adds of comparing it in a micro-batch of
    `TOKENS`, 0: it cannot be compared; `unit_costs`: its multiply-adds per token."""
    if not 0 <= share <= 1:
        raise Error(f"attach: expected patrol from 0 to 1, got {share}")
    patrolled = [unit for unit, cost in enumerate(costs) if cost > 0]
    rounds = [-1] * len(costs)
    found = _core.patrol_rounds([costs[unit] for unit in patrolled], float(TOKENS * sum(unit_costs)), share)
    for unit, number in zip(patrolled, found):
        rounds[unit] = number
    return rounds


@dataclass(slots=True)
class PatrolErrors:
    """What was measured beside one step on this rank, perhaps on its way from a device."""

    sums: list[tuple[int, Sequence[tuple[float, float]] | Tensor]]  # of units: PatrolledSwitch.end_patrol
    nothing: "array[float]"  # the errors of a step in which nothing was measured
    sites: int
    sent: dict[int, OnItsWay]  # what is on devices, where the host does not wait

    def errors(self) -> "array[float]":
        """||low - high|| / ||high||, units x sites, NaN: not measured. Waits for devices."""
        errors = self.nothing[:]
        for unit, sums in self.sums:
            if isinstance(sums, Tensor):
                sums = (self.sent[unit].arrived() if unit in self.sent else sums).tolist()
            for site, (difference, reference) in enumerate(sums):
                if not math.isnan(difference):
                    errors[unit * self.sites + site] = _core.relative_error(difference, reference)
        return errors

    def numbers(self, device: torch.device) -> Tensor:
        """What this rank adds to the sums of all: differences, references and samples, units x sites each."""
        total = torch.zeros(3, len(self.nothing), dtype=torch.float64, device=device)
        for unit, sums in self.sums:
            pairs = (sums if isinstance(sums, Tensor) else torch.tensor(sums, dtype=torch.float64)).to(device)
            place = slice(unit * self.sites, unit * self.sites + len(pairs))
            total[:2, place] = torch.where(pairs.isnan(), 0.0, pairs).t()
            total[2, place] = (~pairs[:, 0].isnan()).to(torch.float64)
        return total.flatten()


class Patrol:
    """Which units are compared beside which steps."""

    def __init__(self, units: Sequence[WatchedUnit], rounds: Sequence[int], sites: int) -> None:
        """`rounds`: of each unit, below 0: it is never compared. Units of other ranks have no switch here."""
        self._switches = {
            index: unit.switch
            for index, (unit, number) in enumerate(zip(units, rounds, strict=True))
            if number >= 0 and isinstance(unit.switch, PatrolledSwitch)
        }
        self._rounds: list[list[int]] = [[] for _ in range(max(rounds) + 1)]
        for index in self._switches:
            self._rounds[rounds[index]].append(index)
        self.survey_steps = SURVEY_STEPS  # at the beginning, in which all are compared in each step
        self._now: list[int] = []  # that are compared
        self._nothing = array("d", [math.nan]) * (len(units) * sites)
        self._sites = sites
        self._count = sum(number >= 0 for number in rounds)

    @property
    def rounds(self) -> int:
        """Steps until all have been compared."""
        return len(self._rounds)

    @property
    def sum_count(self) -> int:
        """How many numbers `PatrolErrors.numbers` gives."""
        return 3 * len(self._nothing)

    def text(self) -> str:
        """In words: `patrol: 8 units in 2 steps, all of them in each of the first 40`."""
        count, rounds = self._count, len(self._rounds)
        if rounds == 1:
            return f"patrol: all {count} units each step"
        return f"patrol: {count} units in {rounds} steps, all of them in each of the first {self.survey_steps}"

    def begin(self, step: int, high: Sequence[int], wanted: Sequence[int]) -> None:
        """Before a step, with its switches set: of its round, in the first steps of all, those that run low are
        compared, and of those that run high the ones that are `wanted`."""
        if self._now:
            self.end()  # another state was taken over: the step begins anew
        due = list(self._switches) if step <= self.survey_steps else self._rounds[step % len(self._rounds)]
        if high:
            runs_high = set(high)
            due = [unit for unit in due if unit not in runs_high]
            due += [unit for unit in wanted if unit in runs_high and unit in self._switches]
        self._now = due
        for unit in due:
            self._switches[unit].begin_patrol()

    def end(self, *, sends: bool = False) -> PatrolErrors:
        """After the last backward of a step, before the next one begins. `sends`: errors are asked for later."""
        now, self._now = self._now, []
        sums = [(unit, self._switches[unit].end_patrol()) for unit in now]
        sent = {unit: OnItsWay(one) for unit, one in sums if sends and isinstance(one, Tensor)}
        return PatrolErrors(sums, self._nothing, self._sites, sent)
