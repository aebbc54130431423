# SPDX-License-Identifier: Apache-2.0
"""How far a low product is from its high one: what a trial measures.

Goals: one relative error a product over all micro-batches of a step; what is not finite is data.
Non-goals: judging errors (gnmr._core).
"""

import math

import torch
from torch import Tensor

from gnmr import _core

#: The products of a linear layer, as trials name them.
PLACES = ("forward", "input_gradient", "weight_gradient")

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def squared_norm(matrix: Tensor) -> float:
    """The sum of squares of a tensor, in double; one on a device is waited for."""
    code = _TYPES.get(matrix.dtype)
    if code is None or not matrix.is_cpu:
        return float(matrix.detach().to(torch.float64).square().sum())
    plain = matrix.detach().contiguous()
    return _core.sum_squares(plain.data_ptr(), plain.numel(), code, threads=torch.get_num_threads())


class ErrorSums:
    """How far a product's low path is from its high one, over the micro-batches of one step."""

    def __init__(self) -> None:
        self.difference = 0.0
        self.reference = 0.0
        self.measured = False

    def add(self, low: Tensor, high: Tensor) -> None:
        """Nothing is added where the high result is not finite."""
        reference = squared_norm(high)
        if not math.isfinite(reference):
            return
        difference = squared_norm(low - high)
        self.difference += difference if math.isfinite(difference) else math.inf
        self.reference += reference
        self.measured = True

    def error(self) -> float:
        """The relative error; NaN where nothing was measured."""
        if not self.measured:
            return math.nan
        if self.difference == 0:
            return 0.0
        return math.sqrt(self.difference / self.reference) if self.reference > 0 else math.inf
