# SPDX-License-Identifier: Apache-2.0
"""Broken low paths for examinations: a trial has to find them.

Goals: breaks the switches that come with the package, for as long as a context lasts. Non-goals: faults in training.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gnmr.low.linear import LowLinear
from gnmr.units import WatchedUnit

_FACTOR = 4.0


@contextmanager
def planted_fault(unit: WatchedUnit, factor: float = _FACTOR) -> Iterator[None]:
    """What the low path of the unit makes is several times too large."""
    switch: Any = unit.switch
    if isinstance(switch, LowLinear):
        switch.layer.plant_factor(factor)
    else:
        plain = switch.low_forward
        switch.low_forward = lambda *arguments: plain(*arguments) * factor
    try:
        yield
    finally:
        if isinstance(switch, LowLinear):
            switch.layer.plant_factor(None)
        else:
            del switch.low_forward
