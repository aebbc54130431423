# SPDX-License-Identifier: Apache-2.0
"""The keyword arguments of `gnmr.attach`, typed, and whether an option has an effect.

The controller's options are declared once, in the core; their types are written from there when the package is built.
Goals: editors and type checkers know every option; one that changes nothing is an error that names it.
Non-goals: values and ranges (gnmr._core).
"""

import os
from collections.abc import Iterable, Sequence

from gnmr._core import Error, Options
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


def refuse_without_effect(named: Iterable[str], options: Options, *, can_rerun: bool, sites: int) -> None:
    """Raises an `Error` for the first of these options, which the caller set, that has no effect: `can_rerun`, a step
    can run again; `sites`, errors of a low path that are measured."""
    by_trials = options.selector == "trial" or (options.selector == "auto" and can_rerun)
    by_norms = options.selector == "norms" or (options.selector == "auto" and not can_rerun)
    for name in named:
        why = ""
        if name == "selector" and not sites and options.selector not in ("auto", "norms"):
            why = "errors of low paths are not measured here"
        elif name == "max_trials" and options.max_trials:
            if not can_rerun:
                why = "no step can run again here"
            elif not (by_trials or options.guard == "replay"):
                why = "neither the selector `trial` nor the guard `replay` is in force"
        elif name.startswith("error_"):
            why = "errors of low paths are not measured here" if not sites else "the selector is `norms`" * by_norms
        elif name == "noise_beta" and options.noise_factor == 0:
            why = "noise_factor is 0"
        if why:
            raise Error(f"option `{name}`: has no effect, since {why}; leave it out")
