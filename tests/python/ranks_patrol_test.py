# SPDX-License-Identifier: Apache-2.0
"""The patrol of several processes: they compare the same units in the same steps, and their sums are added up."""

import math
from typing import Any

import pytest
from gnmr.step import patrol
from patrol_test import Reports
from rank_world import Job, run_ranks

STEPS = range(1, 6)


def train(rank: int, kind: str, lag: int, share: float) -> tuple[list[Any], list[dict[int, Any]], bytes]:
    """Errors as they were reported, what this rank measured by step and unit, and the state."""
    patrol.SURVEY_STEPS = 0
    job = Job(kind, rank, 2, recipe="fp8-tensorwise", lag=lag, patrol=share)
    reports = Reports(job.ctl)
    one = job.ctl._parts.patrol
    assert one is not None
    plain, own = one.end, []

    def end(**rest: Any) -> Any:
        measured = plain(**rest)
        own.append(dict(measured.sums))
        return measured

    one.end = end  # type: ignore[method-assign]
    for step in STEPS:
        job.model.zero_grad()
        loss = job.backward(step)
        job.ctl.step(loss=loss)
    state = job.ctl.state_dict()["supervisor"]
    job.ctl.detach()
    return reports.errors, own, state


def error(pairs: list[tuple[float, float]]) -> float:
    pairs = [pair for pair in pairs if not math.isnan(pair[0])]
    return math.sqrt(sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)) if pairs else math.nan


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "pipeline"])
def test_sums_of_all_ranks_decide(kind: str, lag: int) -> None:
    ranks = run_ranks(train, 2, kind, lag, 1.0)
    (first, _, state), (second, _, other) = ranks
    assert repr(first) == repr(second) and state == other
    assert len(first) == len(STEPS)
    for step, errors in enumerate(first):
        for unit in range(8):
            sums = [own[step][unit] for _, own, _ in ranks if unit in own[step]]
            assert len(sums) == (1 if kind == "pipeline" else 2)
            expected = [error([pairs[place] for pairs in sums]) for place in range(3)]
            assert errors[unit] == pytest.approx(expected, rel=1e-12, nan_ok=True)
            assert not math.isnan(errors[unit][0])


def test_ranks_take_the_same_turns() -> None:
    ranks = run_ranks(train, 2, "ddp", 0, 1e-6)
    for step in range(len(STEPS)):
        first, second = (list(own[step]) for _, own, _ in ranks)
        assert first == second == [(step + 1) % 8]


def faulty(rank: int, lag: int) -> list[Any]:
    """A switch of one rank fails while it is asked what it has measured."""
    job = Job("ddp", rank, 2, recipe="fp8-tensorwise", lag=lag, strict=False)
    found = []
    for step in STEPS:
        if step == 3 and rank == 1:
            for unit in job.ctl.units:
                unit.switch.end_patrol = lambda: 1 / 0
        job.model.zero_grad()
        loss = job.backward(step)
        result = job.ctl.step(loss=loss, max_norm=1e-3)
        found.append((result.applied, job.ctl.mode))
    return found


@pytest.mark.parametrize("lag", [0, 1])
def test_a_fault_of_one_is_one_of_all(lag: int) -> None:
    first, second = run_ranks(faulty, 2, lag)
    assert first == second
    modes = [mode for _, mode in first]
    assert modes == ["armed"] * (2 + lag) + ["disarmed"] * (3 - lag)
