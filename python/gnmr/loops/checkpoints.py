# SPDX-License-Identifier: Apache-2.0
"""A controller's state as a file beside a framework's checkpoint.

Goals: there whole or not at all; neither a full disk nor a missing file ends a run. Non-goals: where checkpoints are,
and which rank writes: the frameworks know.
"""

import os
import sys
from typing import Any

import torch

from gnmr.control import Control
from gnmr.telemetry.warning import warn

#: The file in a checkpoint's folder.
FILE_NAME = "gnmr.pt"


def save_beside(folder: str | os.PathLike[str], ctl: Control) -> None:
    """Writes the state into a folder; a failure is a warning."""
    path = os.path.join(os.fspath(folder), FILE_NAME)
    try:
        os.makedirs(folder, exist_ok=True)
        torch.save(ctl.state_dict(), path + ".tmp")
        os.replace(path + ".tmp", path)
    except Exception as fault:
        warn(f"the state could not be written beside the checkpoint: {fault}", stacklevel=2)


def read_beside(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The state in a folder; None, with a warning, where none can be read."""
    path = os.path.join(os.fspath(folder), FILE_NAME)
    if not os.path.exists(path):
        print(f"gnmr: the checkpoint {folder} has no {FILE_NAME}: the controller starts afresh", file=sys.stderr)
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state
    except Exception as fault:
        warn(f"{path} cannot be read, so the controller starts afresh: {fault}", stacklevel=2)
        return None


def take_over(ctl: Control, state: dict[str, Any] | None) -> None:
    """Goes on from a state; with one that does not fit there is a warning, and the controller starts afresh."""
    if state is None:
        return
    try:
        ctl.load_state_dict(state)
    except Exception as fault:
        warn(f"the state of the checkpoint was not taken over: {fault}", stacklevel=2)
