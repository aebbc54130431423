# SPDX-License-Identifier: Apache-2.0
"""The numbers of a step with lag 1: they are read, clipped by and put on their way; whoever wants them later waits.

Goals: nothing waits before it must; all ranks enter their one exchange, whatever goes wrong on this one.
Non-goals: deciding (gnmr.step.late).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnmr.low.device_stream import OnItsWay
from gnmr.low.layer_switch import LayerSwitch
from gnmr.norms.gradients import Gradients
from gnmr.norms.local_sums import LocalSums
from gnmr.ranks.exchange import CommonStatus, Exchange, PendingExchange, RankStatus
from gnmr.ranks.joining import Joined
from gnmr.step.patrol import PatrolErrors
from gnmr.step.rerun import ErrorSquares


class LateOutputs:
    """Squared norms of units that are not made from parameters' gradients, some of them on their way to the host."""

    def __init__(self, squares: Mapping[int, float | Tensor | None]) -> None:
        self._found: dict[int, float | None] = {}
        by_device: dict[torch.device, dict[int, Tensor]] = {}
        for unit, square in squares.items():
            if isinstance(square, Tensor):
                by_device.setdefault(square.device, {})[unit] = square
            else:
                self._found[unit] = square
        self._sent = [(list(there), OnItsWay(torch.stack(list(there.values())))) for there in by_device.values()]

    def read(self) -> dict[int, float | None]:
        """Waits for them."""
        while self._sent:
            units, sent = self._sent.pop()
            self._found.update(zip(units, sent.arrived().tolist(), strict=True))
        return self._found


@dataclass
class PendingStep:
    """A step whose numbers are on their way."""

    step: int
    status: RankStatus
    limit: float  # of clipping; infinite: there is none
    loss: Callable[[], float | None] | None = None
    local: LocalSums | None = None  # None: nothing was measured
    patrolled: PatrolErrors | None = None  # on this rank
    errors: Any = None  # a buffer: what was measured beside the step on all ranks, once it is known
    outputs: LateOutputs | None = None
    exchange: PendingExchange | None = None
    common: CommonStatus | None = None  # of all ranks, once it is known
    clip_failure: Exception | None = None  # of this rank alone, after the exchange was entered
    differences_settled: bool = False  # rank 0's state was taken over since: what differs in it is no news


class LateNumbers:
    """Measures these gradients, on one process or on many, and clips them before the numbers are on the host."""

    def __init__(self, gradients: Gradients, joined: Joined, exchange: Exchange | None) -> None:
        self.gradients = gradients
        self.unlike: list[int] = []  # units whose copies had different norms in the last step that was read
        self._exchange = exchange
        self._outputs = joined.outputs
        self._frozen = frozen_units(joined)

    def start(self, pending: PendingStep) -> None:
        """Has all gradients read, enters the exchange of all ranks, and clips. A failure before the exchange is
        part of the status that all ranks learn; one after it is in `clip_failure`."""
        numbers: Tensor | None = None
        errors: Tensor | None = None
        status = pending.status
        if status.failure is None and not status.skipped:
            try:
                pending.local = self.gradients.measure(wait=False)
                if self._frozen:
                    self.gradients.outputs = {index: switch.output_number for index, switch in self._frozen}
                if self._exchange is not None:
                    numbers = self.gradients.contribution(pending.local)
                    errors = pending.patrolled.numbers(numbers.device) if pending.patrolled is not None else None
                elif self._frozen:
                    pending.outputs = LateOutputs(self.gradients.outputs)
            except Exception as caught:
                status.failure = caught
                pending.local = None
        if self._exchange is None:
            pending.common = CommonStatus(failure=status.failure, skipped=status.skipped, may_rerun=status.may_rerun)
            if status.failure is not None:
                return
        else:
            if numbers is None:
                # Clipping goes by the gradients of all ranks, whatever went wrong here.
                numbers, errors = self.gradients.nothing() if status.skipped else self.gradients.all_as_rest(), None
            pending.exchange = self._exchange.start(status, numbers, errors)
        if status.skipped:
            return
        try:
            self._clip(pending)
        except Exception as caught:
            pending.clip_failure = caught

    def _clip(self, pending: PendingStep) -> None:
        """On a device, by sums that the host has not seen; elsewhere they are awaited. The status of the other ranks
        is not looked at here: that happens a step later, on all ranks together."""
        local, exchange = pending.local, pending.exchange
        if (
            local is not None
            and local.device is not None
            and (exchange is None or exchange.numbers_are_on(local.device.device))
        ):
            if exchange is not None:
                self.gradients.put_back(exchange.numbers(), local, self._outputs)
                exchange.total.send()
            local.finish(pending.limit)
            return
        if local is not None and local.device is not None:
            local.finish(math.inf)
        if math.isinf(pending.limit):
            return
        if local is None:
            self.gradients.find_anyway()
        self._read(pending)
        self.gradients.scale(self.gradients.numbers.clip(pending.limit)[1])

    def _read(self, pending: PendingStep) -> None:
        """Norms and clipping are those of this step from here on; waits for its numbers."""
        if pending.exchange is not None:
            assert self._exchange is not None
            total = self._exchange.numbers(pending.exchange)
            self.unlike = self.gradients.take(total, self._outputs)
        elif pending.local is not None:
            local, numbers = pending.local, self.gradients.numbers
            numbers.replace(local.on_host() if local.values is None else local.values, local.sampled)
            outputs = pending.outputs.read() if pending.outputs is not None else {}
            for unit, square in outputs.items():
                numbers.set_unit(unit, -1.0 if square is None else square)

    def complete(self, pending: PendingStep) -> CommonStatus:
        """Waits for the numbers of a step, and for the status of all ranks."""
        if pending.common is None:
            assert self._exchange is not None and pending.exchange is not None
            pending.common = self._exchange.finish(pending.exchange)
        self._read(pending)
        if pending.patrolled is None:
            return pending.common
        if pending.exchange is None or self._exchange is None:
            pending.errors = pending.patrolled.errors()
        else:
            errors = ErrorSquares(1, len(pending.patrolled.nothing))
            errors.take(self._exchange.errors(pending.exchange))
            pending.errors = errors.errors()
        return pending.common

    def is_troubled(self, pending: PendingStep) -> bool:
        """Whether a rank reports something that all must act on together; waits for it."""
        if pending.exchange is None or self._exchange is None:
            return pending.common is not None and pending.common.failure is not None
        return self._exchange.is_troubled(pending.exchange)

    def norm(self, pending: PendingStep) -> float | Tensor:
        """The norm of all gradients of the step that was started last: a tensor where that saves a wait."""
        local, exchange = pending.local, pending.exchange
        there = local.device if local is not None else None
        if there is not None and (exchange is None or exchange.numbers_are_on(there.device)):
            return there.total_norm
        return self.numbers(pending)[0]

    def numbers(self, pending: PendingStep) -> tuple[float, float]:
        """The norm of all gradients of one of the last two steps, and what clipping multiplied them with; waits for
        them. NaN where this rank measured nothing."""
        if pending.local is None:
            return math.nan, 1.0
        self._read(pending)
        return self.gradients.total(pending.limit)


def frozen_units(joined: Joined) -> list[tuple[int, LayerSwitch[Any]]]:
    """Units of this process whose norm is that of their output's gradient, and who measures it."""
    return [
        (index, unit.switch)
        for index, unit in enumerate(joined.found.units)
        if isinstance(unit.switch, LayerSwitch) and unit.switch.measures_output
    ]
