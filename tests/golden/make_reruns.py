# SPDX-License-Identifier: Apache-2.0
"""Makes the traces of trials (`reruns_*`) in this folder, but for their decisions: see README.md.

A step is common in the decisions where its trial found the same in high precision; a spent step is not.

Usage: python3 tests/golden/make_reruns.py
"""

from make_standing import Scene

WEAK, MIDDLE, STRONG, HUGE = 1.95, 2.8, 4.6, 12.0  # severities near 1.8, 3.5, 7 and 22


def limit() -> None:
    """A NaN in most steps for a while, now and then, after a long calm again: when trials are, and what is spent."""
    scene = Scene("reruns_limit", units=6, sites=1, seed=7)

    def norm(step: int, unit: int) -> float:
        lasting = 40 <= step < 280 and step % 7 != 3
        rare = 280 <= step < 420 and step % 17 == 0
        again = 540 <= step < 600
        return float("nan") if unit == step // 30 % 6 and (lasting or rare or again) else 1.0

    def error(step: int, unit: int, site: int) -> float | None:
        return None if unit == 0 else 1.0

    scene.write(range(1, 621), norm, error, {"selector": "trial", "max_o": 2, "max_trials": 10, "coarse_error": 0})


def doubt() -> None:
    """Doubt of 2, 4 and 8; it ends by a numeric verdict, and after 100 decisions; what asks in spent steps."""
    scene = Scene("reruns_doubt", units=8, sites=2, seed=8)
    spikes = {
        (60, 3): WEAK,  # common: doubt 2
        (66, 2): WEAK,
        (72, 4): MIDDLE,  # 4
        (78, 5): MIDDLE,
        (84, 1): STRONG,  # 8
        (90, 6): STRONG,
        (98, 2): HUGE,
        (106, 7): float("nan"),  # always counts
        (130, 1): WEAK,  # after the fault below: 2
        (230, 4): WEAK,  # the last decision in doubt
        (231, 5): WEAK,  # the first one after it
        (262, 4): 0.0,  # a gradient that is gone is severe
    }

    def norm(step: int, unit: int) -> float:
        if 270 <= step < 300 and unit == step % 8:
            return HUGE if step < 285 else MIDDLE
        if 270 <= step < 300 and unit == (step + 3) % 8:
            return WEAK
        return spikes.get((step, unit), 1.0)

    def error(step: int, unit: int, site: int) -> float | None:
        if unit == 0:
            return None
        return 60.0 if (step, unit, site) in [(115, 5, 1), (292, 6, 0)] else 1.0

    scene.write(range(1, 421), norm, error, {"selector": "trial", "max_o": 3, "max_trials": 12, "coarse_error": 0})


def full() -> None:
    """Faults of more units than there are places: what acute recoveries leave, trials fill; and a NaN meanwhile."""
    scene = Scene("reruns_full", units=7, sites=1, seed=10)

    def norm(step: int, unit: int) -> float:
        return float("nan") if (step, unit) in [(44, 0), (91, 6)] else 1.0

    def error(step: int, unit: int, site: int) -> float:
        faults = [(1, 30, 34), (3, 36, 70), (4, 38, 90), (5, 40, 60), (2, 85, 130), (0, 88, 120), (6, 100, 101)]
        return 40.0 if any(unit == faulty and first <= step < last for faulty, first, last in faults) else 1.0

    scene.write(range(1, 201), norm, error, {"selector": "trial", "max_o": 2, "coarse_error": 0})


if __name__ == "__main__":
    limit()
    doubt()
    full()
