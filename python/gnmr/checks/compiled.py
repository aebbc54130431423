# SPDX-License-Identifier: Apache-2.0
"""Whether switching makes a compiled model compile again.

Goals: counts what the compiler does and says which limit was met. Non-goals: numbers (gnmr.checks.conformance).
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gnmr.checks.runs import Bench
from gnmr.units import WatchedUnit


@contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """Grows by an entry with each compilation."""
    from torch._dynamo import callback

    seen: list[str] = []

    def note(arguments: Any) -> None:
        seen.append(str(arguments.compile_id))

    callback.callback_handler.register_start_callback(note)
    try:
        yield seen
    finally:
        callback.callback_handler.remove_start_callback(note)


def recovery_sets(units: Sequence[WatchedUnit]) -> Iterator[list[str]]:
    """No unit, then each place of a group in all groups at once: every variant of a compiled block, when at most one
    unit of a group runs high."""
    groups: dict[str, list[str]] = {}
    for unit in units:
        groups.setdefault(unit.group, []).append(unit.name)
    yield []
    for place in range(max(map(len, groups.values()), default=0)):
        yield [names[place] for names in groups.values() if place < len(names)]


def random_set(units: Sequence[WatchedUnit], draw: random.Random) -> list[str]:
    """At most one unit a group."""
    groups: dict[str, list[str]] = {}
    for unit in units:
        groups.setdefault(unit.group, []).append(unit.name)
    return [draw.choice(names) for names in groups.values() if draw.random() < 0.5]


def check_compiled(bench: Bench, random_sets: int) -> str:
    """Flips sets with at most one unit a group; AssertionError: it compiled again."""
    import torch._dynamo.config as config

    with counted_compilations() as seen, config.patch(fail_on_recompile_limit_hit=True):
        try:
            # A patrol has blocks take turns in another variant: until each has had its turn.
            patrol = bench.attached._parts.patrol
            rounds = 1
            if patrol is not None:
                rounds, patrol.survey_steps = patrol.rounds, 0
            none: list[list[str]] = [[]] * rounds
            for names in none + list(recovery_sets(bench.units)):
                bench.set_high(names)
                bench.step()
        except Exception as fault:
            if "recompile_limit" not in str(fault) and "RecompileLimit" not in type(fault).__name__:
                raise
            raise AssertionError(
                f"the variants of a block are more than torch._dynamo.config.recompile_limit "
                f"({config.recompile_limit}): raise it, or take larger units"
            ) from fault
        warm = len(seen)
        draw = random.Random(0)
        for _ in range(random_sets):
            bench.set_high(random_set(bench.units, draw))
            bench.step()
        bench.set_high([])
        again = len(seen) - warm
    assert again == 0, f"{random_sets} random recovery sets made it compile {again} times"
    return f"{warm} compilations to warm up, none in {random_sets} random recovery sets"
