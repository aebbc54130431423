# SPDX-License-Identifier: Apache-2.0
"""Matrices in real FP8 on a CUDA device: codes with their scales, and products of them.

Goals: the codes and scales of the CPU's casts, byte for byte, both directions out of one read; products by
torch._scaled_mm or our own kernel, as `gnmr._core` decides, and by the numbers that codes stand for where nobody
multiplies them. Nothing waits for the device. Non-goals: other formats and roundings (gnmr.low.casts), amax
history (gnmr.low.amax_history).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low.casts import SUMS_OVER_ROWS, recipe_of
from gnmr.low.device_stream import TYPES, readable, stream_on, workspace

_CODES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def makes_codes(matrix: Tensor) -> bool:
    """Whether the low path casts it to codes; elsewhere casts are emulated in numbers."""
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
            f"the model is on {device}, and not all casts of this recipe are real FP8 codes. On a GPU run {able}; "
            "the CPU emulates the others"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Fp8Side:
    """A matrix as a product sees it, [m, k]: k is what the product sums over."""

    codes: Tensor  # of a float8 type, rows without gaps
    scales: Tensor  # one number (tensor); [m] (row); [tiles, m] (tile); [rows of blocks, blocks] (block)


@dataclass(frozen=True, slots=True)
class Fp8Matrix:
    """A matrix [rows, columns] that was cast: for products that sum over its columns, over its rows, or both."""

    groups: str  # which codes share a scale, as `Recipe.fp8_groups` names it
    by_rows: Fp8Side | None = None  # [rows, columns]
    by_columns: Fp8Side | None = None  # [columns, rows]

    def side(self, sums_over_rows: bool) -> Fp8Side:
        """What a product takes that sums so."""
        side = self.by_columns if sums_over_rows else self.by_rows
        assert side is not None, "this side was not asked for"
        return side

    def values(self, sums_over_rows: bool) -> Tensor:
        """The numbers that a side stands for, float32 [rows, columns]."""
        values = values_of(self.side(sums_over_rows), self.groups)
        return values.t() if sums_over_rows else values

    def __mul__(self, factor: float) -> "Fp8Matrix":
        """The same codes under other scales; for faults that are planted."""
        return Fp8Matrix(
            self.groups,
            *(
                None if side is None else Fp8Side(side.codes, side.scales * factor)
                for side in (self.by_rows, self.by_columns)
            ),
        )


def scale_shape(groups: str, rows: int, depth: int) -> tuple[int, ...]:
    """The extents of a side's scales; sizes may be a compiler's symbols."""
    size = int(_core.FP8_GROUP)
    if groups == "row":
        return (rows,)
    if groups == "tile":
        return (depth + size - 1) // size, rows
    if groups == "block":
        return (rows + size - 1) // size, (depth + size - 1) // size
    return (1,)


def code_type(rules: _core.Recipe, product: int, place: int) -> torch.dtype:
    """The type of an operand's codes."""
    return _CODES[rules.fp8_format(product, place)]


@dataclass(frozen=True, slots=True)
class Fp8Cast:
    """How a matrix is cast: as the operand of a product, and what is wanted of it."""

    rules: _core.Recipe
    product: int
    place: int
    by_rows: bool = False
    by_columns: bool = False
    given_scale: int = 0  # delayed: where the scale is on the device; 0: the matrix's own
    amax: int = 0  # where the largest finite magnitude goes; 0: not wanted


def cast_to_fp8(matrix: Tensor, cast: Fp8Cast) -> Fp8Matrix:
    """Casts a matrix; without a side that is wanted only its amax is found."""
    rules, product, place = cast.rules, cast.product, cast.place
    source = readable(matrix)
    rows, columns = source.shape
    groups = rules.fp8_groups(product, place)
    dtype = code_type(rules, product, place)

    def room(m: int, k: int) -> Fp8Side:
        return Fp8Side(
            torch.empty((m, k), dtype=dtype, device=source.device),
            torch.empty(scale_shape(groups, m, k), dtype=torch.float32, device=source.device),
        )

    result = Fp8Matrix(
        groups, room(rows, columns) if cast.by_rows else None, room(columns, rows) if cast.by_columns else None
    )
    if source.numel() == 0:
        for side in (result.by_rows, result.by_columns):
            if side is not None:
                side.scales.fill_(1.0)
        return result
    task = _core.Fp8Cast(
        rules,
        product,
        place,
        source.data_ptr(),
        TYPES[source.dtype],
        rows,
        columns,
        _places(result.by_rows),
        _places(result.by_columns),
        cast.given_scale,
        cast.amax,
    )
    if source.is_cuda:
        with stream_on(source.device) as stream:
            task.run(workspace(task.workspace_bytes, source.device).data_ptr(), stream)
    else:
        task.run_on_host()
    return result


