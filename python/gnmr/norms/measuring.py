# SPDX-License-Identifier: Apache-2.0
"""The numbers of a step: measured here, and with several ranks put together with those of the others.

Goals: one collective a step, entered whatever goes wrong on this rank. Non-goals: deciding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gnmr.low.device_stream import OnItsWay
from gnmr.low.layer_switch import LayerSwitch
from gnmr.norms.gradients import Gradients
from gnmr.norms.local_sums import LocalSums
from gnmr.ranks.exchange import Exchange, Heard, Meeting, Word
from gnmr.ranks.joining import Joined
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
    clip_failure: Exception | None = None  # of this rank alone, behind the meeting
    is_answered: bool = False  # whatever decisions of ranks differed in it


class Measurement:
    """Measures the gradients of a model, on one process or on many."""

    def __init__(self, gradients: Gradients, joined: Joined, exchange: Exchange | None) -> None:
        self.gradients = gradients
        self.exchange = exchange
        self.unlike: list[int] = []  # units whose copies had different norms in the last step
        self._outputs = joined.outputs
        self._frozen = [
            (index, unit.switch)
            for index, unit in enumerate(joined.found.units)
            if isinstance(unit.switch, LayerSwitch) and unit.switch.measures_output
        ]

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
            errors.take(total[len(numbers) :])
        return heard

    def start(self, pending: Pending) -> None:
        """Has all gradients read, clips them, and enters the meeting of all ranks; the numbers are awaited later. What
        goes wrong before the meeting is in what is heard, what goes wrong behind it in `clip_failure`."""
        numbers: Tensor | None = None
        if pending.word.failure is None and not pending.word.skipped:
            try:
                numbers = self._queue(pending)
            except Exception as caught:
                pending.word.failure = caught
                pending.local = None
        word = pending.word
        if self.exchange is None:
            pending.heard = Heard(failure=word.failure, skipped=word.skipped, may_rerun=word.may_rerun)
            if word.failure is not None:
                return
        else:
            if numbers is None:
                # Clipping goes by the gradients of all ranks, whatever went wrong here.
                numbers = self.gradients.nothing() if word.skipped else self.gradients.all_as_rest()
            pending.meeting = self.exchange.enter(word, numbers)
        if word.skipped:
            return
        try:
            self._clip(pending)
        except Exception as caught:
            pending.clip_failure = caught

    def _queue(self, pending: Pending) -> Tensor | None:
        """What this rank adds to the sums of all; None: there is one process."""
        pending.local = self.gradients.queue()
        outputs = {index: switch.output_number for index, switch in self._frozen}
        self.gradients.outputs = outputs
        if self.exchange is not None:
            return self.gradients.contribution(pending.local)
        if outputs:
            pending.outputs = LateOutputs(outputs)
        return None

    def _clip(self, pending: Pending) -> None:
        """Clips before anybody knows the numbers, where they are added up on a device; else they are awaited. Nobody
        listens to what ranks have said: that is for all of them together, a step later."""
        local, meeting = pending.local, pending.meeting
        if (
            local is not None
            and local.device is not None
            and (meeting is None or meeting.numbers_are_on(local.device.device))
        ):
            if meeting is not None:
                self.gradients.put_back(meeting.numbers(), local, self._outputs)
                meeting.total.send()
            local.finish(pending.limit)
            return
        if local is not None:
            local.finish(math.inf)
        if math.isinf(pending.limit):
            return
        if local is None:
            self.gradients.find(anyway=True)
        self._show(pending)
        self.gradients.scale(self.gradients.total(pending.limit)[1])

    def _show(self, pending: Pending) -> None:
        """Norms and clipping are those of this step from here on; waits for its numbers."""
        if pending.meeting is not None:
            assert self.exchange is not None
            total = self.exchange.numbers(pending.meeting)
            self.unlike = self.gradients.take(total, self._outputs)
        elif pending.local is not None:
            self.gradients.show(pending.local, pending.outputs.read() if pending.outputs is not None else {})

    def complete(self, pending: Pending) -> Heard:
        """Waits for the numbers of a step, and listens to what the ranks have said."""
        if pending.heard is None:
            assert self.exchange is not None and pending.meeting is not None
            pending.heard = self.exchange.hear(pending.meeting)[0]
        self._show(pending)
        return pending.heard

    def is_troubled(self, pending: Pending) -> bool:
        """Whether a rank says something that all must hear together; waits for it."""
        if pending.meeting is None or self.exchange is None:
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
        self._show(pending)
        return self.gradients.total(pending.limit)

    def meet(self, failure: Exception | None) -> None:
        """Before a rerun: raises where a rank is not ready for it."""
        if self.exchange is not None:
            failure = self.exchange.meet(Word(failure))[0].failure
        if failure is not None:
            raise failure

    def clip_by_torch(self, max_norm: float) -> tuple[float, float]:
        """Clipping without anything of ours: the norm of all gradients, and what they were multiplied with."""
        return self.gradients.clip_by_torch(max_norm, None if self.is_alone else self._sum)

    def _sum(self, square: float) -> float:
        assert self.exchange is not None
        return float(self.exchange.ranks.sum(torch.tensor([square], dtype=torch.float64, device="cpu")).on_host())

    def _here(self) -> None:
        self.gradients.measure()
        self._measure_outputs()

    def _measure_outputs(self) -> None:
        if self._frozen:
            self.gradients.set_outputs({index: switch.output_square for index, switch in self._frozen})
