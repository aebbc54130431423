# SPDX-License-Identifier: Apache-2.0
"""Lag 1 with the guard `skip`: the update of an alarmed step is left out, though nobody waits for its norms. On a GPU
too, where one is."""

import copy
import math
import pickle
import random
import warnings
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from devices import DEVICE
from gnmr.loops import scaled_step
from gnmr.low.device_stream import stream_on
from gnmr.results import gated
from gnmr.step.gate import Gate
from gnmr.step.held_update import HeldUpdate, Hold
from late_test import DEVICES, Run
from late_test import no_low_path as no_low_path  # a fixture of all tests here
from small_model import QUICK, batch, make_model, run_backward
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, AdamW

import gnmr
from gnmr import _core

#: On a CPU also with a flag for optimizers, which is what a gate on a device leaves.
PLACES = [*DEVICES, "flag"]

#: What `Run` disturbs, each time another unit: all of them are free.
HELD = {8, 9, 12, 15, 18}

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "plain": lambda model: AdamW(model.parameters(), 0.01, foreach=False),
    "foreach": lambda model: AdamW(model.parameters(), 0.01, foreach=True),
    "fused": lambda model: AdamW(model.parameters(), 0.01, fused=True),
    "fused momentum": lambda model: SGD(model.parameters(), 0.1, momentum=0.9, fused=True),
    "fused adagrad": lambda model: Adagrad(model.parameters(), 0.01, fused=True),
    "some fused": lambda model: AdamW(
        [
            {"params": list(model.layers.parameters())},
            {"params": list(model.head.parameters()), "fused": False, "foreach": False},
        ],
        0.01,
        fused=True,
    ),
}


