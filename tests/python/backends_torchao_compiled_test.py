# SPDX-License-Identifier: Apache-2.0
"""torchao's layers in compiled blocks: patrol, recovery and standing recovery, without a compilation after the first
steps. What they are compared with is the same model uncompiled."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backends_torchao_patrol_test import Job, attach, gradients, recipe
from compile_test import fresh_compiler as fresh_compiler  # a fixture of all tests here
from compile_test import variants
from devices import DEVICE, ON_CUDA, cuda_only, near, to_float8
from gnmr.checks.compiled import counted_compilations
from patrol_test import Reports
from small_model import QUICK, make_model, run_backward
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gnmr

pytest.importorskip("torchao.float8")

FAULTY = "layers.1.down"


def make(blocks: int = 2, compiles: bool = True, **config: Any) -> nn.Module:
    model = make_model(blocks=blocks)
    to_float8(model, **config)
    for layer in model.layers if compiles else ():
        layer.compile(backend="aot_eager", fullgraph=True)
    return model


def switch_of(ctl: gnmr.Control, name: str) -> Any:
    return next(unit.switch for unit in ctl.units if unit.name == name)


def alike(one: Tensor, other: Tensor) -> bool:
    """Operators of ours do what the uncompiled layer does; a sum on a GPU may go another way."""
    return near(one, other, 1e-3, 1e-6) if ON_CUDA else torch.equal(one, other)


def run(model: nn.Module, ctl: gnmr.Control, step: int) -> list[Tensor]:
    model.zero_grad()
    run_backward(model, step)
    found = [parameter.grad.clone() for parameter in model.parameters()]
    ctl.step()
    return found


def test_a_block_is_measured_in_its_turn() -> None:
    reports, found, seen = [], [], []
    for compiles in (False, True):
        model = make(3, compiles)
        ctl = attach(model, patrol=1e-6)
        ctl._parts.patrol.survey_steps = 0
        reports.append(Reports(ctl))
        with counted_compilations() as compiled:
            found.append([run(model, ctl, step) for step in range(1, 8)])  # each has had its turn
            first = list(compiled)
            found[-1] += [run(model, ctl, step) for step in range(8, 15)]
        assert compiled == first
        seen.append(first)
    assert reports[0].measured() == reports[1].measured() and len(set(map(tuple, reports[0].measured()))) > 1
    for one, other in zip(*(report.errors for report in reports), strict=True):
        assert other == [pytest.approx(row, rel=1e-2 if ON_CUDA else 1e-6, nan_ok=True) for row in one]
    for one, other in zip(*found, strict=True):
        assert all(near(a, b, 1e-4, 1e-7) for a, b in zip(one, other, strict=True))
    assert not seen[0]
    # The first block, whose input needs no gradient, has two of its own.
    assert variants(seen[1]) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("bias", [False, True])
def test_results_are_those_of_the_layer_uncompiled(name: str, dtype: torch.dtype, bias: bool) -> None:
    """Low and compared, high, high and compared; with a planted fault, and low again."""
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(96, 160, bias=bias), nn.GELU(), nn.Linear(160, 32, bias=bias))
        model = nn.Sequential(block).to(DEVICE, dtype)
        to_float8(model, **recipe(name))
        ctl = attach(model, patrol=1.0, watch=True)
        if compiles:
            block.compile(backend="aot_eager", fullgraph=True)
        reports, results = Reports(ctl), []
        for step, path in enumerate(["low", "high", "high", "auto", "auto", "auto"], 1):
            ctl.set("*", path)
            if step in (5, 6):
                switch_of(ctl, "0.0").plant_factor(1.5 if step == 5 else None)
            if step == 3:
                for unit in ctl.units:
                    unit.switch.begin_patrol()  # as a unit in recovery from time to time
            torch.manual_seed(step)
            leaf = torch.randn(2, 64, 96, device=DEVICE).to(dtype).requires_grad_()
            model.zero_grad()
            output = model(leaf)
            output.backward(torch.randn(output.shape, device=DEVICE).to(dtype))
            results += [output.detach(), leaf.grad, *(parameter.grad for parameter in model.parameters())]
            if step == 3:
                reports.errors.append([unit.switch.end_patrol() for unit in ctl.units])
            ctl.step()
        found.append((results, reports.errors))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert alike(one, other)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        if one is None or other is None:
            assert one is other
            continue
        flat = [[float(x) for row in rows for x in torch.as_tensor(row).flatten()] for rows in (one, other)]
        # The uncompiled layer takes a planted factor out of a gradient again, which rounds it.
        exact = dtype == torch.float32 and not ON_CUDA
        assert flat[1] == pytest.approx(flat[0], rel=1e-6 if exact else 1e-2, nan_ok=True)


class Wrapped(nn.Module):
    """A small model whose compiled blocks run in some way."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor], compiles: bool = True) -> None:
        super().__init__()
        self.model = make(2, compiles)
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.model.layers:
            x = self.run(layer, x)
        return self.model.head(self.model.norm(x))


