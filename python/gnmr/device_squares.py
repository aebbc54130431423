# SPDX-License-Identifier: Apache-2.0
"""Sums of squares of gradients on a CUDA device, by our kernels: all tensors in one pass, one wait.

Goals: the speed of the memory whatever the number of tensors; scaling in place by one launch. Non-goals: tensors that
the kernels cannot read; torch has those.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gnmr import _core

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class DeviceSquares:
    """The gradients of one device; the table of the kernels is kept as long as their shapes stay."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._counts: list[int] = []
        self._norms: _core.ClippedNorms | None = None

    @staticmethod
    def can_read(gradient: Tensor) -> bool:
        """Whether the kernels know its type and layout."""
        return (gradient.is_cuda and gradient.dtype in _TYPES and gradient.layout is torch.strided
                and gradient.is_contiguous() and _core.kernels_available())

    def sums(self, gradients: Sequence[Tensor]) -> list[float]:
        """One sum a tensor; waits for the device."""
        counts = [gradient.numel() for gradient in gradients]
        if self._norms is None or counts != self._counts:
            self._counts = counts
            self._norms = _core.ClippedNorms(len(counts), counts, list(range(len(counts))))
        stream = torch.cuda.current_stream(self._device).cuda_stream
        with torch.cuda.device(self._device):
            self._norms.sum([gradient.data_ptr() for gradient in gradients],
                            [_TYPES[gradient.dtype] for gradient in gradients], stream)
            self._norms.read(self._norms.finish(math.inf, stream))
        found: list[float] = list(self._norms.sums)
        return found[: len(counts)]  # the last is that of no tensor

    def scale(self, factor: float) -> None:
        """Multiplies the gradients that were measured last, in place; nothing waits."""
        if self._norms is not None:
            with torch.cuda.device(self._device):
                self._norms.scale(factor, torch.cuda.current_stream(self._device).cuda_stream)
