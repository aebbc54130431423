# SPDX-License-Identifier: Apache-2.0
"""Calm steps of compiled transformer blocks, with GNMR and without, in turns. Prints Markdown.

    PYTHONPATH=build/python python3 bench/compiled_blocks.py [--device cpu|cuda] [--width N] [--tokens N] [KIND ...]

KIND: "watched" (plain layers), "torchao tensorwise", "torchao rowwise", or "own:RECIPE", our low linear; that has
beside it the same casts and products written as anybody would who wants no switch: operators for the casts, torch's
products, an autograd function around them. On a GPU: blocks of LLaMA-2 13B's shapes and milliseconds of the clock to an
idle device, over five steps in a row (a loop does not wait for each), and over one. On a CPU: one thread and its
processor time.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from gnmr.low.amax_history import AmaxHistory
from gnmr.low.casts import FORWARD, INPUT_GRADIENT, OPERANDS, SUMS_OVER_ROWS, WEIGHT_GRADIENT, cast_operand, recipe_of
from gnmr.low.fp8_matrix import Fp8Cast
from llama_blocks import LARGE, Sizes, Twin, blocks, own_recipe
from torch import Tensor, nn

import gnmr
from gnmr.low import fp8_matrix

operators = torch.library.Library("gnmr_bench", "FRAGMENT")
operators.define(
    "cast(Tensor matrix, str recipe, int product, int place, bool by_rows, bool by_columns)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
operators.define(
    "delayed_cast(Tensor matrix, int layer, str recipe, int product, int place, bool by_rows,"
    " bool by_columns) -> (Tensor, Tensor, Tensor, Tensor)"
)
operators.define("tiles(Tensor left, Tensor left_scales, Tensor right, Tensor right_scales, str groups) -> Tensor")

memories: list[AmaxHistory] = []  # of the layers without a switch, under delayed scaling


def _cast(matrix: Tensor, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool) -> tuple[Tensor, ...]:
    return _flat(fp8_matrix.cast_to_fp8(matrix, Fp8Cast(recipe_of(recipe), product, place, by_rows, by_columns)))


def _flat(made: fp8_matrix.Fp8Matrix) -> tuple[Tensor, ...]:
    return tuple(
        tensor
        for side in (made.by_rows, made.by_columns)
        for tensor in ((side.codes, side.scales) if side else (torch.empty(0), torch.empty(0)))
    )


def _delayed_cast(
    matrix: Tensor, layer: int, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool
) -> tuple[Tensor, ...]:
    rules, memory, operand = recipe_of(recipe), memories[layer], OPERANDS[product][place]
    if not matrix.is_cuda:
        memory.note(operand, matrix)
        values = cast_operand(matrix, recipe, product, place, memory.scale(product, place), 0, 0)
        return values, torch.empty(0), torch.empty(0), torch.empty(0)
    made: list[fp8_matrix.Fp8Matrix] = []
    scale = memory.scale_address(product, place, matrix.device)

    def cast(amax: int) -> None:
        made.append(fp8_matrix.cast_to_fp8(matrix, Fp8Cast(rules, product, place, by_rows, by_columns, scale, amax)))

    memory.note_on_device(operand, matrix.device, cast)
    return _flat(made[0])


def _delayed_cast_shapes(
    matrix: Tensor, layer: int, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool
) -> tuple[Tensor, ...]:
    if matrix.is_cuda:
        return _cast_shapes(matrix, recipe, product, place, by_rows, by_columns)
    return torch.empty_like(matrix), torch.empty(0), torch.empty(0), torch.empty(0)


def _cast_shapes(
    matrix: Tensor, recipe: str, product: int, place: int, by_rows: bool, by_columns: bool
) -> tuple[Tensor, ...]:
    rules, (rows, columns) = recipe_of(recipe), matrix.shape
    result = []
    for wanted, m, k in ((by_rows, rows, columns), (by_columns, columns, rows)):
        scales = fp8_matrix.scale_shape(rules.fp8_groups(product, place), m, k)
        result += (
            [
                matrix.new_empty((m, k), dtype=fp8_matrix.code_type(rules, product, place)),
                matrix.new_empty(scales, dtype=torch.float32),
            ]
            if wanted
            else [torch.empty(0), torch.empty(0)]
        )
    return tuple(result)


def _tiles(left: Tensor, left_scales: Tensor, right: Tensor, right_scales: Tensor, groups: str) -> Tensor:
    return fp8_matrix.multiply_tiles(
        fp8_matrix.Fp8Side(left, left_scales),
        fp8_matrix.Fp8Side(right, right_scales),
        groups == "block",
        torch.bfloat16,
    )


operators.impl("cast", _cast, "CUDA")
operators.impl("tiles", _tiles, "CUDA")
for _device in ("CPU", "CUDA"):
    operators.impl("delayed_cast", _delayed_cast, _device)
torch.library.register_fake("gnmr_bench::delayed_cast", _delayed_cast_shapes, lib=operators)
torch.library.register_fake("gnmr_bench::cast", _cast_shapes, lib=operators)
torch.library.register_fake(
    "gnmr_bench::tiles",
    lambda left, left_scales, right, right_scales, groups: left.new_empty(
        (left.shape[0], right.shape[0]), dtype=torch.bfloat16
    ),
    lib=operators,
)


class Plain:
    """Our recipe without a switch: what is decided once, of one linear layer."""

    def __init__(self, recipe: str, tokens: int, weight: Tensor) -> None:
        rules, self.codes, self.recipe = recipe_of(recipe), weight.is_cuda, recipe
        self.rows, self.columns = weight.shape
        self.layer = -1  # without a memory
        if rules.is_delayed(FORWARD, 0):
            self.layer = len(memories)
            memories.append(AmaxHistory(rules))
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

    def cast(self, product: int, place: int, matrix: Tensor, shared: bool) -> tuple[Tensor, ...]:
        """Both sides where two products want it."""
        over_rows = SUMS_OVER_ROWS[product][place]
        if self.layer >= 0:
            made = torch.ops.gnmr_bench.delayed_cast(
                matrix, self.layer, self.recipe, product, place, shared or not over_rows, shared or over_rows
            )
            return made if self.codes else (made[0], made[0])
        if not self.codes:
            return (cast_operand(matrix, self.recipe, product, place, 0.0, 0, 0),) * 2
        return torch.ops.gnmr_bench.cast(
            matrix, self.recipe, product, place, shared or not over_rows, shared or over_rows
        )

    def side(self, product: int, place: int, made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        half = len(made) // 2
        return made[half:] if SUMS_OVER_ROWS[product][place] else made[:half]

    def multiply(self, product: int, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        if not self.codes:
            left_rows, right_rows = SUMS_OVER_ROWS[product]
            return torch.mm(left[0].t() if left_rows else left[0], right[0] if right_rows else right[0].t())
        groups, plan = self.groups[product], self.plans[product]
        if plan.by == "own":
            return torch.ops.gnmr_bench.tiles(*left, *right, groups)
        return fp8_matrix.multiply_by_torch(
            fp8_matrix.Fp8Side(*left), fp8_matrix.Fp8Side(*right), groups, torch.bfloat16, plan
        )


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


def calm(kind: str, sizes: Sizes, device: str, pairs_wanted: int) -> None:
    """A row: two models of the same weights in turns, one of them attached; milliseconds, and ratios of pairs."""
    recipe = own_recipe(kind)
    stock, watched = blocks(kind, 2, sizes, device, Twin), blocks(kind, 2, sizes, device)
    if recipe:
        for module in stock.modules():
            if isinstance(module, nn.Linear):
                module.__class__ = PlainLinear
                module.plain = Plain(recipe, sizes.tokens, module.weight)
    ctl = gnmr.attach(watched, recipe=recipe, quiet=True, strict=True, watch=True)
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
        for memory in memories:
            memory.end_step()
            memory.begin_step()

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
            calm(kind, sizes, given.device, given.pairs)
        except Exception as fault:  # what cannot be had is told, and the rest goes on
            print(f"| {kind} | {type(fault).__name__}: {str(fault)[:200]} |", flush=True)
        torch._dynamo.reset()
        memories.clear()
        gc.collect()


if __name__ == "__main__":
    main()
