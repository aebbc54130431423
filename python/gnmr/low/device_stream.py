# SPDX-License-Identifier: Apache-2.0
"""Where the kernels of `gnmr._core` run: on the device of a tensor, behind what torch has queued there.

Goals: addresses and streams as numbers, so that the core knows no torch. Non-goals: choosing a device.
"""

from typing import Any

import torch
from torch import Tensor

from gnmr.low.front_end import current_stream

#: The types of elements as the kernels number them; low paths know the first two.
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class stream_on:
    """The stream that is torch's current one on a CUDA device, which is the current device meanwhile: its number."""

    __slots__ = ("_device", "_guard")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._guard: torch.cuda.device | None = None

    def __enter__(self) -> int:
        # Several times in each layer: objects of torch's would take longer than a launch.
        index = torch.cuda.current_device()
        if self._device.index is not None and self._device.index != index:
            self._guard = torch.cuda.device(self._device)
            self._guard.__enter__()  # type: ignore[no-untyped-call]
            index = self._device.index
        return current_stream(index)

    def __exit__(self, *failure: Any) -> None:
        if self._guard is not None:
            self._guard.__exit__(*failure)


class OnItsWay:
    """Numbers of a device on their way to the host, or numbers of the host."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.detach()
        self._passed: torch.cuda.Event | None = None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._numbers.copy_(numbers.detach(), non_blocking=True)
            self._passed = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._passed.record(torch.cuda.current_stream(numbers.device))

    def arrived(self) -> Tensor:
        """Waits for them."""
        if self._passed is not None:
            self._passed.synchronize()
            self._passed = None
        return self._numbers
