# SPDX-License-Identifier: Apache-2.0
"""Calm steps of compiled transformer blocks, with GNMR and without, in turns. Prints Markdown.

    PYTHONPATH=build/python python3 bench/compiled_blocks.py [--device cpu|cuda] [--width N] [--tokens N]
        [--patrol SHARE]        [KIND ...]

KIND: "watched" (plain layers), "torchao tensorwise", "torchao rowwise", or "own:RECIPE", our low linear; that has
beside it the same quantizations and GEMMs written as anybody would who wants no switch: operators for the former,
torch's GEMMs, an autograd function around them. On a GPU: blocks of LLaMA-2 13B's shapes and milliseconds of the clock
to an idle device, over five steps in a row (a loop does not wait for each), and over one. On a CPU: one thread and its
processor time.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from gnmr.low.casts import (
    FORWARD,
    INPUT_GRADIENT,
    SUMS_OVER_ROWS,
    WEIGHT_GRADIENT,
    as_type,
    cast_operand,
    cast_shape,
    recipe_of,
)
from gnmr.low.front_end import LINEAR, multiply_codes
from llama_blocks import LARGE, Sizes, Twin, blocks, own_recipe
from torch import Tensor, nn

import gnmr
from gnmr import _core
from gnmr.low import fp8_matrix

operators = torch.library.Library("gnmr_bench", "FRAGMENT")
operators.define("cast(Tensor matrix, str recipe, int product, int place, bool both) -> Tensor[]")
operators.define(
    "delayed_cast(Tensor matrix, int layer, str recipe, int product, int place, bool both, bool is_first) -> Tensor[]"
)
operators.define(
    "gemm(Tensor left, Tensor left_scales, Tensor right, Tensor right_scales, str recipe, int product) -> Tensor"
)

delayed: list[_core.LowLayer] = []  # the amax histories of the layers without a switch


def _cast(matrix: Tensor, recipe: str, product: int, place: int, both: bool) -> list[Tensor]:
    over_rows = SUMS_OVER_ROWS[product][place]
    return _core.quantize_to_fp8(
        LINEAR, recipe_of(recipe), product, place, matrix, both or not over_rows, both or over_rows
    )


def _cast_shapes(matrix: Tensor, recipe: str, product: int, place: int, both: bool) -> list[Tensor]:
    rules, (rows, columns), over_rows = recipe_of(recipe), matrix.shape, SUMS_OVER_ROWS[product][place]
    result: list[Tensor] = []
    for wanted, m, k in ((both or not over_rows, rows, columns), (both or over_rows, columns, rows)):
        if wanted:
            scales = fp8_matrix.scale_shape(rules.fp8_groups(product, place), m, k)
            result += [
                matrix.new_empty((m, k), dtype=fp8_matrix.code_type(rules, product, place)),
                matrix.new_empty(scales, dtype=torch.float32),
            ]
    return result


def _delayed_cast(
    matrix: Tensor, layer: int, recipe: str, product: int, place: int, both: bool, is_first: bool
) -> list[Tensor]:
    return delayed[layer].quantize(product, place, matrix, both, is_first)


def _delayed_cast_shapes(
    matrix: Tensor, layer: int, recipe: str, product: int, place: int, both: bool, is_first: bool
) -> list[Tensor]:
    if matrix.is_cuda:
        return _cast_shapes(matrix, recipe, product, place, both)
    return [cast_shape(matrix, recipe, product, place)]


def _gemm(left: Tensor, left_scales: Tensor, right: Tensor, right_scales: Tensor, recipe: str, product: int) -> Tensor:
    return _core.low_gemm(
        LINEAR, recipe_of(recipe), product, [left, left_scales], [right, right_scales], torch.bfloat16
    )


def _gemm_shape(
    left: Tensor, left_scales: Tensor, right: Tensor, right_scales: Tensor, recipe: str, product: int
) -> Tensor:
    return left.new_empty((left.shape[0], right.shape[0]), dtype=torch.bfloat16)


for _name, _run, _shape in (
    ("cast", _cast, _cast_shapes),
    ("delayed_cast", _delayed_cast, _delayed_cast_shapes),
    ("gemm", _gemm, _gemm_shape),
):
    for _device in ("CPU", "CUDA"):
        operators.impl(_name, _run, _device)
    torch.library.register_fake(f"gnmr_bench::{_name}", _shape, lib=operators)


class Plain:
    """Our recipe without a switch: what is decided once, of one linear layer."""

    def __init__(self, recipe: str, tokens: int, weight: Tensor) -> None:
        rules, self.codes, self.recipe = recipe_of(recipe), weight.is_cuda, recipe
        self.rows, self.columns = weight.shape
        self.layer = -1  # without a memory
        if rules.is_delayed(FORWARD, 0):
            self.layer = len(delayed)
            delayed.append(_core.LowLayer(LINEAR, rules, self.layer))
        self.groups = [rules.fp8_groups(product, 1) for product in range(3)] if self.codes else []
        self.shared = [
            rules.shares_cast(*pair, self.codes)
            for pair in (
                (FORWARD, 0, WEIGHT_GRADIENT, 1),
                (FORWARD, 1, INPUT_GRADIENT, 1),
                (INPUT_GRADIENT, 0, WEIGHT_GRADIENT, 0),
            )
        ]
        sizes = (tokens, self.rows, self.columns), (tokens, self.columns, self.rows), (self.rows, self.columns, tokens)
        self.plans = (
            [
                fp8_matrix.plan_of(weight.device, recipe, product, *sizes[product], torch.bfloat16)
                for product in range(3)
            ]
            if self.codes
            else []
        )

    def cast(self, product: int, place: int, matrix: Tensor, both: bool) -> tuple[Tensor, ...]:
        """Numbers; or FP8 data and scales of the side that this GEMM takes, or of both."""
        if self.layer >= 0:
            is_first = product == FORWARD or (product, place) == (INPUT_GRADIENT, 0)
            return tuple(
                torch.ops.gnmr_bench.delayed_cast(matrix, self.layer, self.recipe, product, place, both, is_first)
            )
        if not self.codes:
            return (cast_operand(matrix, self.recipe, product, place, 0.0, 0, 0),)
        return tuple(torch.ops.gnmr_bench.cast(matrix, self.recipe, product, place, both))

    def side(self, product: int, place: int, made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if len(made) < 4:
            return made
        return made[2:] if SUMS_OVER_ROWS[product][place] else made[:2]

    def multiply(self, product: int, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        if not self.codes:
            left_rows, right_rows = SUMS_OVER_ROWS[product]
            return torch.mm(left[0].t() if left_rows else left[0], right[0] if right_rows else right[0].t())
        plan = self.plans[product]
        if plan.by != "torch":
            return torch.ops.gnmr_bench.gemm(*left, *right, self.recipe, product)
        groups, dtype = self.groups[product], torch.bfloat16
        return as_type(multiply_codes(left, right, groups, dtype, plan.sums_fast, plan.spreads_blocks), dtype)


class PlainFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input: Tensor, weight: Tensor, plain: Plain) -> Tensor:
        matrix = input.reshape(-1, plain.columns)
        low_input = plain.cast(FORWARD, 0, matrix, plain.shared[0])
        low_weight = plain.cast(FORWARD, 1, weight, plain.shared[1])
        kept_input = plain.side(WEIGHT_GRADIENT, 1, low_input) if plain.shared[0] else (matrix,)
        kept_weight = plain.side(INPUT_GRADIENT, 1, low_weight) if plain.shared[1] else (weight,)
        ctx.plain, ctx.shape, ctx.parts = plain, input.shape, len(kept_input)
        ctx.save_for_backward(*kept_input, *kept_weight)
        result = plain.multiply(FORWARD, plain.side(FORWARD, 0, low_input), plain.side(FORWARD, 1, low_weight))
        return result.view(*input.shape[:-1], plain.rows)

    @staticmethod
    def backward(ctx, output_gradient: Tensor):
        plain, saved = ctx.plain, ctx.saved_tensors
        gradient = output_gradient.reshape(-1, plain.rows)
        low_input, low_weight = saved[: ctx.parts], saved[ctx.parts :]
        if not plain.shared[0]:
            low_input = plain.side(WEIGHT_GRADIENT, 1, plain.cast(WEIGHT_GRADIENT, 1, low_input[0], False))
        if not plain.shared[1]:
            low_weight = plain.side(INPUT_GRADIENT, 1, plain.cast(INPUT_GRADIENT, 1, low_weight[0], False))
        low = plain.cast(INPUT_GRADIENT, 0, gradient, plain.shared[2])
        to_input = plain.multiply(INPUT_GRADIENT, plain.side(INPUT_GRADIENT, 0, low), low_weight)
        if not plain.shared[2]:
            low = plain.cast(WEIGHT_GRADIENT, 0, gradient, False)
        to_weight = plain.multiply(WEIGHT_GRADIENT, plain.side(WEIGHT_GRADIENT, 0, low), low_input)
        return to_input.view(ctx.shape), to_weight, None


class PlainLinear(nn.Linear):
    plain: Plain

    def forward(self, input: Tensor) -> Tensor:
        return PlainFunction.apply(input, self.weight, self.plain)


def calm(kind: str, sizes: Sizes, device: str, pairs_wanted: int, patrol: float) -> None:
    """A row: two models of the same weights in turns, one of them attached; milliseconds, and ratios of pairs."""
    recipe = own_recipe(kind)
    stock, watched = blocks(kind, 2, sizes, device, Twin), blocks(kind, 2, sizes, device)
    if recipe:
        for module in stock.modules():
            if isinstance(module, nn.Linear):
                module.__class__ = PlainLinear
                module.plain = Plain(recipe, sizes.tokens, module.weight)
    options = {} if kind == "watched" else {"patrol": patrol}
    ctl = gnmr.attach(watched, recipe=recipe, quiet=True, strict=True, watch=True, **options)
    x = torch.randn(
        1, sizes.tokens, sizes.width, device=device, dtype=next(stock.parameters()).dtype, requires_grad=True
    )
    for model in (stock, watched):
        for layer in model.layers:
            layer.compile(fullgraph=True)
    clock = time.perf_counter if device == "cuda" else time.process_time
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def milliseconds(model: nn.Module, steps: int, clip: Callable[[], object] | None) -> float:
        """A step, of so many in a row."""
        wait()
        start = clock()
        for _ in range(steps):
            model.zero_grad()
            model(x).float().square().mean().backward()
            if clip is not None:
                clip()
        wait()
        return 1e3 * (clock() - start) / steps

    parameters = list(stock.parameters())

    def clip_stock() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for layer in delayed:
            layer.end_step()
            layer.begin_step()

    def clip_watched() -> None:
        ctl.step(max_norm=1.0)

    row = [kind]
    in_a_row = 5 if device == "cuda" else 1
    for steps, clips in ((in_a_row, False), (in_a_row, True), *([(1, False)] if device == "cuda" else [])):
        pairs = []
        for turn in range(-4, pairs_wanted):
            # In turns who comes first: a device that has rested a moment is faster. Two turns make a ratio.
            sides = [(stock, clip_stock if clips else None), (watched, clip_watched if clips else None)]
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            taken = {side: milliseconds(sides[side][0], steps, sides[side][1]) for side in order}
            clip_stock()
            clip_watched()
            if turn >= 0:
                pairs.append((taken[0], taken[1]))
        ratios = statistics.quantiles(
            [(two + four) / (one + three) for (one, two), (three, four) in zip(pairs[::2], pairs[1::2])], n=4
        )
        row += [
            *(f"{statistics.median(side):.2f}" for side in zip(*pairs)),
            f"{ratios[1]:.4f} ({ratios[0]:.4f} to {ratios[2]:.4f})",
        ]
    print("| " + " | ".join(row) + " |", flush=True)
    off = max(
        float((one.grad - two.grad).norm() / one.grad.norm())
        for one, two in zip(stock.parameters(), watched.parameters())
    )
    # On a GPU each compilation chooses kernels by their times. Where a sum ends a bit otherwise, torchao's scales
    # (compiled, too) do as well, and all its codes are rounded otherwise: 0.055 was seen, and 0 in other runs.
    if off > (1e-6 if device == "cpu" else 0.1 if kind.startswith("torchao") else 1e-2):
        print(f"| {kind} | gradients of the two sides are {off:.2g} apart: they do not compute the same |")
    ctl.detach()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--width", type=int, help="5120 on a GPU, 768 on a CPU")
    arguments.add_argument("--tokens", type=int, help="4096 on a GPU, 512 on a CPU")
    arguments.add_argument("--pairs", type=int, default=60, help="of runs; both orders make one ratio")
    arguments.add_argument("--patrol", type=float, default=0.0, help="its share; 0: no block is ever in its turn")
    arguments.add_argument("kind", nargs="*")
    given = arguments.parse_args()
    sizes = LARGE if given.device == "cuda" else Sizes(768, 12, 2048, 512)
    if given.width:
        sizes = Sizes(given.width, max(1, given.width // 64), given.width * 8 // 3 // 64 * 64, sizes.tokens)
    if given.tokens:
        sizes = Sizes(sizes.width, sizes.heads, sizes.inner, given.tokens)
    if given.device == "cpu":
        torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "one CPU thread"
    print(
        f"{name}, torch {torch.__version__}: two compiled blocks of width {sizes.width}, {sizes.tokens} tokens\n\n"
        "| low path | forward, backward, alone | with GNMR | ratio | and clipping, alone | with GNMR | ratio |"
        + (" each waited for, alone | with GNMR | ratio |\n|---|---|---" if given.device == "cuda" else "\n")
        + "|---|---|---|---|---|---|---|"
    )
    for kind in given.kind or [
        "watched",
        "torchao tensorwise",
        "torchao rowwise",
        "own:fp8-tensorwise",
        "own:fp8-rowwise",
        "own:fp8-delayed",
        "own:fp8-deepseek",
    ]:
        try:
            calm(kind, sizes, given.device, given.pairs, given.patrol)
        except Exception as fault:  # what cannot be had is reported, and the rest goes on
            print(f"| {kind} | {type(fault).__name__}: {str(fault)[:200]} |", flush=True)
        torch._dynamo.reset()
        delayed.clear()
        gc.collect()


if __name__ == "__main__":
    main()
