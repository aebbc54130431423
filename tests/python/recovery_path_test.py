# SPDX-License-Identifier: Apache-2.0
"""A unit in recovery runs what its recipe recovers to; one that is high for another reason runs its own kernel."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from devices import ON_CUDA
from small_model import QUICK, make_model, run_backward
from torch import nn

import gnmr

#: A GPU has no integers.
COARSE = {"format": "e5m2" if ON_CUDA else "int4"}


@pytest.fixture
def ladder(tmp_path: Path) -> str:
    """Coarse activations that recover to FP8, but for dgrad."""
    file = tmp_path / "ladder.json"
    recovers_to = {"forward": "fp8-rowwise", "input_gradient": "low", "weight_gradient": "fp8-rowwise"}
    file.write_text(json.dumps({"name": "ladder", "input": COARSE, "recovers_to": recovers_to}))
    return str(file)


@pytest.fixture
def rung(tmp_path: Path) -> str:
    """What that comes to, as a low path."""
    file = tmp_path / "rung.json"
    row = {"format": "e4m3", "scaling": "row"}
    products = {
        "forward": {"input": row, "weight": row},
        "weight_gradient": {"output_gradient": row, "input": row},
    }
    file.write_text(json.dumps({"name": "rung", "products": products}))
    return str(file)


def gradients(model: nn.Module, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    run_backward(model, step)
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def same(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def put_in_recovery(ctl: gnmr.Control) -> None:
    """As if all units had been admitted."""
    for unit in ctl._steps.units:
        gnmr.switches.set_path(unit.switch, True, True)


@pytest.mark.parametrize("compiled", [False, True])
def test_recovery_is_the_low_path_of_the_recipe_that_it_names(ladder: str, rung: str, compiled: bool) -> None:
    model, other = make_model(), make_model()
    if compiled:
        model = torch.compile(model, backend="aot_eager")
    ctl = gnmr.attach(model, recipe=ladder, quiet=True, strict=True, **QUICK)
    gnmr.attach(other, recipe=rung, quiet=True, strict=True, **QUICK)
    low = gradients(model, 1)
    put_in_recovery(ctl)
    expected = gradients(other, 1)
    assert same(gradients(model, 1), expected)
    assert not same(low, expected)
    for unit in ctl._steps.units:
        gnmr.switches.set_path(unit.switch, False, False)
    assert same(gradients(model, 1), low)


def test_high_for_another_reason_is_the_layers_own_kernel(ladder: str) -> None:
    model, plain = make_model(), make_model()
    ctl = gnmr.attach(model, recipe=ladder, quiet=True, strict=True, **QUICK)
    expected = gradients(plain, 1)
    ctl.set("*", "high")
    assert same(gradients(model, 1), expected)


def test_an_admitted_unit_runs_it_and_a_trial_does_not(ladder: str) -> None:
    model, plain = make_model(), make_model()
    # Chronic errors: the unit whose input has outliers is admitted by a review, or by the trial of its step.
    ctl = gnmr.attach(model, recipe=ladder, quiet=True, strict=True, patrol=1, **QUICK)
    name = "layers.2.up"
    switch = next(unit.switch for unit in ctl._steps.units if unit.name == name)
    trials = 0
    for step in range(1, 13):
        switch.plant_factor(50.0 if step >= 10 else None)

        def run(step: int = step) -> torch.Tensor:
            return run_backward(model, step)

        model.zero_grad()
        loss = run()
        result = ctl.trial(run, loss=loss, max_norm=1e9)
        if result.rerun == "trial":
            trials += 1
            expected = gradients(plain, step)
            mine = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(mine, expected, strict=True))
    assert trials >= 1
    assert name in ctl.high
    assert switch.high and switch.recovers
    ctl.set(name, "high")
    model.zero_grad()
    ctl.trial(lambda: run_backward(model, 13), loss=run_backward(model, 13), max_norm=1e9)
    assert switch.high and not switch.recovers, "the user's choice is high precision"
    ctl.detach()