def flagged(gate: Gate, limit: float) -> bool | Hold:
    """For `Gate.holds`: as on a device, a flag for optimizers."""
    numbers, plan = gate._steps.parts.gradients.numbers, gate._steps.plan
    held = gate._judge.holds(plan, numbers.norms, numbers.sampled)
    gate._update = gate._update or HeldUpdate(gate._steps)
    return gate._update.hold(torch.tensor(float(held))) if plan.may_hold else False


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a model is."""
    if request.param == "flag":
        monkeypatch.setattr(Gate, "holds", flagged)
    return "cuda" if request.param == "cuda" else "cpu"


on_all = pytest.mark.parametrize("device", PLACES, indirect=True)


def attach(model: nn.Module, **options: Any) -> gnmr.Control:
    return gnmr.attach(model, **{"lag": 1, "guard": "skip", "quiet": True, "strict": True, **QUICK, **options})


def skip_unless_there(kind: str, device: str) -> None:
    """Kernels of some optimizers are for the CPU only."""
    model = nn.Linear(4, 4, device=device)
    model(torch.ones(1, 4, device=device)).sum().backward()
    try:
        OPTIMIZERS[kind](nn.ModuleDict({"layers": model, "head": nn.Linear(2, 2, device=device)})).step()
    except (RuntimeError, NotImplementedError) as refused:
        pytest.skip(str(refused))


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def train(run: Run, make: Callable[[nn.Module], torch.optim.Optimizer], left_out: set[int]) -> list[gnmr.StepResult]:
    """Thirty steps of the loop; `left_out`: whose update the loop itself leaves out."""
    optimizer, results = make(run.model), []
    for step in range(1, 31):
        results.append(run.step(step))
        if step not in left_out | {20}:  # that one is skipped
            optimizer.step()
    return results


@on_all
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_held_updates_are_left_out(kind: str, device: str) -> None:
    """To the bit as if the loop had left them out; the loop asks for nothing."""
    skip_unless_there(kind, device)
    run, other = Run(device, 1, None, guard="skip"), Run(device, 1, None)
    results = train(run, OPTIMIZERS[kind], set())
    train(other, OPTIMIZERS[kind], HELD)
    assert same(weights(run.model), weights(other.model)) and all(one.isfinite().all() for one in weights(run.model))
    assert {result.step for result in results if not result.applied} == HELD | {20}
    run.ctl.detach(), other.ctl.detach()
    # Norms of held steps count: the decisions are those of a run that holds nothing.
    without_applied = [[(*one[:3], *one[4:]) for one in some[:-1]] for some in (run.heard, other.heard)]
    assert without_applied[0] == without_applied[1]
    assert [one[3] for one in run.heard[:-1]] == [step not in HELD | {20} for step in range(1, 31)]


@on_all
def test_a_loop_may_ask(device: str) -> None:
    """`result.applied` waits for a device; what it says is what is done, with an optimizer of any kind."""
    run, other = Run(device, 1, guard="skip"), Run(device, 1)
    for step in range(1, 31):
        result = run.step(step)
        result = result.wait() if step % 2 else result  # the same, whichever is asked
        other.step(step)
        assert result.applied == (step not in HELD | {20})
        with torch.no_grad():
            for mine, one in zip(run.model.parameters(), other.model.parameters(), strict=True):
                if result.applied:
                    mine -= 0.1 * mine.grad
                    one -= 0.1 * one.grad
        assert same(weights(run.model), weights(other.model))


@on_all
def test_only_while_decisions_are_carried_out(device: str) -> None:
    for options in ({"watch": True}, {"watch_steps": 30}):
        run = Run(device, 1, guard="skip", **options)
        assert all(run.step(step).applied == (step != 20) for step in range(1, 31))
        run.ctl.detach()


@on_all
@pytest.mark.parametrize("stop", [7, 8, 11, 17])
def test_a_state_goes_on(device: str, stop: int) -> None:
    first = Run(device, 1, guard="skip")
    assert all(first.step(step).applied == (step not in HELD) for step in range(1, stop + 1))
    second = Run(device, 1, guard="skip")
    assert second.ctl.load_state_dict(first.ctl.state_dict())["exact"]
    applied = [second.step(step).applied for step in range(stop + 1, 31)]
    assert applied == [step not in HELD | {20} for step in range(stop + 1, 31)]
    # Saving changes nothing: histories go on.
    assert applied == [first.step(step).applied for step in range(stop + 1, 31)]


@on_all
def test_with_a_grad_scaler(device: str) -> None:
    """It neither sees the gate's flag nor loses its own."""
    found = []
    for fused in (False, True):
        model = make_model().to(device)
        ctl = attach(model)
        optimizer = AdamW(model.parameters(), 0.01, fused=fused)
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=1000)
        steps = []
        for step in range(1, 13):
            optimizer.zero_grad()
            x = torch.randn(64, 32, generator=torch.Generator().manual_seed(step)).to(device)
            loss = model(x).square().mean() * (100.0 if step == 9 else 1.0)
            if step == 6:
                loss = loss * math.inf
            scaler.scale(loss).backward()
            before = weights(model)
            result = scaled_step(ctl, scaler, optimizer, max_norm=1.0)
            steps.append((result.applied, same(before, weights(model)), scaler.get_scale()))
        assert not hasattr(optimizer, "found_inf")
        ctl.detach()
        found.append(steps)
    assert found[0] == found[1]
    assert [applied for applied, _, _ in found[0]] == [step not in (6, 9) for step in range(1, 13)]
    assert [is_same for _, is_same, _ in found[0]] == [step in (6, 9) for step in range(1, 13)]
    assert [scale for _, _, scale in found[0]] == [8.0] * 5 + [4.0] * 7


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_ask_for_a_flag(kind: str) -> None:
    """As a gate on a device leaves it, here with a flag that a test has set."""
    skip_unless_there(kind, DEVICE.type)
    model = make_model()
    ctl = attach(model, guard="none")
    held = HeldUpdate(ctl._steps)
    optimizer, others = OPTIMIZERS[kind](model), SGD(make_model(1).parameters(), 0.1)
    for step, flag in enumerate([0.0, 1.0, 0.0, None, 1.0], 1):
        optimizer.zero_grad()
        run_backward(model, step)
        ctl.step()
        held.release()
        hold = None if flag is None else held.hold(torch.tensor(flag, device=DEVICE))
        before = weights(model)
        others.step()
        assert hold is None or not hold.was_asked
        optimizer.step()
        assert hold is None or hold.was_asked
        assert same(before, weights(model)) == bool(flag)
        assert not hasattr(optimizer, "found_inf")
        # After a forward it is no update of this step.
        run_backward(model, step)
        optimizer.step()
        assert not same(before, weights(model))
    held.remove()
    run_backward(model, 9)
    ctl.step()
    held.hold(torch.tensor(1.0))
    before = weights(model)
    optimizer.step()
    assert not same(before, weights(model))


