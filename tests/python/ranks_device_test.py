# SPDX-License-Identifier: Apache-2.0
"""Two processes that share one GPU: sums of ranks are made there, and clipping goes by them without a wait.

The ranks talk over gloo, which takes tensors of a GPU: NCCL wants a GPU a rank. What is looked at is ours: which
numbers are added up, put back and clipped by.
"""

import os

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # processes that are forked must find the driver untouched

import math
import warnings
from typing import Any

import pytest
import torch
from gnmr.ranks import group
from rank_world import Tally, run_ranks
from torch import nn

import gnmr

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(autouse=True)
def untouched_driver() -> None:
    assert not torch.cuda.is_initialized(), "tests before this one have used the GPU: run this file by itself"


def model_of(kind: str, rank: int, size: int) -> nn.Module:
    """The same layers on all ranks, or each rank some of them."""
    names = [f"layer{index}" for index in range(6)]
    mine = names if kind == "copies" else names[rank * 6 // size : (rank + 1) * 6 // size]
    return nn.ModuleDict({name: nn.Linear(16, 16) for name in mine}).cuda()


def set_gradients(model: nn.Module, step: int) -> None:
    for name, layer in model.items():
        number = int(name.removeprefix("layer"))
        factor = 40.0 if (step, number) in ((8, 2), (13, 5)) else 1.0
        for part, parameter in enumerate(layer.parameters()):
            generator = torch.Generator().manual_seed(100 * step + 10 * number + part)
            parameter.grad = factor * torch.randn(parameter.shape, generator=generator).cuda()
            if (step, number) == (17, 1):
                parameter.grad[0] = math.nan


def train(rank: int, size: int, kind: str, lag: int, on_device: bool, fault: int = 0) -> list[Any]:
    if on_device:
        group._device_for = lambda group, model: torch.device("cuda", 0)
    gnmr.register_switch(nn.Linear, lambda name, module: Tally(module))
    model = model_of(kind, rank, size)
    replicas = {"*": None} if kind == "own" and size > 1 else None
    ctl = gnmr.attach(
        model,
        lag=lag,
        quiet=True,
        strict=not fault,
        replicas=replicas,
        warmup_samples=4,
        lock_steps=3,
        common_share=1.0,
        max_o=2.0,
    )
    seen: list[Any] = []
    for step in range(1, 21):
        set_gradients(model, step)
        if step == fault and rank == 1:
            ctl._parts.gradients.measure = lambda **wait: 1 / 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if fault else "default")
            result = ctl.step(max_norm=1.0)
        square = sum(float(parameter.grad.double().square().sum()) for parameter in model.parameters())
        norm = float(ctl.total_norm)
        seen.append(
            (
                result.step,
                result.admitted,
                result.released,
                ctl.mode,
                None if math.isnan(norm) else round(norm, 3),
                None if math.isnan(square) else square,
            )
        )
    ctl.detach()
    return seen


@pytest.mark.parametrize("kind", ["copies", "own"])
@pytest.mark.parametrize("lag", [0, 1])
def test_as_one_process(kind: str, lag: int) -> None:
    one = run_ranks(train, 1, 1, kind, lag, False)[0]
    assert sum(bool(step[1]) for step in one) >= 3
    for on_device in (False, True):
        two = run_ranks(train, 2, 2, kind, lag, on_device)
        for rank in two:
            assert [step[:5] for step in rank] == [step[:5] for step in one]
        for steps in zip(one, *two, strict=True):
            # Clipped by the norm of all of them: copies have all of it, others their part.
            parts = [step[5] for step in steps[1:]]
            if steps[0][5] is None or None in parts:
                continue
            square = parts[0] if kind == "copies" else sum(parts)
            assert math.sqrt(square) == pytest.approx(1.0, rel=1e-4)


def test_a_fault_on_one_rank_disarms_all() -> None:
    two = run_ranks(train, 2, 2, "copies", 1, True, 6)
    modes = [[step[3] for step in rank] for rank in two]
    assert modes[0] == modes[1] == ["armed"] * 6 + ["disarmed"] * 14
    for rank in two:
        assert all(step[5] is None or math.sqrt(step[5]) == pytest.approx(1.0, rel=1e-3) for step in rank)
