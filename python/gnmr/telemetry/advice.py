# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a summary advise: one rule, one piece of advice.

Goals: a rule is a function of a summary and nothing else, so that it can be tested; what is said names what to do.
Non-goals: doing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gnmr.summary import DETACHED, Advice, Summary

_MOST_OF_A_RUN = 0.5  # of the steps in recovery: the low path of the unit does not serve it
_OFTEN_DENIED = 0.1  # of the alarmed steps
_A_FEW = 3  # before a share means anything
_LONG_ENOUGH = 20  # steps before a share of the run means anything
_RELAPSES = 3  # admissions of one unit


def _disarmed(summary: Summary) -> str:
    if not summary.fault or summary.fault == DETACHED:
        return ""
    return f"gnmr is disarmed and does nothing ({summary.fault}): detach, then attach again once that is mended"


def _no_low_path(summary: Summary) -> str:
    if summary.switchable:
        return ""
    return "no unit has a low path, so the model is only watched: pass recipe=..., or register_switch for your modules"


def _watching(summary: Summary) -> str:
    admitted = [unit.name for unit in summary.units if unit.would_be]
    if not (summary.switchable and summary.mode == "watch" and admitted):
        return ""
    return f"{_listed(admitted)} would have been recovered, but nothing is switched in watch mode: ctl.arm()"


def _warming_up(summary: Summary) -> str:
    if summary.steps >= summary.warmup_steps or summary.alarms:
        return ""
    return (
        f"{summary.steps} of the first {summary.warmup_steps} steps (warmup_samples) are over: norms alone are "
        "judged after that"
    )


def _unsampled(summary: Summary) -> str:
    names = [unit.name for unit in summary.units if not unit.is_sampled]
    if summary.steps < _LONG_ENOUGH or not names:
        return ""
    return (
        f"{_listed(names)} never had a gradient and are not watched: are they used, and does their input need "
        "gradients where they are frozen?"
    )


def _budget(summary: Summary) -> str:
    if summary.denied_steps < _A_FEW or summary.denied_steps < _OFTEN_DENIED * summary.alarms:
        return ""
    if 2 * summary.capped_steps > summary.denied_steps:
        return ""  # it is not the budget
    return (
        f"the budget of {summary.budget} units had no room in {summary.denied_steps} steps, up to "
        f"{summary.most_wanted} units wanted recovery at once: raise max_o"
    )


def _cap(summary: Summary) -> str:
    if summary.capped_steps < _A_FEW or summary.capped_steps < _OFTEN_DENIED * summary.alarms:
        return ""
    return (
        f"the cap on high precision ({summary.max_high_share:.3g} of the cost) denied recoveries or reruns in "
        f"{summary.capped_steps} steps: raise max_high_share"
    )


def _mostly_high(summary: Summary) -> str:
    names = [unit.name for unit in summary.units if unit.recovery_share > _MOST_OF_A_RUN]
    if summary.steps < _LONG_ENOUGH or not names:
        return ""
    return (
        f"{_listed(names)} ran in recovery for most of the run: keep it high with "
        f'ctl.set({names[0]!r}, "high"), which leaves the budget to others'
    )


def _relapses(summary: Summary) -> str:
    names = [
        unit.name for unit in summary.units if unit.admissions >= _RELAPSES and unit.recovery_share <= _MOST_OF_A_RUN
    ]
    if not names:
        return ""
    return f"{_listed(names)} came back to recovery {_RELAPSES} times or more: raise lock_steps"


def _futile(summary: Summary) -> str:
    names = [unit.name for unit in summary.units if unit.futile]
    if not names:
        return ""
    return (
        f"high precision did not help {_listed(names)}: the cause is elsewhere (data, learning rate, the layer itself)"
    )


def _common(summary: Summary) -> str:
    return _mostly(summary, "common", "high precision showed the same: look at the data and the learning rate")


def _unlocated(summary: Summary) -> str:
    return _mostly(
        summary,
        "unlocated",
        "high precision did not show the alarm, and no unit was above its limit: "
        "errors of several units together, or a fault that does not repeat; is the "
        "closure the same step (data, random numbers)?",
    )


def _mostly(summary: Summary, verdict: str, text: str) -> str:
    trials, found = sum(summary.verdicts.values()), summary.verdicts.get(verdict, 0)
    return f"{found} of {trials} trials were {verdict}: {text}" if trials >= _A_FEW and 2 * found > trials else ""


def _untried(summary: Summary) -> str:
    if not (summary.can_try and summary.alarms >= _A_FEW and summary.reruns == 0):
        return ""
    return (
        f"{summary.alarms} alarms were decided by norms alone: where a step can run again, ctl.trial(closure) in "
        "the place of ctl.step finds the layer at fault"
    )


def _calm(summary: Summary) -> str:
    return "no alarm so far: nothing to do" if summary.steps >= summary.warmup_steps and not summary.alarms else ""


#: In the order in which they are printed.
RULES: dict[str, Callable[[Summary], str]] = {
    "disarmed": _disarmed,
    "no low path": _no_low_path,
    "watching": _watching,
    "unsampled": _unsampled,
    "budget": _budget,
    "cap": _cap,
    "mostly high": _mostly_high,
    "relapses": _relapses,
    "futile": _futile,
    "common": _common,
    "unlocated": _unlocated,
    "untried": _untried,
    "warming up": _warming_up,
    "calm": _calm,
}


def advised(summary: Summary) -> Summary:
    """The summary with what its numbers advise."""
    texts = ((name, rule(summary)) for name, rule in RULES.items())
    return replace(summary, advice=tuple(Advice(name, text) for name, text in texts if text))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more units" if len(names) > 3 else "")
