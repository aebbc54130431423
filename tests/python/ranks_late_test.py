# SPDX-License-Identifier: Apache-2.0
"""Lag 1 with several processes: the ranks' sum is heard a step later, by all in the same step, whatever goes wrong."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gnmr.step.agreement import MOST_DIFFERENCES
from rank_world import Job, run_ranks
from torch.nn.utils import get_total_norm

import gnmr
from gnmr import attaching

STEPS = range(1, 21)


def notes_of(folder: Path) -> str:
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return "\n".join(line["text"] for line in lines if line["kind"] == "note")


def train(rank: int, size: int, lag: int, max_norm: float | None) -> dict[str, list[Any]]:
    warnings.filterwarnings("error", message="gnmr")
    found: dict[str, list[Any]] = {}
    for kind in ("ddp", "fsdp", "pipeline"):
        job = Job(kind, rank, size, lag=lag)
        if max_norm is None:
            step_of, job.ctl.step = job.ctl.step, lambda max_norm, **rest: step_of(**rest)  # noqa: B023
        steps = [job.step(step) for step in STEPS]
        state = job.ctl.state_dict()["supervisor"]
        found[kind] = [
            [step[:2] for step in steps],
            [step[3:6] for step in steps],
            [step[6] for step in steps],
            state if lag else b"",
        ]
    return found


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_the_same_a_step_later(max_norm: float | None) -> None:
    first, second = run_ranks(train, 2, 2, 1, max_norm)
    prompt = run_ranks(train, 2, 2, 0, max_norm)[0]
    assert first == second
    for kind, (numbers, decisions, high, _) in first.items():
        assert numbers == prompt[kind][0]
        assert decisions[1:] == prompt[kind][1][:-1]
        assert sum(bool(step[0]) for step in decisions) >= 3
        # Told before the next step: a step later than without a lag.
        assert high[1:] == prompt[kind][2][:-1]


def faulty(rank: int, out: Path, where: str, max_norm: float | None, skips: bool = False) -> list[tuple[Any, ...]]:
    job = Job("ddp", rank, 2, strict=False, out=out, lag=1)
    seen = []
    for step in range(1, 8):
        job.model.zero_grad()
        job.backward(step)
        wanted = float(get_total_norm([parameter.grad for parameter in job.model.parameters()]))
        if step == 3 and rank == 1:
            if where == "measuring":
                job.ctl._parts.gradients.measure = lambda **wait: 1 / 0
            elif where == "deciding":
                job.ctl._steps.record = lambda *_: 1 / 0
            elif where == "word":
                job.ctl._parts.kill_switch.news = lambda: 1 / 0
            elif where == "contribution":
                job.ctl._parts.gradients.contribution = lambda local: 1 / 0
            elif where == "clipping":
                job.ctl._parts.gradients.scale = lambda coefficient, **rest: 1 // (coefficient == 1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            job.ctl.step(max_norm=max_norm, skipped=skips and rank == 0 and step == 3)
        clipped = float(get_total_norm([parameter.grad for parameter in job.model.parameters()]))
        if not (skips and step == 3):
            seen.append((job.ctl.mode, clipped, wanted, len(told)))
    job.ctl.detach()
    # The ranks' collectives are still in step with each other.
    total = torch.tensor([1.0])
    dist.all_reduce(total)
    return [*seen, float(total)]


@pytest.mark.parametrize("where", ["measuring", "word", "contribution", "deciding"])
@pytest.mark.parametrize("max_norm", [None, 0.01])
def test_a_fault_on_one_rank_disarms_all(tmp_path: Path, where: str, max_norm: float | None) -> None:
    first, second = run_ranks(faulty, 2, tmp_path, where, max_norm)
    assert first.pop() == second.pop() == 2.0
    for rank in (first, second):
        assert sum(told for *_, told in rank) == 1
        assert rank[-1][0] == "disarmed" and rank[1][0] == "armed"
        for _, clipped, wanted, _ in rank:
            assert clipped == pytest.approx(wanted if max_norm is None else max_norm, rel=1e-3)
    modes = [[step[0] for step in rank] for rank in (first, second)]
    if where != "deciding":
        # Before the meeting: all of them know when they hear of it.
        assert modes[0] == modes[1] and modes[0].index("disarmed") == 3
    else:
        assert modes[1].index("disarmed") == 2 and modes[0].index("disarmed") <= 4
    assert "on rank 1: " in notes_of(tmp_path) and "ZeroDivisionError" in notes_of(tmp_path)


def test_a_fault_where_another_rank_skips(tmp_path: Path) -> None:
    first, second = run_ranks(faulty, 2, tmp_path, "measuring", 0.01, True)
    assert first.pop() == second.pop() == 2.0
    assert [step[0] for step in first] == [step[0] for step in second]
    assert first[-1][0] == "disarmed"


def test_a_fault_in_clipping_disarms_all(tmp_path: Path) -> None:
    first, second = run_ranks(faulty, 2, tmp_path, "clipping", 0.01)
    assert first.pop() == second.pop() == 2.0
    assert first[-1][0] == second[-1][0] == "disarmed" and second[2][0] == "disarmed"


def own_function(rank: int, lag: int) -> list[Any]:
    broken = [False]

    def gradient_of(parameter: Any) -> Any:
        if broken[0] and rank == 1:
            raise RuntimeError("no gradient today")
        return parameter.grad

    job = Job("ddp", rank, 2, strict=False, lag=lag, gradients=gradient_of)
    seen: list[Any] = []
    for step in range(1, 8):
        job.model.zero_grad()
        job.backward(step)
        broken[0] = step >= 3
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job.ctl.step(max_norm=0.01)
        seen.append(job.ctl.mode)
    total = torch.tensor([1.0])
    dist.all_reduce(total)
    return [*seen, float(total)]


@pytest.mark.parametrize("lag", [0, 1])
def test_a_function_that_goes_on_failing_harms_nobody(lag: int) -> None:
    first, second = run_ranks(own_function, 2, lag)
    assert first == second and first[-1] == 2.0 and first[-2] == "disarmed"


def asked_differently(rank: int) -> str:
    try:
        Job("ddp", rank, 2, **({"lag": 1} if rank == 0 else {}))
    except gnmr.Error as error:
        return str(error)
    return ""


def test_ranks_that_ask_for_different_lags_are_refused() -> None:
    for said in run_ranks(asked_differently, 2):
        assert "expected the same arguments on all ranks" in said


def tries(rank: int, mixed: bool) -> list[Any]:
    attaching._can_be_late = lambda *parts: True  # as on a GPU
    job = Job("ddp", rank, 2)
    seen: list[Any] = []
    for step in range(1, 9):
        job.model.zero_grad()
        job.backward(step)
        runs = lambda: job.backward(step)  # noqa: B023, E731
        result = job.ctl.step() if mixed and rank == 1 and step < 5 else job.ctl.trial(runs)
        seen.append((result.step, job.ctl.lag, job.ctl.supervisor.mean_norm(0)))
    return [*seen, float(job.ctl.total_norm)]


@pytest.mark.parametrize("mixed", [False, True])
def test_trials_of_all_ranks_make_the_lag_0(mixed: bool) -> None:
    first, second = run_ranks(tries, 2, mixed)
    assert first == second and first.pop() > 0
    assert [step[0] for step in first] == list(range(1, 9))
    # Heard a step after all have asked, and done in the next one.
    assert [step[1] for step in first] == [1] * (6 if mixed else 2) + [0] * (2 if mixed else 6)


def differing(rank: int, out: Path, how: str, max_norm: float | None) -> list[Any]:
    job = Job("ddp", rank, 2, strict=False, out=out, lag=1)
    seen: list[Any] = []
    states: dict[int, Any] = {}
    for step in range(1, 15):
        if how == "set" and step == 4 and rank == 1:
            job.ctl.set("layers.0.*", "high")
        if how == "often" and step >= 4 and rank == 1:
            job.ctl.set(f"layers.{step % 4}.*", "high")
        if rank == 0:
            # One rank saves, and so decides earlier than the others.
            job.ctl.state_dict()
        if how == "load" and step == 4 and rank == 1:
            job.ctl.load_state_dict(states[1])
        if how == "load":
            states[step] = job.ctl.state_dict()
        job.model.zero_grad()
        job.backward(step)
        if step == 9:
            job.disturb("layers.3.up.weight", 50.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = job.ctl.step(max_norm=max_norm)
        seen.append((result.admitted, tuple(job.ctl.high), job.ctl.mode))
    if how != "often":
        seen.append((job.ctl.state_dict()["supervisor"], job.ctl._steps.switchboard.rules))
    job.ctl.detach()
    return seen


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("how", ["set", "load", "checkpoint"])
def test_a_rank_that_differs_takes_rank_zeros(tmp_path: Path, how: str, max_norm: float | None) -> None:
    first, second = run_ranks(differing, 2, tmp_path, how, max_norm)
    assert first[6:] == second[6:]
    assert first[9][0] == ("layers.3.up",) and first[9][2] == "armed"
    assert notes_of(tmp_path).count("which holds for all") == (how != "checkpoint")


def test_ranks_that_differ_often_disarm(tmp_path: Path) -> None:
    first, second = run_ranks(differing, 2, tmp_path, "often", None)
    assert [step[2] for step in first] == [step[2] for step in second]
    assert first[-1][2] == "disarmed"
    assert f"differently {MOST_DIFFERENCES} times" in notes_of(tmp_path)


def some_skip(rank: int, max_norm: float | None) -> list[tuple[Any, ...]]:
    job = Job("ddp", rank, 2, lag=1)
    seen = []
    for step in range(1, 9):
        job.model.zero_grad()
        job.backward(step)
        result = job.ctl.step(max_norm=max_norm, skipped=step == 4 and rank == 1)
        seen.append((result.step, result.applied, job.ctl.supervisor.mean_norm(0)))
    return seen


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_a_step_that_one_rank_skips_is_no_sample(max_norm: float | None) -> None:
    first, second = run_ranks(some_skip, 2, max_norm)
    assert [step[2] for step in first] == [step[2] for step in second]
    assert [step[1] for step in second] == [True] * 3 + [False] + [True] * 4
    assert first[4][2] == first[3][2] != first[5][2]


def a_rank_ends(rank: int) -> str:
    job = Job("none", rank, 2, strict=False, lag=1)
    for step in range(1, 5):
        job.model.zero_grad()
        job.backward(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job.ctl.step(max_norm=0.01)
        if rank == 1 and step == 2:
            os._exit(1)
    return f"{job.ctl.mode} {job.ctl.steps}"


def test_a_rank_that_is_gone_does_not_raise_here() -> None:
    assert run_ranks(a_rank_ends, 2)[0] == "disarmed 4"


def stops_and_goes_on(rank: int, size: int, folder: Path, lag: int) -> list[Any]:
    job = Job("ddp", rank, size, lag=lag)
    file = folder / "state.pt"
    begin = 1
    if file.exists():
        state = torch.load(file, weights_only=False)
        job.ctl.load_state_dict(state)
        begin = job.ctl.steps + 1
    steps = [job.step(step) for step in range(begin, 11 if begin == 1 else 21)]
    if begin == 1 and rank == 0:
        torch.save(job.ctl.state_dict(), file)
    dist.barrier()
    return [(step[0], step[3], step[4]) for step in steps]


def test_on_another_number_of_ranks(tmp_path: Path) -> None:
    before = run_ranks(stops_and_goes_on, 2, 2, tmp_path, 1)[0]
    after = run_ranks(stops_and_goes_on, 4, 4, tmp_path, 1)[0]
    (tmp_path / "state.pt").unlink()
    whole = [run_ranks(stops_and_goes_on, 2, 2, tmp_path, 1)[0] for _ in range(2)]
    assert before + after == whole[0] + whole[1]
