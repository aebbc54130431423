# SPDX-License-Identifier: Apache-2.0
"""What a control did so far: `ctl.summary()`.

Goals: units by what happened to them, totals, and advice, each piece from one rule over the numbers
(gnmr.telemetry.advice); all of it from decisions, so that ranks have the same; kept in checkpoints.
Non-goals: single steps (the journal has them).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnmr import _core
from gnmr._core import Error
from gnmr.results import StepResult
from gnmr.units import WatchedUnit

_MOST_ROWS = 20  # of the table that is printed

#: The fault of a control that was detached.
DETACHED = "it was detached"


_NOW = {"watch": "; nothing is switched now", "disarmed": "; nothing is switched now", "high": "; all run high now"}


@dataclass
class UnitCounts:
    """What happened to one unit."""

    admissions: int = 0
    denials: int = 0
    futile: int = 0
    recovery_steps: int = 0
    standing_steps: int = 0  # of these, in standing recovery
    would_be: int = 0  # admissions that were not carried out: in watch
    error_over_limit: float = 0.0  # the largest that a trial found above its limit; 0: none was


@dataclass
class Tally:
    """Counts over the steps that were decided."""

    steps: int = 0
    alarms: int = 0
    reruns: int = 0
    #: Unit passes of reruns in high precision: all units in a trial. None: the counts go on from a state of an earlier
    #: version, which did not have these and the steps in standing recovery.
    rerun_unit_steps: int | None = 0
    denied_steps: int = 0  # in which the budget had no room for a unit
    most_wanted: int = 0  # units that were in recovery or denied in one step
    capped_steps: int = 0  # in which `max_high_share` denied a rerun, or a unit that had room otherwise
    verdicts: Counter[str] = field(default_factory=Counter)  # of trials
    units: dict[str, UnitCounts] = field(default_factory=dict)

    def add(self, units: Sequence[WatchedUnit], result: StepResult, outcome: _core.Outcome) -> None:
        """A step in which something happened."""
        self.alarms += result.alarmed
        self.reruns += bool(result.rerun)
        if result.rerun and self.rerun_unit_steps is not None:
            self.rerun_unit_steps += len(units) if result.rerun == "trial" else len(outcome.decision.recovered)
        if outcome.verdict != "none":
            self.verdicts[outcome.verdict] += 1
        self.capped_steps += outcome.capped and not result.would_be
        decision = outcome.decision
        recovered, denied = decision.recovered, decision.denied
        if denied and not result.would_be:
            self.denied_steps += 1
            self.most_wanted = max(self.most_wanted, len(recovered) + len(denied))

        def of(index: int) -> UnitCounts:
            return self.units.setdefault(units[index].name, UnitCounts())

        if result.would_be:
            for index in decision.admitted:
                of(index).would_be += 1
        else:
            for index in recovered:
                of(index).recovery_steps += 1
            for index in decision.standing:
                of(index).standing_steps += 1
            for index in decision.admitted:
                of(index).admissions += 1
            for index in denied:
                of(index).denials += 1
            for index in decision.futile:
                of(index).futile += 1
        for finding in outcome.findings:
            counts = of(finding.unit)
            counts.error_over_limit = max(counts.error_over_limit, finding.excess)

    def save(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **vars(self),
            "verdicts": dict(self.verdicts),
            "units": {name: vars(counts).copy() for name, counts in self.units.items()},
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any] | None) -> "Tally":
        """What `save` gave; an earlier state has none, and counts begin anew."""
        if saved is None:
            return cls()
        try:
            units = saved["units"]
            has_reasons = "rerun_unit_steps" in saved and all("standing_steps" in one for one in units.values())
            return cls(
                **{
                    **saved,
                    "rerun_unit_steps": saved["rerun_unit_steps"] if has_reasons else None,
                    "verdicts": Counter(saved["verdicts"]),
                    "units": {name: UnitCounts(**counts) for name, counts in units.items()},
                }
            )
        except (TypeError, KeyError, AttributeError, ValueError) as wrong:
            raise Error(f"load_state_dict: expected in `summary` what state_dict() gave: {wrong}") from wrong


@dataclass(frozen=True)
class UnitSummary:
    """One unit in a summary."""

    name: str
    admissions: int
    error_over_limit: float  # 0: no trial found an error above its limit
    recovery_steps: int
    recovery_share: float  # of the steps
    denials: int
    futile: int
    is_sampled: bool  # it had a gradient that is not 0
    would_be: int = 0  # admissions that were not carried out: in watch


@dataclass(frozen=True)
class HighShares:
    """Why units ran in high precision, of all unit-steps. Reruns are beyond the budget; a trial of every step would
    add 1."""

    acute: float  # in recovery, but for standing ones
    standing: float  # in standing recovery
    reruns: float  # of steps that ran again: all units in a trial, those in recovery in a replay

    @property
    def total(self) -> float:
        """All of it."""
        return self.acute + self.standing + self.reruns


@dataclass(frozen=True)
class Advice:
    """Something to do, and the name of the rule that says so."""

    rule: str
    text: str


@dataclass(frozen=True)
class Summary:
    """What a control did; prints as a table. Units are in the order of their admissions."""

    mode: str
    steps: int
    units: tuple[UnitSummary, ...]
    switchable: int
    budget: int  # units in recovery at one time, at most
    alarms: int
    reruns: int
    can_try: bool  # alarmed steps could run again: `ctl.trial`
    denied_steps: int
    most_wanted: int
    verdicts: Mapping[str, int]
    warmup_steps: int
    refreshes: int = 0  # scales of this process that were renewed early
    fault: str = ""
    advice: tuple[Advice, ...] = ()
    standing_steps: int | None = 0  # unit-steps in standing recovery; None: not known, as `high_shares`
    rerun_unit_steps: int | None = 0  # unit passes of reruns in high precision; None: not known
    max_high_share: float = 1.0  # the cap on all of these together, of the cost; 1: none
    capped_steps: int = 0  # in which it denied a rerun, or a unit that had room otherwise

    @property
    def high_shares(self) -> HighShares | None:
        """Why units ran in high precision. None: the run goes on from a state of an earlier version without these
        counts."""
        if self.standing_steps is None or self.rerun_unit_steps is None:
            return None
        whole = self.steps * len(self.units)
        recovered = sum(unit.recovery_steps for unit in self.units)
        return HighShares(
            _ratio(recovered - self.standing_steps, whole),
            _ratio(self.standing_steps, whole),
            _ratio(self.rerun_unit_steps, whole),
        )

    @property
    def recovery_share(self) -> float:
        """Of all unit-steps."""
        return _ratio(sum(unit.recovery_steps for unit in self.units), self.steps * len(self.units))

    def __str__(self) -> str:
        return "\n".join([*self._head(), *self._table(), *(f"advice ({one.rule}): {one.text}" for one in self.advice)])

    __repr__ = __str__

    def _head(self) -> list[str]:
        shares = self.high_shares
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items())) or "none"
        return [
            f"gnmr: {self.mode}, {self.steps} steps, {self.alarms} with an alarm, {self.reruns} run again "
            f"(trials: {verdicts})",
            f"{budget_text(self.budget, len(self.units))}; "
            f"units denied in {self.denied_steps} steps" + _NOW.get(self.mode, ""),
            *([_shares_text(shares)] if shares is not None else []),
            *([self._cap_text()] if self.max_high_share < 1 else []),
            *([f"{self.refreshes} scales renewed before their interval was over"] if self.refreshes else []),
        ]

    def _cap_text(self) -> str:
        return f"cap: {self.max_high_share:.3g} of the cost (max_high_share); reached in {self.capped_steps} steps"

    def _table(self) -> list[str]:
        rows = [
            unit
            for unit in self.units
            if unit.admissions or unit.denials or unit.error_over_limit or unit.recovery_steps or unit.would_be
        ]
        if not rows:
            return ["no unit was admitted to recovery"]
        width = max(4, *(len(unit.name) for unit in rows[:_MOST_ROWS]))
        lines = [f"{'unit':{width}}  admissions  error/limit  steps in recovery  denials  futile  only watched"]
        for unit in rows[:_MOST_ROWS]:
            error = f"{unit.error_over_limit:.3g}" if unit.error_over_limit else "-"
            steps = f"{unit.recovery_steps} ({unit.recovery_share:.1%})"
            lines.append(
                f"{unit.name:{width}}  {unit.admissions:10}  {error:>11}  {steps:>17}  {unit.denials:7}  "
                f"{unit.futile:6}  {unit.would_be:12}"
            )
        if len(rows) > _MOST_ROWS:
            lines.append(f"and {len(rows) - _MOST_ROWS} units more")
        return lines


def summarize(
    tally: Tally,
    units: Sequence[WatchedUnit],
    supervisor: _core.Supervisor,
    mode: str,
    fault: str,
    can_try: bool,
    refreshes: int,
) -> Summary:
    """The summary without advice."""
    rows = []
    for index, unit in enumerate(units):
        counts = tally.units.get(unit.name, UnitCounts())
        rows.append(
            UnitSummary(
                unit.name,
                counts.admissions,
                counts.error_over_limit,
                counts.recovery_steps,
                _ratio(counts.recovery_steps, tally.steps),
                counts.denials,
                counts.futile,
                supervisor.mean_norm(index) != 0,
                counts.would_be,
            )
        )
    rows.sort(
        key=lambda row: (
            -row.admissions,
            -row.would_be,
            -_finite(row.error_over_limit),
            -row.recovery_steps,
            -row.denials,
        )
    )
    options = supervisor.options
    return Summary(
        mode,
        tally.steps,
        tuple(rows),
        sum(not unit.forced for unit in supervisor.units),
        supervisor.max_recovered,
        tally.alarms,
        tally.reruns,
        can_try,
        tally.denied_steps,
        tally.most_wanted,
        dict(tally.verdicts),
        int(options.warmup_samples),
        refreshes,
        fault,
        standing_steps=(
            sum(counts.standing_steps for counts in tally.units.values())
            if tally.rerun_unit_steps is not None
            else None
        ),
        rerun_unit_steps=tally.rerun_unit_steps,
        max_high_share=float(options.max_high_share),
        capped_steps=tally.capped_steps,
    )


def budget_text(budget: int, units: int) -> str:
    """`budget: 2 of 224 units (0.9%)`."""
    return f"budget: {budget} of {units} units ({_ratio(budget, units):.1%})"


def _shares_text(shares: HighShares) -> str:
    return (
        f"{shares.total:.2%} of unit-steps in high precision: {shares.acute:.2%} acute recovery, "
        f"{shares.standing:.2%} standing recovery, {shares.reruns:.2%} reruns"
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _finite(number: float) -> float:
    return number if math.isfinite(number) else math.inf
