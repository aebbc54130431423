# SPDX-License-Identifier: Apache-2.0
"""Layers that are compiled together: a block has two variants, whatever its layers' switches say.

    calm     all of them run low, and none is compared: the compiler sees the low paths, and fuses them
    else     operators of ours that look at their layer's switch when they run (gnmr.low.ops,
             gnmr.backends.torchao_compiled)

Goals: compilers guard on one flag of a block. Non-goals: which layers are compiled together
(gnmr.low.compiled_parts).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from gnmr import _core
from gnmr.low.layer_switch import LayerSwitch

_Module = TypeVar("_Module", bound=nn.Module)


class Neighbours:
    """What layers that are compiled together have in common: compilers guard on `calm` or, where gradients are wanted,
    on `trains_calm`; on one of them, so that there are two variants."""

    def __init__(self, can_patrol: bool = True) -> None:
        """`can_patrol`: a patrol of one layer may have all of them take their slower variant."""
        self.calm = True
        self.trains_calm = True
        self.can_patrol = can_patrol
        self.patrolled: set[int] = set()
        self._loud: set[int] = set()

    def tell(self, layer: int, is_loud: bool, is_patrolled: bool) -> None:
        """Whether a layer is high, or compared in full; whether it is compared by samples."""
        (self._loud.add if is_loud else self._loud.discard)(layer)
        (self.patrolled.add if is_patrolled else self.patrolled.discard)(layer)
        self.calm = not self._loud
        self.trains_calm = self.calm and not (self.can_patrol and self.patrolled)


class NeighbourSwitch(LayerSwitch[_Module]):
    """The switch of a layer that may be compiled together with others."""

    def __init__(
        self,
        module: _Module,
        forward: Callable[..., Any],
        cost: int,
        expected: Sequence[float],
        layer: _core.LowLayer | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`neighbours`: the layers that may be compiled together with it."""
        super().__init__(module, forward, cost, expected, layer)
        self.neighbours = neighbours or Neighbours()
        self.number = int(self.handle)  # among its neighbours
        self.patrolled = False  # compared with samples of the high path, beside the step

    @property
    def is_faulty(self) -> bool:
        """Whether a fault is planted in the low path."""
        raise NotImplementedError

    def stand_among(self, neighbours: Neighbours) -> None:
        """Before a compiler sees it: the layers that it is compiled together with."""
        self.neighbours.tell(self.number, False, False)
        self.neighbours = neighbours
        self.tell_neighbours()

    def tell_neighbours(self) -> None:
        """What the switch says now."""
        self.neighbours.tell(self.number, self.high or self.comparing or self.is_faulty, self.patrolled)

    def set_high(self, high: bool) -> None:
        super().set_high(high)
        self.tell_neighbours()

    def begin_trial(self) -> None:
        super().begin_trial()
        self.tell_neighbours()

    def end_trial(self) -> Sequence[float]:
        errors = super().end_trial()
        self.tell_neighbours()
        return errors

    def _compare(self, wanted: bool) -> None:
        super()._compare(wanted)
        self.patrolled = False
