# SPDX-License-Identifier: Apache-2.0
"""Refresh: a delayed scale that no longer fits is renewed before its interval is over."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import needs_own_low_path
from small_model import batch, make_model
from torch import nn
from torch.nn import functional

import gnmr

GROWS, GROWS_AGAIN = 20, 40  # from these steps on inputs are four times as large as before
E4M3_MOST = 448.0


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """fp8-delayed, but scales are updated every hundred steps."""
    needs_own_low_path("fp8-delayed")
    rule = {"scaling": "delayed", "history": 16, "interval": 100, "choice": "largest", "margin": 0}
    operands = {"input": "e4m3", "weight": "e4m3", "output_gradient": "e5m2"}
    rules = {name: {"format": format, **rule} for name, format in operands.items()}
    path = tmp_path / "stale.json"
    path.write_text(json.dumps({"name": "stale", "about": "Scales that are updated every 100 steps.", **rules}))
    return str(path)


def inputs_of(step: int) -> torch.Tensor:
    return batch(step)[0] * 4.0 ** ((step >= GROWS) + (step >= GROWS_AGAIN))


def run(model: nn.Module, ctl: gnmr.Control, steps: range) -> list[float]:
    """The scale of the first layer's input after each step."""
    scales = []
    for step in steps:
        model.zero_grad()
        functional.cross_entropy(model(inputs_of(step)), batch(step)[1]).backward()
        ctl.step()
        scales.append(json.loads(ctl.units[0].switch.state())[0]["scale"])
    return scales


def attach(model: nn.Module, recipe: str, **options: Any) -> gnmr.Control:
    return gnmr.attach(model, **{"recipe": recipe, "quiet": True, "strict": True, "lag": 0, "patrol": 0.0, **options})


def fitting(step: int) -> float:
    """The scale that the amax history of a step makes, from the inputs themselves."""
    return max(float(inputs_of(one).abs().max()) for one in range(max(1, step - 15), step + 1)) / E4M3_MOST


@pytest.mark.parametrize("lag", [0, 1])
def test_the_scale_follows(recipe: str, lag: int) -> None:
    first = fitting(1)
    model, plain = make_model(), make_model()
    ctl, other = attach(model, recipe, lag=lag), attach(plain, recipe, refresh=0.0, lag=lag)
    scales, stale = run(model, ctl, range(1, 31)), run(plain, other, range(1, 31))
    assert stale == pytest.approx([first] * 30) and other.summary().refreshes == 0
    assert scales[GROWS - 2] == pytest.approx(first)
    assert scales[GROWS:] == pytest.approx([fitting(GROWS)] * 10, rel=0.25)
    assert 3 * first < scales[GROWS] and scales[GROWS - 1] == pytest.approx(fitting(GROWS))
    summary = ctl.summary()
    assert summary.refreshes >= 1 and f"{summary.refreshes} scales renewed" in str(summary)


@pytest.mark.parametrize("refresh", [2.0, 0.0])  # 2: noise alone renews none before the inputs grow
def test_a_stale_scale_needs_no_recovery(recipe: str, refresh: float) -> None:
    """Where its scale is renewed the error of that step does not count; else its unit is admitted, or tried."""
    model = make_model()
    options = {"recipe": recipe, "patrol": 1.0, "selector": "trial", "max_o": 3, "warmup_samples": 5}
    ctl = gnmr.attach(model, quiet=True, strict=True, lag=0, error_warmup=5, refresh=refresh, **options)
    results = []
    for step in range(1, GROWS + 8):

        def again(step: int = step) -> torch.Tensor:
            model.zero_grad()
            loss = functional.cross_entropy(model(inputs_of(step)), batch(step)[1])
            loss.backward()
            return loss

        results.append(ctl.trial(again, loss=again()))
    grown = results[GROWS - 1 :]
    reruns = sum(result.rerun == "trial" and result.verdict == "numeric" for result in grown)
    summary = ctl.summary()
    if refresh:
        assert summary.refreshes >= 1 and reruns == 0 and not ctl.high
    else:
        assert summary.refreshes == 0 and reruns >= 1 and ctl.high


def test_only_while_decisions_are_carried_out(recipe: str) -> None:
    model = make_model()
    ctl = attach(model, recipe, watch=True)
    scales = run(model, ctl, range(1, 25))
    assert scales == pytest.approx([fitting(1)] * 24) and ctl.summary().refreshes == 0
    ctl.arm()
    # From the next step on: the one that has begun is not changed.
    scales = run(model, ctl, range(25, 27))
    assert scales[-1] == pytest.approx(fitting(26)) and ctl.summary().refreshes >= 1
    ctl.watch()
    scales = run(model, ctl, range(27, GROWS_AGAIN + 5))
    assert ctl.mode == "watch" and scales == pytest.approx([scales[0]] * len(scales))
    assert fitting(GROWS_AGAIN + 4) > 3 * scales[-1]


def test_not_in_the_first_steps_that_are_only_watched(recipe: str) -> None:
    model = make_model()
    scales = run(model, attach(model, recipe, watch_steps=GROWS + 2), range(1, GROWS + 5))
    assert scales[: GROWS + 2] == pytest.approx([fitting(1)] * (GROWS + 2))
    assert scales[GROWS + 2] == pytest.approx(fitting(GROWS + 3))


def test_a_state_goes_on(recipe: str) -> None:
    model = make_model()
    ctl = attach(model, recipe)
    whole = run(model, ctl, range(1, 45))
    count = ctl.summary().refreshes
    model = make_model()
    ctl = attach(model, recipe)
    first = run(model, ctl, range(1, GROWS + 4))
    saved = io.BytesIO()
    torch.save(ctl.state_dict(), saved)
    saved.seek(0)
    model = make_model()
    ctl = attach(model, recipe)
    assert ctl.load_state_dict(torch.load(saved, weights_only=True))["exact"]
    assert first + run(model, ctl, range(GROWS + 4, 45)) == whole and ctl.summary().refreshes == count
    ctl = attach(make_model(), recipe, refresh=2.0)
    with pytest.warns(UserWarning, match="refresh 1.25 -> 2"):
        ctl.load_state_dict(torch.load(io.BytesIO(saved.getvalue()), weights_only=True))


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in (-1.0, 0.5, math.nan, math.inf):
        with pytest.raises(gnmr.Error, match="expected refresh of 0, or at least 1"):
            gnmr.attach(make_model(), recipe="fp8-delayed", refresh=wrong)
    with pytest.raises(gnmr.Error, match="`refresh`: has no effect"):
        gnmr.attach(make_model(), recipe="fp8-tensorwise", refresh=1.25)
    with pytest.raises(gnmr.Error, match="`refresh`: has no effect"):
        gnmr.attach(make_model(), refresh=1.25)
    gnmr.attach(make_model(), recipe="fp8-tensorwise", refresh=0.0, quiet=True).detach()
