# SPDX-License-Identifier: Apache-2.0
"""Steps in Weights & Biases, in the run that is active.

Goals: it never moves the run's own step counter: numbers join the row that the loop logs next.
Non-goals: starting, naming and ending runs.
"""

import sys
from typing import TYPE_CHECKING, Any

from gnmr.results import StepResult
from gnmr.telemetry.background import Background
from gnmr.telemetry.listeners import is_eventful, numbers_of

if TYPE_CHECKING:
    from gnmr.control import Control


class Wandb:
    """A listener that calls `run.log`; steps without an active run are skipped.

    `run`: None is the active one (`wandb.run`). `commit`: True gives each step a row of its own, for loops that log
    nothing else. `every`: only every so many steps, and those in which something happened.
    """

    def __init__(self, run: Any = None, *, every: int = 1, commit: bool = False, most_waiting: int = 1024) -> None:
        self._run = run
        self._every = max(every, 1)
        self._commit = commit
        self._background = Background[tuple[Any, dict[str, float]]](self._write, lambda: None, most_waiting)

    @property
    def dropped(self) -> int:
        """Steps that were not logged, though there was a run."""
        return self._background.dropped

    def step(self, result: StepResult, control: "Control") -> None:
        if result.step % self._every and not is_eventful(result):
            return
        # Not imported here: where nobody has, there is no run.
        run = self._run if self._run is not None else getattr(sys.modules.get("wandb"), "run", None)
        if run is None:
            return
        numbers = {f"gnmr/{name}": value for name, value in numbers_of(result, control).items()}
        self._background.give((run, {"gnmr/step": float(result.step), **numbers}))

    def close(self, seconds: float = 2.0) -> None:
        self._background.close(seconds)

    def _write(self, record: tuple[Any, dict[str, float]]) -> None:
        run, numbers = record
        run.log(numbers, commit=self._commit)
