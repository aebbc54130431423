# SPDX-License-Identifier: Apache-2.0
"""GNMR in other people's loops: one module a framework, and a helper for plain loops with a GradScaler.

    import gnmr.loops.hugging_face
    gnmr.loops.hugging_face.attach(trainer, max_o=0.01)

Goals: norms are taken after unscaling and before clipping; clipping has one owner, and a second one is
reported; a step that a scaler skips is no sample. Non-goals: frameworks as dependencies: each is imported when its
adapter is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnmr.loops.scaling import overflowed, scaled_step

__all__ = ["overflowed", "scaled_step"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gnmr.loops' has no attribute '{name}'")
    value: object = getattr(import_module("gnmr.loops.scaling"), name)
    globals()[name] = value
    return value
