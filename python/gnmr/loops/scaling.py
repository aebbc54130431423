# SPDX-License-Identifier: Apache-2.0
"""Steps under a torch.amp.GradScaler: one that overflowed has no update, and is no sample.

    scaler.scale(loss).backward()
    gnmr.loops.scaled_step(ctl, scaler, optimizer, max_norm=1.0)

Goals: the one right order: unscale, look for an overflow, norms and clipping, update, the next scale.
Non-goals: what the scale is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gnmr.control import Control
from gnmr.results import StepResult


def overflowed(scaler: Any, optimizer: Any) -> bool:
    """Whether the scaler will pass over this optimizer's update. To be asked after `unscale_`; on a device it waits."""
    if scaler is None or not scaler.is_enabled():
        return False
    plain = plain_optimizer(optimizer)
    try:
        found = list(scaler._found_inf_per_device(plain).values())
    except AttributeError:
        # What the scaler itself looks for, where it does not report it.
        return not all(bool(torch.isfinite(gradient).all()) for gradient in _gradients(plain))
    return any(float(one) != 0 for one in found)


def scaled_step(
    ctl: Control, scaler: Any, optimizer: Any, max_norm: float | None = None, *, loss: float | Tensor | None = None
) -> StepResult:
    """The end of a step after its last `scaler.scale(loss).backward()`: unscales, measures, clips, updates, and sets
    the next scale. It takes the place of `unscale_`, `clip_grad_norm_`, `scaler.step` and `scaler.update`; gradients
    are cleared by the loop, as before. With a scaler that is not enabled it is `ctl.step` and `optimizer.step`."""
    scaler.unscale_(optimizer)
    skipped = overflowed(scaler, optimizer)
    result = ctl.step(max_norm=max_norm, skipped=skipped, loss=loss)
    scaler.step(optimizer)
    scaler.update()
    return result


@contextmanager
def unscaled(accelerator: Any) -> Iterator[None]:
    """Within it Accelerate does not unscale gradients, because they are: a second time is an error of the scaler's."""
    accelerator.unscale_gradients = lambda optimizer=None: None
    try:
        yield
    finally:
        del accelerator.unscale_gradients


def plain_optimizer(optimizer: Any) -> Any:
    """The optimizer that a scaler knows, without what frameworks put around it."""
    while not type(optimizer).__module__.startswith("torch.") and isinstance(
        getattr(optimizer, "optimizer", None), torch.optim.Optimizer
    ):
        optimizer = optimizer.optimizer
    return optimizer


def _gradients(optimizer: Any) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter.grad
