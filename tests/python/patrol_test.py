# SPDX-License-Identifier: Apache-2.0
"""The patrol: errors of low paths beside plain steps, without a rerun."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from device_layer import Layer
from gnmr.checks.compiled import counted_compilations
from gnmr.low.front_end import FrontEnd
from gnmr.step import patrol
from gnmr.step.patrol import TOKENS
from small_model import QUICK, batch, make_model, run_backward
from torch import Tensor, nn
from torch.nn import functional

import gnmr
from gnmr import _core, switches

FAULTY = 4  # layers.2.up
PLACES = 3


class Reports:
    """A supervisor whose reports of errors are kept, as lists of units."""

    def __init__(self, ctl: gnmr.Control) -> None:
        self.ctl = ctl
        self._parts = ctl._parts
        self._supervisor: Any = ctl._parts.supervisor
        self.errors: list[list[list[float]] | None] = []
        ctl._parts.supervisor = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._supervisor, name)

    def report(self, step: int, norms: Any, sampled: Any = None, errors: Any = None, **rest: Any) -> Any:
        flat = None if errors is None else list(errors)
        rows = None if flat is None else [flat[at : at + PLACES] for at in range(0, len(flat), PLACES)]
        self.errors.append(rows)
        return self._supervisor.report(step, norms, sampled, errors, **rest)

    def measured(self) -> list[list[int]]:
        """The units with an error, in each report."""
        return [
            [unit for unit, row in enumerate(rows or []) if not all(map(math.isnan, map(float, row)))]
            for rows in self.errors
        ]


def attach(model: nn.Module, **options: Any) -> gnmr.Control:
    return gnmr.attach(model, **{"recipe": "fp8-tensorwise", "quiet": True, "strict": True, "lag": 0, **options})


def run(model: nn.Module, ctl: gnmr.Control, steps: range) -> list[gnmr.StepResult]:
    results = []
    for step in steps:
        model.zero_grad()
        run_backward(model, step)
        results.append(ctl.step())
    return results


@contextmanager
def wrong_rows(model: nn.Module, unit: int, share: float = 0.15) -> Iterator[dict[str, bool]]:
    """While `on`, some rows of what the unit's low path makes forward are other rows of it, with the other sign."""
    state = {"on": False, "inside": False}
    module = [one for one in model.layers.modules() if isinstance(one, nn.Linear)][unit]
    plain = FrontEnd.multiply

    def multiply(self: FrontEnd, left: Tensor, right: Tensor) -> Tensor:
        made = plain(self, left, right)
        if state["on"] and state["inside"] and made.shape == (64, module.out_features):
            count = int(share * len(made))
            made[:count] = -made[count : 2 * count].clone()
        return made

    hooks = [
        module.register_forward_pre_hook(lambda *_: state.update(inside=True)),
        module.register_forward_hook(lambda *_: state.update(inside=False)),
    ]
    FrontEnd.multiply = multiply  # type: ignore[method-assign]
    try:
        yield state
    finally:
        FrontEnd.multiply = plain  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()


def error_by_rows(low: Tensor, high: Tensor) -> float:
    """The definition of docs/algorithm.md."""
    sizes = high.square().sum(1)
    shares = (low - high).square().sum(1) / sizes.clamp(min=float(sizes[sizes > 0].median()))
    return math.sqrt(float(shares.clamp(max=16).mean()))


