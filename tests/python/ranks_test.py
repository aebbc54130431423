# SPDX-License-Identifier: Apache-2.0
"""Ranks decide the same, and the same as one process on the same batch, however the model is laid over them."""

import math
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gnmr.ranks.pieces import merged
from rank_world import Job, run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.nn import functional
from torch.nn.utils import get_total_norm

import gnmr

STEPS = range(1, 19)
LAYOUTS = [
    ("ddp", 2),
    ("ddp-before", 2),
    ("fsdp", 2),
    ("fsdp-before", 4),
    ("hsdp", 4),
    ("tp", 2),
    ("tp-before", 2),
    ("fsdp+tp", 4),
    ("pipeline", 2),
    ("pipeline", 4),
    ("experts", 2),
]


def train(rank: int, kind: str, size: int) -> dict[str, Any]:
    # Nothing is to be warned of.
    warnings.filterwarnings("error", message="gnmr")
    job = Job(kind, rank, size)
    steps = [job.step(step) for step in STEPS]
    return {
        "steps": steps,
        "state": job.ctl.state_dict()["supervisor"],
        "coverage": job.ctl.coverage.text(),
        "names": [unit.name for unit in job.ctl.units],
        "summary": str(job.ctl.summary()),
    }


def train_all(rank: int, size: int) -> dict[str, dict[str, Any]]:
    return {kind: train(rank, kind, size) for kind, ranks in LAYOUTS if ranks == size}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """The model in one process."""
    return {kind: run_ranks(train, 1, kind, 1)[0] for kind in ("ddp", "experts")}


@pytest.fixture(scope="module")
def many() -> dict[int, list[dict[str, dict[str, Any]]]]:
    """All layouts; starting processes takes longer than what they do."""
    return {size: run_ranks(train_all, size, size) for size in (2, 4)}


def without_norm(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(step[0], *step[2:]) for step in steps]


@pytest.mark.parametrize(("kind", "size"), LAYOUTS)
def test_as_one_process(kind: str, size: int, alone: Any, many: Any) -> None:
    one = alone["experts" if kind == "experts" else "ddp"]
    assert sum(bool(step[3]) for step in one["steps"]) >= 3
    ranks = [rank[kind] for rank in many[size]]
    for rank in ranks:
        # Equal to the last bit among ranks; to one process up to rounding.
        assert rank == ranks[0]
    assert without_norm(ranks[0]["steps"]) == without_norm(one["steps"])
    assert [step[1] for step in ranks[0]["steps"]] == pytest.approx([step[1] for step in one["steps"]], rel=1e-5)
    assert ranks[0]["summary"] == one["summary"] and "no unit was admitted" not in one["summary"]
    assert ranks[0]["coverage"] == one["coverage"] and ranks[0]["names"] == one["names"]


def clip(rank: int, size: int) -> list[tuple[float, float, float]]:
    return [
        one for kind in ("ddp", "fsdp", "hsdp") if (kind == "hsdp") == (size == 4) for one in clipped(kind, rank, size)
    ]


def clipped(kind: str, rank: int, size: int) -> list[tuple[float, float, float]]:
    job = Job(kind, rank, size)
    seen = []
    for step in range(1, 4):
        job.model.zero_grad()
        job.backward(step)
        before = [parameter.grad.clone() for parameter in job.model.parameters()]
        total = get_total_norm(before)
        wanted = float(total.full_tensor() if hasattr(total, "full_tensor") else total)
        result = job.ctl.step(max_norm=0.05)
        scale = min(0.05 / (wanted + 1e-6), 1.0)
        off = max(
            float((now.grad - one * scale).abs().max().item())
            for now, one in zip(job.model.parameters(), before, strict=True)
        )
        seen.append((result.wait().total_norm / wanted, result.wait().clip_coefficient / scale, off))
    return seen


@pytest.mark.parametrize("size", [2, 4])
def test_clips_as_torch_does(size: int) -> None:
    for rank in run_ranks(clip, size, size):
        for total, coefficient, off in rank:
            assert total == pytest.approx(1, rel=1e-5) and coefficient == pytest.approx(1, rel=1e-5) and off < 1e-6


