# SPDX-License-Identifier: Apache-2.0
"""Switches of other people's modules: one file a backend.

Goals: a module is known by the name of its class, so that nothing is imported that the model has not imported itself.
Non-goals: a library as a dependency of ours; what a switch must do (gnmr.switches).
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class _Backend:
    package: str  # the first part of the module that defines the class
    classes: tuple[str, ...]
    file: str  # ours, with a function make(name, module)


_BACKENDS = (
    _Backend("torchao", ("Float8Linear",), "torchao_float8"),
    _Backend("megatron", ("ColumnParallelLinear", "RowParallelLinear"), "megatron"),
    _Backend(
        "transformer_engine", ("Linear", "LayerNormLinear", "LayerNormMLP", "GroupedLinear"), "transformer_engine"
    ),
)


def maker_of(module: nn.Module) -> Callable[[str, Any], Any] | None:
    """The function that makes the switch of a module, or says why there is none."""
    for one in type(module).__mro__:
        package = one.__module__.partition(".")[0]
        for backend in _BACKENDS:
            if package == backend.package and one.__name__ in backend.classes:
                make: Callable[[str, Any], Any] = import_module(f"gnmr.backends.{backend.file}").make
                return make
    return None
