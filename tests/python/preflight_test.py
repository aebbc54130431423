# SPDX-License-Identifier: Apache-2.0
"""Memory is told before the first step: the worst set that the budget admits."""

from gnmr.checks.preflight import preflight, readable_bytes
from gnmr.switches import ExtraBytes
from gnmr.units import WatchedUnit
from torch import nn

import gnmr


class Needy:
    cost = 1

    def __init__(self, fixed: int, per_token: int) -> None:
        self.need = ExtraBytes(fixed, per_token)

    def set_high(self, high: bool) -> None:
        pass

    def recovery_bytes(self) -> ExtraBytes:
        return self.need

    def trial_bytes(self) -> ExtraBytes:
        return ExtraBytes(7 * self.need.fixed)


class Silent:
    cost = 1

    def set_high(self, high: bool) -> None:
        pass


def units(*switches: object) -> list[WatchedUnit]:
    return [WatchedUnit(f"unit{index}", 1, nn.Identity(), switch, []) for index, switch in enumerate(switches)]


def test_the_worst_set_is_taken() -> None:
    found = units(Needy(10, 0), Needy(1000, 0), Needy(20, 1), None)
    ahead = preflight(found, 2)
    # At many tokens the one that grows with them comes first.
    assert ahead.recovery == ExtraBytes(1020, 1)
    assert ahead.trial == ExtraBytes(1030 + 7000, 1)
    assert preflight(found, 0).recovery == ExtraBytes() and preflight(found, 99).recovery == ExtraBytes(1030, 1)


def test_it_is_one_line() -> None:
    line = preflight(units(Needy(2048, 3), Silent()), 1).text()
    assert line == (
        "recovery adds at most 2.0 KiB and 3 bytes a token of a forward, a trial at most 16.0 KiB and "
        "3 bytes a token of a forward; not known for Silent"
    )
    assert preflight(units(Needy(1024, 1)), 1).text(tokens=1024).startswith("recovery adds at most 2.0 KiB, ")
    assert readable_bytes(3 * 2**40) == "3072.0 GiB"


def test_our_own_low_path_adds_nothing_in_recovery() -> None:
    ctl = gnmr.attach(nn.Sequential(nn.Linear(64, 32)), recipe="fp8-tensorwise", quiet=True)
    ahead = preflight(ctl.units, ctl.supervisor.max_recovered)
    assert ahead.recovery == ExtraBytes() and ahead.trial.fixed == 12 * 64 * 32
