# SPDX-License-Identifier: Apache-2.0
"""Mistakes in calls, caught before they do anything, with a message that says what to do instead.

Goals: one place for all entry points. Non-goals: values of options (gnmr._core).
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from torch import Tensor, nn

from gnmr._core import Error
from gnmr.options import AttachArguments
from gnmr.switches import RecipeSwitch, backend_name
from gnmr.units import WatchedUnit

#: The control that a unit's module belongs to.
_OWNERS: "weakref.WeakKeyDictionary[nn.Module, weakref.ref[object]]" = weakref.WeakKeyDictionary()


def check_names(caller: str, given: Iterable[str]) -> None:
    """Refuses keyword arguments that neither `gnmr.attach` nor the controller has."""
    known = list(AttachArguments.__annotations__)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1, 0.6)
            meant = (
                f"did you mean {near[0]}?"
                if near
                else "help(gnmr.attach) lists the arguments, `python -m gnmr options` the controller's options"
            )
            raise TypeError(f"{caller}: unknown argument {name!r}; {meant}")


def check_model(caller: str, model: object) -> None:
    """Refuses what is no module."""
    if isinstance(model, nn.Module):
        return
    got = f"{caller}: expected a torch.nn.Module, got {type(model).__name__}"
    if isinstance(model, Sequence) and model and all(isinstance(part, nn.Module) for part in model):
        raise TypeError(f"{got} of modules: attach each, or put them into one torch.nn.ModuleList")
    if isinstance(getattr(model, "model", None), nn.Module):
        raise TypeError(f"{got}: gnmr.loops has adapters for the loops of others; gnmr.attach takes its .model")
    raise TypeError(got)


def check_loop(caller: str, holder: object, expected: str, needed: Sequence[str]) -> None:
    """Refuses a model, and anything else that is not the object whose loop is adapted."""
    missing = [name for name in needed if not hasattr(holder, name)]
    if not isinstance(holder, nn.Module) and not missing:
        return
    hint = ": gnmr.attach(model) is for a loop of your own" if isinstance(holder, nn.Module) else ""
    raise TypeError(f"{caller}: expected {expected}, got {type(holder).__name__}{hint}")


def check_closure(closure: object) -> None:
    """Refuses a loss in the place of a function that makes it."""
    if callable(closure):
        return
    hint = (
        "; the loss itself goes to trial(closure, loss=loss), or to step(loss=loss)"
        if isinstance(closure, Tensor | float)
        else ""
    )
    raise TypeError(
        "trial: expected a function that runs forward and backward of the step once more and returns its "
        f"loss, got {type(closure).__name__}{hint}"
    )


def check_recipe(recipe: str | None, units: Sequence[WatchedUnit]) -> None:
    """Refuses a recipe that no layer would take, because all have a low path of their own."""
    backends = sorted({backend_name(unit.switch) for unit in units if unit.switch is not None})
    if recipe is None or not backends or any(isinstance(unit.switch, RecipeSwitch) for unit in units):
        return
    raise Error(
        f"attach: recipe={recipe!r} would have no effect: the model has a low path of its own, which is "
        f"switched by {', '.join(backends)}. Leave recipe out to use that one; for the recipe's, attach to the "
        "model before its layers are converted"
    )


def check_journal(path: str, resume_step: int | None, exists: Callable[[str], bool]) -> None:
    """Refuses to write over the journal of another run."""
    if resume_step is None and exists(path):
        raise Error(
            f"{path}: a journal is there already. To continue its run give resume_step=N, the number of the "
            "next step, and load the state with ctl.load_state_dict; for a new run choose another `out`"
        )


def check_free(units: Sequence[WatchedUnit]) -> None:
    """Refuses units that another control has."""
    taken = _taken(units)
    if taken is not None:
        gc.collect()  # one that nobody can reach any more is in nobody's way
        taken = _taken(units)
    if taken is not None:
        raise Error(
            f"attach: gnmr is attached to this model already (unit {taken.name}): call detach() of that "
            "control first, then attach again"
        )


def own(control: object, units: Iterable[WatchedUnit]) -> None:
    """The units belong to this control."""
    reference = weakref.ref(control)
    for unit in units:
        _OWNERS[unit.module] = reference


def disown(units: Iterable[WatchedUnit]) -> None:
    """The units belong to nobody."""
    for unit in units:
        _OWNERS.pop(unit.module, None)


def _taken(units: Sequence[WatchedUnit]) -> WatchedUnit | None:
    for unit in units:
        owner = _OWNERS.get(unit.module)
        if owner is not None and owner() is not None:
            return unit
    return None
