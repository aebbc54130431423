# SPDX-License-Identifier: Apache-2.0
"""The user's choice of paths: rules as the core reads them (gnmr/run/switch_rule.h)."""

from gnmr._core import Error, glob_matches


class Switchboard:
    """Rules of the form `GLOB=high@A:B`."""

    def __init__(self) -> None:
        self.rules: list[str] = []

    def changed(self, pattern: str, path: str, steps: int | None, first: int) -> list[str]:
        """The rules with one more, in force from step `first` on; `auto` takes back what was said of this pattern and
        of names and patterns that fit it."""

        def is_taken_back(said: str) -> bool:
            return said == pattern or (path == "auto" and glob_matches(pattern, said))

        rules = [
            rule for rule in self.rules if not (is_taken_back(rule.rpartition("=")[0]) or _ends_before(rule, first))
        ]
        if path in ("high", "low"):
            if steps is not None and steps < 1:
                raise Error(f"set: expected steps of at least 1, got {steps}")
            last = "" if steps is None else str(first + steps - 1)
            rules.append(f"{pattern}={path}@{first}:{last}")
        elif path != "auto":
            raise Error(f"set: expected the path high, low or auto, got {path!r}")
        return rules


def _ends_before(rule: str, step: int) -> bool:
    last = rule.rpartition(":")[2]
    # The step before the first one may be going on.
    return last != "" and int(last) < step - 1
