# SPDX-License-Identifier: Apache-2.0
"""One pass over the gradients: norms, clipping as torch does it, samples, and what it costs."""

import math
import os
import time
import warnings
import weakref

import pytest
import torch
from devices import cpu_only
from small_model import QUICK, make_model, run_backward
from torch import nn
from torch.nn.utils import clip_grad_norm_

import gnmr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("max_norm", [0.0, 1e-3, 0.5, 1e6])
def test_clips_as_torch_does(dtype: torch.dtype, max_norm: float) -> None:
    mine, other = make_model(), make_model()
    run_backward(mine, 1)
    run_backward(other, 1)
    mine.to(dtype), other.to(dtype)
    result = gnmr.attach(mine, quiet=True, strict=True).step(max_norm=max_norm)
    expected = clip_grad_norm_(other.float().parameters(), max_norm)
    close = 1e-6 if dtype is not torch.bfloat16 else 1e-2
    assert result.wait().total_norm == pytest.approx(float(expected), rel=1e-6)
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one.grad.float(), two.grad, rtol=close, atol=0 if dtype is torch.float32 else 1e-6)
    # Where nothing is clipped nothing is touched.
    assert (result.wait().clip_coefficient == 1) == (max_norm == 1e6)


def test_norms_are_those_of_the_parameters() -> None:
    model = make_model()
    ctl = gnmr.attach(model, lag=0, quiet=True, strict=True)
    run_backward(model, 1)
    ctl.step()
    for index, unit in enumerate(ctl.units):
        square = sum(float(parameter.grad.double().square().sum()) for parameter in unit.module.parameters())
        assert ctl.supervisor.mean_norm(index) == pytest.approx(math.sqrt(square), rel=1e-12)


def test_odd_gradients_are_measured_too() -> None:
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 8), nn.Linear(8, 8))
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model(torch.tensor([1, 2, 2])).sum().backward()
    model[1].weight.grad = model[1].weight.grad.t().contiguous().t()
    expected = math.sqrt(
        sum(float(parameter.grad.to_dense().double().square().sum()) for parameter in model.parameters())
    )
    assert ctl.step().wait().total_norm == pytest.approx(expected, rel=1e-12)


def test_a_sum_does_not_depend_on_threads() -> None:
    model = nn.Linear(700, 900)
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model.weight.grad, model.bias.grad = torch.randn(900, 700), torch.randn(900)
    threads = torch.get_num_threads()
    norms = set()
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        norms.add(ctl.step().wait().total_norm)
    torch.set_num_threads(threads)
    assert len(norms) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_measures_too() -> None:
    """Threads do not come along: data loaders fork, and what they inherit must not wait for them."""
    model = nn.Linear(700, 900)
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model.weight.grad, model.bias.grad = torch.randn(900, 700), torch.randn(900)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    expected = ctl.step().wait().total_norm
    child = os.fork()
    if child == 0:
        os._exit(0 if ctl.step().wait().total_norm == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ctl.step().wait().total_norm == expected
    torch.set_num_threads(threads)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_data(bad: float) -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", lag=0, quiet=True, strict=True, **QUICK)
    run_backward(model, 1)
    model.layers[2].down.weight.grad[0, 0] = bad
    result = ctl.step(max_norm=1.0)
    assert not math.isfinite(result.wait().total_norm) and result.alarmed
    assert result.admitted == ("layers.2.down",)
    # Without clipping the gradients are left alone, whatever they are.
    other = make_model()
    ctl = gnmr.attach(other, quiet=True, strict=True)
    run_backward(other, 1)
    other.layers[2].down.weight.grad[0, 0] = bad
    kept = other.head.weight.grad.clone()
    assert ctl.step().wait().clip_coefficient == 1.0
    assert torch.equal(other.head.weight.grad, kept)


def test_no_gradient_is_no_sample() -> None:
    model = make_model()
    ctl = gnmr.attach(model, lag=0, quiet=True, strict=True)
    for step in range(1, 10):
        model.zero_grad()
        run_backward(model, step)
        for parameter in model.layers[1].up.parameters():
            parameter.grad = None
        ctl.step()
        assert not ctl.supervisor.signals(2).sampled and ctl.supervisor.signals(3).sampled
    model.zero_grad()
    with pytest.warns(UserWarning, match="had no gradient in the first 10 steps.*layers.1.up|8 units"):
        ctl.step()


def test_a_skipped_step_is_no_sample() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, **QUICK)
    for step in range(1, 12):
        model.zero_grad()
        run_backward(model, step)
        if step == 8:
            for parameter in model.parameters():
                parameter.grad.fill_(math.inf)
            result = ctl.step(skipped=True, max_norm=1.0)
            assert not result.applied and not result.alarmed
            assert model.head.weight.grad.isinf().all()
        else:
            assert ctl.step().recovered == ()
    assert ctl.steps == 11


def test_sources_of_gradients() -> None:
    def made(source: object) -> tuple[nn.Module, gnmr.Control]:
        model = make_model()
        ctl = gnmr.attach(model, quiet=True, strict=True, gradients=source)
        run_backward(model, 1)
        return model, ctl

    model, ctl = made(".grad")
    expected = ctl.step().wait().total_norm
    model, ctl = made("main_grad")
    for parameter in model.parameters():
        parameter.main_grad, parameter.grad = parameter.grad.clone(), None
    assert ctl.step(max_norm=0.1).wait().total_norm == expected
    clipped = math.sqrt(sum(float(parameter.main_grad.double().square().sum()) for parameter in model.parameters()))
    assert clipped == pytest.approx(0.1, rel=1e-5)
    model, ctl = made(lambda parameter: None if parameter.grad is None else 2 * parameter.grad)
    assert ctl.step().wait().total_norm == pytest.approx(2 * expected)


