# SPDX-License-Identifier: Apache-2.0
"""What a control is made of, and its parameters found again where a wrapper has put others in their place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from gnmr import _core
from gnmr.low.compiled_parts import look_at_parts
from gnmr.norms.gradients import Gradients, Source
from gnmr.ranks.exchange import Exchange
from gnmr.ranks.joining import Joined, check_low_paths, find_parameters_again, gradients_of, has_new_parameters, join
from gnmr.ranks.pieces import Replicas
from gnmr.step.call_order import StepOrder
from gnmr.step.kill_switch import KillSwitch
from gnmr.step.patrol import Patrol
from gnmr.step.refresh import Refresh
from gnmr.step.rerun import FirstForward, RandomState
from gnmr.telemetry.warning import warn


@dataclass
class ControlParts:
    """What a control is made of."""

    model: nn.Module
    joined: Joined
    supervisor: _core.Supervisor
    gradients: Gradients
    kill_switch: KillSwitch
    clock: _core.StepClock
    exchange: Exchange | None  # None: there is one process
    source: Source
    replicas: Replicas
    requests: list[tuple[str, str]]  # modes that the kill switch asks for and why, before the first step
    make_supervisor: Callable[[int, int | None], _core.Supervisor]  # with this lag, going on with this step
    lag_is_free: bool  # nobody has asked for the one there is
    patrol: Patrol | None = None  # None: nothing is compared beside plain steps
    refresh: Refresh | None = None  # None: no scale is renewed early
    asked: Mapping[str, object] = field(default_factory=dict)  # of attach, beside the controller's options
    has_warned: bool = False  # that other parameters have come, which this rank cannot measure alone

    is_old: bool = False  # the parameters are no longer those that were attached to

    def __post_init__(self) -> None:
        self.order = StepOrder(self.model)

    @property
    def clipping_text(self) -> str:
        """What is clipped after a fault, where that is not plain."""
        return " (of parameters for which gradients=... fails, .grad)" if callable(self.source) else ""

    def first_forward(self, random: RandomState) -> FirstForward:
        """A hook of the model's forwards."""
        return FirstForward(random, self.check_model, self.order.forward)

    def check_model(self, is_compiled: bool) -> None:
        """Before the first forward: looks at what was done to the model since, and refuses what cannot work.
        `is_compiled`: as one, from outside."""
        recorded = look_at_parts(self.model, self.joined.found.units, is_compiled)
        if any(layer.module.weight.is_cuda for layer in recorded):
            warn(
                f"{len(recorded)} layers with our own low path are compiled to CUDA graphs, for which it is not "
                "made: torch records parts anew when switches change, and may refuse them. Leave "
                'mode="reduce-overhead" out'
            )
        if has_new_parameters(self.model, self.joined.found.units):
            find_parameters_again(self.joined.found.units)
            self.is_old = True
            check_low_paths(self.model, self.joined.found.units)

    def found_again(self) -> bool:
        """In the first step: whether the parameters are others than those that were attached to; they are now known.
        All ranks come here together."""
        units = self.joined.found.units
        if not (self.is_old or has_new_parameters(self.model, units)):
            return False
        find_parameters_again(units)
        copies = None
        if self.exchange is not None:
            here = [unit for unit in units if unit.parameters]
            found = type(self.joined.found)(here, self.joined.found.coverage)
            copies = join(self.exchange.ranks, self.model, found, self.replicas)[1]
        self.gradients = gradients_of(self.model, units, self.source, copies)
        return True

    def look_again(self) -> tuple[bool, str]:
        """Whether something else is measured from here on, and a warning. Where ranks have agreed on what they
        measure, one of them changes nothing."""
        if self.exchange is not None and (self.has_warned or self.gradients.has_spread):
            return False, ""
        now, known = list(self.model.parameters()), {id(one) for one in self.gradients.parameters}
        new = sum(id(one) not in known for one in now)
        if not new and len(now) == len(known):
            return False, ""
        if self.exchange is not None:
            self.has_warned = True
            return False, (
                f"the model has other parameters than when it was attached: {new} of {len(now)} are neither "
                "measured nor clipped by ctl.step. Attach again, on all ranks"
            )
        find_parameters_again(self.joined.found.units)
        self.gradients = gradients_of(self.model, self.joined.found.units, self.source, None)
        there = {id(module) for module in self.model.modules()}
        gone = sum(id(unit.module) not in there for unit in self.joined.found.units)
        text = (
            f"the model has other parameters than before, {new} of {len(now)} are new: these are measured and "
            "clipped from here on"
        )
        return True, text + (f"; {gone} units are no part of it any more: attach again" if gone else "")
