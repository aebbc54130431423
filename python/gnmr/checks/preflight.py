# SPDX-License-Identifier: Apache-2.0
"""What recovery and a trial add to a run's memory, before its first step.

Goals: an upper bound for the worst set that the budget admits, from what the switches say of themselves.
Non-goals: what the allocator makes of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gnmr.switches import ExtraBytes, FrugalSwitch, backend_name
from gnmr.units import WatchedUnit

_TYPICAL_TOKENS = 8192  # for ordering units by their need, where nobody said how many there are


@dataclass(frozen=True)
class Preflight:
    """Memory that a run may need beyond that of its low path."""

    recovery: ExtraBytes  # with the worst admitted set high
    trial: ExtraBytes  # while a step is tried again: all units high, one of them compared
    unknown: tuple[str, ...] = field(default_factory=tuple)  # backends that say nothing of their memory

    def text(self, tokens: int | None = None) -> str:
        """One line; with `tokens`, those of one forward, in bytes, else by token."""
        line = (
            f"recovery adds at most {_text_of(self.recovery, tokens)}, a trial at most {_text_of(self.trial, tokens)}"
        )
        return line + (f"; not known for {', '.join(self.unknown)}" if self.unknown else "")


def preflight(units: Sequence[WatchedUnit], max_recovered: int) -> Preflight:
    """The worst case of so many units in recovery at one time."""
    switches = [unit.switch for unit in units if isinstance(unit.switch, FrugalSwitch)]
    needs = sorted((switch.recovery_bytes() for switch in switches), key=lambda need: need.at(_TYPICAL_TOKENS))
    worst = needs[max(len(needs) - max_recovered, 0) :]
    compared = max(
        (switch.trial_bytes() for switch in switches), key=lambda need: need.at(_TYPICAL_TOKENS), default=ExtraBytes()
    )
    unknown = {
        backend_name(unit.switch)
        for unit in units
        if unit.switch is not None and not isinstance(unit.switch, FrugalSwitch)
    }
    return Preflight(_sum(worst), _sum(needs) + compared, tuple(sorted(unknown)))


def _sum(needs: Sequence[ExtraBytes]) -> ExtraBytes:
    return sum(needs, start=ExtraBytes())


def _text_of(need: ExtraBytes, tokens: int | None) -> str:
    if tokens is not None:
        return readable_bytes(need.at(tokens))
    if not need.per_token:
        return readable_bytes(need.fixed)
    each = f"{readable_bytes(need.per_token)} a token of a forward"
    return f"{readable_bytes(need.fixed)} and {each}" if need.fixed else each


def readable_bytes(count: float) -> str:
    """`1.5 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