def square_of(model: nn.Module) -> float:
    return sum(float(parameter.grad.abs().double().square().sum()) for parameter in model.parameters())


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("when", [1, 3])
@pytest.mark.parametrize("what", ["assign", "head", "added"])
def test_parameters_that_come_later_are_clipped_too(what: str, when: int, lag: int) -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", lag=lag, quiet=True, strict=True)
    told = []
    for step in range(1, 5):
        if step == when and what == "assign":
            state = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(state, assign=True)
        elif step == when and what == "head":
            model.head = nn.Linear(32, 8).to(model.head.weight.device)
        elif step == when:
            model.norm.shift = nn.Parameter(torch.zeros(32, device=model.head.weight.device))
            model.norm.register_forward_hook(lambda module, _, output: output + module.shift)
        model.zero_grad()
        run_backward(model, step)
        expected = math.sqrt(square_of(model))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = ctl.step(max_norm=0.01)
        told.append(sum("other parameters than before" in str(one.message) for one in caught))
        assert float(result.wait().total_norm) == pytest.approx(expected, rel=1e-6)
        assert math.sqrt(square_of(model)) == pytest.approx(0.01, rel=1e-4)
    # What a unit has is found again in the first step without a word: wrappers do that.
    assert told == [int(step == when and (what, step) != ("assign", 1)) for step in range(1, 5)]
    ctl.detach()


def test_complex_gradients_are_measured() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    model.extra = nn.Parameter(torch.randn(5, dtype=torch.complex64))
    ctl = gnmr.attach(model, quiet=True, strict=True)
    (model(torch.randn(4, 8)).sum() + (model.extra * torch.conj(model.extra)).real.sum()).backward()
    expected = math.sqrt(square_of(model))
    assert ctl.step(max_norm=0.1).wait().total_norm == pytest.approx(expected, rel=1e-6)
    assert math.sqrt(square_of(model)) == pytest.approx(0.1, rel=1e-4)


def test_arguments_as_they_come() -> None:
    """Numbers out of files, losses a sample: neither stops anything."""
    model = make_model()
    ctl = gnmr.attach(model, lag=0, quiet=True, strict=True)
    losses = {
        None: (torch.ones(2), [1.0], "none", torch.ones(1, dtype=torch.cfloat)),
        2.5: ("2.5", torch.tensor(2.5), torch.tensor([2.5]), 2.5),
    }
    for expected, loss in ((expected, loss) for expected, several in losses.items() for loss in several):
        model.zero_grad()
        run_backward(model, 1)
        assert ctl.step(max_norm="1e-1", loss=loss).loss == expected
        assert math.sqrt(square_of(model)) == pytest.approx(0.1, rel=1e-4)


def test_guards() -> None:
    for guard in ("skip", "clip"):
        model = make_model()
        # A patrol of all layers would dismiss the alarm.
        ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, guard=guard, patrol=0.0, **QUICK)
        for step in range(1, 9):
            model.zero_grad()
            run_backward(model, step)
            if step == 8:
                model.layers[1].down.weight.grad *= 1000
            result = ctl.step()
        if guard == "skip":
            assert not result.applied and all(parameter.grad is None for parameter in model.parameters())
        else:
            mean = ctl.supervisor.mean_norm(3)
            assert float(model.layers[1].down.weight.grad.norm()) < 3 * mean
        assert result.admitted == ("layers.1.down",)


def test_frozen_layers_are_judged_by_their_outputs() -> None:
    model = make_model()
    for parameter in model.layers[1].down.parameters():
        parameter.requires_grad_(False)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", lag=0, quiet=True, strict=True)
    assert "layers.1.down" in [unit.name for unit in ctl.units]
    run_backward(model, 1)
    with_all = ctl.step(max_norm=1e9).wait().total_norm
    assert ctl.supervisor.mean_norm(3) > 0
    trained = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    expected = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in trained))
    assert with_all == pytest.approx(expected, rel=1e-12)


def seconds_of(run: object, repeats: int) -> float:
    best = math.inf
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repeats):
            run()  # type: ignore[operator]
        best = min(best, (time.perf_counter() - start) / repeats)
    return best


@cpu_only
@pytest.mark.parametrize(("width", "blocks", "repeats"), [(32, 4, 50), (64, 48, 20), (512, 4, 5)])
def test_never_slower_than_clipping(width: int, blocks: int, repeats: int) -> None:
    model = make_model(width=width, blocks=blocks)
    model(torch.randn(4, width)).sum().backward()
    parameters = list(model.parameters())
    ctl = gnmr.attach(model, quiet=True, strict=True)
    torch_seconds = seconds_of(lambda: clip_grad_norm_(parameters, 1e6), repeats)
    our_seconds = seconds_of(lambda: ctl.step(max_norm=1e6), repeats)
    print(f"{len(parameters)} tensors: clip_grad_norm_ {torch_seconds * 1e6:.0f} us, step {our_seconds * 1e6:.0f} us")
    assert our_seconds < torch_seconds


def test_gradients_are_not_kept_alive() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model(torch.randn(4, 8)).sum().backward()
    kept = [weakref.ref(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    assert len(kept) == 4
    ctl.step(max_norm=1.0)
    model.zero_grad(set_to_none=True)
    assert [one() for one in kept] == [None] * 4
