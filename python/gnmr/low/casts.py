# SPDX-License-Identifier: Apache-2.0
"""Casts of operands as a torch operator: `torch.ops.gnmr.cast_operand`.

Goals: the bits of the C++ engine; an operator that compilers can see without looking inside. Matrices are float32 with
two dimensions; groups of elements that share a scale lie along the dimension that the product sums over.
Non-goals: devices other than the CPU (the kernels of `gnmr._core` go in here as another registration).
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gnmr import _core

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)  # the products
INPUT, WEIGHT, OUTPUT_GRADIENT = range(3)  # the operands

#: The operand of each place of each product.
OPERANDS = ((INPUT, WEIGHT), (OUTPUT_GRADIENT, WEIGHT), (OUTPUT_GRADIENT, INPUT))

#: Whether each operand of a product, by its place, is summed over its rows.
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
    """Products in it have the types that they are given."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def as_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, which torch 2.11 forgets gradients over where it does nothing at the end of a function that
    is compiled."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _has_plain_rows(matrix: Tensor) -> bool:
    return matrix.stride(1) == 1 and (matrix.shape[0] <= 1 or matrix.stride(0) >= matrix.shape[1])


def _hadamard(matrix: Tensor, size: int, seed: int) -> Tensor:
    """Multiplies stretches of columns by a Hadamard matrix with random signs; what is left of `size` stays."""
    result = matrix.clone(memory_format=torch.contiguous_format)
    whole = matrix.shape[1] // size * size
    if whole == 0:
        return result
    transform = torch.frombuffer(_core.hadamard_matrix(size, seed), dtype=torch.float32).view(size, size)
    part = result[:, :whole].reshape(matrix.shape[0], whole // size, size)
    result[:, :whole].copy_(torch.matmul(part, transform).view(matrix.shape[0], whole))
    return result


def _cast_into(
    recipe: _core.Recipe, product: int, place: int, source: Tensor, target: Tensor, scale: float, seed: int
) -> None:
    rows, cols = source.shape
    recipe.cast(
        product,
        place,
        source.data_ptr(),
        max(source.stride(0), cols),
        target.data_ptr(),
        rows,
        cols,
        scale,
        seed & (2**64 - 1),
        torch.get_num_threads(),
    )


def cast_on_cpu(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float = 0.0, seed: int = 0, transform_seed: int = 0
) -> Tensor:
    """What the operator does with a float32 matrix."""
    if matrix.dim() != 2 or matrix.dtype != torch.float32:
        raise _core.Error(f"cast_operand: expected a float32 matrix, got {matrix.dim()} dimensions of {matrix.dtype}")
    rules = recipe_of(recipe)
    turned = SUMS_OVER_ROWS[product][place] and not rules.ignores_direction(product, place)
    facing = matrix.t() if turned else matrix
    size = rules.hadamard(product, place)
    if size:
        result = _hadamard(facing, size, transform_seed & (2**64 - 1))
        _cast_into(rules, product, place, result, result, scale, seed)
    else:
        source = facing if _has_plain_rows(facing) else facing.contiguous()
        result = torch.empty(source.shape, dtype=torch.float32, device=source.device)
        _cast_into(rules, product, place, source, result, scale, seed)
    return result.t() if turned else result


operators.impl("cast_operand", cast_on_cpu, "CPU")  # type: ignore[no-untyped-call]


def cast_shape(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float = 0.0, seed: int = 0, transform_seed: int = 0
) -> Tensor:
    """Room for what a cast leaves, stored as that is."""
    rules = recipe_of(recipe)
    turned = SUMS_OVER_ROWS[product][place] and not rules.ignores_direction(product, place)
    rows, cols = matrix.shape
    room = matrix.new_empty((cols, rows) if turned else (rows, cols), dtype=torch.float32)
    return room.t() if turned else room


torch.library.register_fake("gnmr::cast_operand", cast_shape, lib=operators)


def cast_operand(
    matrix: Tensor, recipe: str, product: int, place: int, scale: float, seed: int, transform_seed: int
) -> Tensor:
    """The operand as the cast leaves it: float32, of the same shape, perhaps stored by columns."""
    result: Tensor = torch.ops.gnmr.cast_operand(
        as_type(matrix, torch.float32), recipe, product, place, scale, _signed(seed), _signed(transform_seed)
    )
    return result


def finite_amax(matrix: Tensor) -> float:
    """The largest magnitude among the finite values of a matrix on the CPU; 0 where there is none."""
    plain = matrix.detach().to(torch.float32)
    if not _has_plain_rows(plain):
        plain = plain.contiguous()
    rows, cols = plain.shape
    return _core.finite_amax(plain.data_ptr(), rows, cols, max(plain.stride(0), cols), torch.get_num_threads())


def _signed(seed: int) -> int:
    """Operators take signed numbers."""
    return seed - 2**64 if seed >= 2**63 else seed
