# SPDX-License-Identifier: Apache-2.0
"""Methods of somebody's object that are replaced for a while.

Goals: on the instance only; undone exactly; a second adapter on the same object is refused.
Non-goals: classes and modules of other threads: replacing belongs to the thread that trains.
"""

from collections.abc import Callable
from typing import Any

from gnmr._core import Error

_MARK = "_gnmr_patched"


def loop_text(loop: object, holder: object, control: object) -> str:
    """A loop as it is printed: in whose loop GNMR is, and its control."""
    state = "training has not begun" if control is None else repr(control)
    return f"<gnmr {type(loop).__name__} in {type(holder).__name__}: {state}>"


class Patches:
    """What was replaced, and how to put it back."""

    def __init__(self, holder: object) -> None:
        if getattr(holder, _MARK, False):
            raise Error(f"attach: gnmr is attached to this {type(holder).__name__} already; detach it first")
        self._holder = holder
        self._undo: list[Callable[[], None]] = []
        setattr(holder, _MARK, True)
        self._undo.append(lambda: delattr(holder, _MARK))

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """`owner.name` becomes `make(what it was)`, on this object alone."""
        before = getattr(owner, name)
        own = vars(owner).get(name)
        # nn.Module keeps its own attributes apart; a plain function is none of them.
        setattr(owner, name, make(before))

        def undo() -> None:
            if own is not None:
                setattr(owner, name, own)
            else:
                delattr(owner, name)

        self._undo.append(undo)

    def also(self, undo: Callable[[], None]) -> None:
        """Something else that is undone with the rest."""
        self._undo.append(undo)

    def undo(self) -> None:
        """All is as it was; a second call does nothing."""
        while self._undo:
            self._undo.pop()()
