# SPDX-License-Identifier: Apache-2.0
"""How a unit is switched between its two paths: the protocol, and switches of your own modules.

Goals: a backend is anything with a low and a high path; the control knows none of them. docs/backend.md is the page for
whoever writes one, gnmr.conformance the suite that it passes.
Non-goals: deciding (gnmr._core), measuring gradients (gnmr.norms.gradients).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from gnmr import backends
from gnmr._core import Error


@runtime_checkable
class Switch(Protocol):
    """One unit with two paths. The norm of the unit is that of its module's trainable parameters.

    `set_high` is only called between steps: after a step's last backward and before the next one's first forward. What
    the low path keeps (amax histories) must go on being updated while it runs high.
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


@runtime_checkable
class PatrolledSwitch(MeasuringSwitch, Protocol):
    """A switch whose paths can be compared beside a plain step, which takes nothing from them."""

    def patrol_cost(self, tokens: int) -> float:
        """The multiply-adds of that in a micro-batch of so many tokens, while the unit runs low."""

    def begin_patrol(self) -> None:
        """Before a step's first forward: samples of the low path are compared; of a unit that runs high all of it is,
        as in a trial."""

    def end_patrol(self) -> Sequence[tuple[float, float]] | Tensor:
        """After the step's last backward: ||low - high||^2 and ||high||^2 of the places over all micro-batches, NaN:
        not measured. A tensor of these may lie on a device, which is not waited for."""


@runtime_checkable
class LadderSwitch(Switch, Protocol):
    """A switch with a path for recovery beside the high one."""

    def set_recovery(self, recovers: bool) -> None:
        """Before `set_high`: whether the unit is in recovery, or is high for another reason."""


def set_path(switch: Switch, high: bool, recovers: bool) -> None:
    """The path of a unit from the next forward on."""
    if isinstance(switch, LadderSwitch):
        switch.set_recovery(high and recovers)
    switch.set_high(high)


@runtime_checkable
class BreakableSwitch(Switch, Protocol):
    """A switch whose low path can be broken, so that examinations see whether a trial finds it."""

    def plant_factor(self, factor: float | None) -> None:
        """What the low path makes is so many times too large from the next forward on; None: it is right again."""


@runtime_checkable
class InstalledSwitch(Switch, Protocol):
    """A switch that stands in its module's way from `install` to `remove`, and is called where steps begin and end."""

    calls: int  # of the module with gradients, since the step began

    def install(self) -> None:
        """The module can be switched from here on. Until the first `set_high` it computes what it did."""

    def remove(self) -> None:
        """The module is as it was."""

    def begin_step(self) -> None:
        """A step begins, or begins again."""

    def end_step(self) -> None:
        """A step has ended: the low path's state takes it in."""


@runtime_checkable
class StatefulSwitch(Switch, Protocol):
    """A switch whose low path depends on earlier steps; checkpoints hold that."""

    def state(self) -> str:
        """Its state as text; empty: there is none."""

    def check_state(self, state: str) -> None:
        """Refuses what `load_state` would, and takes nothing."""

    def load_state(self, state: str) -> None:
        """Takes over what `state` gave."""


@runtime_checkable
class RefreshingSwitch(Switch, Protocol):
    """A switch whose scales come from earlier steps, and can be renewed before they are due."""

    has_state: bool  # whether its scales do come from these
    refresh: float  # one that would now be so many times as large, or less than half, is renewed; 0: none is

    def refreshes(self) -> int:
        """How many were renewed early so far; waits for a device."""


@runtime_checkable
class RecipeSwitch(Switch, Protocol):
    """A switch whose low path follows a recipe of ours. It multiplies plain tensors: what `fully_shard` gathers, not
    what tensor parallel leaves spread."""

    recipe: str


@dataclass(frozen=True, slots=True)
class ExtraBytes:
    """Memory beyond that of the low path: so much whatever the batch is, and so much for each token of it."""

    fixed: int = 0
    per_token: int = 0

    def __add__(self, other: "ExtraBytes") -> "ExtraBytes":
        return ExtraBytes(self.fixed + other.fixed, self.per_token + other.per_token)

    def at(self, tokens: int) -> int:
        """Bytes with so many tokens in one forward."""
        return self.fixed + self.per_token * tokens


@runtime_checkable
class FrugalSwitch(Switch, Protocol):
    """A switch that knows what it costs in memory, so that it is known before the first step."""

    def recovery_bytes(self) -> ExtraBytes:
        """What the unit holds more from forward to backward while it runs high."""

    def trial_bytes(self) -> ExtraBytes:
        """What it needs for a moment while it is compared; units are compared one after the other."""


def backend_name(switch: Switch | None) -> str:
    """Who switches a unit, as the coverage line names it; empty: nobody."""
    if switch is None:
        return ""
    return str(getattr(switch, "backend", type(switch).__name__))


_Module = TypeVar("_Module", bound=nn.Module)
_MAKERS: dict[type[nn.Module], Callable[[str, Any], "Switch | str | None"]] = {}


def register_switch(module_type: type[_Module], make: Callable[[str, _Module], "Switch | str | None"]) -> None:
    """Makes each module of this type (subclasses included) one unit.

    `make(name, module)` returns its switch; None where there is nothing to switch and it is only watched; or a text
    that says why it can be neither: then it is left out with this reason. The last registration of a type counts.
    """
    if not (isinstance(module_type, type) and issubclass(module_type, nn.Module)):
        raise Error(f"register_switch: expected a class of torch.nn.Module, got {module_type!r}")
    _MAKERS[module_type] = make


def maker_of(module: nn.Module) -> Callable[[str, Any], "Switch | str | None"] | None:
    """The function that was registered for the nearest class of a module; else that of a backend that comes with us."""
    for one in type(module).__mro__:
        if one in _MAKERS:
            return _MAKERS[one]
    return backends.maker_of(module)
