# SPDX-License-Identifier: Apache-2.0
"""GNMR in a loop on Accelerate, beside the same loop without it."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE, ON_CUDA, cuda_only, low_path
from loops_model import LowPathFault, close, same, sampled_units, weights
from small_model import QUICK, batch, make_model
from torch.nn import functional

import gnmr

accelerate = pytest.importorskip("accelerate")
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402
from gnmr.loops import accelerate as adapter  # noqa: E402

OPTIONS = {**QUICK, "quiet": True, "strict": True}


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Accelerate's state belongs to the process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    yield


class Loop:
    """The loop of Accelerate's documentation."""

    def __init__(self, accumulation: int = 1, scaler: float = 0.0, model: torch.nn.Module | None = None) -> None:
        real = {"mixed_precision": "fp16", "kwargs_handlers": [accelerate.utils.GradScalerKwargs(init_scale=scaler)]}
        self.accelerator = accelerate.Accelerator(
            cpu=not ON_CUDA, gradient_accumulation_steps=accumulation, **(real if scaler and ON_CUDA else {})
        )
        if scaler and not ON_CUDA:
            use_scaler(self.accelerator, scaler)
        model = make_model() if model is None else model
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.step = 0
        self.norms: list[Any] = []

    def run(self, batches: int, max_norm: float | None = 1.0, overflow_at: int = -1) -> None:
        for _ in range(batches):
            self.step += 1
            with self.accelerator.accumulate(self.model):
                x, y = batch(self.step)
                loss = functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss * math.inf if self.step == overflow_at else loss)
                if self.accelerator.sync_gradients and max_norm is not None:
                    self.norms.append(float(self.accelerator.clip_grad_norm_(self.model.parameters(), max_norm)))
                self.optimizer.step()
                self.optimizer.zero_grad()


def use_scaler(accelerator: Any, scale: float) -> None:
    """As Accelerate sets it up for fp16, which it refuses on a CPU; autocast is left out."""
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    accelerator.native_amp = True
    accelerator.state._mixed_precision = "fp16"
    accelerator.autocast = contextlib.nullcontext


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("max_norm", [1e6, 0.05])
def test_is_as_without(accumulation: int, max_norm: float) -> None:
    alone, watched = Loop(accumulation), Loop(accumulation)
    loop = adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    alone.run(12, max_norm)
    watched.run(12, max_norm)
    assert loop.ctl.steps == 12 // accumulation
    assert watched.norms == pytest.approx(alone.norms, rel=1e-5)
    if max_norm == 1e6:
        assert same(weights(watched.model), weights(alone.model))
    else:
        assert min(alone.norms) > max_norm and close(weights(watched.model), weights(alone.model))


def test_a_loop_that_does_not_clip() -> None:
    watched = Loop()
    loop = adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    for step in range(1, 4):
        x, y = batch(step)
        watched.accelerator.backward(functional.cross_entropy(watched.model(x), y))
        result = loop.step()
        assert result is not None and result.step == step and result.wait().clip_coefficient == 1
        watched.optimizer.step()
        watched.optimizer.zero_grad()


def test_an_overflow_is_no_sample(tmp_path: Path) -> None:
    alone = Loop(scaler=1024.0)
    alone.run(8, 0.05, overflow_at=5)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    watched = Loop(scaler=1024.0)
    loop = adapter.attach(watched.accelerator, watched.model, out=tmp_path, **OPTIONS)
    watched.run(8, 0.05, overflow_at=5)
    loop.detach()
    assert sampled_units(tmp_path) == [8] * 4 + [0] + [8] * 3
    assert watched.accelerator.scaler.get_scale() == alone.accelerator.scaler.get_scale() == 512.0
    assert math.isnan(watched.norms[4]) and loop.ctl.steps == 8
    assert all(math.isfinite(loop.ctl.supervisor.mean_norm(unit)) for unit in range(8))
    # AdamW makes much of a last bit where gradients are next to nothing, and float16 makes it larger.
    assert close(weights(watched.model), weights(alone.model), 5e-2 if ON_CUDA else 5e-4)


@cuda_only
def test_float16_on_a_gpu(tmp_path: Path) -> None:
    """Accelerate's own scaler; the first scales are too large for float16, whatever the loss is."""
    alone = Loop(scaler=2.0**32)
    alone.run(24, 1e6)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    watched = Loop(scaler=2.0**32)
    loop = adapter.attach(watched.accelerator, watched.model, out=tmp_path, **OPTIONS)
    watched.run(24, 1e6)
    loop.detach()
    sampled = sampled_units(tmp_path)
    skipped = sampled.count(0)
    assert 0 < skipped < 24 and sampled == [0] * skipped + [8] * (24 - skipped)
    assert watched.accelerator.scaler.get_scale() == alone.accelerator.scaler.get_scale() == 2.0 ** (32 - skipped)
    assert same(weights(watched.model), weights(alone.model))


