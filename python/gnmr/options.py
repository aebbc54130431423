# SPDX-License-Identifier: Apache-2.0
"""The keyword arguments of `gnmr.attach`, typed.

The controller's options are declared once, in the core; their types are written from there when the package is built.
Goals: editors and type checkers know every option.
Non-goals: values and ranges (gnmr._core).
"""

import os
from collections.abc import Sequence

from gnmr._option_types import ControllerOptions
from gnmr.norms.gradients import Source
from gnmr.ranks.group import Group
from gnmr.ranks.pieces import Replicas
from gnmr.units import DEFAULT_DENY


class AttachOptions(ControllerOptions, total=False):
    """Options of `gnmr.attach` beside its plain arguments: its own, and the controller's."""

    preset: str
    lag: int | None
    allow: Sequence[str]
    deny: Sequence[str]
    gradients: Source
    patrol: float
    refresh: float
    watch_steps: int
    disarm_after: int
    resume_step: int | None
    signals: bool
    min_coverage: float
    seed: int
    strict: bool
    process_group: Group
    replicas: Replicas | None


class AttachArguments(AttachOptions, total=False):
    """All keyword arguments of `gnmr.attach`, for adapters that pass them on."""

    max_o: float
    recipe: str | None
    out: str | os.PathLike[str] | None
    watch: bool
    quiet: bool


#: Those of `attach` itself; all others are the controller's.
DEFAULTS: AttachOptions = {
    "preset": "default",
    "lag": None,
    "allow": ("*",),
    "deny": DEFAULT_DENY,
    "gradients": ".grad",
    "patrol": 0.05,
    "refresh": 1.25,
    "watch_steps": 0,
    "disarm_after": 0,
    "resume_step": None,
    "signals": False,
    "min_coverage": 0.9,
    "seed": 0,
    "strict": False,
    "process_group": None,
    "replicas": None,
}


def controller_options(max_o: float, given: AttachOptions) -> dict[str, object]:
    """The controller's options among those that were given."""
    return {"max_o": max_o, **{name: value for name, value in given.items() if name not in DEFAULTS}}
