# SPDX-License-Identifier: Apache-2.0
"""ctl.summary(): what happened to units, totals, advice; it is kept in checkpoints, and things print readably."""

import copy
from dataclasses import asdict, replace

import pytest
from devices import low_path
from gnmr.checks.planted_faults import planted_fault
from gnmr.summary import Summary, UnitSummary
from gnmr.telemetry.advice import RULES, advised
from small_model import NO_PATROL, QUICK, make_model, run_backward
from torch import nn

import gnmr

FAULTY = "layers.2.down"


def watched_run(steps: int, tries: bool = True, **options: object) -> gnmr.Control:
    """One layer's low path is broken in step 10, and its norm is."""
    model = make_model()
    ctl = gnmr.attach(model, quiet=True, strict=True, **{**low_path(model), **QUICK, **options})
    unit = next(unit for unit in ctl.units if unit.name == FAULTY)
    for step in range(1, steps + 1):
        model.zero_grad()
        if step == 10 and tries:
            with planted_fault(unit):
                run_backward(model, step)
                ctl.trial(lambda step=step: run_backward(model, step))
            continue
        run_backward(model, step)
        if step == 10:
            unit.module.weight.grad *= 1000
        ctl.step()
    return ctl


def test_a_recovery_is_counted() -> None:
    ctl = watched_run(24)
    summary = ctl.summary()
    assert (summary.steps, summary.alarms, summary.reruns, summary.verdicts) == (24, 1, 1, {"numeric": 1})
    assert (summary.budget, len(summary.units), summary.switchable) == (1, 8, 8)
    first = summary.units[0]
    assert (first.name, first.admissions, first.recovery_steps) == (FAULTY, 1, 3) and first.error_over_limit > 1
    assert first.recovery_share == pytest.approx(3 / 24)
    assert all(unit.admissions == 0 and unit.is_sampled for unit in summary.units[1:])
    # Three unit-steps in recovery, and a trial of all eight units, of 24 steps of eight units.
    shares = summary.high_shares
    assert shares is not None
    assert (shares.acute, shares.standing, shares.reruns) == pytest.approx((3 / 192, 0, 8 / 192))
    assert shares.total == pytest.approx(11 / 192) and "1.56% acute recovery" in str(summary)
    text = str(summary)
    assert "budget: 1 of 8 units (12.5%)" in text and "1 numeric" in text and FAULTY in text and "3 (12.5%)" in text
    assert repr(summary) == text and asdict(summary)["units"][0]["name"] == FAULTY
    ctl.detach()
    assert ctl.summary().units == summary.units  # also when all is over


def test_steps_without_trials_are_counted_too() -> None:
    summary = watched_run(14, tries=False, lag=1).summary()
    assert summary.steps == 13 and summary.alarms == 1 and summary.reruns == 0
    assert summary.units[0].name == FAULTY and summary.units[0].admissions == 1
    assert summary.units[0].error_over_limit == 0 and "-" in str(summary)


def test_it_is_kept_in_checkpoints() -> None:
    ctl = watched_run(12)
    state = ctl.state_dict()
    model = make_model()
    other = gnmr.attach(model, quiet=True, strict=True, **{**low_path(model), **QUICK})
    other.load_state_dict(state)
    assert str(other.summary()) == str(ctl.summary()) and other.summary() == ctl.summary()
    # A state of before has none: counts begin anew. One that is wrong is refused, and changes nothing.
    old = {key: value for key, value in state.items() if key != "summary"}
    before = copy.deepcopy(other.summary())
    for wrong in ({"steps": 3}, {**state["summary"], "more": 1}, 5):
        with pytest.raises(gnmr.Error, match="summary"):
            other.load_state_dict({**state, "summary": wrong})
    assert other.summary() == before
    other.load_state_dict(old)
    assert other.summary().steps == 0


@pytest.mark.parametrize("lacks", ["rerun_unit_steps", "standing_steps"])
def test_reasons_that_an_earlier_version_did_not_count_are_not_known(lacks: str) -> None:
    ctl = watched_run(12)
    assert ctl.summary().high_shares is not None
    state = copy.deepcopy(ctl.state_dict())
    if lacks == "rerun_unit_steps":
        del state["summary"][lacks]
    else:
        assert state["summary"]["units"][FAULTY]["recovery_steps"] > 0
        for counts in state["summary"]["units"].values():
            del counts[lacks]
    model = make_model()
    # Until the control ends, also across later states.
    for step in (13, 14):
        ctl = gnmr.attach(model, quiet=True, strict=True, **{**low_path(model), **QUICK})
        ctl.load_state_dict(state)
        model.zero_grad()
        with planted_fault(next(unit for unit in ctl.units if unit.name == "layers.0.down")):
            run_backward(model, step)
            ctl.trial(lambda step=step: run_backward(model, step))
        summary = ctl.summary()
        assert summary.steps == step and summary.reruns == 2, "all else is counted on"
        assert summary.high_shares is None and "in high precision" not in str(summary)
        assert (summary.standing_steps, summary.rerun_unit_steps) == (None, None)
        assert summary.recovery_share > 0 and FAULTY in repr(summary)
        state = copy.deepcopy(ctl.state_dict())
        ctl.detach()


