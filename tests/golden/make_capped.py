# SPDX-License-Identifier: Apache-2.0
"""Makes the traces of runs with a cap on high precision (`capped_*`) in this folder, but for their decisions: see
README.md.

Usage: python3 tests/golden/make_capped.py
"""

from make_standing import Scene

UNITS: list[dict[str, object]] = [{"name": f"u{unit}", "cost": cost} for unit, cost in enumerate((1, 1, 1, 3, 2, 2))]


def trouble(name: str, seed: int, options: dict[str, object]) -> None:
    """Chronic offenders, of which one too many; faults, first rare, then in most steps, then none; a NaN; gaps."""
    scene = Scene(name, units=len(UNITS), sites=1, seed=seed)

    def norm(step: int, unit: int) -> float | None:
        if (step, unit) in [(75, 0), (76, 0), (290, 4)]:
            return float("nan")
        return None if unit == 4 and 150 <= step < 190 else 1.0

    def error(step: int, unit: int, site: int) -> float | None:
        lasting = 120 <= step < 210 and step % 4 != 0 and unit in (step // 15 % len(UNITS), step // 7 % len(UNITS))
        if lasting or (step, unit) in [(40, 2), (55, 4), (300, 2)]:
            return 60.0
        return {1: 20.0, 5: 15.0}.get(unit, 1.0)

    scene.write(range(1, 341), norm, error, options, UNITS)


if __name__ == "__main__":
    trouble("capped_trials", 21, {"selector": "trial", "max_o": 4, "max_trials": 40, "max_high_share": 0.15})
    trouble("capped_evidence", 22, {"selector": "evidence", "max_o": 4, "max_high_share": 0.15})
    trouble(
        "capped_gated",
        23,
        {"selector": "trial", "lag": 1, "guard": "skip", "max_o": 4, "max_trials": 40, "max_high_share": 0.15},
    )
