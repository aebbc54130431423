# SPDX-License-Identifier: Apache-2.0
"""Mistakes of whoever uses the package for the first time: each is caught where it is made, and says what to do."""

import gc
import warnings
from pathlib import Path
from typing import Any

import gnmr.loops
import pytest
import torch
from gnmr.step.call_order import StepOrder
from small_model import QUICK, make_model, run_backward
from torch import nn

import gnmr


def attached(**options: Any) -> tuple[nn.Module, gnmr.Control]:
    model = make_model()
    return model, gnmr.attach(model, **{"recipe": "fp8-tensorwise", "quiet": True, "lag": 0, **QUICK, **options})


def test_attaching_twice() -> None:
    model, ctl = attached()
    with pytest.raises(gnmr.Error, match=r"attached to this model already.*detach\(\)"):
        gnmr.attach(model, quiet=True)
    # Wrapped it is the same model.
    with pytest.raises(gnmr.Error, match="already"):
        gnmr.attach(nn.Sequential(model), quiet=True)
    assert all(unit.switch is not None for unit in ctl.units)
    ctl.detach()
    again = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    again.detach()
    # A control that nobody has any more is in nobody's way.
    gnmr.attach(model, quiet=True)
    gc.collect()
    gnmr.attach(model, quiet=True).detach()


def test_an_unknown_argument_has_a_near_one() -> None:
    model = make_model()
    with pytest.raises(TypeError, match="unknown argument 'recip'; did you mean recipe?"):
        gnmr.attach(model, recip="fp8-tensorwise")
    with pytest.raises(TypeError, match="did you mean lock_steps?"):
        gnmr.attach(model, lock_step=3)
    with pytest.raises(TypeError, match="'xyzzy'.*python -m gnmr options"):
        gnmr.attach(model, xyzzy=3)


class Holder:
    """What adapters look at before they do anything."""

    args = add_callback = model = distributed_type = backward = model_parts = None


@pytest.mark.parametrize("name", ["hugging_face", "accelerate", "torchtitan"])
def test_loops_catch_them_before_anything_is_trained(name: str) -> None:
    module = __import__(f"gnmr.loops.{name}", fromlist=["attach"])
    rest = (make_model(),) if name == "accelerate" else ()
    with pytest.raises(TypeError, match="unknown argument 'recip'; did you mean recipe?"):
        module.attach(Holder(), *rest, recip="fp8-tensorwise")
    with pytest.raises(TypeError, match=r"expected an? .*, got SmallModel: gnmr.attach\(model\)"):
        module.attach(make_model(), *rest)
    with pytest.raises(TypeError, match="expected an? .*, got list"):
        module.attach([], *rest)


def test_lightnings_callback_too() -> None:
    from gnmr.loops.lightning import CallbackHooks

    with pytest.raises(TypeError, match="GnmrCallback: unknown argument 'recip'; did you mean recipe?"):
        CallbackHooks(recip="fp8-tensorwise")


