# SPDX-License-Identifier: Apache-2.0
"""An alarmed step runs again, the trial finds the unit at fault, and the update is made with a clean gradient."""

import json
import math
import warnings
from pathlib import Path

import pytest
import torch
from loops_model import LowPathFault
from small_model import QUICK, make_model, run_backward
from torch import nn

import gnmr

FAULTY = "layers.2.up"


def run(model: nn.Module, ctl: gnmr.Control, faults: LowPathFault | None, steps: range, fault_from: int) -> list:
    results = []
    for step in steps:
        if faults is not None:
            faults.on = step >= fault_from
        model.zero_grad()
        loss = run_backward(model, step)
        results.append(ctl.trial(lambda step=step: run_backward(model, step), loss=loss, max_norm=1e9))
    return results


def test_the_unit_at_fault_is_found(tmp_path: Path) -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, out=tmp_path, **QUICK)
    results = run(model, ctl, LowPathFault(ctl, FAULTY), range(1, 13), 10)
    assert all(not result.rerun for result in results[:9])
    found = results[9]
    assert (found.rerun, found.verdict, found.admitted) == ("trial", "numeric", (FAULTY,))
    assert found.applied and ctl.high == [FAULTY]
    # High from the next step on, where the fault cannot reach it.
    assert all(not result.alarmed for result in results[10:])
    ctl.detach()
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    trial = next(line for line in lines if line["kind"] == "trial")
    assert (
        trial["units"] == [FAULTY]
        and trial["verdict"] == "numeric"
        and trial["places"][0] in ("forward", "input_gradient", "weight_gradient")
    )
    assert trial["distance"] > 0.1 and trial["applied"]


def test_the_update_has_the_clean_gradient() -> None:
    model, plain = make_model(), make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
    run(model, ctl, LowPathFault(ctl, FAULTY), range(1, 11), 10)
    run_backward(plain, 10)
    for one, two in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, rtol=1e-4, atol=1e-6)


def test_the_same_random_numbers_in_both_runs() -> None:
    def losses(with_trial: bool) -> list[float]:
        model = make_model(dropout=0.3)
        ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
        faults = LowPathFault(ctl, FAULTY)
        seen: list[float] = []
        torch.manual_seed(7)
        for step in range(1, 13):
            faults.on = with_trial and step == 10
            model.zero_grad()
            torch.rand(5)  # what a data loader draws before the step
            loss = run_backward(model, step)
            result = ctl.trial(lambda step=step: run_backward(model, step), loss=loss)
            assert (result.rerun == "trial") == faults.on
            seen.append(float(result.loss))
        return seen

    faulty, healthy = losses(True), losses(False)
    assert faulty[:9] == healthy[:9]
    # In the trial all units are high, so only rounding differs; afterwards the loop goes on as if there had been none.
    assert faulty[9] == pytest.approx(healthy[9], rel=0.02)
    assert faulty[10:] == pytest.approx(healthy[10:], rel=0.02)


def test_bad_data_is_common() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, patrol=0.0, **QUICK)
    run(model, ctl, None, range(1, 10), 99)

    def bad() -> torch.Tensor:
        loss = 100 * model(torch.randn(64, 32, generator=torch.Generator().manual_seed(1))).square().mean()
        loss.backward()
        return loss.detach()

    model.zero_grad()
    bad()
    result = ctl.trial(bad)
    assert (result.rerun, result.verdict, result.admitted) == ("trial", "common", ())


def test_a_fault_that_does_not_repeat_is_unlocated() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, patrol=0.0, **QUICK)
    run(model, ctl, None, range(1, 10), 99)
    model.zero_grad()
    run_backward(model, 10)
    model.layers[1].up.weight.grad *= 100
    result = ctl.trial(lambda: run_backward(model, 10))
    assert (result.verdict, result.admitted, result.applied) == ("unlocated", (), True)