def test_two_owners_are_told() -> None:
    watched = Loop()
    loop = adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    x, y = batch(1)
    watched.accelerator.backward(functional.cross_entropy(watched.model(x), y))
    loop.step(max_norm=0.05)
    clipped = [parameter.grad.clone() for parameter in watched.model.parameters()]
    with pytest.warns(UserWarning, match="one owner"):
        watched.accelerator.clip_grad_norm_(watched.model.parameters(), 0.01)
    assert same(clipped, [parameter.grad for parameter in watched.model.parameters()])
    assert loop.ctl.steps == 1


def test_what_is_not_the_model_is_accelerates() -> None:
    watched = Loop()
    loop = adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    head = watched.model.head.weight

    def backward() -> None:
        watched.model.zero_grad()
        x, y = batch(1)
        watched.accelerator.backward(functional.cross_entropy(watched.model(x), y))

    backward()
    with pytest.warns(UserWarning, match="part of the model"):
        watched.accelerator.clip_grad_norm_([head], 1e-3)
    assert loop.ctl.steps == 0 and float(head.grad.norm()) == pytest.approx(1e-3, rel=1e-3)
    # More than the model, or another norm: measured before, and clipped by Accelerate.
    backward()
    other = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    other.grad = torch.full((3,), 1e3, device=DEVICE)
    watched.accelerator.clip_grad_norm_([*watched.model.parameters(), other], 1e-3)
    assert loop.ctl.steps == 1 and float(other.grad.norm()) == pytest.approx(1e-3, rel=1e-3)
    backward()
    norm = watched.accelerator.clip_grad_norm_(watched.model.parameters(), 1e-3, math.inf)
    assert loop.ctl.steps == 2 and float(head.grad.abs().max()) <= 1e-3 < float(norm)


def test_a_loop_that_never_asks_is_told() -> None:
    watched = Loop()
    adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    with pytest.warns(UserWarning, match="nothing is watched") as told:
        watched.run(30, max_norm=None)
    assert len(told) == 1


def test_a_fault_is_found_and_a_state_gone_on_with(tmp_path: Path) -> None:
    def attached() -> tuple[Loop, adapter.AcceleratorLoop]:
        model = make_model()
        options = low_path(model)
        watched = Loop(model=model)
        return watched, adapter.attach(watched.accelerator, watched.model, **options, **OPTIONS)

    watched, loop = attached()
    watched.run(9)
    fault = LowPathFault(loop.ctl, "layers.2.up")
    fault.on = True
    watched.run(1)
    assert "layers.2.up" in loop.ctl.high
    watched.accelerator.save_state(str(tmp_path))
    resumed, again = attached()
    resumed.accelerator.load_state(str(tmp_path))
    assert (again.ctl.steps, again.ctl.high) == (10, loop.ctl.high)
    fault.on = False
    resumed.step = 10
    for one in (watched, resumed):
        one.run(4)
    assert same(weights(watched.model), weights(resumed.model)) and again.ctl.high == loop.ctl.high == []
    # A checkpoint that GNMR had no part in loads too.
    (tmp_path / "gnmr.pt").unlink()
    resumed.accelerator.load_state(str(tmp_path))


def test_detached_it_is_as_before() -> None:
    watched = Loop()
    before = dict(vars(watched.accelerator))
    loop = adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    with pytest.raises(gnmr.Error, match="already"):
        adapter.attach(watched.accelerator, watched.model, **OPTIONS)
    loop.detach()
    assert dict(vars(watched.accelerator)) == before
    watched.run(2)
    assert loop.ctl.steps == 0


@pytest.mark.parametrize("kind", ["DEEPSPEED", "MEGATRON_LM", "XLA", "FSDP"])
def test_what_is_refused(kind: str) -> None:
    watched = Loop()
    watched.accelerator.state.distributed_type = accelerate.DistributedType[kind]
    with pytest.raises(gnmr.Error, match="norms"):
        adapter.attach(watched.accelerator, watched.model)


def test_held_updates_with_lag_1() -> None:
    """Accelerate's optimizer asks as torch's own does."""
    watched = Loop()
    options = {**low_path(watched.model), **OPTIONS, "lag": 1, "guard": "skip", "patrol": 0.0}
    loop = adapter.attach(watched.accelerator, watched.model, **options)
    watched.run(9)
    before = weights(watched.model)
    watched.run(1, overflow_at=10)
    assert same(before, weights(watched.model)) and loop.ctl.steps == 10
    watched.run(2)
    assert not same(before, weights(watched.model))
    assert all(bool(one.isfinite().all()) for one in weights(watched.model))
