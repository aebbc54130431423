# SPDX-License-Identifier: Apache-2.0
"""A trial on several ranks: the alarm is common, all run the step again, errors are added up, failures are common."""

import math
import warnings
from typing import Any

import pytest
import torch
from gnmr.step import rerun
from gnmr.step.rerun import ErrorSquares
from loops_model import LowPathFault
from rank_world import Job, run_ranks

import gnmr

FAULTY = "layers.2.up"


class Trials:
    """Steps with trials, of which the tenth finds a fault on some ranks."""

    def __init__(self, kind: str, rank: int, size: int, faulty_ranks: tuple[int, ...], **options: Any) -> None:
        self.rank = rank
        self.job = Job(kind, rank, size, recipe="fp8-tensorwise", **{"max_o": 8.0, **options})
        self.fault = LowPathFault(self.job.ctl, FAULTY)
        self.faulty_ranks = faulty_ranks
        self.calls = 0

    def step(self, step: int, closure: Any = None, **kwargs: Any) -> gnmr.StepResult:
        self.fault.on = step >= 10 and self.rank in self.faulty_ranks
        self.job.model.zero_grad()
        loss = self.job.backward(step)
        return self.job.ctl.trial(closure or (lambda: self.job.backward(step)), loss=loss, **kwargs)


def find_fault(rank: int, kind: str, faulty_ranks: tuple[int, ...]) -> list[tuple[Any, ...]]:
    trials = Trials(kind, rank, 2, faulty_ranks)
    results = [trials.step(step, max_norm=1e9) for step in range(1, 13)]
    assert all(torch.isfinite(parameter.grad).all() for parameter in trials.job.model.parameters())
    return [(one.alarmed, one.rerun, one.verdict, one.admitted, one.total_norm, one.applied) for one in results]


@pytest.mark.parametrize(("kind", "faulty_ranks"), [("ddp", (0, 1)), ("ddp", (1,)), ("fsdp", (1,))])
def test_the_unit_at_fault_is_found_on_all_ranks(kind: str, faulty_ranks: tuple[int, ...]) -> None:
    first, second = run_ranks(find_fault, 2, kind, faulty_ranks)
    assert first == second
    assert all(not step[1] for step in first[:9])
    assert first[9][:4] == (True, "trial", "numeric", (FAULTY,)) and first[9][5]
    assert not any(step[0] for step in first[10:])


def errors_of_ranks(rank: int) -> tuple[list[tuple[float, float]], list[float]]:
    trials = Trials("ddp", rank, 2, (1,))
    for step in range(1, 10):
        trials.step(step)
    heard: list[list[float]] = []
    plain = ErrorSquares.errors

    def keep(self: ErrorSquares) -> Any:
        result = plain(self)
        heard.append(result.tolist())
        return result

    ErrorSquares.errors = keep
    trials.step(10)
    switch = next(unit.switch for unit in trials.job.ctl.units if unit.name == FAULTY)
    index = [unit.name for unit in trials.job.ctl.units].index(FAULTY)
    return list(switch.error_squares()), heard[-1][3 * index : 3 * index + 3]


def test_errors_are_sums_over_ranks() -> None:
    (first, heard), (second, heard_too) = run_ranks(errors_of_ranks, 2)
    assert heard == heard_too
    wanted = [math.sqrt((one[0] + two[0]) / (one[1] + two[1])) for one, two in zip(first, second, strict=True)]
    assert heard == pytest.approx(wanted, rel=1e-12)
    # A maximum would be that of the faulty rank alone.
    assert heard[0] < 0.9 * math.sqrt(second[0][0] / second[0][1])


def no_memory(rank: int, where: str) -> tuple[Any, ...]:
    trials = Trials("ddp", rank, 2, (0, 1))
    for step in range(1, 10):
        trials.step(step)
    if where == "preparation" and rank == 1:

        def no_room() -> None:
            raise MemoryError("no room")

        trials.job.ctl.units[3].switch.begin_trial = no_room

    if where == "buffers" and rank == 1:
        plain, left = rerun.Buffers, [None]

        def buffers(model: torch.nn.Module) -> rerun.Buffers:
            if left:
                left.pop()
                raise torch.OutOfMemoryError("CUDA out of memory")
            return plain(model)

        rerun.Buffers = buffers

    def closure() -> torch.Tensor:
        trials.calls += 1
        loss = trials.job.backward(10)
        if where == "closure" and rank == 1 and trials.calls == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    result = trials.step(10, closure)
    after = trials.step(11)
    return trials.calls, result.rerun, result.alarmed, result.admitted, after.step, trials.job.ctl.mode


