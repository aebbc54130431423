# SPDX-License-Identifier: Apache-2.0
"""The command line `gnmr` out of Python: `python -m gnmr train`, on several processes with torchrun.

    torchrun --nproc-per-node 4 -m gnmr train --model micro --batch 2 --out runs/four

Goals: the same flags, help and exit codes as the program; the engine uses the torch that Python has, and the processes
that torchrun has started. Non-goals: a second command line.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from gnmr import _core
from gnmr._core import Error

#: The training engine (LibTorch), where the build had a torch.
ENGINE = Path(__file__).with_name("_engine.so")


def run(arguments: Sequence[str]) -> int:
    """Runs a command of the program; its exit code."""
    words = list(arguments)
    if not words or words[0] != "train" or {"-h", "--help"} & set(words):
        return _core.run_program(words)
    import torch  # noqa: F401 (the engine is linked to its libraries)

    if "GNMR_ENGINE" not in os.environ:
        if not ENGINE.exists():
            raise Error(
                "this build of gnmr has no training engine: `make build` where Python has torch, then "
                "PYTHONPATH=build/python"
            )
        os.environ["GNMR_ENGINE"] = str(ENGINE)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return _core.run_program(words)
    return _run_rank(words)


def _run_rank(words: list[str]) -> int:
    import torch
    import torch.distributed as dist

    on_cuda = _value_of(words, "--device") == "cuda"
    if on_cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
    try:
        world = dist.group.WORLD
        assert world is not None
        os.environ["GNMR_PROCESS_GROUP"] = world.group_name
        quiet = [] if dist.get_rank() == 0 else ["--quiet"]
        return _core.run_program([*words, *quiet])
    finally:
        os.environ.pop("GNMR_PROCESS_GROUP", None)
        dist.destroy_process_group()


def _value_of(words: Sequence[str], flag: str) -> str:
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return ""