def counting(name: str, calls: list[str], real: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return real(*args, **kwargs)

    return call


def count_collectives(rank: int) -> list[list[int]]:
    return [counts_of(kind, rank) for kind in ("ddp", "fsdp", "pipeline")]


def counts_of(kind: str, rank: int) -> list[int]:
    job = Job(kind, rank, 2)
    calls: list[str] = []
    names = [
        "all_reduce",
        "broadcast",
        "all_gather",
        "all_gather_object",
        "broadcast_object_list",
        "reduce_scatter",
        "barrier",
        "all_gather_into_tensor",
        "gather",
        "scatter",
        "send",
        "recv",
    ]
    real = {name: getattr(dist, name) for name in names}
    counts = []
    for step in range(1, 16):
        job.model.zero_grad()
        job.backward(step)
        if step == 9:
            job.disturb("layers.1.down.weight", 50.0)
        for name in names:
            setattr(dist, name, counting(name, calls, real[name]))
        before = len(calls)
        job.ctl.step(max_norm=1.0, skipped=step == 5)
        counts.append(len(calls) - before)
        for name in names:
            setattr(dist, name, real[name])
    assert set(calls) == {"all_reduce"}
    return counts


def test_one_collective_a_step() -> None:
    for rank in run_ranks(count_collectives, 2):
        assert rank == [[1] * 15] * 3


def one_sees_nan(rank: int, how: str) -> list[tuple[Any, ...]]:
    job = Job("ddp" if how == "loss" else "none", rank, 2)
    steps = []
    for step in range(1, 8):
        job.model.zero_grad()
        if how == "loss" and step == 6 and rank == 1:
            # The loss of one rank: data parallel carries it to all.
            (job.model(torch.randn(4, 32)).sum() * math.nan).backward()
        else:
            job.backward(step)
        if how == "copy" and step == 6 and rank == 1:
            # Memory of one rank, after gradients were averaged.
            job.disturb("layers.2.up.weight", math.nan)
        result = job.ctl.step()
        is_nan = math.isnan(result.wait().total_norm)
        steps.append((result.step, result.alarmed, result.admitted, is_nan, tuple(job.ctl.high)))
    return steps


@pytest.mark.parametrize("how", ["loss", "copy"])
def test_one_rank_sees_nan(how: str) -> None:
    first, second = run_ranks(one_sees_nan, 2, how)
    assert first == second
    assert [step[1] for step in first] == [False] * 5 + [True, False]
    assert first[5][3]
    if how == "copy":
        assert first[5][2] == ("layers.2.up",)


def pieces_by_word(rank: int) -> tuple[float, float, list[str]]:
    """Each rank calls its own expert `expert`; equal names are different pieces."""
    torch.manual_seed(rank)
    model = torch.nn.ModuleDict({"expert": torch.nn.Linear(8 + rank, 4), "shared": torch.nn.Linear(4, 4)})
    with pytest.raises(gnmr.Error, match="laid out alike"):
        gnmr.attach(model, quiet=True)
    ctl = gnmr.attach(model, quiet=True, strict=True, replicas={"expert.*": None})
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1.0)
    result = ctl.step()
    return result.wait().total_norm, ctl.supervisor.mean_norm(0), [unit.name for unit in ctl.units]


def test_pieces_of_their_own() -> None:
    for total, expert, names in run_ranks(pieces_by_word, 2):
        assert names == ["expert", "shared"]
        assert expert == pytest.approx(math.sqrt(4 * 8 + 4 * 9 + 8))
        assert total == pytest.approx(math.sqrt(4 * 8 + 4 * 9 + 8 + 20))