@pytest.mark.parametrize("where", ["preparation", "buffers", "closure"])
def test_no_memory_on_one_rank(where: str) -> None:
    first, second = run_ranks(no_memory, 2, where)
    assert first == second
    calls, rerun, alarmed, admitted, after, mode = first
    assert calls == (2 if where == "closure" else 1)
    assert rerun == "" and alarmed and FAULTY in admitted and after == 11 and mode == "armed"


def failing_closure(rank: int) -> tuple[str, str, int]:
    trials = Trials("ddp", rank, 2, (0, 1), strict=False)
    for step in range(1, 10):
        trials.step(step)

    def closure() -> torch.Tensor:
        loss = trials.job.backward(10)
        if rank == 1:
            raise KeyError("mine")
        return loss

    try:
        trials.step(10, closure)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    trials.faulty_ranks = ()
    return said, trials.job.ctl.mode, trials.step(11).step


def test_a_failing_closure_is_the_callers_on_all_ranks() -> None:
    first, second = run_ranks(failing_closure, 2)
    assert first == ("Error: the closure failed on rank 1: KeyError: 'mine'", "armed", 11)
    assert second == ("KeyError: 'mine'", "armed", 11)


def closure_that_fails_once(rank: int, failing: int) -> tuple[str, float, float, int]:
    trials = Trials("ddp", rank, 2, (0, 1), strict=False)
    for step in range(1, 10):
        trials.step(step)

    def closure() -> torch.Tensor:
        trials.calls += 1
        loss = trials.job.backward(10)
        if rank == failing and trials.calls == 1:
            raise KeyError("in a trial alone")
        return loss

    with warnings.catch_warnings(record=True):
        result = trials.step(10, closure, max_norm=1e-3)
    norm = float(torch.stack([parameter.grad.norm() for parameter in trials.job.model.parameters()]).norm())
    return trials.job.ctl.mode, result.wait().total_norm, norm, trials.step(11).step


@pytest.mark.parametrize("failing", [0, 1])
def test_a_closure_that_only_a_trial_breaks_disarms_all(failing: int) -> None:
    first, second = run_ranks(closure_that_fails_once, 2, failing)
    assert first == second
    mode, told, norm, after = first
    assert mode == "disarmed" and told > 1e-2 and norm == pytest.approx(1e-3, rel=1e-3) and after == 11


def fault_in_rerun(rank: int) -> tuple[bool, str, int]:
    trials = Trials("ddp", rank, 2, (0, 1), strict=False)
    for step in range(1, 10):
        trials.step(step)
    if rank == 1:

        def broken() -> None:
            raise OSError("no trial here")

        trials.job.ctl.units[3].switch.begin_trial = broken
    with warnings.catch_warnings(record=True):
        result = trials.step(10, max_norm=1e9)
        mode = trials.job.ctl.mode
        again = trials.step(11, max_norm=1e9)
    return all(parameter.grad is not None for parameter in trials.job.model.parameters()), mode, result.step, again.step


def test_a_fault_in_a_rerun_disarms_all() -> None:
    assert run_ranks(fault_in_rerun, 2) == [(True, "disarmed", 10, 11)] * 2


def only_one_can(rank: int) -> list[tuple[bool, str, tuple[str, ...]]]:
    trials = Trials("ddp", rank, 2, (0, 1))
    results = []
    for step in range(1, 11):
        if rank == 0:
            results.append(trials.step(step))
        else:
            trials.fault.on = step >= 10
            trials.job.model.zero_grad()
            trials.job.backward(step)
            results.append(trials.job.ctl.step())
    return [(one.alarmed, one.rerun, one.admitted) for one in results]


def test_a_rank_that_cannot_run_again_keeps_the_others_from_it() -> None:
    first, second = run_ranks(only_one_can, 2)
    assert first == second and first[9][0] and first[9][1] == ""