WAYS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "plain": lambda layer, x: layer(x),
    "checkpoint": lambda layer, x: checkpoint(layer, x, use_reentrant=False),
    "reentrant": lambda layer, x: checkpoint(layer, x.requires_grad_(), use_reentrant=True),
}


def sums(model: nn.Module, *batches: int) -> list[tuple[float, float]]:
    ctl = attach(model)
    for index in batches:
        run_backward(model, index)
    found = [tuple(pair) for _, pairs in ctl._parts.patrol.end().sums for pair in pairs]
    ctl.detach()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_what_is_computed_again_counts_once(way: str) -> None:
    plain, again = sums(Wrapped(WAYS["plain"], compiles=False), 1), sums(Wrapped(WAYS[way]), 1)
    for place, (one, other) in enumerate(zip(plain, again, strict=True)):
        if place != 1:  # the first input needs no gradient, but for a reentrant checkpoint
            assert other == pytest.approx(one, rel=1e-2 if ON_CUDA else 1e-6)


def test_micro_batches_add_up() -> None:
    both, one, two = (sums(Wrapped(WAYS["plain"]), *batches) for batches in ((1, 2), (1,), (2,)))
    for place, (all_of_it, first, second) in enumerate(zip(both, one, two, strict=True)):
        if place != 1:
            assert all_of_it == pytest.approx([first[0] + second[0], first[1] + second[1]], rel=1e-9)


def test_a_patrol_changes_no_result() -> None:
    with_patrol, without = (gradients(make(), range(1, 4), patrol=patrol) for patrol in (1.0, 0.0))
    for one, other in zip(with_patrol, without, strict=True):
        assert alike(one, other)


def test_frozen_layers() -> None:
    """The weight's gradient is not measured; the norm of the output's gradient is that of the uncompiled layer."""
    found = []
    for compiles in (False, True):
        model = make(2, compiles)
        model.layers[1].down.weight.requires_grad_(False)
        ctl = attach(model)
        reports = Reports(ctl)
        run_backward(model, 1)
        ctl.step()
        unit = [one.name for one in ctl.units].index(FAULTY)
        found.append((reports.errors[-1][unit], ctl._parts.gradients.numbers.norms[unit]))
    assert math.isnan(found[1][0][2]) and found[1][0] == pytest.approx(found[0][0], rel=1e-3, nan_ok=True)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)


@cuda_only  # torchao asks for the type of the GPU's autocast
def test_autocast_is_that_of_the_layer_uncompiled() -> None:
    found = []
    for compiles in (False, True):
        model = make(2, compiles)
        ctl = attach(model)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            found.append(run(model, ctl, 1))
    assert all(near(one, other, 1e-2, 1e-5) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("lag", [0, 1])
def test_a_broken_layer_is_found_without_a_rerun(lag: int) -> None:
    """And compared in full from time to time while it is in recovery. Nothing of it compiles."""
    model = make()
    ctl = attach(model, lag=lag, selector="evidence", **{**QUICK, "lock_steps": 100})
    reports, results = Reports(ctl), []
    with counted_compilations() as seen:
        for step in range(1, 61):
            if step == 21:
                switch_of(ctl, FAULTY).plant_factor(1.5)
                warm = len(seen)
            model.zero_grad()
            run_backward(model, step)
            results.append(ctl.step())
    assert [(one.step, one.admitted) for one in results if one.admitted] == [(21 + lag, (FAULTY,))]
    unit = [one.name for one in ctl.units].index(FAULTY)
    full = [rows[unit] for step, rows in enumerate(reports.errors, 1) if step > 22 and not math.isnan(rows[unit][0])]
    assert 1 <= len(full) <= 3
    assert all(0.42 < error < 0.51 for row in full for error in row)
    assert len(seen) == warm


@pytest.mark.parametrize("lag", [0, 1])
def test_coarse_layers_stand(lag: int) -> None:
    job = Job(lag)
    for layer in job.model.model.layers:
        layer.compile(backend="aot_eager")
    with counted_compilations() as seen:
        for step in range(1, 51):
            result = job.step(step)
            if step == 3:
                warm = len(seen)
    assert result.standing == result.recovered == Job.DOWN
    assert tuple(job.ctl.high) == tuple(job.ctl.plan().high) == Job.DOWN
    assert len(seen) == warm > 0