def test_what_is_no_model() -> None:
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got list$"):
        gnmr.attach([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got list of modules: attach each"):
        gnmr.attach([make_model(), make_model()])  # type: ignore[arg-type]

    class Trainer:
        model = make_model()

    with pytest.raises(TypeError, match="got Trainer: gnmr.loops"):
        gnmr.attach(Trainer())  # type: ignore[arg-type]


def test_a_loss_is_no_closure() -> None:
    model, ctl = attached()
    loss = run_backward(model, 1)
    with pytest.raises(TypeError, match="expected a function that runs forward and backward.*got Tensor.*loss=loss"):
        ctl.trial(loss)  # type: ignore[arg-type]
    assert ctl.mode == "armed" and ctl.steps == 0


def test_a_recipe_where_the_model_has_a_low_path() -> None:
    class Rounded(nn.Linear):
        pass

    class Switch:
        cost, backend = 1, "their float8"

        def set_high(self, high: bool) -> None:
            pass

    gnmr.register_switch(Rounded, lambda name, module: Switch())
    model = nn.Sequential(Rounded(8, 8), Rounded(8, 8))
    with pytest.raises(gnmr.Error, match="recipe='int8' would have no effect.*their float8.*Leave recipe out"):
        gnmr.attach(model, recipe="int8", quiet=True)
    gnmr.attach(model, quiet=True).detach()
    # Where some layers are plain, the recipe is theirs.
    gnmr.attach(nn.Sequential(model[0], nn.Linear(8, 8)), recipe="int8", quiet=True).detach()


def test_a_journal_that_is_there(tmp_path: Path) -> None:
    model, ctl = attached(out=tmp_path)
    run_backward(model, 1)
    ctl.step()
    ctl.detach()
    with pytest.raises(gnmr.Error, match="a journal is there already.*resume_step=N.*another `out`"):
        gnmr.attach(model, quiet=True, out=tmp_path)
    gnmr.attach(model, quiet=True, out=tmp_path, resume_step=2).detach()


# The order of calls in a step.


def train(model: nn.Module, ctl: gnmr.Control, order: str, steps: int = 8, accumulate: int = 1) -> list[str]:
    """Steps of `c`lip, control's `s`tep, `u`pdate and a forward for the `l`og; what was warned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=False)
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            for part in range(accumulate):
                run_backward(model, step * accumulate + part)
                other.step()
            for call in order:
                if call == "c":
                    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                elif call == "s":
                    ctl.step()
                elif call == "u":
                    optimizer.step()
                else:
                    model(torch.zeros(1, 32))
    return [str(one.message) for one in told]


@pytest.mark.parametrize("lag", [0, 1])
def test_an_update_before_the_step(lag: int) -> None:
    model, ctl = attached(lag=lag)
    told = [one for one in train(model, ctl, "us") if "updated the model before ctl.step" in one]
    assert len(told) == 1 and "before optimizer.step()" in told[0]
    ctl.detach()


@pytest.mark.parametrize("lag", [0, 1])
def test_clipping_before_the_step(lag: int) -> None:
    model, ctl = attached(lag=lag)
    told = [one for one in train(model, ctl, "csu", 20) if "clipped before ctl.step" in one]
    assert len(told) == 1 and "ctl.step(max_norm=0.01)" in told[0]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(("order", "accumulate"), [("su", 1), ("su", 3), ("slu", 1), ("scu", 1), ("suu", 1), ("s", 1)])
def test_a_loop_that_is_right_is_not_warned(order: str, accumulate: int, lag: int) -> None:
    model, ctl = attached(lag=lag)
    assert train(model, ctl, order, 12, accumulate) == []


@pytest.mark.parametrize(
    ("named", "arguments", "why"),
    [
        ("error_factor", {"error_factor": 5.0}, "errors of low paths are not measured here"),
        ("selector", {"selector": "evidence"}, "errors of low paths are not measured here"),
        ("max_trials", {"max_trials": 3}, "no step can run again here"),
        ("max_trials", {"recipe": "fp8-tensorwise", "lag": 1, "max_trials": 3}, "no step can run again here"),
        ("error_floor", {"recipe": "fp8-tensorwise", "lag": 1, "error_floor": 0.2}, "the selector is `norms`"),
        (
            "max_trials",
            {"recipe": "fp8-tensorwise", "selector": "norms", "max_trials": 3},
            "neither the selector `trial` nor",
        ),
        ("noise_beta", {"noise_beta": 0.5, "noise_factor": 0.0}, "noise_factor is 0"),
    ],
)
def test_an_option_without_effect_is_an_error_that_names_it(named: str, arguments: dict[str, object], why: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    with pytest.raises(gnmr.Error, match=f"option `{named}`: has no effect, since {why}.*; leave it out"):
        gnmr.attach(model, quiet=True, **arguments)
    # A preset may set whatever it likes.
    gnmr.attach(model, quiet=True, preset="paper").detach()


def test_options_with_an_effect_are_taken() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    for arguments in (
        {"max_trials": 3, "error_factor": 5.0, "error_floor": 0.2},
        {"max_trials": 0},
        {"selector": "norms", "guard": "replay", "max_trials": 3},
    ):
        gnmr.attach(model, quiet=True, recipe="fp8-tensorwise", **arguments).detach()


def test_the_same_batch_again_is_not_taken_for_clipping() -> None:
    model, ctl = attached()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            model.zero_grad()
            run_backward(model, 1)
            ctl.step()


def test_a_small_unit_that_grows_is_not_taken_for_clipping() -> None:
    order = StepOrder(torch.nn.Linear(1, 1))
    # A layer that starts from 0, beside others whose gradients stay: LoRA, zero-initialised outputs, a warmup.
    assert not any(order.look(1.0, [1.0, 1e-4 * 2.0**step]) for step in range(10))
    order.end()


def test_scalers_and_closures_are_not_warned() -> None:
    model, ctl = attached()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)

    def closure(step: int) -> torch.Tensor:
        model.zero_grad()
        loss = run_backward(model, step)
        ctl.step(loss=loss)
        return loss

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, 4):
            model.zero_grad()
            x = torch.randn(8, 32, generator=torch.Generator().manual_seed(step))
            scaler.scale(model(x).square().mean()).backward()
            gnmr.loops.scaled_step(ctl, scaler, optimizer, max_norm=1.0)
            run_backward(model, step)  # a micro-batch before the closure
            lbfgs.step(lambda step=step: closure(step))
    assert not [one for one in told if "ctl.step" in str(one.message)]
    # The hook of a control that has ended is gone.
    from torch.optim.optimizer import _global_optimizer_pre_hooks

    before = len(_global_optimizer_pre_hooks)
    ctl.detach()
    assert len(_global_optimizer_pre_hooks) == before - 1
