# SPDX-License-Identifier: Apache-2.0
"""Lag 1: the same decisions a step later, nothing waits, and nothing of a step is lost. On a GPU too, where one is."""

import copy
import json
import math
import pickle
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_model import QUICK, batch, make_model, run_backward
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

import gnmr
from gnmr import switches

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


class NoEffect:
    """A switch that changes no number, so that runs can be compared."""

    def __init__(self, module: nn.Linear) -> None:
        self.cost = module.weight.numel()
        self.high = False

    def set_high(self, high: bool) -> None:
        self.high = high


@pytest.fixture(autouse=True)
def no_low_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gnmr.register_switch`, in this file only."""
    monkeypatch.setitem(switches._MAKERS, nn.Linear, lambda name, module: NoEffect(module))


def measured(result: gnmr.StepResult) -> tuple[Any, ...]:
    """What is about the step itself; a NaN is not itself."""
    return result.step, repr(result.wait().total_norm), repr(result.wait().clip_coefficient), result.applied


def decided(result: gnmr.StepResult) -> tuple[Any, ...]:
    return result.admitted, result.released, result.recovered, result.alarmed


class Recorder(list):
    """What a listener gets of steps."""

    def step(self, result: gnmr.StepResult, control: Any) -> None:
        self.append((*measured(result), *decided(result), result.loss))

    def close(self) -> None:
        self.append("closed")


class Run:
    """The small model in a loop, with gradients that are disturbed in some steps."""

    def __init__(
        self, device: str, lag: int, max_norm: float | None = 1.0, frozen: tuple[str, ...] = (), **options: Any
    ) -> None:
        self.model = make_model().to(device)
        for name in frozen:
            self.model.get_submodule(name).requires_grad_(False)
        self.max_norm = max_norm
        self.ctl = gnmr.attach(self.model, lag=lag, quiet=True, strict=True, **{**QUICK, "max_o": 2.0, **options})
        self.heard = Recorder()
        self.ctl.listeners.add(self.heard)
        self.high: list[tuple[str, ...]] = []  # in each step
        self.clipped: list[list[Tensor]] = []

    def step(self, step: int) -> gnmr.StepResult:
        self.model.zero_grad()
        device = next(self.model.parameters()).device
        x, y = (one.to(device) for one in batch(step))
        loss = functional.cross_entropy(self.model(x), y)
        self.high.append(tuple(self.ctl.high))
        loss.backward()
        if step in (8, 9, 15):
            self.model.layers[step % 4].down.weight.grad.mul_(50.0)
        if step == 12:
            self.model.layers[1].up.weight.grad.mul_(1e-3)
        if step == 18:
            self.model.layers[2].up.weight.grad[0, 0] = math.nan
        result = self.ctl.step(max_norm=self.max_norm, skipped=step == 20, loss=loss)
        self.clipped.append(
            [parameter.grad.cpu().clone() for parameter in self.model.parameters() if parameter.grad is not None]
        )
        return result


def journal(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] in ("step", "admitted", "released")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_the_same_a_step_later(device: str, max_norm: float | None, tmp_path: Path) -> None:
    prompt = Run(device, 0, max_norm, out=tmp_path / "0")
    late = Run(device, 1, max_norm, out=tmp_path / "1")
    assert (prompt.ctl.lag, late.ctl.lag) == (0, 1)
    expected = [prompt.step(step) for step in range(1, 31)]
    found = []
    for step in range(1, 31):
        found.append(late.step(step))
        # The numbers are those of this step, for whoever waits for them, now or in the next step.
        assert measured(found[-1]) == measured(expected[step - 1])
        assert step == 1 or measured(found[-2]) == measured(expected[step - 2])
    assert sum(bool(one.admitted) for one in expected) >= 4
    assert [decided(one) for one in found[1:]] == [decided(one) for one in expected[:-1]]
    assert decided(found[0]) == ((), (), (), False)
    # What was decided after step t runs in t + 1, and with a lag in t + 2.
    assert late.high[1:] == prompt.high[:-1] and set(prompt.high) != {()}
    for mine, other in zip(late.clipped, prompt.clipped, strict=True):
        for one, two in zip(mine, other, strict=True):
            assert torch.allclose(one, two, rtol=2e-6, atol=0, equal_nan=True)
    assert len(late.heard) == 29
    prompt.ctl.detach()
    late.ctl.detach()
    # The last step is told and in the journal too.
    assert late.heard == prompt.heard and len(late.heard) == 31
    assert journal(tmp_path / "1") == journal(tmp_path / "0")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("max_norm", [1e-3, 1e6])
def test_clips_as_torch_does(device: str, max_norm: float) -> None:
    mine, other = make_model().to(device), make_model().to(device)
    for model in (mine, other):
        for index, parameter in enumerate(model.parameters()):
            parameter.grad = torch.full_like(parameter, 0.01 * (index + 1))
    ctl = gnmr.attach(mine, lag=1, quiet=True, strict=True)
    ctl.step(max_norm=max_norm)
    expected = clip_grad_norm_(other.parameters(), max_norm)
    assert float(ctl.total_norm) == pytest.approx(float(expected), rel=1e-6)
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, rtol=2e-6)
    # Asked for once more it is the same; and it is that of the next step after it.
    assert float(ctl.total_norm) == pytest.approx(float(expected), rel=1e-6)
    ctl.step()
    assert float(ctl.total_norm) == pytest.approx(min(max_norm, float(expected)), rel=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("to", [0, 1])
def test_a_state_goes_on(device: str, to: int) -> None:
    whole = Run(device, 1)
    for step in range(1, 31):
        whole.step(step)
    whole.ctl.detach()
    for stop in (3, 9, 16):
        first = Run(device, 1)
        for step in range(1, stop + 1):
            first.step(step)
        state = first.ctl.state_dict()
        # Taking it changes nothing.
        for step in range(stop + 1, 31):
            first.step(step)
        first.ctl.detach()
        assert first.heard == whole.heard and first.high == whole.high
        second = Run(device, to)
        report = second.ctl.load_state_dict(state)
        assert report["exact"] and second.ctl.steps == stop
        for step in range(stop + 1, 31):
            second.step(step)
        second.ctl.detach()
        assert second.heard == whole.heard[stop:]
        assert to == 0 or second.high == whole.high[stop:]


@pytest.mark.parametrize("device", DEVICES)
def test_frozen_layers_are_judged_by_their_outputs(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(switches._MAKERS, nn.Linear)  # our own low path
    frozen = ("layers.3.up", "layers.2.down")
    runs = [Run(device, lag, frozen=frozen, recipe="fp8-tensorwise", watch=True, patrol=0.0) for lag in (0, 1)]
    for run in runs:
        for step in range(1, 21):
            run.step(step)
        assert all(run.ctl.supervisor.mean_norm(unit) > 0 for unit in range(8))
        run.ctl.detach()
    assert runs[0].heard == runs[1].heard
    norms = [[run.ctl.supervisor.mean_norm(unit) for unit in range(8)] for run in runs]
    assert norms[0] == norms[1]


def test_listeners_hear_of_each_step_once() -> None:
    run = Run("cpu", 1)
    for step in range(1, 6):
        run.step(step)
    run.ctl.state_dict()
    run.step(6)
    run.ctl.detach()
    assert [one[0] for one in run.heard] == [1, 2, 3, 4, 5, 6, "c"]


def test_waiting_is_an_explicit_call() -> None:
    late, prompt = Run("cpu", 1), Run("cpu", 0)
    for step in range(1, 4):
        result, other = late.step(step), prompt.step(step)
        assert (result.decided_step, other.decided_step) == (step - 1, step)
        for name in ("total_norm", "clip_coefficient"):
            with pytest.raises(gnmr.Error, match=rf"{name} of step {step} is on its way .*result.wait\(\).{name}"):
                getattr(result, name)
        assert result.wait().total_norm == other.total_norm and other.wait() is other
        assert f"step={step}" in repr(result)
    late.ctl.detach(), prompt.ctl.detach()


def test_a_result_can_be_kept() -> None:
    run = Run("cpu", 1)
    run.step(1)
    result = run.step(2)
    for kept in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert type(kept) is gnmr.StepResult and measured(kept) == measured(result)
    norm = float(run.ctl.total_norm)
    run.ctl.state_dict()
    assert float(run.ctl.total_norm) == norm


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(gnmr.Error, match="guard.*lag=0"):
        gnmr.attach(make_model(), lag=1, guard="clip", quiet=True)
    with pytest.raises(gnmr.Error, match="lag"):
        gnmr.attach(make_model(), lag=2, quiet=True)


def test_a_trial_with_lag_1_is_a_step_and_says_so() -> None:
    model = make_model()
    ctl = gnmr.attach(model, lag=1, quiet=True, strict=True, **QUICK)
    with pytest.warns(UserWarning, match=r"attach\(lag=0\) for trials"):
        ctl.trial(lambda: run_backward(model, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_backward(model, 1)
        assert ctl.trial(lambda: run_backward(model, 2)).step == 2


@pytest.mark.parametrize("device", DEVICES)
def test_lag_can_become_0(device: str, tmp_path: Path) -> None:
    """As the first ctl.trial has it where nobody asked for a lag."""
    run, prompt = Run(device, 1, out=tmp_path / "1"), Run(device, 0, out=tmp_path / "0")
    for step in range(1, 8):
        run.step(step), prompt.step(step)
    run.ctl._steps.strategy.become_prompt()
    assert run.ctl.lag == 0
    for step in range(8, 31):
        run.step(step), prompt.step(step)
    run.ctl.detach(), prompt.ctl.detach()
    assert run.heard == prompt.heard
    assert journal(tmp_path / "1") == journal(tmp_path / "0")


def test_a_fault_disarms_and_gradients_are_clipped() -> None:
    run = Run("cpu", 1, max_norm=0.01)
    run.ctl._strict = False
    for step in range(1, 4):
        run.step(step)
    run.ctl._steps.record = lambda *_: 1 / 0  # in the middle of the decision of step 3
    for step in range(4, 7):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            result = run.step(step)
        assert result.wait().clip_coefficient * result.wait().total_norm == pytest.approx(0.01, rel=1e-3)
        assert run.ctl.mode == "disarmed" and run.ctl.steps == step
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one) for one in run.clipped[-1]]))
        assert float(total) == pytest.approx(0.01, rel=1e-3)
        # Nothing of a step is held any longer than it lasts.
        gradient = weakref.ref(run.model.head.weight.grad)
        run.model.zero_grad()
        assert gradient() is None


@pytest.mark.parametrize("source", [lambda parameter: 1 / 0, lambda parameter: "nonsense"])
@pytest.mark.parametrize("lag", [0, 1])
def test_a_function_that_fails_does_not_end_the_run(lag: int, source: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = make_model()
    ctl = gnmr.attach(model, gradients=source, lag=lag, quiet=True)
    for step in range(1, 4):
        model.zero_grad()
        run_backward(model, step)
        norm = float(torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = ctl.step(max_norm=0.01)
        # It fails in every step; .grad is clipped all the same, and the one warning says so.
        assert len(told) == (step == 1) and ctl.mode == "disarmed"
        assert all("Error" in str(one.message) and ".grad" in str(one.message) for one in told)
        clipped = float(torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm())
        assert clipped == pytest.approx(0.01, rel=1e-4)
        assert result.wait().total_norm == pytest.approx(norm, rel=1e-5)
        assert result.wait().clip_coefficient == pytest.approx(0.01 / norm, rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
class TestOnAGpu:
    def test_it_is_the_default(self) -> None:
        model = make_model().cuda()
        ctl = gnmr.attach(model, quiet=True, strict=True)
        assert ctl.lag == 1
        ctl.detach()
        ctl = gnmr.attach(model, quiet=True, strict=True, guard="skip")
        assert ctl.lag == 0

    def test_the_first_trial_makes_it_0(self) -> None:
        model = make_model().cuda()
        ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)

        def again() -> Tensor:
            x, y = (one.cuda() for one in batch(1))
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            return loss.detach()

        again()
        assert ctl.trial(again, max_norm=1.0).step == 1 and ctl.lag == 0

    @pytest.mark.parametrize("max_norm", [None, 0.5])
    def test_the_host_does_not_wait(self, max_norm: float | None) -> None:
        model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(280)]).to("cuda", torch.bfloat16)
        ctl = gnmr.attach(model, quiet=True, strict=True, max_o=0.05)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        times = []
        for step in range(12):
            torch.cuda.synchronize()
            torch.cuda._sleep(400_000_000)  # about a fifth of a second
            done = torch.cuda.Event()
            done.record()
            torch.cuda.set_sync_debug_mode("error")
            try:
                start = time.perf_counter()
                ctl.step(max_norm=max_norm, loss=model[0].bias.grad[0].float())
                norm = ctl.total_norm
                times.append(1e3 * (time.perf_counter() - start))
            finally:
                torch.cuda.set_sync_debug_mode("default")
            if step >= 2:
                assert not done.query(), "the host waited, or the device was not busy"
        assert isinstance(norm, Tensor) and norm.is_cuda and float(norm) > 0
        print(f"ctl.step of 560 tensors with the device busy: {sorted(times)[6]:.3f} ms")
        assert sorted(times)[6] < 20

    def test_gradients_that_the_kernels_cannot_read_are_awaited(self) -> None:
        model = make_model().cuda()
        ctl = gnmr.attach(model, quiet=True, strict=True, lag=1)
        expected = []
        for step in range(1, 5):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, 0.1 * step)
            if step % 2 == 0:
                model.head.weight.grad = model.head.weight.grad.t().contiguous().t()
            expected.append(
                float(
                    torch.linalg.vector_norm(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
                )
            )
            result = ctl.step(max_norm=0.5)
            assert float(ctl.total_norm) == pytest.approx(expected[-1], rel=1e-5)
            assert result.wait().total_norm == pytest.approx(expected[-1], rel=1e-5)
            total = torch.linalg.vector_norm(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
            assert float(total) == pytest.approx(0.5, rel=1e-4)
