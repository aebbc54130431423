# SPDX-License-Identifier: Apache-2.0
"""The numbers of a step: measured here, and with several ranks put together with those of the others.

Goals: one collective a step, entered whatever goes wrong on this rank. Non-goals: deciding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gnmr.device_stream import OnItsWay
from gnmr.gradients import Gradients
from gnmr.local_sums import LocalSums
from gnmr.low_linear import LowLinear
from gnmr.ranks_exchange import Exchange, Heard, Meeting, Word
from gnmr.ranks_joining import Joined
from gnmr.rerun import ErrorSquares


class LateOutputs:
    """Squared norms of units that are not made from parameters' gradients, some of them on their way to the host."""

    def __init__(self, squares: Mapping[int, float | Tensor | None]) -> None:
        self._here = {unit: square for unit, square in squares.items() if not isinstance(square, Tensor)}
        there = {unit: square for unit, square in squares.items() if isinstance(square, Tensor)}
        self._units = list(there)
        self._sent = OnItsWay(torch.stack(list(there.values()))) if there else None

    def read(self) -> dict[int, float | None]:
        """Waits for them."""
        arrived = self._sent.arrived().tolist() if self._sent is not None else []
        return {**self._here, **dict(zip(self._units, arrived, strict=True))}


@dataclass
class Pending:
    """The numbers of a step that are on their way."""

    step: int
    word: Word
    limit: float  # of clipping; infinite: there is none
    loss: Callable[[], float | None]
    local: LocalSums | None = None  # None: nothing was measured
    outputs: LateOutputs | None = None
    meeting: Meeting | None = None
    heard: Heard | None = None  # what all ranks have said, where somebody has listened
    total: Tensor | None = None  # with several ranks: the sums of all, likewise
    is_answered: bool = False  # whatever decisions of ranks differed in it


