# SPDX-License-Identifier: Apache-2.0
"""Units that are never measured, or whose low path never runs: a watch that sees nothing looks like peace.

Goals: a warning, once and soon. Non-goals: units that lose their gradients later (experts without tokens do).
"""

from collections.abc import Iterator, Sequence

from gnmr.low.compiled_parts import has_compiled
from gnmr.switches import InstalledSwitch
from gnmr.units import WatchedUnit

STEPS_TO_A_SAMPLE = 10  # after which there is a warning of units that never had a gradient


def counted(units: Sequence[WatchedUnit]) -> tuple[list[str], list[str]]:
    """The units whose switches count calls, and those of them that were not called in this step. In code that is
    compiled most switches do not count: where there is such code, nothing is said of them."""
    compiles = has_compiled()
    counting = [
        (unit.name, unit.switch.calls)
        for unit in units
        if isinstance(unit.switch, InstalledSwitch)
        and (getattr(unit.switch, "counts_compiled_calls", False) or not compiles)
    ]
    return [name for name, _ in counting], [name for name, calls in counting if calls == 0]


class BlindUnits:
    """Looks at the first steps of a run."""

    def __init__(self, units: Sequence[WatchedUnit]) -> None:
        self._units = units
        self._unsampled = set(range(len(units)))
        self._steps = 0
        self.is_over = False  # there is nothing more to look for in norms
        self.has_looked_at_calls = False

    def look(self, sampled: memoryview) -> Iterator[str]:
        """When the norms of one of the first steps are known: warnings."""
        if self.is_over:
            return
        self._unsampled = {index for index in self._unsampled if not sampled[index]}
        self._steps += 1
        self.is_over = self._steps >= STEPS_TO_A_SAMPLE or not self._unsampled
        if self._unsampled and self._steps == STEPS_TO_A_SAMPLE:
            names = [self._units[index].name for index in sorted(self._unsampled)]
            yield (
                f"{len(names)} units had no gradient in the first {STEPS_TO_A_SAMPLE} steps and are not watched: "
                f"{_listed(names)}"
            )

    def look_at_calls(self) -> Iterator[str]:
        """At the end of the first step: warnings."""
        self.has_looked_at_calls = True
        counting, idle = counted(self._units)
        if not idle:
            return
        if len(idle) == len(counting):
            yield (
                f"NO LOW PATH RUNS: none of the {len(idle)} units that can be switched was called in the first "
                "step. Was attach given the model that trains, and does something else run in its place?"
            )
        else:
            yield (
                f"{len(idle)} units were not called in the first step, so their low path does not run "
                f"(is their weight used elsewhere?): {_listed(idle)}"
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
