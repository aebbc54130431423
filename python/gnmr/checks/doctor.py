# SPDX-License-Identifier: Apache-2.0
"""python -m gnmr doctor: the conformance suite on the user's own machine and model.

Goals: a table with what was looked at, what came of it and why; a code that scripts understand.
Non-goals: the checks themselves (gnmr.checks.conformance).
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnmr import _core
from gnmr._core import Error
from gnmr.checks.conformance import Check, Subject, examine, passed
from gnmr.checks.planted_faults import planted_fault

ABOUT = """\
Looks whether GNMR can switch your model, before you train with it.

    python -m gnmr doctor --demo                        a small model with our own low path
    python -m gnmr doctor --model my_training:subject   yours
    torchrun --nproc-per-node 2 -m gnmr doctor ...      also whether ranks agree

my_training.py, on the path or in this folder, has a function without arguments that returns your model and a function
that makes a loss of it, the same one in every call:

    def subject():
        model = build_model()                           # converted, wrapped, compiled as in training
        inputs, targets = one_batch()
        return model, lambda model: criterion(model(inputs), targets)

It may return a gnmr.conformance.Subject instead, which can also say how the model computes in high precision without
us. Every unit is flipped high and back; gradients, norms, trials, memory, recompilations and ranks are compared with
what they should be. The code is 0 where nothing failed. The model is not trained: parameters stay as they are.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="MODULE:FUNCTION", help="a function that returns your model and its loss")
    what.add_argument("--demo", action="store_true", help="a small model of our own")
    parser.add_argument(
        "--recipe", help="give linear layers our own low path (python -m gnmr recipes); the demo has fp8-tensorwise"
    )
    parser.add_argument("--units", type=int, metavar="N", help="flip at most so many units one by one (default: all)")
    parser.add_argument(
        "--sets",
        type=int,
        default=20,
        metavar="N",
        help="random recovery sets on compiled models (default: %(default)s)",
    )


def run(chosen: argparse.Namespace) -> int:
    """The command; its exit code."""
    with _process_group():
        subject = _demo() if chosen.demo else _subject_of(chosen.model)
        if chosen.recipe is not None:
            subject.recipe = chosen.recipe
        torchao = _torchao_reference(subject.model)
        subject.reference = subject.reference or torchao
        if subject.plant is None and (subject.recipe or torchao):
            subject.plant = planted_fault
        checks = examine(subject, chosen.units, chosen.sets)
        if not _is_first_rank():
            return 0 if passed(checks) else 1
        print(f"gnmr {_core.VERSION}, torch {torch.__version__}, {_device_of(subject.model)}")
        print(table(checks))
        return 0 if passed(checks) else 1


def table(checks: Sequence[Check]) -> str:
    """A line a check."""
    width = max(len(check.name) for check in checks)
    lines = [f"{check.name:<{width}}  {check.outcome:<7}  {check.detail}" for check in checks]
    failed = sum(check.outcome == "failed" for check in checks)
    skipped = sum(check.outcome == "skipped" for check in checks)
    lines.append(f"{len(checks) - failed - skipped} ok, {failed} failed, {skipped} skipped")
    return "\n".join(lines)


def _subject_of(text: str) -> Subject:
    module, _, name = text.partition(":")
    if not name:
        raise Error(f"--model: expected MODULE:FUNCTION, got {text!r}")
    sys.path.insert(0, os.getcwd())
    try:
        make: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as fault:
        raise Error(f"--model: {text!r} cannot be had: {fault}") from fault
    made = make()
    if isinstance(made, Subject):
        return made
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module) and callable(made[1])):
        raise Error(f"--model: expected {name} to return a model and a function of it, got {type(made).__name__}")
    return Subject(*made)


def _demo() -> Subject:
    torch.manual_seed(0)
    width = 64
    model = nn.Sequential(
        *(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width, bias=False)
            )
            for _ in range(3)
        ),
        nn.Linear(width, 16),
    )
    inputs, targets = torch.randn(128, width), torch.randint(0, 16, (128,))

    def loss_of(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(inputs), targets)

    return Subject(model, loss_of, recipe="fp8-tensorwise")


def _torchao_reference(model: nn.Module) -> Callable[[nn.Module], Any] | None:
    """torchao's layers without float8, where the model has some."""
    if not any(type(module).__name__ == "Float8Linear" for module in model.modules()):
        return None
    return float8_layers_as_linear


@contextmanager
def float8_layers_as_linear(model: nn.Module) -> Iterator[None]:
    """torchao's layers run as torch.nn.Linear while this lasts."""
    layers = [module for module in model.modules() if type(module).__name__ == "Float8Linear"]
    for layer in layers:
        layer.forward = nn.Linear.forward.__get__(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


@contextmanager
def _process_group() -> Iterator[None]:
    """Under torchrun: the ranks know of each other."""
    distributed = torch.distributed
    starts = distributed.is_available() and "RANK" in os.environ and not distributed.is_initialized()
    if starts:
        # A model on the CPU is examined there, also where ranks outnumber the devices.
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
        if starts:
            # Nobody leaves while another still talks.
            distributed.barrier()
    finally:
        if starts and distributed.is_initialized():
            distributed.destroy_process_group()


def _is_first_rank() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def _device_of(model: nn.Module) -> str:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
