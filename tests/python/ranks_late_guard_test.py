# SPDX-License-Identifier: Apache-2.0
"""Lag 1 with the guard `skip` on several processes: all of them leave out the same updates."""

import warnings
from typing import Any

import pytest
import torch
from devices import skip_ranks
from rank_world import Job, run_ranks
from torch.optim import AdamW

skip_ranks()

HELD = {8, 9, 12, 15}  # what `Job.step` disturbs: each time a unit that is free
STEPS = range(1, 19)


class Loop:
    """A job with an optimizer."""

    def __init__(self, kind: str, rank: int, size: int, **options: Any) -> None:
        self.job = Job(kind, rank, size, lag=1, guard="skip", **options)
        self.optimizer = AdamW(self.job.model.parameters(), 0.01)
        self.applied: list[bool] = []
        step_of = self.job.ctl.step

        def step(**arguments: Any) -> Any:
            result = step_of(**arguments)
            self.applied.append(result.applied)
            return result

        self.job.ctl.step = step

    def step(self, step: int, **arguments: Any) -> bool:
        """Whether parameters of this rank were updated."""
        before = self.weights()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.job.step(step, **arguments)
        self.optimizer.step()
        return not torch.equal(before, self.weights())

    def weights(self) -> torch.Tensor:
        parts = [getattr(one, "_local_tensor", one) for one in self.job.model.parameters()]
        return torch.cat([one.detach().flatten() for one in parts])


def train(rank: int, size: int, kind: str) -> tuple[list[bool], list[bool], list[float]]:
    loop = Loop(kind, rank, size)
    updated = [loop.step(step) for step in STEPS]
    return loop.applied, updated, loop.weights().tolist() if kind == "ddp" else []


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "pipeline"])
def test_all_ranks_hold_the_same_steps(kind: str) -> None:
    first, second = run_ranks(train, 2, 2, kind)
    expected = [step not in HELD for step in STEPS]
    assert first[0] == first[1] == second[0] == second[1] == expected
    assert first[2] == second[2]
    assert run_ranks(train, 1, 1, kind)[0][0] == expected


def some_skip(rank: int) -> list[bool]:
    loop = Loop("ddp", rank, 2)
    return [loop.step(step, skipped=step in (9, 12) and rank == 1) for step in STEPS]


def test_a_step_that_a_rank_skips_is_not_held() -> None:
    """It is no sample; what the others do with their update is theirs."""
    first, second = run_ranks(some_skip, 2)
    assert first == second == [step not in HELD - {9, 12} for step in STEPS]


def differing(rank: int) -> tuple[list[bool], list[bool], str, Any]:
    loop = Loop("ddp", rank, 2, strict=False)
    updated = []
    for step in STEPS:
        if step == 4 and rank == 1:
            loop.job.ctl.set("layers.0.*", "high")
        if rank == 0 and step % 3 == 0:
            loop.job.ctl.state_dict()  # one rank saves, and so decides earlier than the other
        updated.append(loop.step(step))
    return loop.applied, updated, loop.job.ctl.mode, loop.job.ctl.state_dict()["supervisor"]


def test_after_a_difference_all_go_on_with_rank_zeros() -> None:
    first, second = run_ranks(differing, 2)
    assert first == second and first[2] == "armed"
    assert first[0] == first[1] == [step not in HELD for step in STEPS]


def faulty(rank: int) -> tuple[list[bool], list[bool], str]:
    loop = Loop("ddp", rank, 2, strict=False)
    updated = []
    for step in STEPS:
        if step == 8 and rank == 1:
            loop.job.ctl._parts.gradients.contribution = lambda local: 1 / 0
        updated.append(loop.step(step))
    return loop.applied, updated, loop.job.ctl.mode


def test_a_rank_that_fails_is_no_reason_to_hold() -> None:
    first, second = run_ranks(faulty, 2)
    assert first == second == ([True] * len(STEPS), [True] * len(STEPS), "disarmed")
