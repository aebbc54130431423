# SPDX-License-Identifier: Apache-2.0
"""The one all-reduce of a step: numbers of units, and what ranks report to each other.

    sums of squares   one per unit and one of all that belongs to none; of copies one counts, but what is not finite
                      on any of them is not finite for all
    samples           one per unit
    errors            of a patrol or a trial: differences, references and samples, one per unit and site
    head              faults, failures, skipped steps, the kill switch, the checksum of the step before

Goals: every rank reads the same numbers, so every rank decides the same; the collective is entered in every step,
whatever went wrong before it. Only where a rank reports trouble do more follow, on all ranks alike.
Non-goals: deciding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.norms.local_sums import moved
from gnmr.ranks.group import Ranks, Sum
from gnmr.step.rerun import ClosureFailed, is_about_memory

_MODES = ("armed", "watch", "high")  # a later one is the more careful one
_KINDS = ("closure", "fault", "memory")  # of failures; an earlier one decides what all ranks do
_HEAD = (*_KINDS, "skipped", "reruns", "checksums", "rank 0's checksum", "rank 0's mode", *_MODES)
_AT = {name: index for index, name in enumerate(_HEAD)}


class RankFault(Error):
    """GNMR failed on another rank."""


@dataclass
class RankStatus:
    """What one rank reports to all of them in a step."""

    failure: Exception | None = None
    skipped: bool = False
    may_rerun: bool = False
    mode: str = ""  # that the kill switch of this rank asks for
    why: str = ""  # it does; stays on this rank
    checksum: int = 0


@dataclass
class CommonStatus:
    """What the ranks have reported, as all of them know it."""

    failure: Exception | None = None  # of this rank, or of another one
    skipped: bool = False
    may_rerun: bool = True
    mode: str = ""
    differs: bool = False  # some rank's checksum is not that of rank 0
    differs_here: bool = False


@dataclass
class PendingExchange:
    """An exchange that this rank has entered, and whose sums are on their way."""

    status: RankStatus  # of this rank
    total: Sum
    count: int  # of the numbers of units; errors follow

    def numbers_are_on(self, device: torch.device) -> bool:
        """Whether they are added up there."""
        return self.total.device == device

    def numbers(self) -> Tensor:
        """The sums of the numbers where they are added up: without a wait on a device."""
        return self.total.where_it_is()[len(_HEAD) : len(_HEAD) + self.count]

    def trouble(self, ranks: int) -> Tensor:
        """There too: above 0 where a rank reports a failure, skips the step or differs."""
        head = self.total.where_it_is()
        differ = head[_AT["checksums"]] - ranks * head[_AT["rank 0's checksum"]]
        return head[: len(_KINDS) + 1].sum() + differ.abs()


class Exchange:
    """The all-reduce of all ranks."""

    def __init__(self, ranks: Ranks, error_count: int = 0) -> None:
        """`error_count`: how many sums of errors belong to the numbers of each step."""
        self.ranks = ranks
        self._error_count = error_count
        self.is_broken = False  # the collective itself failed: no rank can be reached
        self.fault_is_known = False  # all ranks know of one

    def run(
        self, status: RankStatus, numbers: Tensor | None = None, errors: Tensor | None = None
    ) -> tuple[CommonStatus, Tensor, Tensor]:
        """Starts an exchange and waits for it: the status of all ranks, and the sums of their numbers and errors."""
        pending = self.start(status, numbers, errors)
        return self.finish(pending), self.numbers(pending), self.errors(pending)

    def start(self, status: RankStatus, numbers: Tensor | None = None, errors: Tensor | None = None) -> PendingExchange:
        """All ranks enter, and go on before the sums are there. Numbers on a device are added up there. A rank that has
        numbers and no errors adds none."""
        head, count = self._head_of(status), 0
        if numbers is not None:
            count = len(numbers)
            if errors is None:
                errors = torch.zeros(self._error_count, dtype=torch.float64, device=numbers.device)
            head = torch.cat([moved(head, numbers.device), numbers, moved(errors, numbers.device)])
        try:
            return PendingExchange(status, self.ranks.sum(head), count)
        except Exception:
            self.is_broken = True
            raise

    def finish(self, pending: PendingExchange) -> CommonStatus:
        """The status of all ranks; waits for it."""
        try:
            return self._common_status(pending.status, self._total(pending)[: len(_HEAD)].tolist())
        except Exception:
            self.is_broken = True
            raise

    def numbers(self, pending: PendingExchange) -> Tensor:
        """The sums of the numbers, whatever the ranks report; waits for them."""
        return self._total(pending)[len(_HEAD) : len(_HEAD) + pending.count]

    def errors(self, pending: PendingExchange) -> Tensor:
        """The sums of the errors; waits for them."""
        return self._total(pending)[len(_HEAD) + pending.count :]

    def _total(self, pending: PendingExchange) -> Tensor:
        try:
            return pending.total.on_host()
        except Exception:
            self.is_broken = True
            raise

    def is_troubled(self, pending: PendingExchange) -> bool:
        """Whether what the ranks report needs another exchange; waits for it."""
        head = self._total(pending)[: len(_HEAD)].tolist()
        differ = int(head[_AT["checksums"]]) != self.ranks.size * int(head[_AT["rank 0's checksum"]])
        return differ or any(head[_AT[kind]] for kind in _KINDS)

    def _head_of(self, status: RankStatus) -> Tensor:
        head = torch.zeros(len(_HEAD), dtype=torch.float64, device="cpu")
        if status.failure is not None:
            head[_AT[_kind_of(status.failure)]] = 1
        head[_AT["skipped"]] = float(status.skipped)
        head[_AT["reruns"]] = float(status.may_rerun)
        head[_AT["checksums"]] = status.checksum
        if self.ranks.leads:
            head[_AT["rank 0's checksum"]] = status.checksum
            head[_AT["rank 0's mode"]] = 1 + _MODES.index(status.mode) if status.mode else 0
        if status.mode:
            head[_AT[status.mode]] = 1
        return head

    def _common_status(self, status: RankStatus, head: Sequence[float]) -> CommonStatus:
        def total(name: str) -> int:
            return int(head[_AT[name]])

        modes = [mode for mode in _MODES if total(mode)]
        mode = _MODES[total("rank 0's mode") - 1] if total("rank 0's mode") else (modes or [""])[-1]
        kind = next((one for one in _KINDS if total(one)), "")
        return CommonStatus(
            failure=self._common_failure(status.failure, kind) if kind else None,
            skipped=total("skipped") > 0,
            may_rerun=total("reruns") == self.ranks.size,
            mode=mode,
            differs=total("checksums") != self.ranks.size * total("rank 0's checksum"),
            differs_here=status.checksum != total("rank 0's checksum"),
        )

    def _common_failure(self, mine: Exception | None, kind: str) -> Exception:
        """The same kind of failure on all ranks, with the message of the first rank that has it."""
        has_it = mine is not None and _kind_of(mine) == kind
        ranks = self.ranks.who(has_it)
        cause = mine.cause if isinstance(mine, ClosureFailed) else mine
        text = self.ranks.spread(f"{type(cause).__name__}: {cause}" if has_it else "", ranks[0])
        self.fault_is_known = self.fault_is_known or kind == "fault"
        if has_it and mine is not None:
            return mine
        where = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
        if kind == "fault":
            return RankFault(f"on {where}: {text}")
        message = f"the closure failed on {where}: {text}"
        return ClosureFailed(MemoryError(message) if kind == "memory" else Error(message))


def _kind_of(failure: Exception) -> str:
    if not isinstance(failure, ClosureFailed):
        return "fault"
    return "memory" if is_about_memory(failure.cause) else "closure"