@pytest.mark.parametrize("recipe", ["fp8-tensorwise", "fp8-deepseek", "int4-act"])
def test_errors_are_those_of_a_full_comparison(recipe: str) -> None:
    """In the mean over steps, which have other signs each: one step has some per cent of chance in it."""
    layer = Layer((256,), 96, 160, torch.float32, bias=False)
    if recipe == "int4-act":
        layer.input, layer.gradient = torch.randn(256, 96), 1e-3 * torch.randn(256, 160)
    ctl = attach(layer.model, recipe=recipe, patrol=1.0)
    reports = Reports(ctl)
    for _ in range(40):
        layer.run(layer.model)
        ctl.step()
    rows, gradient = layer.input.double(), layer.gradient.double()
    weight = layer.model[0].weight.detach().double()
    highs = (rows @ weight.t(), gradient @ weight, gradient.t() @ rows)
    for place, (low, high) in enumerate(zip(layer.expected(recipe), highs, strict=True)):
        expected = error_by_rows(low, high)
        found = [row[0][place] for row in reports.errors if row is not None]
        assert len(found) == 40 and len(set(found)) == 40
        assert math.sqrt(sum(one**2 for one in found) / 40) == pytest.approx(expected, rel=0.06)
        assert all(one == pytest.approx(expected, rel=0.4) for one in found)


def test_results_are_the_same_bits() -> None:
    models = [make_model(), make_model()]
    for model, share in zip(models, (1.0, 0.0), strict=True):
        run(model, attach(model, recipe="fp8-delayed", patrol=share), range(1, 4))
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_micro_batches_add_up() -> None:
    def sums(*batches: int) -> list[tuple[float, float]]:
        model = make_model(blocks=1)
        ctl = attach(model, patrol=1.0)
        for index in batches:
            run_backward(model, index)
        assert ctl._parts.patrol is not None
        return [pair for _, pairs in ctl._parts.patrol.end().sums for pair in pairs]

    pairs = list(zip(sums(1, 2), sums(1), sums(2), strict=True))
    # The input of the first layer needs no gradient.
    assert [math.isnan(both[0]) for both, _, _ in pairs] == [False, True, False, False, False, False]
    for both, one, two in pairs[:1] + pairs[2:]:
        assert both == pytest.approx([one[0] + two[0], one[1] + two[1]], rel=1e-9)


def test_all_layers_are_compared_in_the_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patrol, "SURVEY_STEPS", 3)
    model = make_model(blocks=3)
    ctl = attach(model, patrol=1e-6)
    reports = Reports(ctl)
    run(model, ctl, range(1, 6))
    assert reports.measured() == [list(range(6))] * 3 + [[4], [5]]