def _places(side: Fp8Side | None) -> tuple[int, int]:
    return (0, 0) if side is None else (side.codes.data_ptr(), side.scales.data_ptr())


def values_of(side: Fp8Side, groups: str) -> Tensor:
    """The numbers that a side stands for, float32 [m, k]."""
    codes, scales = side.codes.to(torch.float32), side.scales
    size = int(_core.FP8_GROUP)
    m, k = codes.shape
    if groups == "row":
        scales = scales.view(-1, 1)
    elif groups == "tile":
        scales = scales.t().repeat_interleave(size, 1)[:, :k]
    elif groups == "block":
        scales = scales.repeat_interleave(size, 0)[:m].repeat_interleave(size, 1)[:, :k]
    return codes * scales


@dataclass(frozen=True)
class ProductPlan:
    """How a product of codes is made: `_core.Fp8Plan` in words that compilers read."""

    by: str
    sums_fast: bool
    spreads_blocks: bool


@lru_cache(maxsize=4096)
def plan_of(
    device: torch.device, recipe: str, product: int, rows: int, columns: int, depth: int, dtype: torch.dtype
) -> ProductPlan:
    """The plan of a product [rows, columns] that sums over `depth`."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        plan = _core.plan_fp8_product(recipe_of(recipe), product, rows, columns, depth, TYPES[dtype])
    return ProductPlan(plan.by, plan.sums_fast, plan.spreads_blocks)


#: Plans of a layer are for tokens in whole multiples of it.
TOKENS = 16

_SOME_TOKENS = (TOKENS, 128, 3 * 128, 4 * 128, 2**20)  # of all kinds that a plan can depend on


def plans_of_layer(recipe: str, inputs: int, outputs: int, device: torch.device) -> tuple[ProductPlan, ...]:
    """The plans of a linear layer's three products; `by` is empty where it depends on the number of tokens."""
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
    """Whether codes are multiplied as they are in all products of a linear layer, with as many tokens as fit."""
    rules = recipe_of(recipe)
    return all(
        rules.casts(product, 0) and rules.casts(product, 1) and plan.by != "numbers"
        for product, plan in enumerate(plans_of_layer(recipe, inputs, outputs, device))
    )


def multiply(recipe: str, product: int, left: Fp8Matrix, right: Fp8Matrix, dtype: torch.dtype) -> Tensor:
    """The product of two operands as they are stored."""
    left_rows, right_rows = SUMS_OVER_ROWS[product]
    one, other = left.side(left_rows), right.side(right_rows)
    rows, depth = one.codes.shape
    columns = other.codes.shape[0]
    made = dtype if dtype in (torch.float32, torch.bfloat16) else torch.float32
    plan = plan_of(one.codes.device, recipe, product, rows, columns, depth, made)
    if plan.by == "numbers" or rows * columns * depth == 0:
        result = torch.mm(values_of(one, left.groups), values_of(other, right.groups).t())
    elif plan.by == "own":
        result = multiply_tiles(one, other, right.groups == "block", made)
    else:
        result = multiply_by_torch(one, other, right.groups, made, plan)
    return result.to(dtype)


def multiply_tiles(left: Fp8Side, right: Fp8Side, right_has_blocks: bool, dtype: torch.dtype) -> Tensor:
    """Our own product of codes under scales of tiles."""
    rows, depth = left.codes.shape
    columns = right.codes.shape[0]
    result = torch.empty((rows, columns), dtype=dtype, device=left.codes.device)
    with stream_on(result.device) as stream:
        _core.multiply_tiles(
            left.codes.data_ptr(),
            left.scales.data_ptr(),
            right.codes.data_ptr(),
            right.scales.data_ptr(),
            right_has_blocks,
            rows,
            columns,
            depth,
            result.data_ptr(),
            TYPES[dtype],
            stream,
        )
    return result


def multiply_by_torch(
    left: Fp8Side, right: Fp8Side, right_groups: str, dtype: torch.dtype, plan: ProductPlan
) -> Tensor:
    """torch._scaled_mm: float32 or bfloat16."""
    left_scales, right_scales = left.scales, right.scales
    if right_groups == "row":
        left_scales, right_scales = left_scales.view(-1, 1), right_scales.view(1, -1)
    elif right_groups == "tile":
        left_scales = left_scales.t()
    elif right_groups == "block":
        left_scales = left_scales.t()
        right_scales = right_scales.t()
        if plan.spreads_blocks:
            right_scales = right_scales.repeat_interleave(int(_core.FP8_GROUP), 1)
            right_scales = right_scales[:, : right.codes.shape[0]].contiguous()
    result: Tensor = torch._scaled_mm(
        left.codes, right.codes.t(), left_scales, right_scales, out_dtype=dtype, use_fast_accum=plan.sums_fast
    )
    return result
