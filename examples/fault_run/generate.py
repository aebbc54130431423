#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes norms.csv and truth.csv: gradient norms of an imagined low-precision run with known faults.

    python3 examples/fault_run/generate.py [FOLDER]

It is a model of what such runs look like, not a recording: eight blocks of five linear layers, 320 steps. Norms fall
as the loss falls, share the noise of the batch and have some of their own. In it:

- saturated inputs: the unit's own gradient collapses, the others of its block grow a little (five steps);
- overflowing output gradients: the unit's gradient is several times too large (five steps);
- an underflow to exactly 0, and a NaN that travels from its unit to all earlier ones in the backward pass;
- two bad batches: every unit rises, and nothing is wrong with any of them.

The same seed gives the same files on every machine (only random.random() is used).
"""

import math
import random
import sys
from pathlib import Path

BLOCKS = 8
LAYERS = ("qkv", "o", "gate", "up", "down")
STEPS = 320
SEED = 7

# (kind, block, layer, first step, steps)
FAULTS = [
    ("saturated", 2, "gate", 60, 5),
    ("overflow", 5, "o", 84, 5),
    ("saturated", 6, "down", 112, 5),
    ("overflow", 1, "qkv", 136, 5),
    ("nan", 4, "up", 160, 2),
    ("saturated", 0, "o", 188, 5),
    ("zero", 7, "gate", 212, 4),
    ("overflow", 3, "down", 236, 5),
    ("overflow", 3, "up", 236, 5),
    ("saturated", 5, "qkv", 262, 5),
    ("overflow", 6, "gate", 290, 5),
]
BAD_BATCHES = {124: 4.0, 250: 6.0}
FACTORS = {"saturated": 0.2, "overflow": 4.5}


def normal(source):
    """One value of a normal distribution, from random() alone."""
    return math.sqrt(-2.0 * math.log(1.0 - source.random())) * math.cos(2.0 * math.pi * source.random())


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    source = random.Random(SEED)
    units = [f"layers.{block}.{layer}" for block in range(BLOCKS) for layer in LAYERS]
    scale = [0.04 * math.exp(0.5 * normal(source)) for _ in units]
    index = {name: i for i, name in enumerate(units)}

    norm_lines = ["step," + ",".join(units)]
    truth_lines = ["step," + ",".join(units)]
    for step in range(STEPS):
        decay = 0.35 + 0.65 * math.exp(-step / 90.0)
        batch = math.exp(0.06 * normal(source)) * BAD_BATCHES.get(step, 1.0)
        norms = [s * decay * batch * math.exp(0.07 * normal(source)) for s in scale]
        truth = [0] * len(units)
        for kind, block, layer, first, count in FAULTS:
            if not first <= step < first + count:
                continue
            at = index[f"layers.{block}.{layer}"]
            truth[at] = 1
            if kind in FACTORS:
                norms[at] *= FACTORS[kind]
            if kind == "saturated":
                for other in range(block * len(LAYERS), (block + 1) * len(LAYERS)):
                    if other != at:
                        norms[other] *= 1.3
            elif kind == "zero":
                norms[at] = 0.0
            elif kind == "nan":
                for other in range(at + 1):
                    norms[other] = math.nan
        norm_lines.append(f"{step}," + ",".join(f"{norm:.5g}" for norm in norms))
        truth_lines.append(f"{step}," + ",".join(map(str, truth)))

    (folder / "norms.csv").write_text("\n".join(norm_lines) + "\n")
    (folder / "truth.csv").write_text("\n".join(truth_lines) + "\n")


if __name__ == "__main__":
    main()
