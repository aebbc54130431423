# SPDX-License-Identifier: Apache-2.0
"""Makes the traces of standing recovery in this folder, but for their decisions: see README.md.

Usage: python3 tests/golden/make_standing.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent


class Scene:
    """Norms near 1 and errors near 0.02, and what a trace makes of them."""

    def __init__(self, name: str, units: int, sites: int, seed: int) -> None:
        self.name = name
        self.units = units
        self.sites = sites
        self.random = Random(seed)

    def about(self, value: float, noise: float = 0.1) -> float:
        return value * (1 + noise * (2 * self.random.random() - 1))

    def write(
        self,
        steps: range,
        norm: Callable[[int, int], float | None],
        error: Callable[[int, int, int], float | None],
        options: dict[str, object],
        units: list[dict[str, object]] | None = None,
    ) -> None:
        """`norm` of (step, unit) and `error` of (step, unit, site) say what a cell is a multiple of; None: empty."""
        names = [f"u{unit}" for unit in range(self.units)]
        places = [(unit, site) for unit in range(self.units) for site in range(self.sites)]
        norms = [["step", *names]]
        errors = [["step", *(f"{names[unit]}:{site}" for unit, site in places)]]
        for step in steps:
            row = [norm(step, unit) for unit in range(self.units)]
            norms.append([str(step), *(self.cell(value, 1.0) for value in row)])
            found = [error(step, unit, site) for unit, site in places]
            errors.append([str(step), *(self.cell(value, 0.02) for value in found)])
        self.put(".csv", "".join(",".join(row) + "\n" for row in norms))
        self.put(".errors.csv", "".join(",".join(row) + "\n" for row in errors))
        self.put(".options.json", json.dumps(options) + "\n")
        if units:
            self.put(".units.json", json.dumps({"units": units}) + "\n")

    def cell(self, multiple: float | None, usual: float) -> str:
        return "" if multiple is None else f"{self.about(usual * multiple):.4g}"

    def put(self, suffix: str, text: str) -> None:
        (FOLDER / (self.name + suffix)).write_text(text)


def chronic() -> None:
    """Three chronic offenders, room for two; a fault and a NaN have trials; one offender recovers, one starts late."""
    scene = Scene("standing_chronic", units=8, sites=2, seed=1)

    def norm(step: int, unit: int) -> float:
        if (step, unit) == (140, 2):  # its decision would be a review
            return float("nan")
        return 5.0 if (step, unit) in [(70, 5), (171, 0)] else 1.0

    def error(step: int, unit: int, site: int) -> float:
        if unit == 3 and 90 <= step < 94:
            return 60.0
        if (unit, site) == (7, 1) and step >= 190:
            return min(1.25 ** (step - 190), 100.0)
        offence = {(1, 0): 25.0, (4, 1): 20.0, (6, 0): 15.0}
        return 1.0 if unit == 1 and step >= 125 else offence.get((unit, site), 1.0)

    scene.write(range(1, 321), norm, error, {"selector": "trial", "max_o": 2})


def norms() -> None:
    """The selector `norms`, with costs and groups: candidates take places, and a worse unit replaces one in time."""
    scene = Scene("standing_norms", units=12, sites=1, seed=2)

    def norm(step: int, unit: int) -> float | None:
        if (step, unit) in [(1050, 3), (1051, 5), (1075, 4), (1076, 0), (1120, 8), (1230, 3)]:
            return 6.0
        if (step, unit) == (1095, 6):
            return float("inf")
        return None if scene.random.random() < 0.03 else 1.0

    def error(step: int, unit: int, site: int) -> float | None:
        if unit == 7:
            return None if step < 1060 else 300.0
        if unit == 10:
            return None if step < 1190 else 60.0
        return {0: 30.0, 2: 20.0, 3: 25.0, 5: 12.0}.get(unit, 1.0)

    units: list[dict[str, object]] = [
        {"name": "u0", "cost": 3, "group": "a"},
        {"name": "u1", "cost": 3, "group": "a"},
        {"name": "u2", "cost": 2, "group": "a"},
        {"name": "u3", "cost": 2, "group": "b"},
        {"name": "u4", "cost": 4, "group": "b"},
        {"name": "u5", "group": "b"},
        {"name": "u7", "cost": 2},
        {"name": "u8", "cost": 5},
    ]
    options: dict[str, object] = {"selector": "norms", "max_o": 3, "max_cost": 0.35, "group_max": 2}
    scene.write(range(1001, 1291), norm, error, options, units)


def preempted() -> None:
    """One place: faults of other units take it from a chronic offender, relapse, and leave it again."""
    scene = Scene("standing_preempted", units=6, sites=1, seed=3)

    def error(step: int, unit: int, site: int) -> float:
        faults = [(1, 55, 58), (5, 60, 61), (1, 66, 68), (3, 79, 80), (2, 120, 150)]
        if any(unit == faulty and first <= step < last for faulty, first, last in faults):
            return 30.0
        return {0: 15.0, 4: 11.0}.get(unit, 1.0)

    def norm(step: int, unit: int) -> float:
        return 4.0 if (step, unit) in [(101, 0), (170, 4)] else 1.0

    scene.write(range(1, 241), norm, error, {"selector": "evidence", "max_o": 1, "error_factor": 3})


def places() -> None:
    """Costs without a limit on cost: a large unit with the larger errors takes the place of a small one."""
    scene = Scene("standing_places", units=7, sites=1, seed=6)

    def error(step: int, unit: int, site: int) -> float:
        return {1: 12.0, 5: 10.0 if step < 90 else 40.0}.get(unit, 1.0)

    units: list[dict[str, object]] = [{"name": f"u{unit}", "cost": 20 if unit == 5 else 2} for unit in range(7)]
    scene.write(range(1, 261), lambda step, unit: 1.0, error, {"selector": "evidence", "max_o": 1}, units)


def partial() -> None:
    """A patrol of each unit in every fourth step; one that it leaves out for more than 200 steps is released."""
    scene = Scene("standing_partial", units=8, sites=2, seed=4)

    def norm(step: int, unit: int) -> float:
        return 5.0 if (step, unit) in [(60, 1), (130, 6), (222, 2)] else 1.0

    def error(step: int, unit: int, site: int) -> float | None:
        if (step + unit) % 4 != 0 or (unit == 2 and 150 <= step < 370):
            return None
        if unit == 6 and 129 <= step < 134:
            return 50.0
        return {2: 20.0, 5: 14.0}.get(unit, 1.0)

    scene.write(range(1, 481), norm, error, {"selector": "trial", "max_o": 2, "max_trials": 5})


def odd() -> None:
    """Infinite errors and zeros, common steps and steps without samples where a review would be."""
    scene = Scene("standing_odd", units=12, sites=1, seed=5)

    def norm(step: int, unit: int) -> float | None:
        if step in [40, 100]:
            return 9.0
        return None if step in [60, 160] else 1.0

    def error(step: int, unit: int, site: int) -> float:
        if unit == 3:
            return float("inf")
        if unit == 8:
            return 1.0 if 85 <= step < 141 else 30.0
        return 0.0 if unit == 10 else 1.0

    scene.write(range(1, 221), norm, error, {"selector": "evidence-alarm", "max_o": 2, "coarse_factor": 3})


def fill() -> None:
    """Large errors fill what two coarse offenders leave; faults, a third offender and a worse filler take places."""
    scene = Scene("standing_fill", units=9, sites=2, seed=9)

    def norm(step: int, unit: int) -> float:
        return 6.0 if (step, unit) in [(75, 8), (76, 0), (130, 6)] else 1.0

    def error(step: int, unit: int, site: int) -> float:
        usual = 7.0 if site == 0 else 2.0
        large = {(1, 0): 30.0, (3, 1): 14.0, (2, 0): 11.5, (4, 0): 12.5, (5, 0): 10.6}
        if (unit, site) == (7, 0) and step >= 150:
            return 30.0
        if (unit, site) == (8, 0) and step >= 200:
            return 13.2
        if unit in (1, 3, 7) and step >= 320:
            return usual
        return large.get((unit, site), usual)

    scene.write(range(1, 481), norm, error, {"selector": "norms", "max_o": 4, "max_lock_steps": 20})


if __name__ == "__main__":
    chronic()
    norms()
    preempted()
    places()
    partial()
    odd()
    fill()
