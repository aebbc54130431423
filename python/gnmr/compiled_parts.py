# SPDX-License-Identifier: Apache-2.0
"""Which parts of a model were given to torch.compile, and what that means for the switches in them.

Goals: a block that is compiled by itself goes by its own layers alone: nothing that happens in another makes it take
its slower variant. Switches that cannot count calls in compiled code are known. Non-goals: what the variants are
(gnmr.low_linear_ops).
"""

from collections.abc import Iterable

from torch import nn

from gnmr.low_linear import LowLinear
from gnmr.low_linear_traced import Neighbours
from gnmr.switches import UncountedSwitch
from gnmr.units import WatchedUnit


def is_compiled(module: nn.Module) -> bool:
    """Whether it was given to torch.compile, in place or wrapped."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def has_compiled_parts(model: nn.Module) -> bool:
    """Whether something in it was."""
    return any(is_compiled(module) for module in model.modules())


def look_at_parts(model: nn.Module, units: Iterable[WatchedUnit], whole: bool) -> None:
    """Tells switches where their modules stand; `whole`: the model is compiled as one, from outside."""
    switches = {id(unit.module): unit.switch for unit in units if unit.switch is not None}

    def visit(module: nn.Module, around: Neighbours, is_inside: bool) -> None:
        if not is_inside and is_compiled(module):
            around, is_inside = Neighbours(), True
        switch = switches.get(id(module))
        if isinstance(switch, LowLinear):
            switch.stand_among(around)
        elif is_inside and isinstance(switch, UncountedSwitch):
            switch.assume_called()
        for child in module.children():
            visit(child, around, is_inside)

    if switches:
        visit(model, Neighbours(), whole)
