# SPDX-License-Identifier: Apache-2.0
"""Broken low paths for examinations: a trial has to find them.

Goals: breaks any switch that can be broken, for as long as a context lasts. Non-goals: faults in training.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gnmr._core import Error
from gnmr.switches import BreakableSwitch
from gnmr.units import WatchedUnit

_FACTOR = 4.0


@contextmanager
def planted_fault(unit: WatchedUnit, factor: float = _FACTOR) -> Iterator[None]:
    """What the low path of the unit makes is several times too large."""
    switch = unit.switch
    if not isinstance(switch, BreakableSwitch):
        raise Error(f"planted_fault: {unit.name}: expected a switch with plant_factor")
    switch.plant_factor(factor)
    try:
        yield
    finally:
        switch.plant_factor(None)
