# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a control report to each other in each step, and what all of them then do alike.

Goals: a fault, a mode or a decision of one rank is that of all. Non-goals: collectives (gnmr.ranks.exchange).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from gnmr._core import Error
from gnmr.ranks.exchange import CommonStatus, Exchange, RankStatus
from gnmr.step import registrations

if TYPE_CHECKING:
    from gnmr.step.steps import Steps

#: Decisions of ranks that differ before all of them stop.
MOST_DIFFERENCES = 3


class Agreement:
    """The status that ranks exchange. With one process it is that of the process."""

    def __init__(self, steps: "Steps", exchange: Exchange | None) -> None:
        self.exchange = exchange
        self._steps = steps
        self.begun_checksum = 0  # when the step that goes on began
        self._differences = 0  # decisions of a rank that were not those of rank 0
        self._has_warned = False  # of copies with different gradients

    @property
    def is_open(self) -> bool:
        """Whether there are other ranks that can be reached, and that have not learned of a fault yet."""
        exchange = self.exchange
        return exchange is not None and not (exchange.fault_is_known or exchange.is_broken)

    def status(self, checksum: Callable[[], int], *, skipped: bool, may_rerun: bool = False) -> RankStatus:
        """What this rank reports; a fault is part of it, since the other ranks are waiting."""
        steps = self._steps
        status = RankStatus(skipped=skipped, may_rerun=may_rerun)
        try:
            if registrations.changes != steps.known_registrations or steps.number % registrations.LOOK_EVERY == 0:
                steps.look_at_parameters()
            if self.exchange is not None:
                status.mode, status.why = steps.requested_mode()
                status.checksum = checksum()
        except Exception as fault:
            status.failure = fault
        return status

    def read(self, status: RankStatus) -> CommonStatus:
        """The status of all ranks."""
        if self.exchange is None:
            return CommonStatus(failure=status.failure, skipped=status.skipped, may_rerun=status.may_rerun)
        return self.exchange.run(status)[0]

    def check(self, failure: Exception | None) -> None:
        """Before a rerun: raises where a rank is not ready for it."""
        failure = self.read(RankStatus(failure)).failure
        if failure is not None:
            raise failure

    def follow(self, common: CommonStatus, status: RankStatus, unlike: list[int]) -> None:
        """All ranks do together what one of them has reported; `unlike`: units whose copies had different norms."""
        steps = self._steps
        if common.failure is not None:
            raise common.failure
        if common.mode:
            why = status.why if common.mode == status.mode else "the kill switch of a rank says so"
            steps.requests.append((common.mode, why))
        if common.differs:
            self.take_over(common)
        if unlike and not self._has_warned:
            self._has_warned = True
            steps.warn(
                f"gradients of {len(unlike)} units are not the same on all ranks that have "
                f"them ({', '.join(steps.names(unlike[:3]))}): are they averaged before "
                "ctl.step?"
            )

    def take_over(self, common: CommonStatus) -> None:
        """A rank has another state than rank 0: that of rank 0 holds for all."""
        assert self.exchange is not None
        steps, ranks = self._steps, self.exchange.ranks
        supervisor, before = steps.parts.supervisor, steps.number
        differing = ranks.who(common.differs_here)
        mine = (supervisor.save(), steps.switchboard.rules, supervisor.mode, steps.number, steps.tally)
        # A rank with a fault of its own takes part, and has no state to offer: all will learn of that next.
        found = ranks.spread(None if steps.fault else mine, 0)
        if found is not None and not steps.fault:
            state, steps.switchboard.rules, mode, steps.number, steps.tally = found
            # On all of them, so that states stay the same to the last byte.
            supervisor.restore(state)
            supervisor.set_rules(steps.switchboard.rules)
            supervisor.set_mode(mode, "rank 0 says so")
            supervisor.begin(steps.number + 1)
            steps.move_switches()
            self._differences += 1
            steps.say(
                f"step {steps.number + 1}: what rank {', '.join(map(str, differing))} had decided, or received, was "
                "not what rank 0 has, which holds for all from here on"
            )
            if self._differences == MOST_DIFFERENCES:
                self.exchange.fault_is_known = True
                raise Error(f"ranks decided differently {self._differences} times")
        steps.strategy.renumber(steps.number - before)

    def report_fault(self, fault: str) -> None:
        """A fault after this step's exchange: the other ranks learn of it in the next one."""
        if self.exchange is None or not self.is_open:
            return
        try:
            self.exchange.run(RankStatus(Error(fault)), self._steps.parts.gradients.nothing())
        except Exception as second:
            self._steps.say(f"nor could the other ranks be informed: {second}")

    def sum(self, square: float) -> float:
        """Of a number of each rank."""
        assert self.exchange is not None
        numbers = torch.tensor([square], dtype=torch.float64, device="cpu")
        return float(self.exchange.ranks.sum(numbers).on_host())
