# SPDX-License-Identifier: Apache-2.0
"""Refresh: delayed scales that no longer fit are renewed before their interval is over (docs/algorithm.md).

Goals: only while decisions are carried out; counted. Non-goals: which scale no longer fits (gnmr/formats).
"""

import math
from collections.abc import Sequence

from gnmr._core import Error
from gnmr.switches import RefreshingSwitch
from gnmr.units import WatchedUnit


def refreshing_switches(units: Sequence[WatchedUnit]) -> list[RefreshingSwitch]:
    """The switches of this process whose scales can be renewed early."""
    switches = (unit.switch for unit in units)
    return [switch for switch in switches if isinstance(switch, RefreshingSwitch) and switch.has_state]


def check_refresh(factor: float) -> None:
    """Refuses what is no such factor."""
    if factor != 0 and not 1 <= factor < math.inf:
        raise Error(f"attach: expected refresh of 0, or at least 1, got {factor}")


class Refresh:
    """Has the scales of these switches renewed early while it is on."""

    def __init__(self, switches: Sequence[RefreshingSwitch], factor: float) -> None:
        self.is_on = False
        self._switches = switches
        self._factor = factor

    def turn(self) -> None:
        """On, or off again."""
        self.is_on = not self.is_on
        for switch in self._switches:
            switch.refresh = self._factor if self.is_on else 0.0

    def count(self) -> int:
        """The scales of this process that were renewed early so far; waits for devices."""
        return sum(switch.refreshes() for switch in self._switches)
