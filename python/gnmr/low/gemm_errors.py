# SPDX-License-Identifier: Apache-2.0
"""How far a low product is from its high one: what a trial measures.

Goals: one relative error a product over all micro-batches of a step; what is not finite is data; sums on a CUDA device
stay there until somebody asks for them. Non-goals: judging errors (gnmr._core).
"""

import math

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.device_stream import TYPES, readable, stream_on, workspace

#: The products of a linear layer, as trials name them.
PLACES = ("forward", "input_gradient", "weight_gradient")


def squared_norm(matrix: Tensor) -> float:
    """The sum of squares of a tensor, in double; one on a device is waited for."""
    code = TYPES.get(matrix.dtype)
    if code is None or not matrix.is_cpu:
        return float(matrix.detach().to(torch.float64).square().sum())
    plain = matrix.detach().contiguous()
    return _core.sum_squares(plain.data_ptr(), plain.numel(), code, threads=torch.get_num_threads())


def _stays(matrix: Tensor) -> bool:
    """Whether what is measured of it stays on its device."""
    return matrix.is_cuda and _core.kernels_available()


class SquareSum:
    """The squares of all that is added; None: nothing was."""

    def __init__(self) -> None:
        self._here: float | None = None
        self._there: Tensor | None = None

    def add(self, matrix: Tensor) -> None:
        """Nothing waits for a device."""
        if not _stays(matrix):
            self._here = (self._here or 0.0) + squared_norm(matrix)
            return
        plain = readable(matrix)
        if self._there is None:
            self._there = torch.zeros(1, dtype=torch.float64, device=plain.device)
        if plain.numel() == 0:
            return
        with stream_on(plain.device) as stream:
            space = workspace(_core.compare_workspace_bytes(plain.numel()), plain.device)
            _core.add_square(
                plain.data_ptr(), TYPES[plain.dtype], plain.numel(), self._there.data_ptr(), space.data_ptr(), stream
            )

    def number(self) -> float | Tensor | None:
        """Where it is: nothing waits."""
        if self._there is None:
            return self._here
        return self._there[0] if self._here is None else self._there[0] + self._here

    def value(self) -> float | None:
        """Waits for a device."""
        if self._there is not None:
            self._here = (self._here or 0.0) + float(self._there)
            self._there = None
        return self._here


class ErrorSums:
    """How far a product's low path is from its high one, over the micro-batches of one step."""

    def __init__(self) -> None:
        self._difference = 0.0
        self._reference = 0.0
        self._measured = False
        self._there: Tensor | None = None  # the same three numbers on a device

    def add(self, low: Tensor, high: Tensor) -> None:
        """Nothing is added where the high result is not finite. Nothing waits for a device."""
        if _stays(high):
            self._add_there(readable(low), readable(high))
            return
        reference = squared_norm(high)
        if not math.isfinite(reference):
            return
        difference = squared_norm(low - high)
        self._difference += difference if math.isfinite(difference) else math.inf
        self._reference += reference
        self._measured = True

    def _add_there(self, low: Tensor, high: Tensor) -> None:
        if self._there is None:
            self._there = torch.zeros(3, dtype=torch.float64, device=high.device)
        if high.numel() == 0:
            return
        with stream_on(high.device) as stream:
            space = workspace(_core.compare_workspace_bytes(high.numel()), high.device)
            _core.add_error(
                low.data_ptr(),
                TYPES[low.dtype],
                high.data_ptr(),
                TYPES[high.dtype],
                high.numel(),
                self._there.data_ptr(),
                space.data_ptr(),
                stream,
            )

    def _read(self) -> None:
        if self._there is not None:
            difference, reference, measured = self._there.tolist()
            self._there = None
            self._difference += difference
            self._reference += reference
            self._measured = self._measured or measured > 0

    @property
    def difference(self) -> float:
        """The squares of low - high; infinite where low is not finite and high is."""
        self._read()
        return self._difference

    @property
    def reference(self) -> float:
        """The squares of high."""
        self._read()
        return self._reference

    @property
    def measured(self) -> bool:
        """Whether something was added."""
        self._read()
        return self._measured

    def error(self) -> float:
        """The relative error; NaN where nothing was measured."""
        if not self.measured:
            return math.nan
        if self.difference == 0:
            return 0.0
        return math.sqrt(self.difference / self.reference) if self.reference > 0 else math.inf
