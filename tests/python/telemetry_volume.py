# SPDX-License-Identifier: Apache-2.0
"""How large a journal becomes: `python telemetry_volume.py [UNITS] [STEPS]` prints bytes and lines by kind.

The norms are synthetic: each unit's varies by a tenth around its own size. On `calm` nothing else happens; on `storms`
every hundredth step a twentieth of the units rises a hundredfold, and one unit in every tenth; `worst` has all units
rise in every tenth step with nothing being common, so that the budget is always full and all others are denied.
"""

import json
import random
import sys
import tempfile
import time
from array import array
from collections import Counter
from pathlib import Path

import gnmr

KINDS = ("calm", "storms", "worst")


def norms_of(kind: str, step: int, sizes: list[float], usual: list[array]) -> array:
    norms = array("d", usual[step % len(usual)])
    count = len(sizes)
    if kind == "storms" and step > 200:
        if step % 100 == 0:
            for unit in range(step // 100 % 20, count, 20):
                norms[unit] *= 100
        elif step % 10 == 0:
            norms[step * 7919 % count] *= 100
    if kind == "worst" and step > 200 and step % 10 == 0:
        norms = array("d", [norm * 100 for norm in norms])
    return norms


def volume(kind: str, units: int, steps: int, folder: Path) -> tuple[Counter[str], Counter[str], float]:
    """Bytes and lines by kind of record, and the seconds that it took."""
    noise = random.Random(1)
    sizes = [noise.uniform(0.5, 2) for _ in range(units)]
    usual = [array("d", [size * noise.uniform(0.9, 1.1) for size in sizes]) for _ in range(32)]
    path = folder / f"{kind}.jsonl"
    names = [
        gnmr.Unit(f"layers.{unit // 768}.experts.{unit % 768 // 3}.{('gate', 'up', 'down')[unit % 3]}", 3)
        for unit in range(units)
    ]
    options = {"common_share": 1.0} if kind == "worst" else {}
    supervisor = gnmr.Supervisor(names, gnmr.Options(max_o=0.01, **options), journal=str(path))
    start = time.perf_counter()
    for step in range(1, steps + 1):
        supervisor.begin(step)
        norms = norms_of(kind, step, sizes, usual)
        supervisor.report(step, norms, may_rerun=False, loss=2.5 + 1 / step, clip_coefficient=0.8234)
        if step % 50 == 0:
            # Faster than any training: the disk has to keep up.
            supervisor.flush(30)
    seconds = time.perf_counter() - start
    supervisor.close()
    assert supervisor.dropped == 0
    size: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    with open(path, "rb") as file:
        for line in file:
            record = json.loads(line)
            word = record["event"] if record["kind"] == "event" else record["kind"]
            size[word] += len(line)
            lines[word] += 1
    return size, lines, seconds


def main() -> None:
    units, steps = (int(word) for word in (*sys.argv[1:], "44544", "1000")[:2]) if len(sys.argv) > 2 else (44544, 1000)
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            size, lines, seconds = volume(kind, units, steps, Path(folder))
            total = sum(size.values())
            print(
                f"{kind}: {units} units, {steps} steps: {total:,} bytes, of which the header {size['header']:,}; "
                f"{(total - size['header']) / steps:,.0f} a step; {seconds:.1f} s"
            )
            print("  " + ", ".join(f"{word} {lines[word]:,} lines {size[word]:,}" for word in size))


if __name__ == "__main__":
    main()