def test_small_errors_of_many_units_are_unlocated_and_repeat() -> None:
    # Every number here is a function of seeds: nothing of this is a race.
    torch.manual_seed(0)
    model = make_model(blocks=6)
    ctl = gnmr.attach(model, recipe="int4-act", quiet=True, strict=True, max_trials=100, max_o=0.2, error_factor=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    target = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))

    def run_step(step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 + step)
        inputs = torch.randn(8, 32, generator=generator) * torch.randn(8, 1, generator=generator).exp()
        loss = nn.functional.cross_entropy(model(inputs), (inputs @ target).argmax(1))
        loss.backward()
        return loss.detach()

    for step in range(1, 161):
        model.zero_grad()
        run_step(step)
        first = [parameter.grad.clone() for parameter in model.parameters()]
        result = ctl.trial(lambda step=step: run_step(step), max_norm=1.0)
        if result.verdict == "unlocated":
            break
        optimizer.step()
    assert result.verdict == "unlocated" and not ctl.high
    model.zero_grad()
    run_step(step)
    for before, parameter in zip(first, model.parameters(), strict=True):
        assert torch.equal(before, parameter.grad)


def test_a_rerun_that_is_not_finite_makes_no_update() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)

    def broken() -> torch.Tensor:
        loss = model(torch.full((4, 32), math.inf)).sum()
        loss.backward()
        return loss.detach()

    broken()
    result = ctl.trial(broken)
    assert result.rerun == "trial" and not result.applied
    assert all(parameter.grad is None for parameter in model.parameters())


def test_no_memory_for_a_rerun() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
    faults = LowPathFault(ctl, FAULTY)
    run(model, ctl, faults, range(1, 10), 99)
    faults.on = True
    calls = []

    def closure() -> torch.Tensor:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return run_backward(model, 10)

    model.zero_grad()
    run_backward(model, 10)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    result = ctl.trial(closure)
    # Decided by the norms, with the gradients of the step as it first ran.
    assert len(calls) == 2 and result.rerun == "" and result.alarmed and result.admitted
    for kept, parameter in zip(before, model.parameters(), strict=True):
        assert torch.equal(kept, parameter.grad)


def test_a_failing_closure_is_the_callers() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, **QUICK)
    faults = LowPathFault(ctl, FAULTY)
    run(model, ctl, faults, range(1, 10), 99)
    faults.on = True
    run_backward(model, 10)

    def closure() -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ctl.trial(closure)
    faults.on = False
    assert ctl.mode == "armed" and ctl.steps == 10
    assert run(model, ctl, None, range(11, 12), 99)[0].step == 11


