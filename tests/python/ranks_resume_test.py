# SPDX-License-Identifier: Apache-2.0
"""A rank is killed, and the job goes on from its checkpoint on another number of ranks: decisions and losses agree."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_world import Job, run_ranks
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
LAST_SAVED, KILLED, LAST = 9, 12, 18


def train(rank: int, kind: str, size: int, folder: Path, killed: bool, resume: bool) -> list[tuple[Any, ...]]:
    job = Job(kind, rank, size)
    # Without a memory of its own, so that the model is all there is to save.
    optimizer = torch.optim.SGD(job.model.parameters(), 0.05)
    first = 1
    if resume:
        saved = torch.load(folder / "saved.pt", weights_only=True)
        set_model_state_dict(job.model, saved["model"], options=WHOLE)
        assert job.ctl.load_state_dict(saved["control"])["exact"]
        first = LAST_SAVED + 1
    seen = []
    for step in range(first, LAST + 1):
        if killed and step == KILLED and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = job.backward(step)
        if step in (8, 10, 15):
            job.disturb(f"layers.{step % 4}.down.weight", 50.0)
        result = job.ctl.step(max_norm=1.0, loss=loss)
        optimizer.step()
        if size > 1:
            dist.all_reduce(loss)
        seen.append((step, result.admitted, result.released, result.recovered, float(loss) / size))
        if step == LAST_SAVED and not resume:
            model = get_model_state_dict(job.model, options=WHOLE)
            if rank == 0:
                torch.save({"model": model, "control": job.ctl.state_dict()}, folder / "saved.pt")
    return seen


def decisions(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [step[:4] for step in steps]


def losses(steps: list[tuple[Any, ...]]) -> list[float]:
    return [step[4] for step in steps]


@pytest.mark.parametrize(("kind", "sizes"), [("ddp", (2, 4, 1)), ("fsdp", (2, 4))])
def test_goes_on_with_another_number_of_ranks(kind: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    whole = run_ranks(train, sizes[0], kind, sizes[0], tmp_path, False, False)[0]
    assert sum(bool(step[1]) for step in whole) >= 2
    (tmp_path / "saved.pt").unlink()
    broken = run_ranks(train, sizes[0], kind, sizes[0], tmp_path, True, False, may_fail=True)
    assert broken[-1] is None and all(isinstance(one, str) for one in broken[:-1])
    for size in sizes[1:]:
        rest = run_ranks(train, size, kind, size, tmp_path, False, True)
        assert all(decisions(one) == decisions(rest[0]) for one in rest)
        assert decisions(rest[0]) == decisions(whole[LAST_SAVED:])
        assert losses(rest[0]) == pytest.approx(losses(whole[LAST_SAVED:]), abs=1e-5)