def units(*rows: UnitSummary) -> tuple[UnitSummary, ...]:
    return rows or (UnitSummary("a", 0, 0.0, 0, 0.0, 0, 0, True),)


CALM = Summary("armed", 1000, units(), 1, 1, 0, 0, True, 0, 0, {}, 100)
ROW = UnitSummary("a", 1, 2.0, 30, 0.03, 0, 0, True)
LOUD = replace(CALM, alarms=10, reruns=10, verdicts={"numeric": 10}, units=units(ROW))


def test_shares_of_high_precision_add_up() -> None:
    rows = (ROW, replace(ROW, name="b", recovery_steps=70))
    shares = replace(CALM, units=rows, standing_steps=60, rerun_unit_steps=4).high_shares
    assert shares is not None
    assert (shares.acute, shares.standing, shares.reruns) == (40 / 2000, 60 / 2000, 4 / 2000)
    assert shares.total == pytest.approx((30 + 70 + 4) / 2000)


@pytest.mark.parametrize(
    "rule, summary, word",
    [
        ("disarmed", replace(CALM, fault="OSError: no disk", mode="disarmed"), "no disk"),
        ("no low path", replace(CALM, switchable=0, mode="watch"), "recipe="),
        ("watching", replace(LOUD, mode="watch", units=units(replace(ROW, would_be=1))), "ctl.arm()"),
        ("unsampled", replace(LOUD, units=units(replace(ROW, is_sampled=False))), "a never had a gradient"),
        ("budget", replace(LOUD, denied_steps=5, most_wanted=7), "up to 7 units"),
        ("cap", replace(LOUD, denied_steps=5, capped_steps=4, max_high_share=0.05), "(0.05 of the cost)"),
        ("mostly high", replace(LOUD, units=units(replace(ROW, recovery_share=0.8))), "ctl.set('a', \"high\")"),
        ("relapses", replace(LOUD, units=units(replace(ROW, admissions=4))), "lock_steps"),
        ("futile", replace(LOUD, units=units(replace(ROW, futile=1))), "did not help a"),
        ("common", replace(LOUD, verdicts={"common": 6, "numeric": 4}), "6 of 10"),
        ("unlocated", replace(LOUD, verdicts={"unlocated": 3}), "closure"),
        ("untried", replace(LOUD, reruns=0, verdicts={}), "ctl.trial"),
        ("warming up", replace(CALM, steps=30), "30 of the first 100"),
        ("calm", CALM, "nothing to do"),
    ],
)
def test_each_rule_advises_alone(rule: str, summary: Summary, word: str) -> None:
    (advice,) = [one for one in advised(summary).advice if one.rule == rule]
    assert word in advice.text and f"advice ({rule}): " in str(advised(summary))
    # And has nothing to say of another run.
    other = CALM if rule != "calm" else LOUD
    assert not RULES[rule](other)
    assert not advised(LOUD).advice


def test_every_rule_is_tested() -> None:
    marks = test_each_rule_advises_alone.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in marks[0].args[1]} == set(RULES)


def test_a_budget_that_is_too_small_is_seen() -> None:
    model = make_model()
    options = {**low_path(model), **QUICK, "max_o": 1, "lock_steps": 1, "patrol": NO_PATROL}
    ctl = gnmr.attach(model, quiet=True, strict=True, **options)
    for step in range(1, 30):
        model.zero_grad()
        run_backward(model, step)
        if step > 8 and step % 5 == 0:
            for layer in model.layers:
                layer.down.weight.grad *= 1000.0 + step
        ctl.step()
    summary = ctl.summary()
    assert summary.denied_steps >= 3 and summary.most_wanted >= 4
    assert "budget" in [advice.rule for advice in summary.advice] and "budget: 1 of 8 units (12.5%)" in str(summary)


def test_things_print_readably() -> None:
    ctl = watched_run(11)
    assert repr(ctl).startswith(
        "<gnmr.Control: armed, 11 steps, lag 0; 8 units, 1 high (layers.2.down); alarms in 1 steps"
    )
    lines = repr(ctl.units).splitlines()
    assert lines[0] == "8 units" and len(lines) == 9
    assert lines[1].startswith("  layers.0.up: ") and "(64x32, 64), switched by" in lines[1]
    assert ctl.units == list(ctl.units) and isinstance(ctl.units, list)
    plain = gnmr.attach(nn.Sequential(nn.Linear(4, 4)), quiet=True)
    assert repr(plain.units[0]) == "0: Linear (4x4, 4), only watched, cost 48"
