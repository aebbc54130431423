# SPDX-License-Identifier: Apache-2.0
"""Layers by number: what a compiled block passes to operators that look something up when they run.

Goals: compilers take the number as a tensor, an input whose value they do not look at, so blocks share their code.
Non-goals: what is looked up.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from gnmr._core import Error

_numbers = count(1)
_layers: WeakValueDictionary[int, Any] = WeakValueDictionary()


def new_handle(layer: object) -> Tensor:
    """The number of a layer's switch."""
    number = next(_numbers)
    _layers[number] = layer
    return torch.tensor(number, device="cpu")


def layer_of(handle: Tensor) -> Any:
    """The switch of the layer that was given this number."""
    layer = _layers.get(int(handle))
    if layer is None:
        raise Error("low_linear: expected a layer that is attached; a compiled block outlived its control")
    return layer
