# SPDX-License-Identifier: Apache-2.0
"""ctl.plan(): which units should always run high, against numpy on the errors that were reported."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from patrol_test import Reports, attach, run
from small_model import make_model
from torch import nn

import gnmr

FAULTY = (2, 5)  # layers.1.up, layers.2.down
NAMES = tuple(f"layers.{unit // 2}.{('up', 'down')[unit % 2]}" for unit in FAULTY)


def measured_run(steps: int = 45, **options: object) -> tuple[nn.Module, gnmr.Control, np.ndarray]:
    """A model with two units whose low path is always wrong, only watched; errors by step, unit and place."""
    model = make_model()
    ctl = attach(model, watch=True, patrol=1.0, **options)
    for unit, factor in zip(FAULTY, (1.5, 1.35), strict=True):
        ctl.units[unit].switch.plant_factor(factor)
    reports = Reports(ctl)
    run(model, ctl, range(1, steps + 1))
    ctl._parts.supervisor = reports._supervisor
    return model, ctl, np.array(reports.errors, dtype=float)


def usual(errors: np.ndarray) -> np.ndarray:
    """The weighted geometric mean over steps, newer ones count more."""
    weights = 0.95 ** np.arange(len(errors))[::-1]
    return np.exp2(np.tensordot(weights / weights.sum(), np.log2(errors), 1))


def test_chronic_units_are_those_above_the_median() -> None:
    model, ctl, errors = measured_run(max_o=2.0)
    plan = ctl.plan()
    expected = usual(errors)
    known = ~np.isnan(expected)
    assert not known[0, 1] and known.sum() == 23  # the input of the first layer needs no gradient
    found = np.array([unit.errors for unit in plan.units])
    assert found[known] == pytest.approx(expected[known], rel=0.05) and np.isnan(found[~known]).all()
    medians = np.array([np.sort(place[~np.isnan(place)])[(np.sum(~np.isnan(place)) - 1) // 2] for place in expected.T])
    above = np.nanmax(expected / medians, axis=1)
    assert [unit.above_median for unit in plan.units] == pytest.approx(above, rel=0.05)
    coarse = ((expected > 0.2) & (expected > 2 * medians)).any(axis=1)
    assert [unit.coarse for unit in plan.units] == coarse.tolist() and np.flatnonzero(coarse).tolist() == list(FAULTY)
    assert plan.high == list(NAMES) and [unit.name for unit in plan.units if unit.high] == plan.high
    excess = np.nansum(np.clip(expected**2 - medians**2, 0, None), axis=1)
    large = (expected > 0.2).any(axis=1) & (excess > 0)
    assert [unit.fills for unit in plan.units] == (large & ~coarse).tolist()
    assert plan.removed_share == pytest.approx(excess[list(FAULTY)].sum() / excess.sum(), abs=0.01)
    costs = np.array([unit.cost for unit in ctl.units])
    assert plan.cost_share == pytest.approx(costs[list(FAULTY)].sum() / costs.sum())
    assert plan.unmeasured == 0 and plan.places == ["forward", "input_gradient", "weight_gradient"]
    table = str(plan).splitlines()
    assert table == repr(plan).splitlines()
    assert all(name in table[1] + table[2] for name in NAMES) and "2 units of 8 high" in str(plan)
    # As torchao asks: it also asks about what is no unit.
    keep = plan.filter_fn()
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    assert [name for name in linear if not keep(model.get_submodule(name), name)] == list(NAMES)
    ctl.detach()


def test_torchao_takes_the_filter() -> None:
    float8 = pytest.importorskip("torchao.float8")
    model, ctl, _ = measured_run(max_o=2.0)
    keep = ctl.plan().filter_fn()
    ctl.detach()
    config = float8.Float8LinearConfig(emulate=True)
    float8.convert_to_float8_training(model, config=config, module_filter_fn=keep)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    plain = [name for name in linear if type(model.get_submodule(name)) is nn.Linear]
    assert len(linear) == 9 and plain == list(NAMES)


def test_the_budget_counts() -> None:
    _, ctl, _ = measured_run(max_o=1.0)
    plan = ctl.plan()
    assert plan.high == [NAMES[0]] and [unit.name for unit in plan.units if unit.coarse] == list(NAMES)
    assert "no room" in str(plan)


def test_nothing_is_planned_before_it_is_measured() -> None:
    _, ctl, _ = measured_run(steps=10)
    plan = ctl.plan()
    assert plan.high == [] and plan.unmeasured == 8
    assert all(math.isnan(error) for unit in plan.units for error in (*unit.errors, unit.above_median))
    ctl = attach(make_model(), patrol=0.0)
    with pytest.raises(gnmr.Error, match="no levels of errors"):
        ctl.plan()


def test_a_state_has_what_a_plan_needs() -> None:
    _, ctl, _ = measured_run(max_o=2.0)
    other = attach(make_model(), max_o=2.0, watch=True, patrol=1.0)
    other.load_state_dict(ctl.state_dict())
    assert str(other.plan()) == str(ctl.plan())


def test_the_runs_folder_has_the_errors(tmp_path: Path) -> None:
    _, ctl, errors = measured_run(out=tmp_path / "run")
    ctl.detach()
    path = tmp_path / "run" / "errors.bin"
    units, sites = np.fromfile(path, dtype="<u4", count=5)[3:]
    rows = np.fromfile(path, dtype=[("step", "<i8"), ("errors", "<f4", (units, sites))], offset=20)
    assert rows["step"].tolist() == list(range(1, 46)) and (units, sites) == (8, 3)
    assert rows["errors"] == pytest.approx(errors, rel=1e-6, nan_ok=True)
    chronic = json.loads(gnmr.explain(tmp_path / "run", json=True))["summary"]["chronic_units"]
    assert {unit["unit"] for unit in chronic} == set(NAMES)
