# SPDX-License-Identifier: Apache-2.0
"""What is known of real FP8 data before there are any: where they are made, their shapes, who multiplies them.

Goals: for compilers, and for what `attach` predicts. Non-goals: making and multiplying them (gnmr/low, in C++).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.casts import recipe_of
from gnmr.low.device_stream import TYPES
from gnmr.low.front_end import FP8_GROUP

_CODES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def makes_codes(matrix: Tensor) -> bool:
    """Whether the low path quantizes it to FP8 data; elsewhere to rounded numbers."""
    return matrix.is_cuda


def refusal(recipe: str, device: torch.device) -> str:
    """Why a recipe cannot run on a device; empty: it can."""
    if device.type == "cpu":
        return ""
    if device.type != "cuda":
        return f"our low path runs on the CPU and on CUDA devices, and the model is on {device}"
    if not _core.kernels_available():
        return f"the model is on {device}, and gnmr was built without CUDA: build it where nvcc is found"
    if not recipe_of(recipe).has_fp8_codes:
        able = ", ".join(name for name in _core.recipe_names() if recipe_of(name).has_fp8_codes)
        return (
            f"the model is on {device}, and not all casts of this recipe are real FP8 data. On a GPU run {able}; "
            "the CPU emulates the others"
        )
    return ""


def scale_shape(groups: str, rows: int, depth: int) -> tuple[int, ...]:
    """The extents of a side's scales; sizes may be a compiler's symbols."""
    size = FP8_GROUP
    if groups == "row":
        return (rows,)
    if groups == "tile":
        return (depth + size - 1) // size, rows
    if groups == "block":
        return (rows + size - 1) // size, (depth + size - 1) // size
    return (1,)


def code_type(rules: _core.Recipe, product: int, place: int) -> torch.dtype:
    """The type of an operand's FP8 data."""
    return _CODES[rules.fp8_format(product, place)]


@dataclass(frozen=True)
class ProductPlan:
    """How a GEMM of FP8 data is made: `_core.Fp8Plan` in words that compilers read."""

    by: str
    sums_fast: bool
    spreads_blocks: bool


@lru_cache(maxsize=4096)
def plan_of(
    device: torch.device, recipe: str, product: int, rows: int, columns: int, depth: int, dtype: torch.dtype
) -> ProductPlan:
    """The plan of a GEMM [rows, columns] that sums over `depth`."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        plan = _core.plan_fp8_product(recipe_of(recipe), product, rows, columns, depth, TYPES[dtype])
    return ProductPlan(plan.by, plan.sums_fast, plan.spreads_blocks)


#: Plans of a layer are for tokens in whole multiples of it.
TOKENS = 16

_SOME_TOKENS = (TOKENS, 128, 3 * 128, 4 * 128, 2**20)  # of all kinds that a plan can depend on


def plans_of_layer(recipe: str, inputs: int, outputs: int, device: torch.device) -> tuple[ProductPlan, ...]:
    """The plans of a linear layer's three GEMMs; `by` is empty where it depends on the number of tokens."""
    result = []
    for product in range(3):
        plans = {
            plan_of(device, recipe, product, *sizes, torch.bfloat16)
            for sizes in (
                ((tokens, outputs, inputs), (tokens, inputs, outputs), (outputs, inputs, tokens))[product]
                for tokens in _SOME_TOKENS
            )
        }
        result.append(plans.pop() if len(plans) == 1 else ProductPlan("", False, False))
    return tuple(result)


def has_real_products(recipe: str, inputs: int, outputs: int, device: torch.device) -> bool:
    """Whether FP8 data are multiplied as they are in all GEMMs of a linear layer, with as many tokens as fit."""
    rules = recipe_of(recipe)
    return all(
        rules.casts(product, 0) and rules.casts(product, 1) and plan.by != "numbers"
        for product, plan in enumerate(plans_of_layer(recipe, inputs, outputs, device))
    )