@pytest.mark.parametrize("scales", [False, True])
def test_an_update_that_raises_leaves_no_flag(scales: bool) -> None:
    """Neither for a later update nor, with a scaler that sets its own, in its place."""
    fails = True

    class Failing(AdamW):
        def step(self, closure: Any = None) -> Any:
            if fails:
                raise RuntimeError("once")
            return super().step(closure)

    def found_by_scaler(found: float) -> None:
        if scales:
            optimizer.found_inf = torch.tensor(found, device=DEVICE)

    model = make_model()
    ctl = attach(model, guard="none")
    held, optimizer = HeldUpdate(ctl._steps), Failing(model.parameters(), 0.01, fused=True)
    for step, ends in enumerate(["update", "release", "remove"], 1):
        optimizer.zero_grad()
        run_backward(model, step)
        ctl.step()
        held.hold(torch.tensor(1.0, device=DEVICE))
        fails = True
        found_by_scaler(1.0)
        with pytest.raises(RuntimeError, match="once"):
            optimizer.step()
        assert float(optimizer.found_inf) == 1.0
        fails, before = False, weights(model)
        if ends == "update":  # of a later step, which asks for nothing
            run_backward(model, step)
        else:
            getattr(held, ends)()
        found_by_scaler(0.0)
        optimizer.step()
        assert not same(before, weights(model))
        assert hasattr(optimizer, "found_inf") == scales
        assert not scales or float(optimizer.found_inf) == 0.0


def test_what_fails_before_an_update_ends_no_run() -> None:
    model = make_model()
    ctl = attach(model, guard="none", strict=False)
    held, optimizer = HeldUpdate(ctl._steps), AdamW(model.parameters(), 0.01)
    run_backward(model, 1)
    ctl.step()
    held.hold(torch.tensor(1.0)).sent = 1  # no number on its way
    before = weights(model)
    with pytest.warns(UserWarning, match="a fault in gnmr"):
        optimizer.step()
    assert ctl.mode == "disarmed" and not same(before, weights(model))


