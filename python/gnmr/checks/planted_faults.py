# SPDX-License-Identifier: Apache-2.0
"""Broken low paths for examinations: a trial has to find them.

Goals: breaks the switches that come with the package, for as long as a context lasts. Non-goals: faults in training.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gnmr.units import WatchedUnit

_FACTOR = 4.0

#: The method of a switch that makes or casts what its low path computes with.
_METHODS = ("cast", "low_forward")


@contextmanager
def planted_fault(unit: WatchedUnit) -> Iterator[None]:
    """What the low path of the unit makes is several times too large."""
    switch: Any = unit.switch
    name = next(name for name in _METHODS if hasattr(switch, name))
    plain = getattr(switch, name)
    setattr(switch, name, lambda *arguments: plain(*arguments) * _FACTOR)
    try:
        yield
    finally:
        delattr(switch, name)
