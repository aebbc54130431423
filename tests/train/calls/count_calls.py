# SPDX-License-Identifier: Apache-2.0
"""A calm step of the trainer takes at most 20 functions in 8 files, as a reader follows it.

python count_calls.py PROGRAM [--list]

Counted are functions of gnmr/train and gnmr/run that a run enters, each once; not those of headers, which are
accessors. The reader follows the loop: of the data, the optimizer and the log the call is counted, not what is below
it; listeners, which the loop does not name, are counted apart.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_FUNCTIONS = 20
MOST_FILES = 8
STEP = "train::Trainer::take_step"
LISTENER = re.compile(r"::(reported|begun)$")
LEAF = re.compile(r"::(Data::training_batch|AdamW::step|StepLog::finished)$")


def output_of(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def calls_of(program: str, lag: int) -> list[tuple[int, str, str]]:
    """Depth, function and file of each call, from the beginning of one step to that of the next one."""
    lines = [line.split() for line in output_of(program, str(lag))]
    addresses = sorted({address for _, address in lines})
    found = output_of("addr2line", "-e", program, "-f", "-C", *addresses)
    places = {}
    for address, function, place in zip(addresses, found[::2], found[1::2], strict=True):
        name = re.sub(r"\(.*|\[abi.*", "", function.replace("(anonymous namespace)", "{}")).replace("gnmr::", "")
        places[address] = (name, Path(place.split(":")[0]).name)
    calls = [(int(depth), *places[address]) for depth, address in lines]
    begins = [index for index, call in enumerate(calls) if call[1] == STEP]
    return calls[begins[0] : begins[1]]


def grouped(calls: list[tuple[int, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Group, function and file of each call."""
    step_depth = calls[0][0]
    in_step = True
    below: tuple[int, str] | None = None  # the depth of a leaf or listener, and the group of what it calls
    for index, (depth, function, file) in enumerate(calls):
        in_step = in_step and (index == 0 or depth > step_depth)
        if below is not None and depth > below[0]:
            yield below[1], function, file
            continue
        below = None
        if LISTENER.search(function):
            below = (depth, "listeners")
        elif LEAF.search(function):
            below = (depth, "below it")
        yield "listeners" if LISTENER.search(function) else "the step" if in_step else "around it", function, file


def main() -> int:
    is_wrong = False
    for lag in (0, 1):
        groups: dict[str, dict[str, str]] = {"the step": {}, "below it": {}, "listeners": {}, "around it": {}}
        for group, function, file in grouped(calls_of(sys.argv[1], lag)):
            groups[group][function] = file
        for group, functions in groups.items():
            files = sorted(set(functions.values()))
            print(f"lag {lag}, {group}: {len(functions)} functions in {len(files)} files: {' '.join(files)}")
            if "--list" in sys.argv:
                print("".join(f"    {function}  {file}\n" for function, file in functions.items()), end="")
        step = groups["the step"]
        is_wrong = is_wrong or len(step) > MOST_FUNCTIONS or len(set(step.values())) > MOST_FILES
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
