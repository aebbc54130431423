# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on one rank: all of them know in the same step, nobody waits, and training goes on."""

import json
import os
import signal
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


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def notes_of(folder: Path) -> str:
    return "\n".join(line["text"] for line in lines_of(folder) if line["kind"] == "note")


def faulty(rank: int, out: Path, where: str) -> list[tuple[str, float, float, int]]:
    job = Job("ddp", rank, 2, strict=False, out=out)
    seen = []
    for step in range(1, 6):
        job.model.zero_grad()
        job.backward(step)
        wanted = float(get_total_norm([parameter.grad for parameter in job.model.parameters()]))
        if step == 3 and rank == 1:
            if where == "measuring":
                job.ctl._parts.gradients.measure = lambda: 1 / 0
            elif where == "before":
                job.ctl._parts.kill_switch.news = lambda: 1 / 0
            else:
                job.ctl.set("*", "high")
                job.ctl.units[2].switch.set_high = lambda high: 1 / 0
        if step == 3 and rank == 0 and where == "switching":
            job.ctl.set("*", "high")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = job.ctl.step(max_norm=0.01)
        clipped = float(get_total_norm([parameter.grad for parameter in job.model.parameters()]))
        seen.append((job.ctl.mode, result.wait().total_norm / wanted, clipped, len(told)))
    job.ctl.detach()
    return seen


@pytest.mark.parametrize("where", ["measuring", "before", "switching"])
def test_a_fault_on_one_rank_disarms_all(tmp_path: Path, where: str) -> None:
    first, second = run_ranks(faulty, 2, tmp_path, where)
    # A fault before the meeting is known in the same step, one after it in the next.
    last = 3 if where == "switching" else 2
    assert [mode for mode, *_ in first] == ["armed"] * last + ["disarmed"] * (5 - last)
    assert [mode for mode, *_ in second] == ["armed"] * 2 + ["disarmed"] * 3
    for rank in (first, second):
        assert sum(told for *_, told in rank) == 1
        for _, total, clipped, _ in rank:
            # Clipped in every step, as it would be.
            assert total == pytest.approx(1, rel=1e-4) and clipped == pytest.approx(0.01, rel=1e-3)
    assert "on rank 1: " in notes_of(tmp_path) and "ZeroDivisionError" in notes_of(tmp_path)


def faulty_and_strict(rank: int) -> str:
    job = Job("ddp", rank, 2)
    job.backward(1)
    if rank == 1:
        job.ctl._parts.gradients.measure = lambda: 1 / 0
    try:
        job.ctl.step()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_strict_raises_on_all() -> None:
    first, second = run_ranks(faulty_and_strict, 2)
    assert first.startswith("RankFault: on rank 1: ZeroDivisionError") and second.startswith("ZeroDivisionError")


def differing(rank: int, out: Path, how: str) -> list[tuple[Any, ...]]:
    job = Job("ddp", rank, 2, strict=False, out=out)
    seen = []
    for step in range(1, 13):
        if how == "set" and step == 4 and rank == 1:
            job.ctl.set("layers.0.*", "high")
        if how == "watch" and step == 4 and rank == 1:
            job.ctl.watch()
        if how == "often" and step >= 4 and rank == 1:
            job.ctl.set(f"layers.{step % 4}.*", "high")
        job.model.zero_grad()
        job.backward(step)
        if how == "state" and step == 7 and rank == 1:
            # Something has gone into the memory of one rank: it decides otherwise.
            job.ctl.supervisor.report(6 + 1, torch.full((8,), 1e9, dtype=torch.float64))
            job.ctl.supervisor.begin(8)
        if step == 9:
            job.disturb("layers.3.up.weight", 50.0)
        with warnings.catch_warnings(record=True):
            result = job.ctl.step()
        seen.append((result.admitted, tuple(job.ctl.high), job.ctl.mode, job.ctl.supervisor.mode))
    if how != "often":
        seen.append((job.ctl.state_dict()["supervisor"], job.ctl._steps.switchboard.rules))
    job.ctl.detach()
    return seen


@pytest.mark.parametrize("how", ["set", "watch", "state"])
def test_a_rank_that_differs_takes_rank_zeros(tmp_path: Path, how: str) -> None:
    first, second = run_ranks(differing, 2, tmp_path, how)
    same_from = {"set": 3, "watch": 3, "state": 6}[how]
    assert first[same_from:] == second[same_from:]
    assert first[8][0] == ("layers.3.up",) and first[8][2] == "armed"
    told = notes_of(tmp_path)
    assert told.count("which holds for all") == 1 and "what rank 1 had decided" in told


