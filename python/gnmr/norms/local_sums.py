# SPDX-License-Identifier: Apache-2.0
"""Sums of squares of one step's gradients on this rank, on the host or on their way to it.

Goals: nobody waits for a device before the numbers are wanted. Non-goals: making them (gnmr.norms.gradients).
"""

import math
from array import array

import torch
from torch import Tensor

from gnmr.norms.device_squares import DeviceSquares


class LocalSums:
    """The sums of one step, by slot; the last is of what belongs to no unit."""

    def __init__(self, sampled: bytes, sums: Tensor | None = None, device: DeviceSquares | None = None) -> None:
        """Sums on the host, or those that were queued last on a device."""
        self.sampled = sampled  # one a slot but the last
        self.device = device
        self._sums = sums
        self._ticket = 0

    def where_they_are(self) -> Tensor:
        """Without a wait; on a device before `finish` only."""
        if self._sums is not None:
            return self._sums
        assert self.device is not None
        return self.device.queued

    def finish(self, max_norm: float) -> None:
        """Nothing of this step is queued any more but clipping to this norm (infinite: none)."""
        if self.device is not None:
            self._ticket = self.device.finish(max_norm)

    def on_host(self) -> Tensor:
        """Waits for them."""
        if self._sums is None:
            assert self.device is not None
            if self._ticket == 0:
                self.finish(math.inf)
            copy = array("d")
            copy.frombytes(self.device.read(self._ticket).cast("B"))
            self._sums = torch.frombuffer(copy, dtype=torch.float64)
        return self._sums


def moved(numbers: Tensor, device: torch.device) -> Tensor:
    """Numbers somewhere else; from the host to a device without a wait."""
    if numbers.is_cpu and device.type == "cuda":
        return numbers.pin_memory().to(device, non_blocking=True)
    return numbers.to(device)
