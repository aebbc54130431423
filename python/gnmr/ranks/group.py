# SPDX-License-Identifier: Apache-2.0
"""The processes of a run on torch.distributed: what GNMR says to all of them, and nothing that the loop says.

Goals: one place that calls collectives; tensors lie where the group's backend wants them; whatever fails on one rank
before a meeting fails on all. Non-goals: what the numbers mean (gnmr.ranks.exchange), who holds what
(gnmr.ranks.pieces).

All ranks of the group call the same members in the same order.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gnmr._core import Error
from gnmr.low.device_stream import OnItsWay

if dist.is_available():
    from torch.distributed import ProcessGroup as ProcessGroup
else:

    class ProcessGroup:  # type: ignore[no-redef]
        """There is none: torch can be built without them."""


_Result = TypeVar("_Result")

#: A group, None (the default group, where torch.distributed is initialised) or False (each process for itself).
Group = ProcessGroup | Literal[False] | None


class Sum:
    """A sum over ranks that is under way."""

    def __init__(self, numbers: Tensor, work: Any) -> None:
        self.device = numbers.device
        self._numbers = numbers
        self._work = work
        self._sent: OnItsWay | None = None

    def where_it_is(self) -> Tensor:
        """Where it is made; on a device the stream waits for it, not the host."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._numbers

    def send(self) -> None:
        """Sends it to the host, which does not wait."""
        if self._sent is None:
            self._sent = OnItsWay(self.where_it_is())

    def on_host(self) -> Tensor:
        """Waits for it."""
        self.send()
        assert self._sent is not None
        return self._sent.arrived()


class Ranks:
    """The ranks of one process group; rank 0 of it speaks for all."""

    def __init__(self, group: ProcessGroup, device: torch.device) -> None:
        self._group = group
        self.device = device
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    @property
    def leads(self) -> bool:
        """Whether this rank prints, and writes the journal."""
        return self.rank == 0

    def number_in(self, group: ProcessGroup) -> int:
        """The first member of another group, by which its members know it."""
        return min(dist.get_process_group_ranks(group))

    def sum(self, numbers: Tensor) -> "Sum":
        """Starts the sum over all ranks."""
        there = numbers.to(self.device)
        return Sum(there, dist.all_reduce(there, group=self._group, async_op=True))

    def who(self, is_meant: bool) -> list[int]:
        """The ranks that say yes."""
        flags = torch.zeros(self.size, dtype=torch.float64, device="cpu")
        flags[self.rank] = float(is_meant)
        return [rank for rank, yes in enumerate(self.sum(flags).on_host().tolist()) if yes]

    def gather(self, value: Any) -> list[Any]:
        """What each rank has."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def spread(self, value: _Result, source: int) -> _Result:
        """What rank `source` has."""
        values = [value if self.rank == source else None]
        dist.broadcast_object_list(values, src=dist.get_global_rank(self._group, source), group=self._group)
        result: Any = values[0]
        return result  # type: ignore[no-any-return]

    def together(self, run: Callable[[], _Result]) -> _Result:
        """Does something on all ranks; where it fails on one it fails on all, so that nobody waits for it."""
        failure: Exception | None = None
        result: _Result | None = None
        try:
            result = run()
        except Exception as caught:
            failure = caught
        texts = self.gather(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for rank, text in enumerate(texts):
            if text is not None:
                raise Error(f"rank {rank} failed: {text}")
        return result  # type: ignore[return-value]


def ranks_of(group: Group, model: nn.Module) -> Ranks | None:
    """The ranks of a group; None: there is one process, or each is for itself."""
    if group is False or not dist.is_available() or not dist.is_initialized():
        if isinstance(group, ProcessGroup):
            raise Error("process_group: expected torch.distributed to be initialised")
        return None
    chosen = dist.group.WORLD if group is None else group
    if chosen is None or dist.get_rank(chosen) < 0:
        raise Error("process_group: expected a group that this process belongs to")
    if dist.get_world_size(chosen) == 1:
        return None
    return Ranks(chosen, _device_for(chosen, model))


def _device_for(group: ProcessGroup, model: nn.Module) -> torch.device:
    """Where the group can reduce: on the host, unless only, or better, on the device where the gradients are."""
    backends = dict(part.split(":", 1) for part in dist.get_backend_config(group).split(",") if ":" in part)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if backends.get(device.type) == "nccl" or "cpu" not in backends:
        # Parameters may still be without memory (meta) where nccl is the only backend.
        if device.type == "cuda":
            return device
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