def test_ranks_that_differ_often_disarm(tmp_path: Path) -> None:
    first, second = run_ranks(differing, 2, tmp_path, "often")
    assert first[-1][2] == second[-1][2] == "disarmed"
    modes = [step[2] for step in first]
    assert modes == [step[2] for step in second]
    assert modes.index("disarmed") == 4 + MOST_DIFFERENCES - 2
    assert f"differently {MOST_DIFFERENCES} times" in notes_of(tmp_path)


def words(rank: int, out: Path) -> list[tuple[str, int]]:
    job = Job("ddp", rank, 2, out=out, signals=True)
    seen = []
    for step in range(1, 8):
        job.model.zero_grad()
        job.backward(step)
        if rank == 0 and step == 2:
            (out / "control").write_text("high\n")
        if rank == 0 and step == 4:
            (out / "control").write_text("armed\n")
        if rank == 1 and step == 6:
            os.kill(os.getpid(), signal.SIGUSR1)
        job.ctl.step()
        seen.append((job.ctl.mode, len(job.ctl.high)))
    job.ctl.detach()
    return seen


def test_the_kill_switch_reaches_all_in_the_same_step(tmp_path: Path) -> None:
    first, second = run_ranks(words, 2, tmp_path)
    assert first == second
    assert first == [("armed", 0), ("high", 8), ("high", 8), ("armed", 0), ("armed", 0), ("watch", 0), ("watch", 0)]
    assert [line["mode"] for line in lines_of(tmp_path) if line["kind"] == "mode"] == ["high", "armed", "watch"]


def with_environment(rank: int) -> str:
    if rank == 0:
        os.environ["GNMR_MODE"] = "high"
    return Job("ddp", rank, 2).ctl.mode


def test_the_environment_of_rank_zero_counts() -> None:
    assert run_ranks(with_environment, 2) == ["high", "high"]


def journals(rank: int, out: Path, own: bool) -> bool:
    folder = out / str(rank) if own else out
    job = Job("ddp", rank, 2, out=folder)
    job.step(1)
    job.ctl.detach()
    return (folder / "journal.jsonl").exists()


def test_rank_zero_writes_the_journal(tmp_path: Path) -> None:
    assert run_ranks(journals, 2, tmp_path / "one", False) == [True, True]
    assert sum(line["kind"] == "step" for line in lines_of(tmp_path / "one")) == 1
    assert run_ranks(journals, 2, tmp_path / "two", True) == [True, True]
    assert lines_of(tmp_path / "two" / "1")


def taken_folder(rank: int, out: Path) -> str:
    try:
        Job("ddp", rank, 2, out=out)
    except gnmr.Error as error:
        return str(error)
    return ""


def test_what_fails_on_one_rank_in_attach_fails_on_all(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("taken\n")
    first, second = run_ranks(taken_folder, 2, tmp_path)
    assert "journal.jsonl" in first and second.startswith("rank 0 failed")


def not_averaged(rank: int) -> list[str]:
    job = Job("none", rank, 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, 4):
            job.model.zero_grad()
            job.backward(10 * step + rank)
            job.ctl.step()
    return [str(one.message) for one in told]


def test_gradients_that_are_not_averaged_are_told() -> None:
    first, second = run_ranks(not_averaged, 2)
    assert len(first) == 1 and "are they averaged before ctl.step" in first[0] and "8 units" in first[0]
    assert second == []


def some_skip(rank: int) -> list[tuple[bool, float, float]]:
    job = Job("ddp", rank, 2)
    seen = []
    for step in range(1, 8):
        job.model.zero_grad()
        job.backward(step)
        result = job.ctl.step(max_norm=1.0, skipped=step == 4 and rank == 1)
        seen.append((result.applied, job.ctl.supervisor.mean_norm(0)))
    return seen


def test_a_step_that_one_rank_skips_is_no_sample() -> None:
    first, second = run_ranks(some_skip, 2)
    assert [step[1] for step in first] == [step[1] for step in second]
    assert [step[0] for step in second] == [True] * 3 + [False] + [True] * 3
    assert first[3][1] == first[2][1] != first[4][1]


def a_rank_ends(rank: int) -> str:
    job = Job("none", rank, 2, strict=False)
    job.backward(1)
    job.ctl.step()
    if rank == 1:
        os._exit(1)
    for step in range(2, 4):
        job.model.zero_grad()
        job.backward(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = job.ctl.step(max_norm=0.01)
    return f"{job.ctl.mode} {result.step} {dist.is_initialized()}"


def test_a_rank_that_is_gone_does_not_raise_here() -> None:
    assert run_ranks(a_rank_ends, 2)[0] == "disarmed 3 True"