def test_buffers_are_as_after_one_run() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()
            self.mean = nn.BatchNorm1d(32)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.register_buffer("table", torch.arange(4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = self.calls + 1  # another tensor, where batch norm writes into its own
            return self.model(self.mean(x))

    model = Counted().double().float()  # tensors that torch has seen no write to: batch norm's kernels are not seen
    mask = torch.zeros(1, 8)
    mask[0, 3:] = 1.0
    model.register_buffer("mask", mask.expand(4, 8))  # nobody can write to it as a whole
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
    faults = LowPathFault(ctl, "model." + FAULTY)
    reruns = 0
    for step in range(1, 13):
        faults.on = step == 10
        model.zero_grad()
        run_backward(model, step)
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        reruns += ctl.trial(lambda step=step: run_backward(model, step)).rerun == "trial"
        assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
        assert int(model.calls) == int(model.mean.num_batches_tracked) == step
    assert reruns == 1


def test_a_model_that_is_not_called_is_told() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
    with pytest.warns(UserWarning, match="not called as"):
        model.forward(torch.randn(4, 32)).sum().backward()
        ctl.trial(lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.zero_grad()
        run_backward(model, 1)
        ctl.trial(lambda: run_backward(model, 1))


@pytest.mark.parametrize("where", ["switch", "closure"])
def test_a_fault_in_a_rerun_leaves_the_gradients(where: str) -> None:
    """Also where it comes out of the closure: the step had run before, so what breaks in a trial alone is ours."""
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, **QUICK)
    faults = LowPathFault(ctl, FAULTY)
    run(model, ctl, faults, range(1, 10), 99)
    faults.on = True
    model.zero_grad()
    run_backward(model, 10)
    expected = [parameter.grad.clone() for parameter in model.parameters()]

    def broken() -> None:
        raise OSError("no trial here")

    def closure() -> torch.Tensor:
        if ctl.units[0].switch.comparing:
            broken()
        return run_backward(model, 10)

    if where == "switch":
        ctl.units[5].switch.begin_trial = broken
    with pytest.warns(UserWarning, match="a fault in gnmr.*no trial here"):
        result = ctl.trial(closure)
    assert ctl.mode == "disarmed" and result.applied
    for kept, parameter in zip(expected, model.parameters(), strict=True):
        assert torch.equal(kept, parameter.grad)


def test_a_replay() -> None:
    model = make_model()
    ctl = gnmr.attach(
        model,
        recipe="fp8-tensorwise",
        quiet=True,
        strict=True,
        selector="norms",
        guard="replay",
        **{**QUICK, "max_o": 8.0},
    )
    results = run(model, ctl, LowPathFault(ctl, FAULTY), range(1, 11), 10)
    assert results[9].rerun == "replay" and FAULTY in results[9].admitted
    plain = make_model()
    run_backward(plain, 10)
    for one, two in zip(model.parameters(), plain.parameters(), strict=True):
        assert float((one.grad - two.grad).norm()) < 0.2 * float(two.grad.norm()) + 1e-6


def test_trials_are_capped() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **{**QUICK, "max_o": 0.0}, max_trials=2)
    results = run(model, ctl, LowPathFault(ctl, FAULTY), range(1, 15), 10)
    assert sum(result.rerun == "trial" for result in results) == 2


def test_trials_are_paid_for() -> None:
    model = make_model()
    options = {**QUICK, "max_o": 0.0, "max_trials": 100, "max_high_share": 0.02}  # two steps with all units high
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **options)
    results = run(model, ctl, LowPathFault(ctl, FAULTY), range(1, 15), 10)
    assert sum(result.rerun == "trial" for result in results) == 2
    summary = ctl.summary()
    assert summary.max_high_share == 0.02 and summary.capped_steps == 3
    assert "cap: 0.02 of the cost (max_high_share); reached in 3 steps" in str(summary)
    assert "cap" in [advice.rule for advice in summary.advice]


def test_a_step_alone_is_decided_by_norms() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **{**QUICK, "max_o": 8.0})
    faults = LowPathFault(ctl, FAULTY)
    for step in range(1, 11):
        faults.on = step >= 10
        model.zero_grad()
        run_backward(model, step)
        result = ctl.step()
    assert result.alarmed and not result.rerun and FAULTY in result.admitted


class OwnModule(nn.Module):
    """A user's module with two paths; in a trial it compares them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.scale = 1.0  # what the low path multiplies with; not 1: it is broken
        self.path = "low"
        self.error = math.nan

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = x @ self.weight
        low = (x @ self.weight.bfloat16().float()) * self.scale
        if self.path == "trial":
            self.error = float((low - high).detach().norm() / high.detach().norm())
        return torch.tanh(low if self.path == "low" else high)


class OwnSwitch:
    cost = 100
    places = ("output",)
    expected = (0.0,)

    def __init__(self, module: OwnModule) -> None:
        self.module = module

    def set_high(self, high: bool) -> None:
        self.module.path = "high" if high else "low"

    def begin_trial(self) -> None:
        self.module.path = "trial"

    def end_trial(self) -> list[float]:
        return [self.module.error]


def test_a_users_module_is_tried_too() -> None:
    from gnmr import switches

    gnmr.register_switch(OwnModule, lambda name, module: OwnSwitch(module))
    try:
        torch.manual_seed(0)
        model = nn.Sequential(*(OwnModule(16) for _ in range(6)))
        ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)

        def closure(step: int) -> torch.Tensor:
            loss = model(torch.randn(32, 16, generator=torch.Generator().manual_seed(step))).square().mean()
            loss.backward()
            return loss

        for step in range(1, 13):
            model[3].scale = 30.0 if step >= 10 else 1.0
            model.zero_grad()
            closure(step)
            result = ctl.trial(lambda step=step: closure(step))
            assert (result.rerun == "trial") == (step == 10)
            if step == 10:
                assert (result.verdict, result.admitted) == ("numeric", ("3",))
                assert [module.path for module in model] == ["low"] * 3 + ["high"] + ["low"] * 2
    finally:
        switches._MAKERS.pop(OwnModule)
