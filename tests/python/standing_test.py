# SPDX-License-Identifier: Apache-2.0
"""Standing recovery with plain `ctl.step()`: units whose errors are always far above those of others."""

import io
from typing import Any

import pytest
import torch
from devices import cpu_only
from loops_model import Tokens, make_llama
from rank_world import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gnmr

pytestmark = cpu_only  # processes are forked

DOWN = ("model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj")
ROWS = 8
DATA = Tokens()


class Job:
    """A small Llama with INT4 activations, and its steps; with several ranks each has its part of a batch."""

    def __init__(self, rank: int = 0, size: int = 1, **options: Any) -> None:
        # Each copy of a rank draws its own dropout, so there is none.
        self.model: nn.Module = make_llama().eval()
        if size > 1:
            self.model = DistributedDataParallel(self.model)
        self.rank, self.size = rank, size
        settings = {"recipe": "int4-act", "max_o": 2.0, "patrol": 1.0, "lag": 0, "quiet": True, "strict": True}
        self.ctl = gnmr.attach(self.model, **{**settings, **options})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, step: int) -> gnmr.StepResult:
        rows = torch.stack([DATA[(step * ROWS + row) % len(DATA)]["input_ids"] for row in range(ROWS)])
        rows = rows.chunk(self.size)[self.rank]
        self.optimizer.zero_grad()
        self.model(input_ids=rows, labels=rows).loss.backward()
        result = self.ctl.step(max_norm=1.0)
        self.optimizer.step()
        return result


def decisions(job: Job, steps: range) -> list[tuple[Any, ...]]:
    return [
        (one.decided_step, one.admitted, one.released, one.recovered, one.standing, tuple(job.ctl.high))
        for one in map(job.step, steps)
    ]


def test_the_inputs_of_down_stand() -> None:
    job = Job()
    results = [job.step(step) for step in range(1, 63)]
    # Errors must have been measured twenty times; then the next review, after 40 decisions, chooses.
    assert not any(result.recovered for result in results[:39])
    assert all(result.standing == result.recovered == DOWN for result in results[39:])
    assert not any(result.admitted or result.alarmed for result in results)
    assert tuple(job.ctl.high) == DOWN
    names = [unit.name for unit in job.ctl.units]
    assert [names[index] for index in job.ctl.supervisor.standing] == list(DOWN)
    # What it has chosen is what a plan chooses.
    assert tuple(job.ctl.plan().high) == DOWN
    job.ctl.detach()


def test_the_budget_holds() -> None:
    job = Job(max_o=1.0)
    for step in range(1, 63):
        result = job.step(step)
    assert len(result.standing) == 1 and result.standing[0] in DOWN


def test_nobody_stands_in_watch_mode_or_without_a_limit() -> None:
    watched, off = Job(watch=True), Job(coarse_error=0.0)
    for step in range(1, 46):
        one, other = watched.step(step), off.step(step)
    assert one.would_be and one.standing == DOWN and not watched.ctl.high
    assert not other.recovered and not off.ctl.high


@pytest.mark.parametrize("lag", [0, 1])
def test_a_state_goes_on_with_the_same_decisions(lag: int) -> None:
    job = Job(lag=lag)
    whole = decisions(job, range(1, 53))
    assert whole[-1][4] == DOWN
    for middle in (30, 45):
        job = Job(lag=lag)
        first = decisions(job, range(1, middle + 1))
        saved = io.BytesIO()
        torch.save({"gnmr": job.ctl.state_dict(), "model": job.model.state_dict()}, saved)
        saved.seek(0)
        state = torch.load(saved, weights_only=True)
        job = Job(lag=lag)
        job.model.load_state_dict(state["model"])
        assert job.ctl.load_state_dict(state["gnmr"])["exact"]
        second = decisions(job, range(middle + 1, 53))
        # With a lag the last step before was decided when the state was saved.
        assert [one[1:] for one in first + second] == [one[1:] for one in whole]


def train(rank: int, size: int) -> list[tuple[Any, ...]]:
    return decisions(Job(rank, size), range(1, 46))


def test_two_ranks_agree() -> None:
    first, second = run_ranks(train, 2, 2)
    assert first == second and first[-1][4] == DOWN and first[38][4] == ()
