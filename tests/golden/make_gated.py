# SPDX-License-Identifier: Apache-2.0
"""Makes the traces of runs with a gate (`gated_*`) in this folder, but for their decisions: see README.md.

Usage: python3 tests/golden/make_gated.py
"""

from make_standing import Scene

WEAK, FAULT = 1.95, 60.0


def errors() -> None:
    """Outliers are held in their own step; complete patrols dismiss risks; limits that the plan did not know call."""
    scene = Scene("gated_errors", units=7, sites=2, seed=9)
    faults = {
        (40, 2, 1): FAULT,  # held; 42 is its trial
        (42, 2, 1): FAULT,
        (100, 4, 0): float("inf"),  # held: no limit is above it
        (116, 1, 0): FAULT,  # both are held: 117 was planned before anybody knew
        (117, 1, 1): FAULT,
        (155, 5, 1): FAULT,  # of a site whose first error was that of 145: the plan has no limit, the report calls
        (176, 5, 1): FAULT,
    }
    norms = {
        (60, 3): WEAK,  # dismissed
        (70, 1): WEAK,  # unit 6 is not measured: held
        (90, 3): float("nan"),
        (210, 0): WEAK,
    }

    def norm(step: int, unit: int) -> float:
        return norms.get((step, unit), 1.0)

    def error(step: int, unit: int, site: int) -> float | None:
        is_left_out = (unit == 6 and step in (70, 210)) or (unit == 5 and site == 1 and step < 145)
        if is_left_out:
            return None
        lasting = FAULT if unit == 0 and 230 <= step < 300 and step % 3 != 0 else 1.0
        return faults.get((step, unit, site), lasting)

    scene.write(
        range(1, 341),
        norm,
        error,
        {"selector": "trial", "lag": 1, "max_o": 2, "max_trials": 12, "coarse_error": 0},
    )


def guard() -> None:
    """The guard `skip` where no trial may be: errors and risks that are not dismissed hold the update for good."""
    scene = Scene("gated_guard", units=12, sites=1, seed=10)

    def norm(step: int, unit: int) -> float:
        return 5.0 if unit == step % 12 and step % 5 == 0 and step > 40 else 1.0

    def error(step: int, unit: int, site: int) -> float | None:
        if unit == 3 and step % 2 == 0:
            return None
        return FAULT if unit == step // 20 % 12 and step % 7 < 2 and step > 40 else 1.0

    scene.write(
        range(1, 241),
        norm,
        error,
        {"selector": "trial", "guard": "skip", "lag": 1, "max_o": 1, "max_trials": 4, "coarse_error": 0},
    )


if __name__ == "__main__":
    errors()
    guard()
