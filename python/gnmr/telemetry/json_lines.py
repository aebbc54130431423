# SPDX-License-Identifier: Apache-2.0
"""Steps as JSON Lines, in at most two files of a given size.

Goals: bounded on the disk: a file that is full becomes `NAME.1`, and what was that is gone; a stalled disk drops lines.
Non-goals: everything that happened: that is the journal's (docs/files.md).
"""

import json
import math
import os
from typing import TYPE_CHECKING, Any, TextIO

from gnmr.results import StepResult
from gnmr.telemetry.background import Background
from gnmr.telemetry.listeners import is_eventful, numbers_of

if TYPE_CHECKING:
    from gnmr.control import Control

_MOST_NAMES = 32  # of a list in a line


class JsonLines:
    """A listener that writes a line per step: `{"step": 7, "mode": "armed", "total_norm": 1.2, ...}`.

    `every`: only every so many steps, and those in which something happened. `most_bytes`: of each of the two files.
    A process that goes on with a folder appends.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, every: int = 1, most_bytes: int = 16 << 20, most_waiting: int = 1024
    ) -> None:
        self._path = os.fspath(path)
        self._every = max(every, 1)
        self._most_bytes = most_bytes
        self._file: TextIO | None = None
        self._size = 0
        self._background = Background[dict[str, Any]](self._write, self._finish, most_waiting)

    @property
    def dropped(self) -> int:
        """Lines that were not written."""
        return self._background.dropped

    def step(self, result: StepResult, control: "Control") -> None:
        eventful = is_eventful(result)
        if result.step % self._every and not eventful:
            return
        line: dict[str, Any] = {"step": result.step, "mode": control.mode, **numbers_of(result, control)}
        if eventful:
            line["verdict"] = result.verdict
            line["admitted_units"] = list(result.admitted[:_MOST_NAMES])
            line["released_units"] = list(result.released[:_MOST_NAMES])
        self._background.give(line)

    def close(self, seconds: float = 2.0) -> None:
        self._background.close(seconds)

    # In the background's thread.

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps({key: _plain(value) for key, value in line.items()}, separators=(",", ":")) + "\n"
        if self._file is None:
            # Opened here, because opening can hang too.
            self._file = open(self._path, "a", encoding="utf-8")
            self._size = self._file.tell()
        if self._size + len(text) > self._most_bytes and self._size > 0:
            self._file.close()
            self._file = None
            os.replace(self._path, self._path + ".1")
            self._file, self._size = open(self._path, "w", encoding="utf-8"), 0
        self._file.write(text)
        self._file.flush()
        self._size += len(text)

    def _finish(self) -> None:
        if self._file is not None:
            self._file.close()


def _plain(value: Any) -> Any:
    """Numbers that JSON has no word for are texts, as in the journal."""
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
