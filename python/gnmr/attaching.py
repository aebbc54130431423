# SPDX-License-Identifier: Apache-2.0
"""`gnmr.attach`: the first of the three lines.

Goals: it says what it watches and what it leaves out; wrong options are errors here, before the first step.
Non-goals: anything in a step (gnmr.control).
"""

import os
import sys
import warnings
from collections.abc import Sequence

from torch import nn
from torch.nn.parameter import UninitializedParameter

from gnmr import _core
from gnmr._core import Error, Options
from gnmr.control import Control, ControlParts
from gnmr.gradients import Gradients, Source
from gnmr.kill_switch import KillSwitch
from gnmr.low_linear import LowLinear, StepClock
from gnmr.switches import MeasuringSwitch
from gnmr.units import DEFAULT_DENY, FoundUnits, UnitChoice, WatchedUnit, find_units


def attach(
    model: nn.Module,
    max_o: float = 0.01,
    recipe: str | None = None,
    *,
    preset: str = "default",
    allow: Sequence[str] = ("*",),
    deny: Sequence[str] = DEFAULT_DENY,
    gradients: Source = ".grad",
    watch: bool = False,
    watch_steps: int = 0,
    disarm_after: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume_step: int | None = None,
    signals: bool = False,
    min_coverage: float = 0.9,
    seed: int = 0,
    strict: bool = False,
    quiet: bool = False,
    **options: float | str,
) -> Control:
    """Finds a model's units and how to switch each, and says what it watches.

    - `max_o` and `options` are the controller's (`python -m gnmr options` lists them), over `preset`.
    - `recipe`: gives each linear layer a low path of our own (`python -m gnmr recipes`, or a JSON file). None: layers
      are switched by what `register_switch` knows of; where that is nothing they are only watched.
    - `allow`, `deny`: globs of layers that are units, and that are not.
    - `gradients`: `.grad`, `main_grad`, or a function of a parameter.
    - `watch`: nothing is switched; `watch_steps`: not in the first so many steps; `disarm_after`: not any more where
      nothing that was done over so many steps helped (0: never).
    - `out`: a folder for journal.jsonl, signals.bin and the kill switch `control`. A journal that is there already is
      gone on with where `resume_step`, the next step, is given, else it is an error.
    - `signals`: SIGUSR1 asks for watch, SIGUSR2 for high.
    - `min_coverage`: below this share of the multiply-adds there is a warning.
    - `seed`: of stochastic rounding. `strict`: faults in `step` are raised. `quiet`: nothing is printed.
    """
    chosen = Options(preset, max_o=max_o, **options)  # type: ignore[arg-type]
    if chosen.lag != 0:
        raise Error("option `lag`: expected 0, got 1: a lag needs a gate beside the step, which is not here yet")
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise Error("attach: expected a model whose parameters have shapes; run lazy layers once before")
    clock = StepClock(seed=seed)
    found = find_units(model, UnitChoice(recipe, allow, deny, clock))
    if not found.units:
        raise Error(_nothing_found(found))
    folder = os.fspath(out) if out is not None else ""
    if folder:
        os.makedirs(folder, exist_ok=True)
    kill_switch = KillSwitch(os.path.join(folder, "control") if folder else "", signals)
    switchable = any(unit.switch is not None for unit in found.units)
    measuring = _what_trials_measure(found.units)
    supervisor = _core.Supervisor(
        [unit.as_core() for unit in found.units],
        chosen,
        watch=watch or not switchable,
        watch_steps=watch_steps,
        disarm_after=disarm_after,
        journal=os.path.join(folder, "journal.jsonl") if folder else "",
        signals=os.path.join(folder, "signals.bin") if folder else "",
        existing="refuse" if resume_step is None else "resume",
        next_step=resume_step or 1,
        can_rerun=measuring is not None,
        places=list(measuring.places) if measuring is not None else [],
        expected=list(measuring.expected) if measuring is not None else [],
    )
    if not quiet:
        _tell(found, chosen, switchable, min_coverage)
    parts = ControlParts(model, found, supervisor, _gradients_of(model, found.units, gradients), kill_switch, clock)
    return Control(parts, strict=strict, quiet=quiet)


def _what_trials_measure(units: Sequence[WatchedUnit]) -> MeasuringSwitch | None:
    """The switch that measures most: its places are those of all units; what a unit lacks is never measured."""
    measuring = [unit.switch for unit in units if isinstance(unit.switch, MeasuringSwitch)]
    return max(measuring, key=lambda switch: len(switch.places)) if measuring else None


def _gradients_of(model: nn.Module, units: Sequence[WatchedUnit], source: Source) -> Gradients:
    owner = {id(parameter): index for index, unit in enumerate(units) for parameter in unit.parameters}
    parameters = list(model.parameters())
    for unit in units:
        frozen = not any(parameter.requires_grad for parameter in unit.parameters)
        if isinstance(unit.switch, LowLinear) and frozen:
            unit.switch.measures_output = True
    return Gradients(parameters, [owner.get(id(one), len(units)) for one in parameters], len(units), source)


def _nothing_found(found: FoundUnits) -> str:
    if not found.coverage.left_out:
        return "attach: expected a model with torch.nn.Linear layers or registered modules, found none"
    return "attach: expected at least one unit, but all were left out: " + found.coverage.text()


def _tell(found: FoundUnits, options: Options, switchable: bool, min_coverage: float) -> None:
    coverage = found.coverage
    print(f"gnmr: {coverage.text()}", file=sys.stderr)
    if not switchable:
        print("gnmr: the model has no low path that could be left: it is only watched. "
              "recipe=... gives it one, register_switch tells of yours", file=sys.stderr)
    if coverage.share < min_coverage:
        warnings.warn(f"gnmr watches only {coverage.share:.1%} of the multiply-adds: faults in the rest go unseen. "
                      f"{coverage.text()}", stacklevel=3)
    if options.max_o == 0 and switchable:
        warnings.warn("gnmr: max_o is 0, so no unit is ever recovered", stacklevel=3)
