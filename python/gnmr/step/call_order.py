# SPDX-License-Identifier: Apache-2.0
"""Whether a loop calls `ctl.step` where it must: after the last backward, before clipping and before the update.

    forward ... backward, ctl.step, optimizer.step      as it should be
    forward ... backward, optimizer.step, ctl.step      the update does not wait for the decision, nor is it clipped
    forward ... backward, clip_grad_norm_, ctl.step     all norms are those of clipped gradients

Goals: nothing waits for a device; a loop that is right is never warned: only an update between a forward of the model
and `ctl.step`, and a norm of all gradients that stays the same while those of units move. Each is reported once.
Non-goals: loops that never call `ctl.step`.
"""

import math
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

_STEPS = 100  # after which nobody looks for clipping any more
_EQUAL = 5  # norms in a row that are the same
_SAME = 1e-4  # relative, of the norm of all gradients: clipping leaves it within rounding of its limit
_OTHER = 1e-2  # relative, of a unit's norm: another batch

_UPDATED = (
    "the optimizer has updated the model before ctl.step: the update was neither watched nor clipped by it. "
    "Call ctl.step() after the last backward and before optimizer.step()"
)


class StepOrder:
    """Notices an update, or clipping, between the backward of a model and `ctl.step`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self.forward_seen = False  # since the last step
        self.updated = False  # since the last forward of the model
        self._steps = 0
        self._total = 0.0
        self._norms: list[float] = []
        self._equal = 1
        # Of all optimizers: those that update the model may be made later. It ends with this object.
        self.is_looking = True  # for clipping
        self._hook: Any = register_optimizer_step_pre_hook(_Hook(self))
        weakref.finalize(self, self._hook.remove)

    def end(self) -> None:
        """Nobody looks any more."""
        self._hook.remove()

    def forward(self) -> None:
        """A forward of the model that trains."""
        self.forward_seen = True
        self.updated = False

    def report_update(self) -> str:
        """An update came before `ctl.step`: the warning, once."""
        self.updated = False
        self.end()
        return _UPDATED

    def optimizer_steps(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer, of this model or another, is about to update."""
        model = self._model()
        # One with a closure runs forward, backward and perhaps ctl.step itself.
        if not self.forward_seen or self.updated or has_closure or model is None:
            return
        mine = {id(parameter) for parameter in model.parameters()}
        self.updated = any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"])

    def look(self, total: float, norms: Sequence[float]) -> str:
        """The norms of a step that was measured, before our own clipping; a warning, or nothing."""
        if not self.is_looking:
            return ""
        self._steps += 1
        self.is_looking = self._steps < _STEPS
        before, self._norms = self._norms, list(norms)
        is_same = total > 0 and abs(total - self._total) <= _SAME * total
        # Against the total: a unit that starts from 0 grows many times over and means nothing.
        moved = math.sqrt(sum((one - two) ** 2 for one, two in zip(self._norms, before, strict=False)))
        has_moved = moved > _OTHER * total
        self._equal = self._equal + 1 if is_same and has_moved else 1
        self._total = total
        if self._equal < _EQUAL:
            return ""
        self.is_looking = False
        return (
            f"the norm of all gradients was {total:.4g} in {_EQUAL} steps in a row, while those of units changed: "
            "they seem to be clipped before ctl.step, which then sees clipped norms only. Leave that call out, and "
            f"use ctl.step(max_norm={total:.4g})"
        )


class _Hook:
    """Does not keep what it calls alive."""

    def __init__(self, order: StepOrder) -> None:
        self._order = weakref.ref(order)

    def __call__(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        order = self._order()
        if order is None or torch.compiler.is_compiling():
            return
        with suppress(Exception):  # an optimizer of some other kind: it updates all the same
            order.optimizer_steps(optimizer, any(map(callable, args[1:])) or callable(kwargs.get("closure")))
