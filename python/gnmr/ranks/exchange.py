# SPDX-License-Identifier: Apache-2.0
"""The one all-reduce of a step: numbers of units, and what ranks have to tell each other.

    sums of squares   one a unit and one of all that belongs to none; of copies one counts, but what is not finite
                      on any of them is not finite for all
    samples           one a unit
    head              faults, failures, skipped steps, the kill switch, the checksum of the step before

Goals: every rank reads the same numbers, so every rank decides the same; the collective is entered in every step,
whatever went wrong before it. Only where a rank tells of trouble do more follow, on all ranks alike.
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
class Word:
    """What a rank has to say in a meeting."""

    failure: Exception | None = None
    skipped: bool = False
    may_rerun: bool = False
    mode: str = ""  # that the kill switch asks for
    why: str = ""  # it does; not told
    checksum: int = 0


@dataclass
class Heard:
    """What all ranks have said."""

    failure: Exception | None = None  # of this rank, or of another one
    skipped: bool = False
    may_rerun: bool = True
    mode: str = ""
    differs: bool = False  # some rank's checksum is not that of rank 0
    differs_here: bool = False


@dataclass
class Meeting:
    """One that has been entered."""

    word: Word  # of this rank
    total: Sum

    def numbers_are_on(self, device: torch.device) -> bool:
        """Whether they are added up there."""
        return self.total.device == device

    def numbers(self) -> Tensor:
        """The sums of the numbers where they are added up: without a wait on a device."""
        return self.total.where_it_is()[len(_HEAD) :]


class Exchange:
    """Meetings of all ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.is_broken = False  # the collective itself failed: there is nobody to talk to
        self.fault_is_known = False  # all ranks have heard of one

    def meet(self, word: Word, numbers: Tensor | None = None) -> tuple[Heard, Tensor]:
        """All ranks enter; the sums of the numbers come back."""
        return self.hear(self.enter(word, numbers))

    def enter(self, word: Word, numbers: Tensor | None = None) -> Meeting:
        """All ranks enter, and go on without having heard each other. Numbers on a device are added up there."""
        head = self._head_of(word)
        if numbers is not None:
            head = torch.cat([moved(head, numbers.device), numbers])
        try:
            return Meeting(word, self.ranks.sum(head))
        except Exception:
            self.is_broken = True
            raise

    def hear(self, meeting: Meeting) -> tuple[Heard, Tensor]:
        """What was said, and the sums of the numbers; waits for them."""
        try:
            return self._heard(meeting.word, self._total(meeting)[: len(_HEAD)].tolist()), self.numbers(meeting)
        except Exception:
            self.is_broken = True
            raise

    def numbers(self, meeting: Meeting) -> Tensor:
        """The sums of the numbers, whatever was said; waits for them."""
        return self._total(meeting)[len(_HEAD) :]

    def _total(self, meeting: Meeting) -> Tensor:
        try:
            return meeting.total.on_host()
        except Exception:
            self.is_broken = True
            raise

    def is_troubled(self, meeting: Meeting) -> bool:
        """Whether what was said makes the ranks meet again."""
        head = self._total(meeting)[: len(_HEAD)].tolist()
        differ = int(head[_AT["checksums"]]) != self.ranks.size * int(head[_AT["rank 0's checksum"]])
        return differ or any(head[_AT[kind]] for kind in _KINDS)

    def _head_of(self, word: Word) -> Tensor:
        head = torch.zeros(len(_HEAD), dtype=torch.float64, device="cpu")
        if word.failure is not None:
            head[_AT[_kind_of(word.failure)]] = 1
        head[_AT["skipped"]] = float(word.skipped)
        head[_AT["reruns"]] = float(word.may_rerun)
        head[_AT["checksums"]] = word.checksum
        if self.ranks.leads:
            head[_AT["rank 0's checksum"]] = word.checksum
            head[_AT["rank 0's mode"]] = 1 + _MODES.index(word.mode) if word.mode else 0
        if word.mode:
            head[_AT[word.mode]] = 1
        return head

    def _heard(self, word: Word, head: Sequence[float]) -> Heard:
        def said(name: str) -> int:
            return int(head[_AT[name]])

        modes = [mode for mode in _MODES if said(mode)]
        mode = _MODES[said("rank 0's mode") - 1] if said("rank 0's mode") else (modes or [""])[-1]
        kind = next((one for one in _KINDS if said(one)), "")
        return Heard(
            failure=self._common_failure(word.failure, kind) if kind else None,
            skipped=said("skipped") > 0,
            may_rerun=said("reruns") == self.ranks.size,
            mode=mode,
            differs=said("checksums") != self.ranks.size * said("rank 0's checksum"),
            differs_here=word.checksum != said("rank 0's checksum"),
        )

    def _common_failure(self, mine: Exception | None, kind: str) -> Exception:
        """The same kind of failure on all ranks, with the words of the first rank that has it."""
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
        told = f"the closure failed on {where}: {text}"
        return ClosureFailed(MemoryError(told) if kind == "memory" else Error(told))


def _kind_of(failure: Exception) -> str:
    if not isinstance(failure, ClosureFailed):
        return "fault"
    return "memory" if is_about_memory(failure.cause) else "closure"
