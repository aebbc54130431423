# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining: two stages on two ranks decide as one process does, and run a step again together."""

from typing import Any

import pytest
import torch
from loops_model import LowPathFault
from rank_world import Stage, global_batch, run_ranks
from small_model import NO_PATROL, QUICK, make_model
from torch import Tensor, nn
from torch.nn import functional

import gnmr

pipelining = pytest.importorskip("torch.distributed.pipelining")

CHUNKS = 4
FAULTY = "layers.2.up"  # on the second of two stages
SCHEDULES = ["ScheduleGPipe", "Schedule1F1B"]


class Pipeline:
    """The small model on as many stages as there are ranks, or in one process with the same micro-batches."""

    def __init__(self, rank: int, size: int, schedule: str, **options: Any) -> None:
        whole = make_model(blocks=4)
        self.size, self.is_first, self.is_last = size, rank == 0, rank == size - 1
        self.model: nn.Module = whole
        if size > 1:
            self.model = Stage(whole, range(rank * 4 // size, (rank + 1) * 4 // size), self.is_last)
            # With examples: else torch runs each stage once beforehand, from the second on with what was in memory.
            examples = torch.empty(8, 32), torch.empty(8, 8 if self.is_last else 32)
            inputs, outputs = examples[0].requires_grad_(not self.is_first), examples[1].requires_grad_()
            stage = pipelining.PipelineStage(self.model, rank, size, torch.device("cpu"), inputs, outputs)
            self.schedule = getattr(pipelining, schedule)(stage, CHUNKS, loss_fn=functional.cross_entropy)
        options = {"recipe": "fp8-tensorwise", "patrol": NO_PATROL, **QUICK, **options}
        self.ctl = gnmr.attach(self.model, quiet=True, strict=True, **options)
        self.named = dict(self.model.named_parameters())

    def backward(self, step: int) -> Tensor | None:
        """Forward and backward of all micro-batches; the loss where it is known."""
        x, y = global_batch(step)
        if self.size == 1:
            losses = []
            for inputs, targets in zip(x.chunk(CHUNKS), y.chunk(CHUNKS), strict=True):
                losses.append(functional.cross_entropy(self.model(inputs), targets) / CHUNKS)
                losses[-1].backward()
            return torch.stack([loss.detach() for loss in losses]).sum()
        found: list[Tensor] = []
        self.schedule.step(*([x] if self.is_first else []), **({"target": y, "losses": found} if self.is_last else {}))
        return torch.stack(found).mean().detach() if self.is_last else None

    def step(self, step: int) -> tuple[Any, ...]:
        self.model.zero_grad()
        loss = self.backward(step)
        if step in (8, 9, 15) and (name := f"layers.{step % 4}.down.weight") in self.named:
            self.named[name].grad.mul_(50.0)
        return told(self.ctl.step(max_norm=1.0, loss=loss), self.ctl)

    def trial(self, step: int) -> tuple[Any, ...]:
        self.model.zero_grad()
        loss = self.backward(step)
        return told(self.ctl.trial(lambda: self.backward(step), max_norm=1.0, loss=loss), self.ctl)


def told(result: gnmr.StepResult, ctl: gnmr.Control) -> tuple[Any, ...]:
    return (
        result.wait().total_norm,
        result.step,
        result.alarmed,
        result.admitted,
        result.released,
        result.recovered,
        result.rerun,
        result.verdict,
        tuple(ctl.high),
        ctl.mode,
    )


def decide(rank: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for schedule in SCHEDULES if size > 1 else SCHEDULES[:1]:
        pipeline = Pipeline(rank, size, schedule)
        steps = [pipeline.step(step) for step in range(1, 19)]
        found[schedule] = (steps, pipeline.ctl.coverage.text(), [unit.name for unit in pipeline.ctl.units])
        pipeline.ctl.detach()
    return found


def test_stages_decide_as_one_process() -> None:
    (one, coverage, names) = run_ranks(decide, 1, 1)[0][SCHEDULES[0]]
    assert sum(bool(step[3]) for step in one) >= 2
    first, second = run_ranks(decide, 2, 2)
    assert first == second
    for schedule in SCHEDULES:
        steps, said, units = first[schedule]
        assert [step[1:] for step in steps] == [step[1:] for step in one]
        assert [step[0] for step in steps] == pytest.approx([step[0] for step in one], rel=1e-5)
        assert (said, units) == (coverage, names)


def find_fault(rank: int, size: int) -> list[list[tuple[Any, ...]]]:
    found = []
    for schedule in SCHEDULES if size > 1 else SCHEDULES[:1]:
        pipeline = Pipeline(rank, size, schedule, max_o=8.0)
        mine = [unit for unit in pipeline.ctl.units if unit.name == FAULTY and unit.switch is not None]
        fault = LowPathFault(pipeline.ctl, FAULTY) if mine else None
        steps = []
        for step in range(1, 13):
            if fault is not None:
                fault.on = step >= 10
            steps.append(pipeline.trial(step))
        assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in pipeline.model.parameters())
        pipeline.ctl.detach()
        found.append(steps)
    return found


def test_a_trial_runs_the_schedule_again() -> None:
    one = run_ranks(find_fault, 1, 1)[0][0]
    first, second = run_ranks(find_fault, 2, 2)
    assert first == second
    for steps in first:
        assert not any(step[6] for step in steps[:9])
        assert (steps[9][3], steps[9][6:8]) == ((FAULTY,), ("trial", "numeric"))
        assert not any(step[2] for step in steps[10:])
        assert [step[1:] for step in steps] == [step[1:] for step in one]
        assert [step[0] for step in steps] == pytest.approx([step[0] for step in one], rel=1e-5)