def copies_in_groups(rank: int) -> tuple[float, float]:
    """Ranks 0 and 2, and 1 and 3, hold the same expert under the same name."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    model = torch.nn.ModuleDict(
        {"expert": torch.nn.Linear(8, 4, bias=False), "shared": torch.nn.Linear(4, 4, bias=False)}
    )
    ctl = gnmr.attach(model, quiet=True, strict=True, replicas={"expert.*": groups[rank % 2]})
    model.expert.weight.grad = torch.full((4, 8), 1.0 + rank % 2)
    model.shared.weight.grad = torch.ones(4, 4)
    return ctl.step().wait().total_norm, ctl.supervisor.mean_norm(0)


def test_copies_in_groups() -> None:
    for total, expert in run_ranks(copies_in_groups, 4):
        assert expert == pytest.approx(math.sqrt(32 + 4 * 32)) and total == pytest.approx(math.sqrt(32 + 4 * 32 + 16))


def partial_sums(rank: int) -> tuple[float, float, float]:
    """A gradient whose parts have not been added yet, as tensor parallel may leave it."""
    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
    model[0].weight = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Replicate()]))
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model[0].weight.grad = DTensor.from_local(torch.full((4, 4), 1.0 + 2 * rank), mesh, [Partial()])
    result = ctl.step(max_norm=1.0)
    return result.wait().total_norm, float(model[0].weight.grad.full_tensor().norm()), ctl.supervisor.mean_norm(0)


def test_partial_sums_are_added() -> None:
    # Norms of the parts would say sqrt(160).
    for total, clipped, norm in run_ranks(partial_sums, 2):
        assert total == norm == pytest.approx(16.0) and clipped == pytest.approx(1.0, rel=1e-5)


def frozen_layer(rank: int, size: int) -> tuple[float, float]:
    job = Job("none", rank, size, recipe="fp8-tensorwise")
    job.ctl.detach()
    job.model.requires_grad_(False)
    job.model.head.requires_grad_(True)
    ctl = gnmr.attach(job.model, recipe="fp8-tensorwise", quiet=True, strict=True)
    x, y = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 8
    job.model.layers[0].register_forward_pre_hook(lambda module, args: (args[0].requires_grad_(),))
    functional.cross_entropy(job.model(x.chunk(size)[rank]), y.chunk(size)[rank]).backward()
    if size > 1:
        for parameter in job.model.head.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
    wanted = float(get_total_norm([parameter.grad for parameter in job.model.head.parameters()]))
    return ctl.step().wait().total_norm / wanted, ctl.supervisor.mean_norm(0)


def test_a_frozen_unit_has_the_norm_of_its_output() -> None:
    one = run_ranks(frozen_layer, 1, 1)[0]
    for total, norm in run_ranks(frozen_layer, 2, 2):
        # The casts of two halves of a batch are not those of the whole.
        assert total == pytest.approx(1, rel=1e-5) and norm == pytest.approx(one[1], rel=0.1) and norm > 0


def refused(rank: int) -> list[str]:
    said = []

    def attempt(run: Any) -> None:
        try:
            run()
        except gnmr.Error as error:
            said.append(str(error))

    attempt(lambda: Job("tp", rank, 2, recipe="fp8-tensorwise"))
    attempt(lambda: Job("tp-before", rank, 2, recipe="fp8-tensorwise").backward(1))
    attempt(lambda: Job("ddp", rank, 2, max_o=1.0 + rank))
    attempt(lambda: Job("ddp", rank, 2, beta=7.0) if rank == 1 else Job("ddp", rank, 2))
    return said


def test_what_is_refused() -> None:
    first, second = run_ranks(refused, 2)
    for said in (first, second):
        assert len(said) == 4
        assert "is tensor parallel" in said[0] and "is tensor parallel" in said[1]
        assert "same arguments on all ranks" in said[2]
    assert first[3].startswith("rank 1 failed") and "beta" in second[3]


def test_the_order_of_units() -> None:
    assert merged([["a", "b"], ["a", "b"]]) == ["a", "b"]
    assert merged([["a.0", "a.1"], ["a.2", "a.3"]]) == ["a.0", "a.1", "a.2", "a.3"]
    assert merged([["s", "e.0", "e.1", "t"], ["s", "e.2", "t"]]) == ["s", "e.0", "e.1", "e.2", "t"]
    assert merged([["b"], ["a", "b", "c"]]) == ["a", "b", "c"]
    assert merged([]) == []
