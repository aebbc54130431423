# SPDX-License-Identifier: Apache-2.0
"""What the low path of one layer remembers under delayed scaling, where its operands are.

Goals: on a CUDA device amaxes, histories and scales stay there and nothing waits for them; what is saved is the same
text on every device, so a checkpoint of one goes on with another; a model may be moved between steps.
Non-goals: how scales follow histories (gnmr._core).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.casts import finite_amax
from gnmr.low.device_stream import stream_on

_OPERANDS = 3


class _OnDevice:
    """The memory on one CUDA device."""

    def __init__(self, rules: _core.Recipe, device: torch.device, text: str) -> None:
        self.device = device
        with stream_on(device) as stream:
            self.scales = _core.DelayedScales(rules)
            self.scales.restore(text, stream)
        with torch.inference_mode(False):  # it outlives the mode that the first forward may run in
            self._amaxes = torch.full((_OPERANDS,), -1.0, device=device)
        self._seen = [False] * _OPERANDS

    def note(self, operand: int, find: Callable[[int], None]) -> None:
        """`find(where)` writes an amax to the device; the largest of the step is kept."""
        kept = self._amaxes.data_ptr() + operand * self._amaxes.element_size()
        if not self._seen[operand]:
            find(kept)
            self._seen[operand] = True
            return
        found = torch.empty(1, dtype=torch.float32, device=self.device)
        find(found.data_ptr())
        with stream_on(self.device) as stream:
            _core.keep_larger(found.data_ptr(), kept, 1, stream)

    def forget_step(self) -> None:
        if any(self._seen):
            self._amaxes.fill_(-1.0)
            self._seen = [False] * _OPERANDS

    def end_step(self) -> None:
        if any(self._seen):
            with stream_on(self.device) as stream:
                self.scales.observe(self._amaxes.data_ptr(), self._seen, stream)
        self.forget_step()

    def save(self) -> str:
        with stream_on(self.device) as stream:
            return self.scales.save(stream)

    def restore(self, text: str) -> None:
        with stream_on(self.device) as stream:
            self.scales.restore(text, stream)


class AmaxHistory:
    """The memory of one layer. It belongs to one thread at a time."""

    def __init__(self, rules: _core.Recipe) -> None:
        self._rules = rules
        self._host = _core.DelayedMemory(rules)
        self._on_device: _OnDevice | None = None  # None: it is on the host

    def wants(self, operand: int) -> bool:
        """Whether an operand's amax is remembered."""
        return self._host.wants(operand)

    def note(self, operand: int, matrix: Tensor) -> None:
        """An operand on the CPU, in a micro-batch of the step."""
        self._move(matrix.device)
        self._host.note(operand, finite_amax(matrix))

    def note_on_device(self, operand: int, device: torch.device, find: Callable[[int], None]) -> None:
        """An operand on a CUDA device: `find(where)` queues what writes its amax to an address there."""
        self._there(device).note(operand, find)

    def scale(self, product: int, place: int) -> float:
        """The scale of an operand; 0: nothing is remembered yet. A device is waited for."""
        if self._on_device is None:
            return self._host.scale(product, place)
        copy = _core.DelayedMemory(self._rules)
        copy.restore(self._on_device.save())
        return copy.scale(product, place)

    def scale_address(self, product: int, place: int, device: torch.device) -> int:
        """Where the scale is on a CUDA device; 0: nothing is remembered yet."""
        return self._there(device).scales.scale_address(product, place)

    def begin_step(self) -> None:
        """The step begins, or begins again."""
        self._host.begin_step()
        if self._on_device is not None:
            self._on_device.forget_step()

    def end_step(self) -> None:
        """What was noted enters the histories."""
        self._host.end_step()
        if self._on_device is not None:
            self._on_device.end_step()

    def save(self) -> str:
        """All that is remembered, as text; a device is waited for."""
        return self._host.save() if self._on_device is None else self._on_device.save()

    def check(self, text: str) -> None:
        """Refuses what `restore` would, and takes nothing."""
        _core.DelayedMemory(self._rules).restore(text)

    def restore(self, text: str) -> None:
        """Takes over what `save` gave, wherever that was."""
        self._host.restore(text)
        if self._on_device is not None:
            self._on_device.restore(text)

    def _there(self, device: torch.device) -> _OnDevice:
        self._move(device)
        assert self._on_device is not None
        return self._on_device

    def _move(self, device: torch.device) -> None:
        """To where the operands are now."""
        if device.type == "cuda":
            if self._on_device is None or self._on_device.device != device:
                self._on_device = _OnDevice(self._rules, device, self.save())
        elif self._on_device is not None:
            self._host.restore(self._on_device.save())
            self._on_device = None
