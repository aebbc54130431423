# SPDX-License-Identifier: Apache-2.0
"""The numbers of a step: measured here, and with several ranks put together with those of the others.

Goals: one collective a step, entered whatever goes wrong on this rank. Non-goals: deciding.
"""

from dataclasses import replace

import torch
from torch import Tensor

from gnmr.gradients import Gradients
from gnmr.low_linear import LowLinear
from gnmr.ranks_exchange import Exchange, Heard, Word
from gnmr.ranks_joining import Joined
from gnmr.rerun import ErrorSquares


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
        total: Tensor = self.exchange.ranks.sum(torch.tensor([square], dtype=torch.float64))()
        return float(total)

    def _here(self) -> None:
        self.gradients.measure()
        for index, switch in self._frozen:
            self.gradients.set_norm(index, switch.output_square)