@pytest.mark.parametrize("share", [1e-6, 0.02, 0.05, 1.0])
def test_rounds_cover_all_layers(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(blocks=3)
    monkeypatch.setattr(patrol, "SURVEY_STEPS", 0)
    ctl = attach(model, patrol=share)
    reports = Reports(ctl)
    costs = [
        _core.patrol_cost(TOKENS, unit.module.in_features, unit.module.out_features, 4, False) for unit in ctl.units
    ]
    all_costs = TOKENS * sum(unit.cost for unit in ctl.units)
    run(model, ctl, range(1, 7))
    measured = reports.measured()
    assert {unit for units in measured for unit in units} == set(range(6))
    if share == 1.0:
        assert all(units == list(range(6)) for units in measured)
        return
    for units in measured:
        assert len(units) == 1 or sum(costs[unit] for unit in units) <= share * all_costs
    # In turns: a unit comes again when all have been compared.
    first = next(step for step in range(1, 7) if step == 6 or measured[step] == measured[0])
    assert sorted(unit for units in measured[:first] for unit in units) == list(range(6))


def test_no_patrol_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    ctl = attach(model, patrol=0.0)
    reports = Reports(ctl)
    monkeypatch.setattr(type(ctl.units[0].switch), "begin_patrol", lambda self: pytest.fail("compared"))
    run(model, ctl, range(1, 4))
    assert reports.errors == [None] * 3 and ctl._parts.patrol is None


@pytest.mark.parametrize(
    ("selector", "lag"), [("evidence", 0), ("evidence", 1), ("auto", 0), ("norms", 0), ("norms", 1)]
)
def test_wrong_rows_are_found_without_a_rerun(selector: str, lag: int) -> None:
    """Norms do not see them: the same fault is never admitted by them."""
    model = make_model()
    ctl = attach(model, selector=selector, lag=lag, **{**QUICK, "lock_steps": 40})
    with wrong_rows(model, FAULTY) as fault:
        calm = run(model, ctl, range(1, 41))
        fault["on"] = True
        results = run(model, ctl, range(41, 47))
    assert not any(result.admitted for result in calm)
    admitted = [(result.step, result.decided_step, result.admitted) for result in results if result.admitted]
    if selector == "norms":
        assert admitted == []
        return
    # Where units take turns, in its turn.
    assert ctl._parts.patrol is not None
    rounds = ctl._parts.patrol._rounds
    turns = [step for step in range(41, 45) if FAULTY in rounds[step % len(rounds)]]
    assert admitted == [(turns[0] + lag, turns[0], ("layers.2.up",))]
    assert next(result.alarmed for result in results if result.admitted)


def test_a_step_later_with_a_lag() -> None:
    found = []
    for lag in (0, 1):
        model = make_model()
        ctl = attach(model, lag=lag, patrol=1.0)
        reports = Reports(ctl)
        run(model, ctl, range(1, 6))
        found.append([repr(rows) for rows in reports.errors])
    # The last step of the second is not decided yet.
    assert found[1] == found[0][:-1] and len(found[0]) == 5


def test_recovered_units_are_compared_in_full() -> None:
    model = make_model()
    ctl = attach(model, selector="evidence", patrol=1.0, **{**QUICK, "lock_steps": 100, "lag": 0})
    reports = Reports(ctl)
    ctl.units[FAULTY].switch.plant_factor(1.7)
    admitted = next(one.step for one in run(model, ctl, range(1, 30)) if one.admitted)
    run(model, ctl, range(30, 71))
    measured = [step for step, units in enumerate(reports.measured(), 1) if FAULTY in units and step > admitted]
    assert measured == [step for step in range(admitted + 1, 71) if (step + FAULTY) % 20 == 0] and measured
    for step in measured:
        # The low result is 1.7 times what it should be, of which rows below the median norm show less.
        errors = reports.errors[step - 1]
        assert errors is not None and all(0.6 < error < 0.71 for error in errors[FAULTY])
    ctl.detach()


def test_skipped_steps_and_evaluation() -> None:
    model = make_model()
    ctl = attach(model, patrol=1.0)
    reports = Reports(ctl)
    run_backward(model, 1)
    ctl.step(skipped=True)
    with torch.no_grad():
        model(batch(1)[0])
    ctl.step()
    assert reports.errors[0] is None and reports.measured()[1] == []
    run(model, ctl, range(3, 4))
    assert reports.measured()[2] == list(range(8))


def test_errors_of_a_trial_take_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    monkeypatch.setattr(patrol, "SURVEY_STEPS", 0)
    ctl = attach(model, patrol=1e-6, **QUICK)
    reports = Reports(ctl)
    for step in range(1, 11):
        model.zero_grad()
        run_backward(model, step)
        if step == 10:
            model.layers[1].up.weight.grad *= 100
        result = ctl.trial(lambda step=step: run_backward(model, step))
    assert result.rerun == "trial"
    measured = reports.measured()
    assert len(measured) == 11 and all(len(units) == 1 for units in measured[:10])
    assert measured[10] == list(range(8))


def test_compiled_blocks_are_measured_in_their_turn() -> None:
    """A block has two variants; it takes the one that is measured only where one of its layers is due."""
    reports, gradients, seen = [], [], []
    for compiles in (False, True):
        model = make_model(blocks=3)
        ctl = attach(model, patrol=0.3)
        reports.append(Reports(ctl))
        for layer in model.layers[1:] if compiles else ():
            layer.compile(backend="aot_eager", fullgraph=True)
        with counted_compilations() as compiled:
            for step in range(1, 13):
                if compiles:
                    found = [not layer.up._gnmr_switch.neighbours.trains_calm for layer in model.layers[1:]]
                    due = ctl._parts.patrol._now
                    assert step == 1 or found == [bool({2, 3} & set(due)), bool({4, 5} & set(due))]
                run(model, ctl, range(step, step + 1))
                gradients.append([parameter.grad.clone() for parameter in model.parameters()])
            seen.append(len(compiled))
        torch._dynamo.reset()
    assert reports[1].measured() == reports[0].measured()
    for one, other in zip(*(report.errors for report in reports), strict=True):
        assert other == [pytest.approx(row, rel=1e-6, nan_ok=True) for row in one]
    assert seen[0] == 0 and 1 <= seen[1] <= 2
    for one, other in zip(gradients[:12], gradients[12:], strict=True):
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(one, other, strict=True))


