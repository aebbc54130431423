# SPDX-License-Identifier: Apache-2.0
"""A state goes through torch.save, and the run goes on with the same decisions."""

import io
import warnings
from typing import Any

import pytest
import torch
from small_model import QUICK, make_model, run_backward
from torch import nn

import gnmr

RECIPES = [None, "fp8-tensorwise", "fp8-delayed"]


def attached(recipe: str | None, lag: int = 0, **options: Any) -> tuple[nn.Module, gnmr.Control]:
    model = make_model()
    options = {**QUICK, "max_o": 3.0, **options}
    return model, gnmr.attach(model, recipe=recipe, lag=lag, quiet=True, strict=True, **options)


def one_step(model: nn.Module, ctl: gnmr.Control, step: int) -> tuple[Any, ...]:
    model.zero_grad()
    run_backward(model, step)
    # Disturbances that are a function of the step.
    if step in (8, 9, 15):
        model.layers[step % 4].down.weight.grad *= 50
    if step in (11, 17):
        model.layers[1].up.weight.grad *= 0.01
    result = ctl.step(max_norm=1.0)
    return result.step, result.wait().total_norm, result.admitted, result.released, result.recovered, tuple(ctl.high)


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("recipe", RECIPES)
def test_goes_on_with_the_same_decisions(recipe: str | None, lag: int) -> None:
    model, ctl = attached(recipe, lag)
    if recipe:
        ctl.set("layers.3.*", "high", steps=14)
    whole = [one_step(model, ctl, step) for step in range(1, 25)]
    if recipe:
        assert any(result[2] for result in whole)
    model, ctl = attached(recipe, lag)
    if recipe:
        ctl.set("layers.3.*", "high", steps=14)
    first = [one_step(model, ctl, step) for step in range(1, 11)]
    saved = io.BytesIO()
    torch.save(ctl.state_dict(), saved)
    saved.seek(0)
    model, ctl = attached(recipe, lag)
    report = ctl.load_state_dict(torch.load(saved, weights_only=True))
    assert report["exact"]
    second = [one_step(model, ctl, step) for step in range(11, 25)]
    assert first + second == whole


def test_every_changed_option_and_the_recipe_are_reported() -> None:
    model, ctl = attached("fp8-tensorwise")
    one_step(model, ctl, 1)
    state = ctl.state_dict()
    other = gnmr.attach(make_model(), recipe="fp8-rowwise", lag=0, quiet=True, **{**QUICK, "max_o": 2.0, "tau": 3.0})
    with pytest.warns(UserWarning, match="the state was taken over: changed") as told:
        report = other.load_state_dict(state)
    assert report["options"] == {"tau": (2.0, 3.0), "max_o": (3.0, 2.0), "recipe": ("fp8-tensorwise", "fp8-rowwise")}
    assert len(told) == 1
    for change in ("tau 2.0 -> 3.0", "max_o 3.0 -> 2.0", "recipe fp8-tensorwise -> fp8-rowwise"):
        assert change in str(told[0].message)
    # A state of an earlier version has no recipe in it; nor is the same one a change.
    del state["recipe"]
    _, same = attached("fp8-tensorwise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same.load_state_dict(state)["options"] == {}


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("lags", [(0, 1), (1, 0)])
def test_a_state_goes_on_with_another_lag(lags: tuple[int, int], steps: int) -> None:
    model, ctl = attached("fp8-tensorwise", lags[0], patrol=0.0)
    for step in range(1, steps + 1):
        one_step(model, ctl, step)
    state = ctl.state_dict()
    model, ctl = attached("fp8-tensorwise", lags[1], patrol=0.0)
    with pytest.warns(UserWarning, match="lag"):
        ctl.load_state_dict(state)
    for step in range(steps + 1, steps + 20):
        one_step(model, ctl, step)
    assert (
        ctl.mode == "armed" and ctl.summary().steps >= steps + 18 and any(row.admissions for row in ctl.summary().units)
    )


def test_arguments_of_attach_that_changed_are_reported() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, seed=1, watch_steps=3, **QUICK)
    state = ctl.state_dict()
    ctl.detach()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, seed=2, watch_steps=9, **QUICK)
    with pytest.warns(UserWarning, match="the state was taken over: .*watch_steps 3 -> 9, seed 1 -> 2"):
        assert ctl.load_state_dict(state)["options"] == {"watch_steps": (3, 9), "seed": (1, 2)}


def test_another_model_says_so() -> None:
    model, ctl = attached("fp8-tensorwise")
    one_step(model, ctl, 1)
    state = ctl.state_dict()
    other = gnmr.attach(make_model(blocks=5), recipe="fp8-tensorwise", min_coverage=0)
    with pytest.warns(UserWarning, match="not taken over as it is.*new units: layers.4.up, layers.4.down"):
        report = other.load_state_dict(state)
    assert not report["exact"] and report["new_units"] == ["layers.4.up", "layers.4.down"]
    with pytest.raises(gnmr.Error, match="version"):
        other.load_state_dict({"version": 99})
    with pytest.raises(gnmr.Error):
        other.load_state_dict({**state, "supervisor": b"nonsense"})


def test_what_is_refused_changes_nothing() -> None:
    model, ctl = attached("fp8-delayed")
    for step in range(1, 4):
        one_step(model, ctl, step)
    state = ctl.state_dict()
    _, fresh = attached("fp8-delayed")
    before = fresh.state_dict()
    for wrong in (
        {"memory": {**state["memory"], "layers.3.down": "{}"}},
        {"memory": None},
        {"rules": [1]},
        {"step": "x"},
    ):
        with pytest.raises(gnmr.Error):
            fresh.load_state_dict({**state, **wrong})
        assert fresh.state_dict() == before


def test_a_memory_of_another_recipe_is_refused() -> None:
    _, delayed = attached("fp8-delayed")
    memory = delayed.units[0].switch.layer
    text = memory.save()
    for wrong in ("", "{}", "[]", text.replace("scale", "size"), text.replace('"observations":0', '"observations":-1')):
        with pytest.raises(gnmr.Error):
            memory.restore(wrong)
    memory.restore(text)
    assert memory.save() == text
