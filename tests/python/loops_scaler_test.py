# SPDX-License-Identifier: Apache-2.0
"""Plain loops with a torch.amp.GradScaler: overflows are no samples, and the rest is as torch does it."""

import math
from typing import Any

import pytest
import torch
from devices import DEVICE, cuda_only, low_path
from gnmr.loops import overflowed, scaled_step
from loops_model import close, same, weights
from small_model import NO_PATROL, QUICK, batch, make_model, run_backward
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

import gnmr

OVERFLOWS = (7, 8)


def backward(model: nn.Module, scaler: torch.amp.GradScaler, step: int, overflows: tuple[int, ...] = OVERFLOWS) -> Any:
    x, y = batch(step)
    loss = functional.cross_entropy(model(x), y)
    scaler.scale(loss * math.inf if step in overflows else loss).backward()
    return loss.detach()


def setting() -> tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler]:
    model = make_model()
    return model, torch.optim.AdamW(model.parameters(), 1e-2), torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)


def by_torch(max_norm: float, steps: int) -> tuple[nn.Module, float]:
    model, optimizer, scaler = setting()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        backward(model, scaler, step)
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()


@pytest.mark.parametrize("max_norm", [1e6, 0.05])
def test_a_scaled_step_is_torchs(max_norm: float) -> None:
    expected, scale = by_torch(max_norm, 12)
    model, optimizer, scaler = setting()
    ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
    results = []
    for step in range(1, 13):
        optimizer.zero_grad()
        loss = backward(model, scaler, step)
        results.append(scaled_step(ctl, scaler, optimizer, max_norm, loss=loss))
    assert scaler.get_scale() == scale == 256.0
    assert [not result.applied for result in results] == [step in OVERFLOWS for step in range(1, 13)]
    assert not any(result.alarmed for result in results)
    if max_norm == 1e6:
        assert same(weights(model), weights(expected))
    else:
        assert close(weights(model), weights(expected))
        assert all(result.wait().clip_coefficient < 1 for result in results if result.applied)


def test_overflows_leave_no_trace() -> None:
    """The controller's means are those of a run that never had the overflows."""

    def means(overflows: tuple[int, ...]) -> list[float]:
        model, optimizer, scaler = setting()
        ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
        for step in [*range(1, 5), *overflows, *range(5, 9)]:
            optimizer.zero_grad()
            backward(model, scaler, step, overflows)
            scaled_step(ctl, scaler, optimizer)
        return [ctl.supervisor.mean_norm(unit) for unit in range(8)]

    assert means((20, 21, 22)) == pytest.approx(means(()), rel=1e-12)


@cuda_only
def test_float16_on_a_gpu() -> None:
    """Real overflows: the first scales are too large for float16, and no step of theirs is a sample."""

    def run(with_us: bool) -> tuple[nn.Module, float, list[bool]]:
        model, optimizer, _ = setting()
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**32)
        ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK) if with_us else None
        applied = []
        for step in range(1, 25):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                x, y = batch(step)
                loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            if ctl is None:
                scaler.step(optimizer)
                scaler.update()
                continue
            result = scaled_step(ctl, scaler, optimizer, loss=loss)
            applied.append(result.applied)
            assert result.applied == math.isfinite(result.wait().total_norm)
        return model, scaler.get_scale(), applied

    expected, scale, _ = run(False)
    model, scale_with, applied = run(True)
    skipped = applied.count(False)
    assert scale == scale_with == 2.0 ** (32 - skipped) and 0 < skipped < 24
    assert applied == [False] * skipped + [True] * (24 - skipped)
    assert same(weights(model), weights(expected))


def test_skipped_by_hand() -> None:
    """As docs/python.md has it, without the helper."""
    model, optimizer, scaler = setting()
    ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
    seen = []
    for step in range(1, 10):
        optimizer.zero_grad()
        backward(model, scaler, step)
        scaler.unscale_(optimizer)
        seen.append(overflowed(scaler, optimizer))
        assert ctl.step(max_norm=1.0, skipped=seen[-1]).applied is not seen[-1]
        scaler.step(optimizer)
        scaler.update()
    assert seen == [step in OVERFLOWS for step in range(1, 10)]


def test_a_scaler_that_does_not_tell() -> None:
    """Where torch's private count is not there gradients are looked at."""

    class Silent:
        def is_enabled(self) -> bool:
            return True

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run_backward(model, 1)
    assert not overflowed(Silent(), optimizer)
    model.layers[0].up.weight.grad[0, 0] = math.inf
    assert overflowed(Silent(), optimizer)
    assert not overflowed(None, optimizer)


def test_a_scaler_that_is_off() -> None:
    model, other = make_model(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=False)
    ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
    run_backward(model, 1)
    assert scaled_step(ctl, scaler, optimizer).applied
    run_backward(other, 1)
    torch.optim.SGD(other.parameters(), 0.1).step()
    assert same(weights(model), weights(other))


def test_a_held_step_has_no_update() -> None:
    """The guard `skip` keeps an alarmed update back; the scaler goes on all the same."""
    model, optimizer, scaler = setting()
    options = {**low_path(model), **QUICK, "guard": "skip", "patrol": NO_PATROL}
    ctl = gnmr.attach(model, quiet=True, strict=True, **options)
    for step in range(1, 12):
        optimizer.zero_grad()
        backward(model, scaler, step, ())
        if step == 11:
            model.layers[0].up.weight.grad *= 100
        before = weights(model)
        result = scaled_step(ctl, scaler, optimizer)
        assert result.applied == (step != 11) and same(before, weights(model)) == (step == 11)
    assert scaler.get_scale() == 1024.0
