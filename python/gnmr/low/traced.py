# SPDX-License-Identifier: Apache-2.0
"""Our low path as compilers see it while all layers of a block run it: quantizations and GEMMs one by one.

Goals: what anybody would write who has no switch. So a compiler quantizes the input that q, k and v share once, fuses
what stands around the GEMMs, and plans memory; calm steps cost what they would without us. Where a quantization depends
on more than its operand (delayed scales, chance) its operator looks that up when it runs, by the layer's
number. The arithmetic is that of gnmr/low, to the bit. Non-goals: what is switched or measured (gnmr.low.ops).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnmr import _core
from gnmr.low import fp8_matrix
from gnmr.low.casts import (
    FORWARD,
    INPUT_GRADIENT,
    SUMS_OVER_ROWS,
    WEIGHT_GRADIENT,
    as_type,
    cast_operand,
    cast_shape,
    operators,
    recipe_of,
    without_autocast,
)
from gnmr.low.front_end import LINEAR, multiply_codes
from gnmr.low.layer_handles import layer_of

_PLACES = tuple((product, place) for product in range(3) for place in range(2))

#: What an operand's cast in one product is to another product: of input, weight and output's gradient.
_PAIRS = ((FORWARD, 0, WEIGHT_GRADIENT, 1), (FORWARD, 1, INPUT_GRADIENT, 1), (INPUT_GRADIENT, 0, WEIGHT_GRADIENT, 0))

# Compilers keep code on disk by the names of operators: one whose results change gets another name.
operators.define(  # type: ignore[no-untyped-call]
    "fp8_cast_1(Tensor matrix, str recipe, int product, int place, bool by_rows, bool by_columns) -> Tensor[]"
)
operators.define(  # type: ignore[no-untyped-call]
    "low_cast_1(Tensor matrix, Tensor layer, str recipe, int product, int place, bool both_sides, bool notes)"
    " -> Tensor[]",
    tags=(torch.Tag.cudagraph_unsafe,),
)
operators.define(  # type: ignore[no-untyped-call]
    "fp8_product_1(Tensor left, Tensor left_scales, Tensor right, Tensor right_scales, str recipe, int product,"
    " ScalarType dtype) -> Tensor"
)


def _fp8_cast(matrix: Tensor, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool) -> list[Tensor]:
    return _core.quantize_to_fp8(LINEAR, recipe_of(recipe), product, place, matrix, by_rows, by_columns)


def _fp8_cast_shape(
    matrix: Tensor, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool
) -> list[Tensor]:
    rules, (rows, columns) = recipe_of(recipe), matrix.shape
    dtype, groups = fp8_matrix.code_type(rules, product, place), rules.fp8_groups(product, place)
    result: list[Tensor] = []
    for wanted, m, k in ((by_rows, rows, columns), (by_columns, columns, rows)):
        if wanted:
            result += [
                matrix.new_empty((m, k), dtype=dtype),
                matrix.new_empty(fp8_matrix.scale_shape(groups, m, k), dtype=torch.float32),
            ]
    return result


def _low_cast(
    matrix: Tensor, layer: Tensor, recipe: str, product: int, place: int, both_sides: bool, notes: bool
) -> list[Tensor]:
    low = layer_of(layer)
    if notes and product == FORWARD:
        low.note_call()
    made: list[Tensor] = low.layer.quantize(product, place, matrix, both_sides, notes)
    return made


def _low_cast_shape(
    matrix: Tensor, layer: Tensor, recipe: str, product: int, place: int, both_sides: bool, notes: bool
) -> list[Tensor]:
    if not fp8_matrix.makes_codes(matrix):
        return [cast_shape(matrix, recipe, product, place)]
    over_rows = SUMS_OVER_ROWS[product][place]
    return _fp8_cast_shape(matrix, recipe, product, place, both_sides or not over_rows, both_sides or over_rows)


def _fp8_product(
    left: Tensor,
    left_scales: Tensor,
    right: Tensor,
    right_scales: Tensor,
    recipe: str,
    product: int,
    dtype: torch.dtype,
) -> Tensor:
    made: Tensor = _core.low_gemm(LINEAR, recipe_of(recipe), product, [left, left_scales], [right, right_scales], dtype)
    return made


def _fp8_product_shape(
    left: Tensor,
    left_scales: Tensor,
    right: Tensor,
    right_scales: Tensor,
    recipe: str,
    product: int,
    dtype: torch.dtype,
) -> Tensor:
    return left.new_empty((left.shape[0], right.shape[0]), dtype=dtype)


for _name, _run, _shape in (
    ("fp8_cast_1", _fp8_cast, _fp8_cast_shape),
    ("low_cast_1", _low_cast, _low_cast_shape),
    ("fp8_product_1", _fp8_product, _fp8_product_shape),
):
    for _device in ("CPU", "CUDA"):
        operators.impl(_name, _run, _device)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"gnmr::{_name}", _shape, lib=operators)


@dataclass(frozen=True)
class TracedLayer:
    """All that a compiler has to know of a layer, as constants."""

    recipe: str
    casts: tuple[tuple[bool, bool], ...]  # whether the operand of a product at a place is cast
    shares: tuple[bool, ...]  # one cast of input, weight, gradient is enough; numbers
    shares_codes: tuple[bool, ...]  # and codes
    has_codes: bool  # the recipe can run on a GPU
    looks_up: bool  # its casts depend on more than their operands
    groups: tuple[str, ...]  # of the right operands of its products, where it has codes
    counts_at: int  # the operand of forward whose cast shows that the layer is called; a weight is nobody else's
    plans: tuple[fp8_matrix.ProductPlan, ...] = ()  # of products of codes; empty: that is found when they are made


#: Layers have the number of their kind, which is all that compilers guard on in each of them. No list: they would guard
#: on its length.
kinds: dict[int, TracedLayer] = {}
_numbers: dict[TracedLayer, int] = {}


def kind_of(layer: TracedLayer) -> int:
    """Its number in `kinds`."""
    number = _numbers.setdefault(layer, len(_numbers))
    kinds[number] = layer
    return number


def traced_layer(recipe: str, rules: _core.Recipe) -> TracedLayer | None:
    """None: it is not written here, the operators of gnmr.low.ops do it."""
    casts = tuple((rules.casts(product, 0), rules.casts(product, 1)) for product in range(3))
    looks_up = any(
        rules.is_delayed(*where) or rules.hadamard(*where) or rules.is_random(*where)
        for where in _PLACES
        if rules.casts(*where)
    )
    has_codes = rules.has_fp8_codes and _core.kernels_available()
    if not any(casts[FORWARD]) or ((has_codes or looks_up) and not all(map(all, casts))):
        return None  # nobody reports calls; products of codes and numbers; amaxes of what is not cast

    def shares(codes: bool) -> tuple[bool, ...]:
        return tuple(rules.shares_cast(*pair, codes) for pair in _PAIRS)

    groups = tuple(rules.fp8_groups(product, 1) for product in range(3)) if has_codes else ()
    return TracedLayer(
        recipe, casts, shares(False), shares(True), has_codes, looks_up, groups, 1 if casts[FORWARD][1] else 0
    )


def _cast(
    kind: TracedLayer, layer: Tensor, product: int, place: int, matrix: Tensor, both_sides: bool, notes: bool
) -> tuple[Tensor, ...]:
    """Numbers; or codes and scales for a product that sums over columns, or over rows, or first of one and then of the
    other. `notes`: it is the first of this operand in a step that trains."""
    if not kind.casts[product][place]:
        return (as_type(matrix, torch.float32),)
    codes, over_rows = fp8_matrix.makes_codes(matrix), SUMS_OVER_ROWS[product][place]
    if kind.looks_up or (product == FORWARD and place == kind.counts_at):
        return tuple(torch.ops.gnmr.low_cast_1(matrix, layer, kind.recipe, product, place, both_sides, notes))
    if not codes:
        return (cast_operand(matrix, kind.recipe, product, place, 0.0, 0, 0),)
    return tuple(
        torch.ops.gnmr.fp8_cast_1(
            matrix, kind.recipe, product, place, both_sides or not over_rows, both_sides or over_rows
        )
    )


def _side(product: int, place: int, operand: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if len(operand) < 4:
        return operand
    return operand[2:] if SUMS_OVER_ROWS[product][place] else operand[:2]


def _multiply(
    kind: TracedLayer,
    by_plan: bool,
    product: int,
    left: tuple[Tensor, ...],
    right: tuple[Tensor, ...],
    dtype: torch.dtype,
) -> Tensor:
    if len(left) > 1 and by_plan and kind.plans[product].by == "torch":
        made = dtype if dtype in (torch.float32, torch.bfloat16) else torch.float32
        plan = kind.plans[product]
        (left_codes, left_scales), (right_codes, right_scales) = left, right
        return as_type(
            multiply_codes(
                (left_codes, left_scales),
                (right_codes, right_scales),
                kind.groups[product],
                made,
                plan.sums_fast,
                plan.spreads_blocks,
            ),
            dtype,
        )
    if len(left) > 1:
        result: Tensor = torch.ops.gnmr.fp8_product_1(*left, *right, kind.recipe, product, dtype)
        return result
    left_rows, right_rows = SUMS_OVER_ROWS[product]
    return as_type(torch.mm(left[0].t() if left_rows else left[0], right[0] if right_rows else right[0].t()), dtype)


class _TracedFunction(torch.autograd.Function):
    """The three GEMMs; what is kept for backward is the quantized operand that it can use, or the operand."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, weight: Tensor, layer: Tensor, kind: TracedLayer, by_plan: bool, trains: bool
    ) -> Tensor:
        shares = kind.shares_codes if fp8_matrix.makes_codes(matrix) else kind.shares
        low_input = _cast(kind, layer, FORWARD, 0, matrix, shares[0] and trains, trains)
        low_weight = _cast(kind, layer, FORWARD, 1, weight, shares[1] and trains, trains)
        if trains:
            kept_input = _side(WEIGHT_GRADIENT, 1, low_input) if shares[0] else (matrix,)
            kept_weight = _side(INPUT_GRADIENT, 1, low_weight) if shares[1] else (weight,)
            ctx.kind, ctx.by_plan, ctx.shares, ctx.parts = kind, by_plan, shares, len(kept_input)
            ctx.save_for_backward(layer, *kept_input, *kept_weight)
        return _multiply(
            kind, by_plan, FORWARD, _side(FORWARD, 0, low_input), _side(FORWARD, 1, low_weight), matrix.dtype
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kind, by_plan, shares = ctx.kind, ctx.by_plan, ctx.shares
        layer, *saved = ctx.saved_tensors
        low_input, low_weight = tuple(saved[: ctx.parts]), tuple(saved[ctx.parts :])
        wants_input, wants_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        low_gradient: tuple[Tensor, ...] = ()
        to_input = to_weight = None
        # A compiler reads this where forward has switched it off, and runs it where it may be on.
        with torch.autocast(gradient.device.type, enabled=False):
            if wants_input:
                low_gradient = _cast(kind, layer, INPUT_GRADIENT, 0, gradient, shares[2] and wants_weight, True)
                if not shares[1]:
                    low_weight = _cast(kind, layer, INPUT_GRADIENT, 1, low_weight[0], False, False)
                    low_weight = _side(INPUT_GRADIENT, 1, low_weight)
                to_input = _multiply(
                    kind, by_plan, INPUT_GRADIENT, _side(INPUT_GRADIENT, 0, low_gradient), low_weight, gradient.dtype
                )
            if wants_weight:
                if not (shares[2] and wants_input):
                    low_gradient = _cast(kind, layer, WEIGHT_GRADIENT, 0, gradient, False, not wants_input)
                if not shares[0]:
                    low_input = _cast(kind, layer, WEIGHT_GRADIENT, 1, low_input[0], False, False)
                    low_input = _side(WEIGHT_GRADIENT, 1, low_input)
                to_weight = _multiply(
                    kind, by_plan, WEIGHT_GRADIENT, _side(WEIGHT_GRADIENT, 0, low_gradient), low_input, gradient.dtype
                )
        return to_input, to_weight, None, None, None, None


def product(matrix: Tensor, weight: Tensor, layer: Tensor, kind: TracedLayer, trains: bool) -> Tensor:
    """The layer's result without its bias. `layer`: its number (gnmr.low.layer_handles)."""
    by_plan, tokens = False, matrix.shape[0]
    # Asked of no layer without plans: what is asked of a size is one more thing to compile for.
    if len(kind.plans) > 0 and tokens > 0 and tokens % fp8_matrix.TOKENS == 0:
        by_plan = True
    with without_autocast(matrix.device.type):
        result: Tensor = _TracedFunction.apply(  # type: ignore[no-untyped-call]
            matrix, weight, layer, kind, by_plan, trains
        )
    return result
