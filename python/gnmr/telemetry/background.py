# SPDX-License-Identifier: Apache-2.0
"""Records that a thread of its own takes away: whoever gives them never waits.

Goals: a bounded number waits; what has no place, or fails, is dropped and counted; the process can end whatever hangs.
Non-goals: order among several queues; forcing anything to a disk.
"""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

_Record = TypeVar("_Record")


class Background(Generic[_Record]):
    """A queue, and the thread that empties it with `write`."""

    def __init__(self, write: Callable[[_Record], None], finish: Callable[[], None], most_waiting: int) -> None:
        self._write = write
        self._finish = finish
        self._most = most_waiting
        self._queue: deque[_Record] = deque()
        self._wake = threading.Condition()
        self._ended = False
        self.dropped = 0
        self.failure = ""  # the last one
        # A daemon: a write that hangs does not keep the process.
        self._thread = threading.Thread(target=self._run, name="gnmr-telemetry", daemon=True)
        self._thread.start()

    def give(self, record: _Record) -> None:
        """Takes a record, or drops it."""
        with self._wake:
            if self._ended or len(self._queue) >= self._most:
                self.dropped += 1
                return
            self._queue.append(record)
            self._wake.notify()

    def close(self, seconds: float) -> bool:
        """No more records; waits at most so long for those that are there. Whether all were written."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        until = monotonic() + seconds
        self._thread.join(max(until - monotonic(), 0))
        return not self._thread.is_alive() and self.dropped == 0

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._ended:
                    self._wake.wait()
                if not self._queue:
                    break
                record = self._queue.popleft()
            try:
                self._write(record)
            except Exception as fault:
                self._note(fault)
        try:
            self._finish()
        except Exception as fault:
            self._note(fault)

    def _note(self, fault: Exception) -> None:
        with self._wake:
            self.dropped += 1
            self.failure = f"{type(fault).__name__}: {fault}"
