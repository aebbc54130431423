# SPDX-License-Identifier: Apache-2.0
"""Sums of squares of gradients on a CUDA device, by our kernels: all tensors in one pass.

Goals: the speed of the memory whatever the number of tensors; clipping and scaling in place by one launch; nothing
waits for the device but `sums` and `read`. Non-goals: tensors that the kernels cannot read; torch has those.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.device_stream import TYPES, stream_on


class _DeviceDoubles:
    """Doubles at an address of the device, for torch.as_tensor; the owner of the memory lives as long as the tensor."""

    def __init__(self, owner: object, address: int, count: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (count,),
            "typestr": "<f8",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class DeviceSquares:
    """The gradients of one device, summed into slots; the table of the kernels is kept as long as shapes stay."""

    def __init__(self, device: torch.device, slot_of: Sequence[int] | None = None, slots: int = 0) -> None:
        """`slot_of`: the sum that each tensor belongs to, up to `slots`; None: each has its own."""
        self.device = device
        self._slot_of = slot_of
        self._slots = slots
        self._counts: list[int] = []
        self._norms: _core.ClippedNorms | None = None

    @staticmethod
    def can_read(gradient: Tensor) -> bool:
        """Whether the kernels know its type and layout."""
        return (
            gradient.is_cuda
            and gradient.dtype in TYPES
            and gradient.layout is torch.strided
            and gradient.is_contiguous()
            and _core.kernels_available()
        )

    def queue_at(self, pointers: Sequence[int], types: Sequence[int], counts: Sequence[int]) -> None:
        """Queues the sums of tensors at these addresses (0: there is none) with so many elements."""
        with stream_on(self.device) as stream:
            if self._norms is None or self._counts != counts:
                self._counts = list(counts)
                slot_of = range(len(counts)) if self._slot_of is None else self._slot_of
                self._norms = _core.ClippedNorms(self._slots or len(counts), counts, list(slot_of))
            self._norms.sum(pointers, types, stream)

    @property
    def queued(self) -> Tensor:
        """The sums that were queued last, on the device, the last of them of what belongs to no slot; between `queue`
        and `finish` they may be changed."""
        assert self._norms is not None
        count = (self._slots or len(self._counts)) + 1
        view: Tensor = torch.as_tensor(_DeviceDoubles(self._norms, self._norms.sums_address, count), device=self.device)
        return view

    @property
    def total_norm(self) -> Tensor:
        """The norm of all gradients by the last `finish`, on the device."""
        assert self._norms is not None
        view: Tensor = torch.as_tensor(
            _DeviceDoubles(self._norms, self._norms.total_norm_address, 1), device=self.device
        )
        return view[0].clone()

    def finish(self, max_norm: float) -> int:
        """Queues clipping of these gradients by the sums (infinite: none) and the way of the sums to the host; a
        ticket for them."""
        assert self._norms is not None
        with stream_on(self.device) as stream:
            return self._norms.finish(max_norm, stream)

    def read(self, ticket: int) -> memoryview:
        """Waits for the sums of one of the last two steps; valid until the next `read`."""
        assert self._norms is not None
        self._norms.read(ticket)
        found: memoryview = self._norms.sums
        return found

    def sums(self, gradients: Sequence[Tensor]) -> list[float]:
        """One sum per tensor; waits for the device."""
        counts = [gradient.numel() for gradient in gradients]
        pointers = [gradient.data_ptr() for gradient in gradients]
        self.queue_at(pointers, [TYPES[gradient.dtype] for gradient in gradients], counts)
        found: Any = self.read(self.finish(math.inf))
        return list(found)[: len(counts)]  # the last is that of no tensor

    def scale(self, factor: float) -> None:
        """Multiplies the gradients that were measured last, in place; nothing waits."""
        if self._norms is not None:
            with stream_on(self.device) as stream:
                self._norms.scale(factor, stream)
