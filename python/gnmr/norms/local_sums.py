# SPDX-License-Identifier: Apache-2.0
"""Sums of squares of one step on this rank, of gradients and of outputs' gradients, on the host or on their way to it.

Goals: nobody waits for a device before the numbers are wanted. Non-goals: making them (gnmr.norms.gradients).
"""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gnmr.low.device_stream import OnItsWay
from gnmr.norms.device_squares import DeviceSquares


@dataclass(slots=True)
class LocalSums:
    """The sums of one step, by slot; the last is of what belongs to no unit. They are on the host, or were queued last
    on a device."""

    sampled: bytes  # one a slot but the last
    values: "array[float] | None" = None  # on the host
    device: DeviceSquares | None = None
    ticket: int = 0  # for what is on its way to the host; 0: it was not sent

    def where_they_are(self) -> Tensor:
        """Without a wait; on a device before `finish` only."""
        if self.values is not None:
            return torch.frombuffer(self.values, dtype=torch.float64)
        assert self.device is not None
        return self.device.queued

    def finish(self, max_norm: float) -> None:
        """Nothing of this step is queued any more but clipping to this norm (infinite: none)."""
        if self.device is not None:
            self.ticket = self.device.finish(max_norm)

    def on_host(self) -> "array[float]":
        """Waits for them."""
        if self.values is None:
            assert self.device is not None
            if self.ticket == 0:
                self.finish(math.inf)
            self.values = array("d")
            self.values.frombytes(self.device.read(self.ticket).cast("B"))
        return self.values


class OutputSquares:
    """Squared norms of units that are not made from parameters' gradients, some of them on their way to the host."""

    def __init__(self, squares: Mapping[int, float | Tensor | None]) -> None:
        self._found: dict[int, float | None] = {}
        by_device: dict[torch.device, dict[int, Tensor]] = {}
        for unit, square in squares.items():
            if isinstance(square, Tensor):
                by_device.setdefault(square.device, {})[unit] = square
            else:
                self._found[unit] = square
        self._sent = [(list(there), OnItsWay(torch.stack(list(there.values())))) for there in by_device.values()]

    def on_host(self) -> dict[int, float | None]:
        """Waits for them."""
        while self._sent:
            units, sent = self._sent.pop()
            self._found.update(zip(units, sent.arrived().tolist(), strict=True))
        return self._found


def moved(numbers: Tensor, device: torch.device) -> Tensor:
    """Numbers somewhere else; from the host to a device without a wait."""
    if numbers.is_cpu and device.type == "cuda":
        return numbers.pin_memory().to(device, non_blocking=True)
    return numbers.to(device)
