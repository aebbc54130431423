# SPDX-License-Identifier: Apache-2.0
"""The update of a step whose gate stands on a device: torch's optimizers leave it out where the gate is closed.

    fused=True       the flag goes to the kernel as `found_inf`, as torch.amp.GradScaler's does: nobody waits
    other optimizers the host waits for the gate when they begin, and gradients of a held step are dropped

Goals: the loop calls `optimizer.step()` as before, with a GradScaler or without. Non-goals: judging (gnmr.step.gate);
optimizers that are no torch.optim.Optimizer, that take a closure, or that are compiled: they do not ask.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gnmr.low.device_stream import OnItsWay

if TYPE_CHECKING:
    from gnmr.step.steps import Steps


@dataclass(slots=True, eq=False)
class Hold:
    """What a gate on a device says of one update."""

    flag: Tensor  # above 0: it is held
    sent: OnItsWay  # the same, on its way to the host
    was_asked: bool = False  # by whoever makes the update

    def is_closed(self) -> bool:
        """Waits for the device."""
        return bool(self.sent.arrived())


class HeldUpdate:
    """What optimizers of a model ask before they update it."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._hold: Hold | None = None  # on the update of the last step; None: there is none
        # The `found_inf` that an optimizer was given, and the one before it.
        self._found: weakref.WeakKeyDictionary[Any, tuple[Tensor, Tensor | None]] = weakref.WeakKeyDictionary()
        self._hooks: list[Any] = [
            register_optimizer_step_pre_hook(_weakly(self, HeldUpdate._before)),
            register_optimizer_step_post_hook(_weakly(self, HeldUpdate._after)),
        ]
        for hook in self._hooks:
            weakref.finalize(self, hook.remove)

    def hold(self, flag: Tensor) -> Hold:
        """For the update that comes next: a number on a device, above 0 where it is held."""
        self._hold = hold = Hold(flag, OnItsWay(flag))
        return hold

    def release(self) -> None:
        """The update that comes next is made."""
        self._hold = None
        for optimizer in list(self._found):
            self._after(optimizer)

    def is_over(self, hold: Hold) -> bool:
        """Whether it is too late to ask: the next step has begun."""
        return hold is not self._hold or self._steps.parts.order.forward_seen

    def remove(self) -> None:
        """Optimizers are as they were."""
        self.release()
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._after(optimizer)  # an update that raised has left its flag
        steps, hold = self._steps, self._hold
        # After a forward it is an update of another step; one with a closure runs forwards of its own.
        if hold is None or steps.fault or self.is_over(hold):
            return
        if any(map(callable, args[1:])) or callable(kwargs.get("closure")) or not self._updates_model(optimizer):
            return
        hold.was_asked = True
        if takes_found_inf(optimizer):
            others, flag = getattr(optimizer, "found_inf", None), hold.flag
            optimizer.found_inf = flag if others is None else torch.maximum(flag, others.to(flag.device))
            self._found[optimizer] = optimizer.found_inf, others
        elif hold.is_closed():
            steps.parts.gradients.drop()

    def _after(self, optimizer: Any, *arguments: Any) -> None:
        if optimizer not in self._found:
            return
        given, others = self._found.pop(optimizer)
        if getattr(optimizer, "found_inf", None) is not given:
            return  # a scaler has set its own since
        if others is None:
            del optimizer.found_inf
        else:
            optimizer.found_inf = others

    def _updates_model(self, optimizer: Any) -> bool:
        mine = {id(parameter) for parameter in self._steps.parts.gradients.parameters}
        return any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"])


def takes_found_inf(optimizer: Any) -> bool:
    """Whether its kernels leave out an update by a number on their device."""
    scales = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
    return scales and all(group.get("fused") for group in optimizer.param_groups)


def _weakly(held: HeldUpdate, run: Callable[..., None]) -> Callable[..., None]:
    """A hook that does not keep what it calls alive. What fails in it ends no run: nothing is watched from there on."""
    found = weakref.ref(held)

    def hook(optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        known = found()
        if known is None or torch.compiler.is_compiling():
            return
        try:
            run(known, optimizer, args, kwargs)
        except Exception as fault:
            known._steps.disarm(fault)

    return hook
