# SPDX-License-Identifier: Apache-2.0
"""What happens in a run, for the places where people look: TensorBoard, JSON Lines, Weights & Biases.

    ctl.listeners.add(gnmr.telemetry.TensorBoard("runs/today"))

Goals: a listener never raises into the loop and never waits for a disk or a network; what it cannot take is dropped and
counted. Non-goals: the journal, which has every decision (docs/files.md); other people's packages as dependencies.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gnmr.telemetry.listeners import Listener, Listeners, numbers_of

if TYPE_CHECKING:
    from gnmr.telemetry.json_lines import JsonLines
    from gnmr.telemetry.tensorboard import TensorBoard
    from gnmr.telemetry.wandb import Wandb

_LAZY = {"JsonLines": "json_lines", "TensorBoard": "tensorboard", "Wandb": "wandb"}

__all__ = ["JsonLines", "Listener", "Listeners", "TensorBoard", "Wandb", "numbers_of"]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'gnmr.telemetry' has no attribute '{name}'")
    value: object = getattr(import_module(f"gnmr.telemetry.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
