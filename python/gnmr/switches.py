# SPDX-License-Identifier: Apache-2.0
"""How a unit is switched between its two paths: the protocol, and switches of your own modules.

Goals: a backend is anything with a low and a high path; the control knows none of them.
Non-goals: deciding (gnmr._core), measuring gradients (gnmr.gradients).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import nn

from gnmr._core import Error


@runtime_checkable
class Switch(Protocol):
    """One unit with two paths. The norm of the unit is that of its module's trainable parameters.

    `set_high` is only called between steps: after a step's last backward and before the next one's first forward. What
    the low path remembers (amax histories) must go on being updated while it runs high.
    """

    cost: int  # multiply-adds a token, of forward and backward together; >= 1

    def set_high(self, high: bool) -> None:
        """The path from the next forward on."""


@runtime_checkable
class MeasuringSwitch(Switch, Protocol):
    """A switch that can compare its two paths, which is what a trial needs."""

    places: Sequence[str]  # names of the errors that it measures
    expected: Sequence[float]  # what the format itself does to each, as a relative error; 0: not known

    def begin_trial(self) -> None:
        """The step runs again: results are those of the high path, the low path is compared beside it."""

    def end_trial(self) -> Sequence[float]:
        """The errors ||low - high|| / ||high|| of the places; NaN: not measured. `set_high` follows."""


_Module = TypeVar("_Module", bound=nn.Module)
_MAKERS: dict[type[nn.Module], Callable[[str, Any], "Switch | str"]] = {}


def register_switch(module_type: type[_Module], make: Callable[[str, _Module], "Switch | str"]) -> None:
    """Makes each module of this type (subclasses included) one unit.

    `make(name, module)` returns its switch, or a text that says why this one cannot be switched; then it is left out
    and the text is told. The last registration of a type counts.
    """
    if not (isinstance(module_type, type) and issubclass(module_type, nn.Module)):
        raise Error(f"register_switch: expected a class of torch.nn.Module, got {module_type!r}")
    _MAKERS[module_type] = make


def maker_of(module: nn.Module) -> Callable[[str, Any], "Switch | str"] | None:
    """The function that was registered for the nearest class of a module."""
    for one in type(module).__mro__:
        if one in _MAKERS:
            return _MAKERS[one]
    return None
