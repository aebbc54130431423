# SPDX-License-Identifier: Apache-2.0
"""Layers by number: what a compiled block passes to operators that look something up when they run.

Goals: compilers take the number as a tensor, an input whose value they do not look at, so blocks share their code.
Non-goals: what is looked up.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from gnmr._core import Error

if TYPE_CHECKING:
    from gnmr.low_linear import LowLinear

_numbers = count(1)
_layers: WeakValueDictionary[int, LowLinear] = WeakValueDictionary()


def new_handle(low: LowLinear) -> Tensor:
    """The number of a layer."""
    number = next(_numbers)
    _layers[number] = low
    return torch.tensor(number, device="cpu")


def layer_of(handle: Tensor) -> LowLinear:
    """The layer that was given this number."""
    low = _layers.get(int(handle))
    if low is None:
        raise Error("low_linear: expected a layer that is attached; a compiled block outlived its control")
    return low