class Measurement:
    """Measures the gradients of a model, on one process or on many."""

    def __init__(self, gradients: Gradients, joined: Joined, exchange: Exchange | None) -> None:
        self.gradients = gradients
        self.exchange = exchange
        self.unlike: list[int] = []  # units whose copies had different norms in the last step
        self._outputs = joined.outputs
        self._frozen = [(index, unit.switch) for index, unit in enumerate(joined.found.units)
                        if isinstance(unit.switch, LowLinear) and unit.switch.measures_output]

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to meet."""
        return self.exchange is None or self.exchange.is_broken

    def step(self, word: Word, errors: ErrorSquares | None = None) -> Heard:
        """Reads all gradients, or nothing where the word tells of a failure or a skipped step; then all ranks meet."""
        failure = word.failure
        numbers: Tensor | None = None
        if failure is None and not word.skipped:
            try:
                self._here()
                numbers = self.gradients.contribution() if self.exchange is not None else None
            except Exception as caught:
                failure = caught
        if self.exchange is None:
            return Heard(failure=failure, skipped=word.skipped, may_rerun=word.may_rerun)
        if numbers is None:
            numbers = self.gradients.nothing()
        own = numbers if errors is None else torch.cat([numbers, errors.numbers()])
        heard, total = self.exchange.meet(replace(word, failure=failure), own)
        self.unlike = self.gradients.take(total[: len(numbers)], self._outputs)
        if errors is not None:
            errors.take(total[len(numbers):])
        return heard

    def start(self, pending: Pending) -> None:
        """Has all gradients read, clips them, and enters the meeting of all ranks; the numbers are awaited later. What
        goes wrong is in what is heard."""
        word = pending.word
        if word.failure is None and not word.skipped:
            try:
                pending.local = self.gradients.queue()
                outputs = {index: switch.output_number for index, switch in self._frozen}
                self.gradients.outputs = outputs
                pending.outputs = LateOutputs(outputs) if outputs and self.exchange is None else None
            except Exception as caught:
                pending.word = word = replace(word, failure=caught)
                pending.local = None
        if self.exchange is None:
            pending.heard = Heard(failure=word.failure, skipped=word.skipped)
        else:
            numbers = self.gradients.nothing() if pending.local is None else self.gradients.contribution(pending.local)
            pending.meeting = self.exchange.enter(word, numbers)
        if not word.skipped:
            self._clip(pending)

    def _clip(self, pending: Pending) -> None:
        """Clips before anybody knows the numbers, where they are added up on a device; else they are awaited."""
        local, meeting = pending.local, pending.meeting
        if (local is not None and local.device is not None
                and (meeting is None or meeting.numbers_are_on(local.device.device))):
            if meeting is not None:
                self.gradients.put_back(meeting.numbers(), local, self._outputs)
                meeting.total.send()
            local.finish(pending.limit)
            return
        if local is not None:
            local.finish(math.inf)
        if math.isinf(pending.limit):
            return
        if meeting is None or self.hears_at_once(pending.limit):
            if self.complete(pending).failure is not None:
                return
        else:
            if local is None:
                self.gradients.find()
            self._take_unheard(meeting)
        self.gradients.scale(self.gradients.total(pending.limit)[1])

    def _take_unheard(self, meeting: Meeting) -> None:
        """The sums of all ranks, without a word of what they have said: that is for all of them together."""
        self.gradients.take(meeting.total.on_host()[-len(self.gradients.nothing()):], self._outputs)

    def hears_at_once(self, limit: float) -> bool:
        """Whether all ranks wait for each other in the step itself: clipping needs the numbers of all, and they are
        added up on the host."""
        return self.exchange is not None and math.isfinite(limit) and self.exchange.ranks.device.type == "cpu"

    def complete(self, pending: Pending) -> Heard:
        """Waits for the numbers of a step: the gradients' norms are those from here on. Again: the same."""
        if self.exchange is None:
            assert pending.heard is not None
            if pending.local is not None:
                self.gradients.show(pending.local, pending.outputs.read() if pending.outputs is not None else {})
            return pending.heard
        if pending.heard is None or pending.total is None:
            assert pending.meeting is not None
            pending.heard, pending.total = self.exchange.hear(pending.meeting)
        self.unlike = self.gradients.take(pending.total, self._outputs)
        return pending.heard

    def is_troubled(self, pending: Pending) -> bool:
        """Whether a rank says something that all must hear together; waits for it."""
        if pending.heard is not None or pending.meeting is None or self.exchange is None:
            return pending.heard is not None and pending.heard.failure is not None
        return self.exchange.is_troubled(pending.meeting)

    def norm(self, pending: Pending) -> float | Tensor:
        """The norm of all gradients of the step that was started last: a tensor where that saves a wait."""
        local, meeting = pending.local, pending.meeting
        there = local.device if local is not None else None
        if there is not None and (meeting is None or meeting.numbers_are_on(there.device)):
            return there.total_norm
        return self.numbers(pending)[0]

    def numbers(self, pending: Pending) -> tuple[float, float]:
        """The norm of all gradients of one of the last two steps, and what clipping multiplied them with; waits for
        them. NaN where this rank measured nothing."""
        if pending.local is None:
            return math.nan, 1.0
        if pending.meeting is not None:
            self._take_unheard(pending.meeting)
        else:
            self.gradients.show(pending.local, {})
        return self.gradients.total(pending.limit)

    def meet(self, failure: Exception | None) -> None:
        """Before a rerun: raises where a rank is not ready for it."""
        if self.exchange is not None:
            failure = self.exchange.meet(Word(failure))[0].failure
        if failure is not None:
            raise failure

    def clip_by_torch(self, max_norm: float) -> float:
        """Clipping without anything of ours."""
        return self.gradients.clip_by_torch(max_norm, None if self.is_alone else self._sum)

    def _sum(self, square: float) -> float:
        assert self.exchange is not None
        return float(self.exchange.ranks.sum(torch.tensor([square], dtype=torch.float64)).on_host())

    def _here(self) -> None:
        self.gradients.measure()
        self._measure_outputs()

    def _measure_outputs(self) -> None:
        if self._frozen:
            self.gradients.set_outputs({index: switch.output_square for index, switch in self._frozen})
