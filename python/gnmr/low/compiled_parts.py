# SPDX-License-Identifier: Apache-2.0
"""Which parts of a model were given to torch.compile, and what that means for the switches in them.

Goals: a block that is compiled by itself goes by its own layers alone: nothing that happens in another makes it take
its slower variant. Non-goals: what the variants are (gnmr.low.neighbours).
"""

import sys
from collections.abc import Iterable

from torch import nn

from gnmr.low.linear import LowLinear
from gnmr.low.neighbours import Neighbours, NeighbourSwitch
from gnmr.units import WatchedUnit


def is_compiled(module: nn.Module) -> bool:
    """Whether it was given to torch.compile, in place or wrapped."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def records_graphs(module: nn.Module) -> bool:
    """Whether what was made of it is recorded as CUDA graphs: `mode="reduce-overhead"`, or the like."""
    known = getattr(module if hasattr(module, "_orig_mod") else module._compiled_call_impl, "get_compiler_config", None)
    config = known() if callable(known) else None
    return isinstance(config, dict) and bool(config.get("triton.cudagraphs"))


def has_compiled_parts(model: nn.Module) -> bool:
    """Whether something in it was."""
    return any(is_compiled(module) for module in model.modules())


def has_compiled() -> bool:
    """Whether anything at all was compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    # Frames are not counted where a graph must be whole; graphs always are.
    return dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0


def look_at_parts(model: nn.Module, units: Iterable[WatchedUnit], whole: bool) -> list[LowLinear]:
    """Notes in layers which others they are compiled with; `whole`: the model is compiled as one, from outside. The
    layers of ours come back that are to be recorded in CUDA graphs."""
    recorded: list[LowLinear] = []
    layers = {id(unit.module): unit.switch for unit in units if isinstance(unit.switch, NeighbourSwitch)}

    def visit(module: nn.Module, around: Neighbours, is_inside: bool, is_recorded: bool) -> None:
        if not is_inside and is_compiled(module):
            around, is_inside, is_recorded = Neighbours(), True, records_graphs(module)
        layer = layers.pop(id(module), None)
        if layer is not None:
            layer.stand_among(around)
            if is_recorded and isinstance(layer, LowLinear):
                recorded.append(layer)
        for child in module.children():
            visit(child, around, is_inside, is_recorded)

    if layers:
        # One that is compiled whole has some layer in its turn in each step, and would never be calm.
        visit(model, Neighbours(can_patrol=not whole), whole, False)
    return recorded
