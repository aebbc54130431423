# SPDX-License-Identifier: Apache-2.0
"""What a step came to."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step came to."""

    step: int
    total_norm: float = math.nan  # of all gradients, before clipping; NaN too where nothing was measured
    clip_coefficient: float = 1.0  # what they were multiplied with
    applied: bool = True  # whether the gradients are there for an update; False: they were dropped
    alarmed: bool = False
    rerun: str = ""  # `trial` or `replay`, where the step ran again
    verdict: str = "none"  # of a trial: numeric, common or gone
    admitted: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()  # in the next step
    loss: float | None = None  # of the rerun, where there was one, else what was passed in
