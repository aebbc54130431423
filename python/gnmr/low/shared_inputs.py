# SPDX-License-Identifier: Apache-2.0
"""Layers that get the same tensor one after the other (q, k and v; gate and up) share what they quantize it to.

Goals: the bits that each layer would have alone; nothing lives longer than the tensor. Not shared: a tensor that was
changed in place since, or that autocast gives another type; one of inference mode; what depends on the layer (delayed
scales, chance); compiled blocks, where the compiler does it. Non-goals: which operands can be shared
(gnmr/low/operand.h).
"""

import threading
import weakref

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.front_end import current_stream

#: What has to be the same besides the tensor: its version, the type that the layer gets it in, the stream.
_State = tuple[int, torch.dtype, int]


class _Entry(threading.local):
    """The last input of a thread."""

    input: "weakref.ref[Tensor] | None" = None
    _state: _State | None = None
    _held: list[_core.SharedOperands] = []

    def begin(self, input: Tensor, state: _State) -> _core.SharedOperands:
        held = [_core.SharedOperands()]
        # Whichever thread ends the tensor, what was made of it ends with it.
        self.input = weakref.ref(input, lambda _: held.clear())
        self._state, self._held = state, held
        return held[0]

    def find(self, input: Tensor, state: _State) -> _core.SharedOperands | None:
        if self.input is None or self.input() is not input or self._state != state:
            return None
        return self._held[0]


_last = _Entry()


def shared_operands(input: Tensor, dtype: torch.dtype) -> _core.SharedOperands | None:
    """What layers share that get this input as elements of this type; None where it is not known whether the tensor
    changes."""
    if input.is_inference():
        return None
    state = input._version, dtype, current_stream(input.get_device()) if input.is_cuda else 0
    return _last.find(input, state) or _last.begin(input, state)
