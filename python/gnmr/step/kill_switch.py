# SPDX-License-Identifier: Apache-2.0
"""The kill switch of a run that is going on: a file, signals, the environment.

    echo high > FILE           every unit runs high; `watch`: decisions are only written; `armed`: they are carried out
    kill -USR1 PID             watch (with signals=True); -USR2: high
    GNMR_MODE=watch            from the first step on

Goals: so cheap that every step can look. Non-goals: how a process ends.
"""

import os
from collections.abc import Iterator

from gnmr import _core

#: The environment variable with the mode from the first step on, and the one with the file that is looked at.
MODE_VARIABLE = "GNMR_MODE"
FILE_VARIABLE = "GNMR_CONTROL"


class KillSwitch:
    """Looks once per step for a mode that somebody asks for."""

    def __init__(self, path: str, signals: bool, *, leads: bool = True) -> None:
        """`leads` False: another rank looks at files and the environment; a signal may come to any."""
        paths = [one for one in (path, os.environ.get(FILE_VARIABLE, "")) if one and leads]
        self._files = [(one, _core.ControlFile(one)) for one in paths]
        self._signals = _core.ControlSignals() if signals else None
        self._mode = os.environ.get(MODE_VARIABLE, "") if leads else ""
        self.is_used = bool(self._files or signals or self._mode)

    def news(self) -> Iterator[tuple[str, str]]:
        """Modes that are asked for and why, the last one counts; an empty mode: the text is a remark."""
        if self._mode:
            mode, self._mode = self._mode, ""
            if mode in ("armed", "watch", "high"):
                yield mode, f"{MODE_VARIABLE} says so"
            else:
                yield "", f"{MODE_VARIABLE}: expected armed, watch or high, got {mode!r}: nothing changes"
        for path, file in self._files:
            found = file.poll()
            if found is not None:
                mode, note = found[0] or "", found[1]
                if note:
                    yield "", f"{path}: {note}"
                if mode:
                    yield mode, f"{path} says so"
        asked = self._signals.take_mode() if self._signals is not None else None
        if asked:
            yield asked, "a signal says so"

    def release(self) -> None:
        """Signals do what they did before."""
        self._signals = None
