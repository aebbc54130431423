# SPDX-License-Identifier: Apache-2.0
"""Steps in TensorBoard, by torch.utils.tensorboard (which needs the package tensorboard).

Goals: scalars `gnmr/...`, and a text where units are admitted or released; a stalled disk drops steps.
Non-goals: norms of units: `gnmr report` draws them from signals.bin.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gnmr._core import Error
from gnmr.results import StepResult
from gnmr.telemetry.background import Background
from gnmr.telemetry.listeners import is_eventful, numbers_of

if TYPE_CHECKING:
    from gnmr.control import Control

_MOST_NAMES = 32  # of a list in a text
_Record = tuple[int, dict[str, float], str]


class TensorBoard:
    """A listener that writes scalars, and events as text.

    `where` is a folder, or a SummaryWriter that you have (it is flushed at the end, and not closed). `every`: only
    every so many steps, and those in which something happened.
    """

    def __init__(self, where: Any, *, every: int = 1, prefix: str = "gnmr", most_waiting: int = 1024) -> None:
        self._writer: Any = None
        self._folder = ""
        if isinstance(where, (str, os.PathLike)):
            self._folder = os.fspath(where)
            try:
                self._module: Any = import_module("torch.utils.tensorboard")
            except ImportError as missing:
                raise Error(f"TensorBoard: expected the package tensorboard: {missing}") from missing
        else:
            self._writer = where
        self._every = max(every, 1)
        self._prefix = prefix
        self._background = Background[_Record](self._write, self._finish, most_waiting)

    @property
    def dropped(self) -> int:
        """Steps that were not written."""
        return self._background.dropped

    def step(self, result: StepResult, control: "Control") -> None:
        eventful = is_eventful(result)
        if result.step % self._every and not eventful:
            return
        self._background.give((result.step, numbers_of(result, control), _text(result) if eventful else ""))

    def close(self, seconds: float = 5.0) -> None:
        self._background.close(seconds)

    # In the background's thread; the writer has a queue of its own that waits where a disk stalls.

    def _write(self, record: _Record) -> None:
        if self._writer is None:
            self._writer = self._module.SummaryWriter(self._folder)
        step, numbers, text = record
        for name, value in numbers.items():
            self._writer.add_scalar(f"{self._prefix}/{name}", value, step)
        if text:
            self._writer.add_text(f"{self._prefix}/events", text, step)

    def _finish(self) -> None:
        if self._writer is not None:
            (self._writer.close if self._folder else self._writer.flush)()


def _text(result: StepResult) -> str:
    parts = [
        f"{word}: {', '.join(names[:_MOST_NAMES])}"
        + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
        for word, names in (("admitted", result.admitted), ("released", result.released))
        if names
    ]
    if result.rerun:
        parts.append(f"{result.rerun}: {result.verdict}")
    return "; ".join(parts)
