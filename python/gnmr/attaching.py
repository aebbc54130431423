# SPDX-License-Identifier: Apache-2.0
"""`gnmr.attach`: the first of the three lines.

Goals: it says what it watches and what it leaves out; wrong options are errors here, before the first step.
Non-goals: anything in a step (gnmr.control).
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, Unpack

from torch import nn
from torch.nn.parameter import UninitializedParameter

from gnmr import _core
from gnmr._core import Error, Options
from gnmr.checks import mistakes
from gnmr.checks.preflight import preflight
from gnmr.control import Control
from gnmr.low.layer_switch import LayerSwitch
from gnmr.options import DEFAULTS, AttachOptions, controller_options
from gnmr.ranks.exchange import Exchange
from gnmr.ranks.group import Ranks, ranks_of
from gnmr.ranks.joining import Joined, check_low_paths, gradients_of, join, joined_alone, refuse_flat_parameters
from gnmr.step.kill_switch import KillSwitch
from gnmr.step.parts import ControlParts
from gnmr.step.patrol import Patrol, patrol_rounds
from gnmr.step.refresh import Refresh, check_refresh, refreshing_switches
from gnmr.summary import budget_text
from gnmr.telemetry.warning import warn
from gnmr.units import FoundUnits, UnitChoice, find_units

_Result = TypeVar("_Result")


def attach(
    model: nn.Module,
    max_o: float = 0.01,
    recipe: str | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    watch: bool = False,
    quiet: bool = False,
    **options: Unpack[AttachOptions],
) -> Control:
    """Finds a model's units and how to switch each, and prints what it watches.

    - `max_o`: units in recovery at one time, a count or a share (the budget).
    - `recipe`: gives each linear layer a low path of our own (`python -m gnmr recipes`, or a JSON file). None: layers
      are switched by what `register_switch` knows of; where that is nothing they are only watched.
    - `out`: a folder for journal.jsonl, signals.bin, errors.bin (with a patrol) and the kill switch `control`. A
      journal that is there already is continued where `resume_step`, the next step, is given, else it is an error.
    - `watch`: nothing is switched. `quiet`: nothing is printed.

    Options (`gnmr.options.AttachOptions`):

    - All of the controller's by name (`python -m gnmr options` prints them), over `preset`. One that has no effect on
      this model is an error.
    - `lag`: 0, a step waits for its norms and decides for the next one; 1, it waits for nothing and decides for the one
      after that. None: 1 where all that is trained is on one CUDA device, until the first `ctl.trial`.
    - `guard="skip"`: the update of an alarmed step is left out; with lag 1 on a GPU `fused=True` optimizers do that
      without a wait.
    - `allow`, `deny`: globs of layers that are units, and that are not.
    - `gradients`: `.grad`, `main_grad`, or a function of a parameter.
    - `patrol`: low paths (ours, torchao's) are compared with high ones beside each step, of as many layers in turn as
      this share of its multiply-adds pays for (at least one; 0: none, 1: all in each step).
    - `refresh`: a delayed scale is renewed early where the amax history would now make it more than this many times as
      large, or less than half (0: never).
    - `watch_steps`: nothing is switched in the first so many steps; `disarm_after`: nor any more where nothing that was
      done over so many steps helped (0: never).
    - `signals`: SIGUSR1 asks for watch, SIGUSR2 for high.
    - `min_coverage`: below this share of the multiply-adds there is a warning. Layers that make logits, and frozen
      ones without a low path, do not count.
    - `seed`: of stochastic rounding. `strict`: faults in `step` are raised.
    - `process_group`: the ranks that train this model together; None: all, where torch.distributed is initialised;
      False: this process is for itself. All ranks of it attach, and call what the control has, together.
    - `replicas`: of parameters whose names fit a glob, the group whose ranks hold copies; None in it: each rank has a
      piece of its own. What is not named goes by its DTensor, or is a copy wherever its name is.
    """
    mistakes.check_names("attach", options)
    mistakes.check_model("attach", model)
    settings: AttachOptions = {**DEFAULTS, **options}
    check_refresh(settings["refresh"])
    preset, lag, resume_step = settings["preset"], settings["lag"], settings["resume_step"]
    controller = controller_options(max_o, options)
    ranks = ranks_of(settings["process_group"], model)
    together = ranks.together if ranks is not None else _alone
    clock = _core.StepClock(seed=settings["seed"])
    choice = UnitChoice(recipe, settings["allow"], settings["deny"], clock)
    chosen, found = together(lambda: _find(model, choice, preset, controller))
    watching = (watch, settings["watch_steps"], settings["disarm_after"])
    if ranks is not None:
        _check_settings(ranks, [str(chosen), lag, recipe, settings["patrol"], settings["refresh"], *watching])
    asked = lag
    if asked is None:
        can_be_late = int(_can_be_late(model, found, chosen))
        asked = can_be_late if ranks is None else min(ranks.gather(can_be_late))
    chosen = _with_lag(preset, controller, asked)
    joined, copies, replicas = joined_alone(found), None, settings["replicas"] or {}
    if ranks is not None:
        joined, copies = join(ranks, model, found, replicas)
    if not joined.found.units:
        raise Error(_nothing_found(joined.found))
    rounds = patrol_rounds(settings["patrol"], joined.patrol_costs, [unit.cost for unit in joined.core_units])
    patrol = Patrol(joined.found.units, rounds, len(joined.places)) if max(rounds) >= 0 else None
    if options.get("patrol") and patrol is None:
        raise Error("attach: option `patrol`: has no effect, since no unit can be compared beside a step; leave it out")
    refreshing = refreshing_switches(joined.found.units)
    can_refresh = bool(refreshing) if ranks is None else any(ranks.gather(bool(refreshing)))
    if options.get("refresh") and not can_refresh:
        raise Error("attach: option `refresh`: has no effect, since no scale comes from earlier steps; leave it out")
    # A lag that nobody asked for becomes 0 with the first trial.
    can_rerun = bool(joined.places) and not lag
    measured = joined.expected if patrol is not None or can_rerun else []
    _core.refuse_without_effect(chosen, list(controller), can_rerun=can_rerun, expected=measured)
    folder = _folder_of(out, ranks)
    kill_switch = together(lambda: _kill_switch(folder, resume_step, settings["signals"], ranks is None or ranks.leads))
    requests = list(kill_switch.news())
    if ranks is not None:
        requests = ranks.spread(requests, 0)

    def make_supervisor(lag: int, next_step: int | None) -> _core.Supervisor:
        return _core.Supervisor(
            joined.core_units,
            chosen if lag == chosen.lag else _with_lag(preset, controller, lag),
            watch=watch or not joined.switchable,
            watch_steps=settings["watch_steps"],
            disarm_after=settings["disarm_after"],
            journal=os.path.join(folder, "journal.jsonl") if folder else "",
            signals=os.path.join(folder, "signals.bin") if folder else "",
            errors=os.path.join(folder, "errors.bin") if folder and patrol is not None else "",
            # With many units rows of every step would be most of what is written.
            signals_every=max(1, len(joined.found.units) // 1000),
            existing="refuse" if next_step is None else "resume",
            next_step=next_step or 1,
            can_rerun=bool(joined.places) and lag == 0,
            places=joined.places,
            expected=joined.expected,
        )

    def make() -> Control:
        parts = ControlParts(
            model,
            joined,
            make_supervisor(chosen.lag, resume_step),
            gradients_of(model, joined.found.units, settings["gradients"], copies),
            kill_switch,
            clock,
            Exchange(ranks, patrol.sum_count if patrol is not None else 0) if ranks is not None else None,
            settings["gradients"],
            replicas,
            requests,
            make_supervisor,
            lag_is_free=lag is None,
            patrol=patrol,
            refresh=Refresh(refreshing, settings["refresh"]) if refreshing and settings["refresh"] else None,
            asked={
                "watch": watch,
                **{name: settings[name] for name in ("patrol", "refresh", "watch_steps", "disarm_after", "seed")},
            },
        )
        control = Control(parts, strict=settings["strict"], quiet=quiet)
        mistakes.own(control, joined.found.units)
        return control

    control = together(make)
    if not quiet and (ranks is None or ranks.leads):
        _print_coverage(joined, chosen, settings["min_coverage"])
        if joined.switchable:
            budget = control.supervisor.max_recovered
            print(f"gnmr: {budget_text(budget, len(joined.core_units))}", file=sys.stderr)
            if patrol is not None:
                print(f"gnmr: {patrol.text()}", file=sys.stderr)
            print(f"gnmr: {preflight(control.units, budget).text()}", file=sys.stderr)
    return control


def _alone(run: Callable[[], _Result]) -> _Result:
    return run()


def _find(model: nn.Module, choice: UnitChoice, preset: str, options: dict[str, object]) -> tuple[Options, FoundUnits]:
    """The options, and the units of this process."""
    chosen = _with_lag(preset, options, 0)
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise Error("attach: expected a model whose parameters have shapes; run lazy layers once before")
    refuse_flat_parameters(model)
    found = find_units(model, choice)
    mistakes.check_free(found.units)
    mistakes.check_recipe(choice.recipe, found.units)
    check_low_paths(model, found.units)
    if type(model).__name__ == "DataParallel" and any(unit.switch is not None for unit in found.units):
        raise Error(
            "attach: copies that nn.DataParallel makes of a model cannot be switched: expected DistributedDataParallel"
        )
    for unit in found.units:
        frozen = not any(parameter.requires_grad for parameter in unit.parameters)
        if isinstance(unit.switch, LayerSwitch) and frozen:
            unit.switch.measures_output = True
    return chosen, found


def _with_lag(preset: str, options: dict[str, object], lag: int) -> Options:
    chosen = Options(preset, **options, lag=lag)  # type: ignore[arg-type]
    if lag != 0 and chosen.guard not in ("none", "skip"):
        raise Error(
            f"option `guard`: expected none or skip with lag 1, got {chosen.guard}: the update does not wait for the "
            "host, and a batch does not come again; use lag=0"
        )
    return chosen


def _can_be_late(model: nn.Module, found: FoundUnits, options: Options) -> bool:
    """Whether steps can go by without a wait, and nobody asks for what they could not have then: our kernels measure
    all gradients, which are on one device."""
    devices = {parameter.device for parameter in model.parameters() if parameter.requires_grad}
    devices |= {parameter.device for unit in found.units for parameter in unit.parameters}
    return (
        _core.kernels_available()
        and options.guard == "none"
        and options.selector != "trial"
        and options.lock_steps > 1
        and len(devices) == 1
        and next(iter(devices)).type == "cuda"
    )


def _kill_switch(folder: str, resume_step: int | None, signals: bool, leads: bool) -> KillSwitch:
    if folder:
        os.makedirs(folder, exist_ok=True)
        mistakes.check_journal(os.path.join(folder, "journal.jsonl"), resume_step, os.path.exists)
    return KillSwitch(os.path.join(folder, "control") if folder else "", signals, leads=leads)


def _check_settings(ranks: Ranks, settings: Sequence[object]) -> None:
    """Ranks that are asked for different things would decide differently."""
    gathered = ranks.gather(repr(settings))
    for rank, other in enumerate(gathered):
        if other != gathered[0]:
            raise Error(
                f"attach: expected the same arguments on all ranks; rank 0 has {gathered[0]}, rank {rank} {other}"
            )


def _folder_of(out: str | os.PathLike[str] | None, ranks: Ranks | None) -> str:
    """Rank 0 writes; another rank does where it has a folder of its own."""
    folder = os.fspath(out) if out is not None else ""
    if ranks is None:
        return folder
    first = ranks.spread(folder, 0)
    return folder if ranks.leads or folder != first else ""


def _nothing_found(found: FoundUnits) -> str:
    if not found.coverage.left_out:
        return "attach: expected a model with torch.nn.Linear layers or registered modules, found none"
    return "attach: expected at least one unit, but all were left out: " + found.coverage.text()


def _print_coverage(joined: Joined, options: Options, min_coverage: float) -> None:
    coverage = joined.found.coverage
    if coverage.share < min_coverage:
        warn(
            f"{coverage.text()}. Faults in the rest go unseen: that is less than min_coverage={min_coverage:g}",
            stacklevel=3,
        )
    else:
        print(f"gnmr: {coverage.text()}", file=sys.stderr)
    if not joined.switchable:
        print(
            "gnmr: no unit has a low path, so nothing can be switched: the model is only watched. recipe=... gives "
            "linear layers one, register_switch names yours",
            file=sys.stderr,
        )
    if options.max_o == 0 and joined.switchable:
        warn("max_o is 0, so no unit is ever recovered", stacklevel=3)
