# SPDX-License-Identifier: Apache-2.0
"""The GEMMs of a linear layer and their operands by number, and how one is quantized to numbers, as a torch operator:
`torch.ops.gnmr.cast_operand`.

Goals: an operator that compilers can see without looking inside. Matrices are float32 with two dimensions; groups of
elements that share a scale lie along the dimension that the GEMM sums over. Non-goals: FP8 data (gnmr.low.fp8_matrix).
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.front_end import LINEAR

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)  # the GEMMs
INPUT, WEIGHT, OUTPUT_GRADIENT = range(3)  # the operands

#: Whether each operand of a GEMM, by its place, is summed over its rows.
SUMS_OVER_ROWS = ((False, False), (False, True), (True, True))

#: The namespace of our operators.
operators = torch.library.Library("gnmr", "FRAGMENT")  # type: ignore[no-untyped-call]
operators.define(  # type: ignore[no-untyped-call]
    "cast_operand(Tensor matrix, str recipe, int product, int place, float scale, int seed, int transform_seed)"
    " -> Tensor"
)


@lru_cache(maxsize=64)
def recipe_of(name: str) -> _core.Recipe:
    """The recipe of that name or path, read once."""
    return _core.Recipe(name)


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """GEMMs in it have the types that they are given."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def as_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, which torch 2.11 forgets gradients over where it does nothing at the end of a function that
    is compiled."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def cast_on_cpu(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float = 0.0, seed: int = 0, transform_seed: int = 0
) -> Tensor:
    """What the operator does with a float32 matrix."""
    if matrix.dim() != 2 or matrix.dtype != torch.float32:
        raise _core.Error(f"cast_operand: expected a float32 matrix, got {matrix.dim()} dimensions of {matrix.dtype}")
    mask = 2**64 - 1
    result: Tensor = _core.quantize_to_numbers(
        LINEAR, recipe_of(recipe), product, place, matrix, scale, seed & mask, transform_seed & mask
    )
    return result


operators.impl("cast_operand", cast_on_cpu, "CPU")  # type: ignore[no-untyped-call]


def cast_shape(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float = 0.0, seed: int = 0, transform_seed: int = 0
) -> Tensor:
    """Room for what the operator gives, stored as that is."""
    rules = recipe_of(recipe)
    turned = SUMS_OVER_ROWS[product][place] and not rules.ignores_direction(product, place)
    rows, cols = matrix.shape
    room = matrix.new_empty((cols, rows) if turned else (rows, cols), dtype=torch.float32)
    return room.t() if turned else room


torch.library.register_fake("gnmr::cast_operand", cast_shape, lib=operators)


def cast_operand(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float, seed: int, transform_seed: int
) -> Tensor:
    """The operand as rounded numbers: float32, of the same shape, perhaps stored by columns."""
    result: Tensor = torch.ops.gnmr.cast_operand(
        as_type(matrix, torch.float32), recipe, product, place, scale, _signed(seed), _signed(transform_seed)
    )
    return result


def _signed(seed: int) -> int:
    """Operators take signed numbers."""
    return seed - 2**64 if seed >= 2**63 else seed