def test_a_model_that_is_compiled_whole_is_not_measured() -> None:
    model = make_model(blocks=3)
    ctl = attach(model, patrol=1.0)
    reports = Reports(ctl)
    compiled = torch.compile(model, backend="eager")
    run(compiled, ctl, range(1, 3))
    assert reports.measured()[1] == []
    # Its other variant, which reads switches, measures the units that stay low.
    ctl.set("layers.1.up", "high")
    run(compiled, ctl, range(3, 4))
    assert reports.measured()[2] == [0, 1, 3, 4, 5]
    torch._dynamo.reset()


class Doubled(nn.Module):
    """A user's module with two paths."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.path = "low"
        self.sums = (math.nan, math.nan)

    def forward(self, x: Tensor) -> Tensor:
        high = functional.linear(x, self.weight)
        low = functional.linear(x, self.weight.bfloat16().float())
        if self.path == "patrol":
            difference, reference = float((low - high).detach().norm()) ** 2, float(high.detach().norm()) ** 2
            self.sums = (difference, reference)
        return high if self.path == "high" else low


class DoubledSwitch:
    places = ("forward",)
    expected = (0.0,)

    def __init__(self, module: Doubled) -> None:
        self.module, self.cost = module, 3 * module.weight.numel()

    def set_high(self, high: bool) -> None:
        self.module.path = "high" if high else "low"

    def begin_trial(self) -> None:
        self.module.path = "high"

    def end_trial(self) -> list[float]:
        return [math.nan]


class PatrolledSwitch(DoubledSwitch):
    def patrol_cost(self, tokens: int) -> float:
        return 0.9 * tokens * self.cost

    def begin_patrol(self) -> None:
        self.module.path = "patrol"

    def end_patrol(self) -> list[tuple[float, float]]:
        self.module.path = "low"
        return [self.module.sums]


def test_switches_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches._MAKERS, Doubled, lambda name, module: PatrolledSwitch(module))
    model = nn.Sequential(Doubled(8), Doubled(8), Doubled(8))
    monkeypatch.setattr(patrol, "SURVEY_STEPS", 0)
    ctl = attach(model, recipe=None)
    reports = Reports(ctl)
    monkeypatch.setattr("patrol_test.PLACES", 1)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        ctl.step()
    assert reports.measured() == [[1], [2], [0]]
    assert all(0 < errors[unit][0] < 0.01 for (unit,), errors in zip(reports.measured(), reports.errors, strict=True))


def test_switches_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches._MAKERS, Doubled, lambda name, module: DoubledSwitch(module))
    model = nn.Sequential(Doubled(8))
    with pytest.raises(gnmr.Error, match="`patrol`.*no effect"):
        attach(model, recipe=None, patrol=0.1)
    ctl = attach(model, recipe=None)
    assert ctl._parts.patrol is None
    ctl.detach()
    for wrong in (-0.1, 1.5, math.nan):
        with pytest.raises(gnmr.Error, match="patrol from 0 to 1"):
            attach(make_model(), patrol=wrong)
