# SPDX-License-Identifier: Apache-2.0
"""Several processes on this machine for tests, over gloo; and a small model laid over them in the usual ways."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch._dynamo  # what DistributedDataParallel loads: once, and not in each child
import torch.distributed as dist
from small_model import Block, make_model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import gnmr

# A process that has used its threads cannot be forked; and there are more processes than cores.
torch.set_num_threads(1)


def run_ranks(work: Callable[..., Any], count: int, *args: Any, may_fail: bool = False) -> list[Any]:
    """What `work(rank, *args)` returns on each of so many ranks; None: the process ended without a word. With
    `may_fail` an error is a result, as a text."""
    seconds = 60
    context = multiprocessing.get_context("fork")
    results: list[Any] = [None] * count
    all_said = context.Event()
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes = []
        for rank in range(count):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(work, rank, count, folder, theirs, all_said, args))
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        try:
            open_pipes = dict(zip(pipes, range(count), strict=True))
            while open_pipes:
                ready = wait(list(open_pipes), timeout=seconds)
                assert ready, f"ranks {sorted(open_pipes.values())} said nothing for {seconds} s"
                for pipe in ready:
                    rank = open_pipes.pop(pipe)
                    try:
                        fine, results[rank] = pipe.recv()
                    except EOFError:
                        continue
                    assert fine or may_fail, f"rank {rank}: {results[rank]}"
        finally:
            all_said.set()
            for process in processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.kill()
    return results


def _child(
    work: Callable[..., Any], rank: int, count: int, folder: str, pipe: Connection, all_said: Any, args: tuple
) -> None:
    try:
        if count > 1:
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count, timeout=timedelta(seconds=40)
            )
            # Whoever is connected may be gone before another one is.
            dist.barrier()
        pipe.send((True, work(rank, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        # Others may still be reading what this rank has sent.
        all_said.wait(timeout=60)
        # What a test runner does at its end is not for its children.
        os._exit(0)


class Tally:
    """A switch without any effect on numbers: decisions can be compared between layouts."""

    def __init__(self, module: nn.Linear) -> None:
        self.cost = 3 * module.in_features * module.out_features
        self.high = False

    def set_high(self, high: bool) -> None:
        self.high = high


class Stage(nn.Module):
    """Some layers of the small model, with the names that they have there."""

    def __init__(self, whole: nn.Module, layers: range, is_last: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): whole.layers[index] for index in layers})
        self.norm = whole.norm if is_last else None
        self.head = whole.head if is_last else None

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


class Experts(nn.Module):
    """A layer that all tokens go through, then one of four experts each."""

    def __init__(self, experts: range) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.shared = nn.Linear(32, 32)
        everyone = [Block(32, 0.0) for _ in range(4)]
        self.experts = nn.ModuleDict({str(index): everyone[index] for index in experts})

    def forward(self, x: Tensor) -> Tensor:
        parts = self.shared(x).chunk(4)
        return torch.stack([expert(parts[int(name)]).square().mean() for name, expert in self.experts.items()]).sum()


def global_batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(32, 32, generator=generator), torch.randint(0, 8, (32,), generator=generator)


class Job:
    """The small model, laid out as `kind` says, with what a step of it is on this rank."""

    def __init__(self, kind: str, rank: int = 0, size: int = 1, recipe: str | None = None, **options: Any) -> None:
        if recipe is None:
            gnmr.register_switch(nn.Linear, lambda name, module: Tally(module))
        self.kind, self.rank, self.size = kind, rank, size
        self.model: nn.Module = Experts(range(4)) if kind == "experts" else make_model(blocks=4)
        self.before = kind.endswith("-before")
        settings = {
            "quiet": True,
            "strict": True,
            "recipe": recipe,
            "warmup_samples": 4,
            "lock_steps": 3,
            "common_share": 1.0,
            "max_o": 3.0,
            **options,
        }
        if self.before:
            self.ctl = gnmr.attach(self.model, **settings)
        if size > 1:
            self._lay_out(kind.removesuffix("-before"))
        if not self.before:
            self.ctl = gnmr.attach(self.model, **settings)
        inner = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        self.named = dict(inner.named_parameters())

    def _lay_out(self, kind: str) -> None:
        rank, size, model = self.rank, self.size, self.model
        self.data_ranks = size
        if kind == "ddp":
            self.model = DistributedDataParallel(model)
        elif kind in ("fsdp", "hsdp"):
            shape, names = ((size,), ("shard",)) if kind == "fsdp" else ((2, size // 2), ("copies", "shard"))
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        elif kind in ("tp", "fsdp+tp"):
            mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
            plan = {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
            parallelize_module(model, mesh["tensor"], plan)
            self.data_ranks = size // 2
            if kind == "fsdp+tp":
                fully_shard(model, mesh=mesh["data"])
        elif kind == "pipeline":
            self.data_ranks = 1
            self.model = Stage(model, range(rank * 4 // size, (rank + 1) * 4 // size), rank == size - 1)
        elif kind == "experts":
            self.model = Experts(range(rank * 4 // size, (rank + 1) * 4 // size))

    def backward(self, step: int) -> Tensor:
        """Forward and backward of one step on this rank's part of the batch."""
        x, y = global_batch(step)
        if self.kind == "experts":
            loss = self.model(x)
            loss.backward()
            if self.size > 1:
                for parameter in self.model.shared.parameters():
                    dist.all_reduce(parameter.grad)
            return loss.detach()
        if self.kind == "pipeline" and self.size > 1:
            return self._stage(x, y)
        if self.size > 1 and self.data_ranks > 1:
            # Ranks that hold parts of the same layers have the same data.
            data_rank = self.rank * self.data_ranks // self.size
            x, y = x.chunk(self.data_ranks)[data_rank], y.chunk(self.data_ranks)[data_rank]
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss.detach()

    def _stage(self, x: Tensor, y: Tensor) -> Tensor:
        if self.rank > 0:
            dist.recv(x, self.rank - 1)
            x.requires_grad_()
        out = self.model(x)
        if self.rank == self.size - 1:
            loss = functional.cross_entropy(out, y)
            loss.backward()
        else:
            dist.send(out.detach(), self.rank + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, self.rank + 1)
            out.backward(gradient)
            loss = torch.zeros(())
        if self.rank > 0:
            dist.send(x.grad, self.rank - 1)
        return loss.detach()

    def disturb(self, name: str, factor: float) -> None:
        """Multiplies a parameter's gradient wherever it is."""
        if name in self.named:
            parameter = self.model.get_parameter(
                ("module." if self.kind.startswith("ddp") and self.size > 1 else "") + name
            )
            parameter.grad.mul_(factor)

    def step(self, step: int, **kwargs: Any) -> tuple[Any, ...]:
        """One step with disturbances that are a function of it; what was decided."""
        self.model.zero_grad()
        loss = self.backward(step)
        prefix = "experts" if self.kind == "experts" else "layers"
        if step in (8, 9, 15):
            self.disturb(f"{prefix}.{step % 4}.down.weight", 50.0)
        if step == 12:
            self.disturb(f"{prefix}.1.up.weight", 1e-3)
        result = self.ctl.step(max_norm=1.0, loss=loss, **kwargs)
        return (
            result.step,
            result.wait().total_norm,
            result.alarmed,
            result.admitted,
            result.released,
            result.recovered,
            tuple(self.ctl.high),
            self.ctl.mode,
        )