@on_all
def test_a_fault_after_the_gate(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result says what becomes of the gradients."""
    run = Run(device, 1, guard="skip")
    run.ctl._strict = False
    optimizer = AdamW(run.model.parameters(), 0.01, fused=True)
    for step in range(1, 10):
        if step == 8:
            monkeypatch.setattr(run.ctl._steps, "record", lambda *_: 1 / 0)
        before = weights(run.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = run.step(step)
        optimizer.step()
        assert result.applied != same(before, weights(run.model))
        assert run.ctl.mode == ("armed" if step < 8 else "disarmed")


@pytest.mark.parametrize("device", PLACES[1:], indirect=True)
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("logs", [False, True])
def test_an_update_that_does_not_ask_is_reported(logs: bool, compiles: bool, device: str) -> None:
    """It was made, and that is what journal and listeners have; a loop that only logs does not go by `applied`."""
    run = Run(device, 1, guard="skip")
    optimizer = AdamW(run.model.parameters(), 0.01)
    update = torch.compile(optimizer.step, backend="eager")
    results = []
    with pytest.warns(UserWarning, match=r"step 8 was to be held, but no optimizer of torch.optim asked"):
        for step in range(1, 12):
            results.append(run.step(step))
            if logs:
                known = results[-1].wait()
                assert math.isfinite(known.total_norm) and f"step={step}" in repr(known)
                assert copy.copy(results[-1]).step == pickle.loads(pickle.dumps(known)).step == step
            if compiles:
                update()
    assert all(result.applied for result in results[:9])  # asked too late
    run.ctl.detach()
    assert all(one[3] for one in run.heard[:10])


@on_all
def test_a_skipped_step_after_a_held_one(device: str) -> None:
    """The flag of the one is not the other's."""
    run = Run(device, 1, guard="skip")
    optimizer = AdamW(run.model.parameters(), 0.01, fused=True)
    for step in range(1, 9):
        result = run.step(step)
        optimizer.step()
    assert not result.applied
    before = weights(run.model)
    run.model(batch(9)[0].to(device)).sum().backward()
    assert not run.ctl.step(skipped=True).applied
    optimizer.step()
    assert not same(before, weights(run.model))


def test_a_result_that_waits() -> None:
    """As a gate on a device gives it: only what asks for `applied` waits."""
    asked: list[bool] = []  # whether the loop goes by it
    late = Run("cpu", 1).step(1)
    result = gated(late, lambda asks: bool(asked.append(asks)))
    assert "step=1" in repr(result) and (result.step, result.alarmed) == (1, False) and not asked
    known = result.wait()
    assert (known.step, known.total_norm) == (1, late.wait().total_norm) and known.wait() is known and not asked
    assert repr(known) == repr(replace(late.wait(), applied=False)) and asked == [False]
    for one in (result, known):
        whole = pickle.loads(pickle.dumps(one))
        assert type(whole) is gnmr.StepResult and not whole.applied and whole.total_norm == late.wait().total_norm
    assert not any(asked)
    assert result.applied is False and known.applied is False and asked[-2:] == [True, True]
    with pytest.raises(AttributeError, match="no attribute 'aplied'"):
        _ = known.aplied
    with pytest.raises(gnmr.Error, match="total_norm of step 1 is on its way"):
        _ = result.total_norm


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"guard": "clip"}, "expected none or skip with lag 1, got clip"),
        ({"guard": "replay"}, "expected none or skip with lag 1, got replay"),
        ({"guard": "skip", "selector": "evidence"}, "expected none with lag 1 and a selector that goes by errors"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # our own low path
    with pytest.raises(gnmr.Error, match=text):
        gnmr.attach(make_model(), lag=1, recipe="fp8-tensorwise", quiet=True, **options)


UNITS = 40


def controller() -> Any:
    options = _core.Options(guard="skip", lag=1, selector="norms", warmup_samples=4, lock_steps=3, max_o=4.0)
    return _core.Supervisor([_core.Unit(f"u{unit}") for unit in range(UNITS)], options)


def gated_run(core: Any, judge: Callable[[Any, "array[float]", bytes], bool]) -> list[tuple[bool, bool]]:
    """Random norms, gaps, zeros and numbers that are not finite: whether each step was held, and whether it should be
    by what its report, which comes a step later, finds."""
    draw, held, found = random.Random(3), [], []
    waiting: list[tuple[Any, Any, Any]] = []
    for step in range(1, 301):
        plan = core.begin(step)
        norms = array("d", [math.exp(draw.gauss(0, 0.1)) for _ in range(UNITS)])
        sampled = bytes(draw.random() > 0.05 for _ in range(UNITS))
        for unit in range(UNITS):
            if draw.random() < 0.002:
                norms[unit] *= draw.choice([50.0, 1e-3, 0.0, math.nan, math.inf])
        held.append(judge(plan, norms, sampled))
        waiting.append((plan, norms, sampled))
        if step > 1:
            before, its_norms, its_samples = waiting.pop(0)
            outcome = core.report(step - 1, its_norms, its_samples, held=held[-2])
            free = [unit for unit in core.risks() if before.gate_flags[unit] & 1]
            found.append((held[-2], bool(free) and not outcome.decision.common))
    assert 5 < sum(held) < 150
    return found


def test_the_gate_holds_what_the_report_finds() -> None:
    core = controller()
    assert all(one == other for one, other in gated_run(core, _core.HostGate(core).holds))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
class TestOnAGpu:
    def test_the_gate_on_the_device_holds_the_same_steps(self) -> None:
        device = torch.device("cuda", 0)
        with stream_on(device) as stream:
            gates = [_core.HostGate(core := controller()), _core.DeviceGate(core, stream)]

        def judge(plan: Any, norms: "array[float]", sampled: bytes) -> bool:
            tensors = [
                torch.tensor(norms, dtype=torch.float64, device=device),
                *(torch.tensor(list(one), dtype=torch.uint8, device=device) for one in (sampled, plan.gate_flags)),
                torch.zeros(_core.DeviceGate.ALARM_BYTES, dtype=torch.uint8, device=device),
            ]
            with stream_on(device) as stream:
                gates[1].judge(plan, *(one.data_ptr() for one in tensors), stream)
            held = bool(gates[0].holds(plan, norms, sampled))
            assert bool(tensors[-1][_core.DeviceGate.HELD_AT]) == held
            return held

        assert all(one == other for one, other in gated_run(core, judge))

    def test_the_host_does_not_wait(self) -> None:
        model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(100)]).to("cuda", torch.bfloat16)
        ctl = attach(model, max_o=0.05)
        optimizer = AdamW(model.parameters(), 0.01, fused=True)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        for step in range(11):
            if step == 10:
                model[7].weight.grad *= 1000
            before = weights(model)
            torch.cuda.synchronize()
            torch.cuda._sleep(400_000_000)  # about a fifth of a second
            done = torch.cuda.Event()
            done.record()
            torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
            try:
                result = ctl.step(max_norm=1.0)
                optimizer.step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            assert step < 3 or not done.query(), "the host waited, or the device was not busy"
            assert same(before, weights(model)) == (step == 10) == (not result.applied)

    def test_gradients_that_the_kernels_cannot_read(self) -> None:
        """The gate moves to the host and back, and goes on."""
        run = Run("cuda", 1, guard="skip")
        optimizer, applied = AdamW(run.model.parameters(), 0.01, foreach=False), []

        def turn(weight: Tensor) -> None:
            if step % 3 == 0:
                weight.grad = weight.grad.t().contiguous().t()

        run.model.head.weight.register_post_accumulate_grad_hook(turn)
        for step in range(1, 31):
            before = weights(run.model)
            applied.append(run.step(step).applied)
            optimizer.step()
            assert step == 20 or applied[-1] != same(before, weights(run.model))
        assert applied == [step not in HELD | {20} for step in range(1, 31)]
