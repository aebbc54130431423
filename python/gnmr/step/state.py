# SPDX-License-Identifier: Apache-2.0
"""A control's state as plain values.

Goals: what the next decisions depend on; the same on all ranks, but for the amax histories of low paths.
Non-goals: files.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnmr import _core
from gnmr._core import Error
from gnmr.switches import RecipeSwitch, StatefulSwitch
from gnmr.units import WatchedUnit

_VERSION = 1
_KEYS = {"step", "supervisor", "rules", "memory"}


def saved_state(
    step: int, supervisor: _core.Supervisor, rules: Sequence[str], units: Sequence[WatchedUnit], *, is_open: bool
) -> dict[str, Any]:
    """Everything that the next decisions depend on; `is_open`: but for the numbers of the last step."""
    memory = {
        unit.name: text for unit in units if isinstance(unit.switch, StatefulSwitch) and (text := unit.switch.state())
    }
    return {
        "version": _VERSION,
        "step": step,
        "supervisor": supervisor.save(),
        "rules": list(rules),
        "memory": memory,
        "is_open": is_open,
        "recipe": recipe_in(units),
    }


def recipe_in(units: Sequence[WatchedUnit]) -> str:
    """The recipe of our own low path; empty: no unit has it."""
    return next((unit.switch.recipe for unit in units if isinstance(unit.switch, RecipeSwitch)), "")


def changes(
    state: Mapping[str, Any], supervisor: _core.Supervisor, units: Sequence[WatchedUnit], asked: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """What was asked for when the state was saved and is asked for now, where that is not the same: options, `asked`,
    which are arguments of attach, and `recipe`."""
    before, now = supervisor.options_in(bytes(state["supervisor"])), supervisor.options
    names = [str(spec["name"]) for spec in _core.option_specs()]
    changed: dict[str, tuple[object, object]] = {
        name: (getattr(before, name), getattr(now, name))
        for name in names
        if getattr(before, name) != getattr(now, name)
    }
    saved = state.get("asked", {})
    changed.update({name: (saved[name], now) for name, now in asked.items() if saved.get(name, now) != now})
    recipe = recipe_in(units)
    if state.get("recipe", recipe) != recipe:
        changed["recipe"] = (state["recipe"], recipe)
    return changed


def change_text(changed: Mapping[str, tuple[object, object]], report: Mapping[str, object]) -> str:
    """What is not as it was, in one line; empty: nothing."""
    parts = [f"{name} {_word(before)} -> {_word(now)}" for name, (before, now) in changed.items()]
    parts = [f"changed since it was saved, and the current values hold: {', '.join(parts)}"] if parts else []
    parts += [
        f"{key.replace('_', ' ')}: {', '.join(map(str, found))}"
        for key, found in report.items()
        if key.endswith("_units") and isinstance(found, list) and found
    ]
    if not report["exact"]:
        parts.append("what depends on these starts afresh")
    is_whole = bool(report["exact"]) and not any(key.endswith("_units") and found for key, found in report.items())
    start = "the state was taken over" if is_whole else "the state was not taken over as it is"
    return f"{start}: {'; '.join(parts)}" if parts else ""


def _word(value: object) -> object:
    return "none" if value == "" else value


def checked_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state, where it is one."""
    if state.get("version") != _VERSION:
        raise Error(f"load_state_dict: expected version {_VERSION}, got {state.get('version')!r}")
    missing = _KEYS - set(state)
    if missing:
        raise Error(f"load_state_dict: expected what state_dict() gave; {', '.join(sorted(missing))} is missing")
    if (
        not isinstance(state["step"], int)
        or not isinstance(state["memory"], Mapping)
        or not all(isinstance(rule, str) for rule in state["rules"])
    ):
        raise Error(
            "load_state_dict: expected what state_dict() gave: a number in `step`, texts in `rules` and, by "
            "the names of units, in `memory`"
        )
    return state


def check_memory(state: Mapping[str, Any], units: Sequence[WatchedUnit]) -> None:
    """Refuses what low paths cannot take over, and takes nothing."""
    for switch, text in _stateful(state, units):
        switch.check_state(text)


def restore_memory(state: Mapping[str, Any], units: Sequence[WatchedUnit]) -> None:
    """The state of low paths, by the names of their units."""
    for switch, text in _stateful(state, units):
        switch.load_state(text)


def _stateful(state: Mapping[str, Any], units: Sequence[WatchedUnit]) -> Iterator[tuple[StatefulSwitch, str]]:
    for unit in units:
        if isinstance(unit.switch, StatefulSwitch) and unit.name in state["memory"]:
            yield unit.switch, state["memory"][unit.name]
