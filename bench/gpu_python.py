# SPDX-License-Identifier: Apache-2.0
"""The Python package on a GPU: what a step costs, what recovery and a trial add to memory. Prints Markdown.

    PYTHONPATH=build/python python3 bench/gpu_python.py [memory] [calm] [clipping]     # all three unless some are named

- clipping: `ctl.step(max_norm=...)` against torch's `clip_grad_norm_`, in turns. Gradients of the 280 linear weights of
  LLaMA-2 13B and of 44,544 experts of 256 Ki elements, bfloat16; milliseconds of the host's clock from call to an idle
  device, and to its return, medians.
- memory: peaks of a step on one block of LLaMA-2 13B's shapes, 4,096 tokens, bfloat16, beside what preflight said.
- calm: steps in which nothing happens, two such blocks, compiled, with GNMR and without, in interleaved pairs.
"""

import gc
import statistics
import sys
import time
import types
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import gnmr
from gnmr.preflight import preflight

WIDTH, HEADS, INNER, TOKENS = 5120, 40, 13824, 4096
MIB = 2**20


def weights(kind: str) -> nn.Module:
    """A model of linear layers with gradients."""
    with torch.device("meta"):
        if kind == "13B":
            shapes = [(5120, 5120)] * 4 + [(5120, 13824), (5120, 13824), (13824, 5120)]
            model = nn.ModuleList(nn.Linear(wide, high, bias=False) for _ in range(40) for wide, high in shapes)
        else:
            model = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(44_544))
    model = model.to(torch.bfloat16).to_empty(device="cuda")
    for parameter in model.parameters():
        parameter.data.zero_()
        parameter.grad = torch.full_like(parameter, 1e-3)
    return model


def timed(work, parameters) -> tuple[float, float]:
    """Milliseconds until the device is idle, and until the host goes on; gradients are as a backward leaves them."""
    torch._foreach_zero_([parameter.grad for parameter in parameters])
    torch._foreach_add_([parameter.grad for parameter in parameters], 1e-3)
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    through = time.perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start), 1e3 * (through - start)


def compare(name: str, kind: str, max_norm: float, runs: int) -> None:
    """Both in turns."""
    model = weights(kind)
    ctl = gnmr.attach(model, watch=True, quiet=True, strict=True)
    parameters = list(model.parameters())
    ours, torchs = [], []
    for run in range(-2, runs):
        one = timed(lambda: torch.nn.utils.clip_grad_norm_(parameters, max_norm), parameters)
        two = timed(lambda: ctl.step(max_norm=max_norm), parameters)
        if run >= 0:
            torchs.append(one)
            ours.append(two)
    (a, host_a), (b, host_b) = ([statistics.median(column) for column in zip(*rows)] for rows in (torchs, ours))
    print(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} | {host_a:.2f} | {host_b:.2f} |", flush=True)
    ctl.detach()


class Block(nn.Module):
    """Seven linear layers as LLaMA has them; positions are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        def heads(values: Tensor) -> Tensor:
            return values.view(1, TOKENS, HEADS, -1).transpose(1, 2)

        h = self.norm(x)
        mixed = functional.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)),
                                                        is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(1, TOKENS, WIDTH))
        h = self.norm2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Twin(Block):
    """The same with code of its own, so that the compiler keeps what it makes of the two apart."""

    forward = types.FunctionType(Block.forward.__code__.replace(co_name="forward_of_twin"), globals())


class Blocks(nn.Module):
    def __init__(self, count: int, block: type[Block]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def blocks(kind: str, count: int, block: type[Block] = Block) -> tuple[Blocks, str | None]:
    """Blocks with the low path of a kind, and the recipe where that is ours."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Blocks(count, block).bfloat16()
    if kind.startswith("torchao"):
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(kind.split()[1]))
    return model, kind.split(":")[1] if kind.startswith("own:") else None


def peak_of(work: Callable[[], None]) -> int:
    """The most bytes that were allocated at a time."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def freed() -> None:
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def memory(kind: str, compiles: bool) -> None:
    """A row: peaks over forward, backward and `ctl.trial`."""
    model, recipe = blocks(kind, 1)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, warmup_samples=4, lock_steps=1, common_share=1.0,
                      max_o=1.0)
    for layer in model.layers if compiles else ():
        layer.compile()
    x = torch.empty(1, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    factor, rerun = 1.0, ""

    def run() -> Tensor:
        loss = factor * model(x).float().square().mean()
        loss.backward()
        return loss.detach()

    def step() -> None:
        nonlocal rerun
        model.zero_grad()
        x.grad = None
        x.data.normal_()
        run()
        rerun = ctl.trial(run).rerun

    for _ in range(8):
        step()
    calm = peak_of(step)
    ahead = preflight(ctl.units, ctl.supervisor.max_recovered)
    needs = sorted(ctl.units, key=lambda unit: unit.switch.recovery_bytes().at(TOKENS))
    worst = [unit.name for unit in needs[len(needs) - min(ctl.supervisor.max_recovered, len(needs)):]]
    for name in worst:
        ctl.set(name, "high")
    step()
    high = peak_of(step)
    disturbed = " (with a trial)" if rerun else ""
    ctl.set("*", "auto")
    step()
    factor = 100.0
    trial = peak_of(step)
    how = "compiled" if compiles else "eager"
    row = [f"{kind}, {how}", f"{calm / MIB:.0f}", f"{len(worst)} of {len(ctl.units)}",
           f"{(high - calm) / MIB:+.0f}{disturbed}", f"{ahead.recovery.at(TOKENS) / MIB:.0f}",
           f"{(trial - calm) / MIB:+.0f}" if rerun == "trial" else f"no trial ({rerun or 'none'})",
           f"{ahead.trial.at(TOKENS) / MIB:.0f}"]
    print("| " + " | ".join(row) + " |", flush=True)
    ctl.detach()


def calm(kind: str) -> None:
    """A row: two models of the same weights in turns, one of them attached; milliseconds, and ratios of pairs."""
    stock, watched = blocks(kind, 2, Twin)[0], blocks(kind, 2)[0]
    ctl = gnmr.attach(watched, quiet=True, strict=True, watch=True)
    x = torch.randn(1, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for model in (stock, watched):
        for layer in model.layers:
            layer.compile()

    def milliseconds(model: nn.Module, clip: Callable[[], object]) -> tuple[float, float]:
        model.zero_grad()
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(x).float().square().mean().backward()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        clip()
        torch.cuda.synchronize()
        return 1e3 * (middle - start), 1e3 * (time.perf_counter() - start)

    parameters = list(stock.parameters())
    pairs = []
    for turn in range(-10, 60):
        one = milliseconds(stock, lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        two = milliseconds(watched, lambda: ctl.step(max_norm=1.0))
        if turn >= 0:
            pairs.append((one, two))
    row = [kind]
    for part in (0, 1):
        ratios = statistics.quantiles([two[part] / one[part] for one, two in pairs], n=4)
        row += [f"{statistics.median(one[part] for one, _ in pairs):.2f}",
                f"{statistics.median(two[part] for _, two in pairs):.2f}",
                f"{ratios[1]:.4f} ({ratios[0]:.4f} to {ratios[2]:.4f})"]
    print("| " + " | ".join(row) + " |", flush=True)
    ctl.detach()


def attempt(kind: str, make_row: Callable[[], None]) -> None:
    """What cannot be had is told, and the rest goes on."""
    try:
        make_row()
    except Exception as fault:
        print(f"| {kind} | {type(fault).__name__}: {str(fault)[:200]} |", flush=True)
    finally:
        freed()


def main() -> None:
    wanted = sys.argv[1:] or ["memory", "calm", "clipping"]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    if "memory" in wanted:
        print("\nWhat recovery and a trial add: one block of LLaMA-2 13B's shapes, 4,096 tokens, bfloat16, MiB\n\n"
              "| low path | peak of a calm step | worst set | it adds | told ahead | a trial adds | told ahead |\n"
              "|---|---|---|---|---|---|---|")
        for kind in ("torchao tensorwise", "torchao rowwise", "own:fp8-tensorwise"):
            for compiles in (False, True):
                attempt(kind, lambda kind=kind, compiles=compiles: memory(kind, compiles))
    if "calm" in wanted:
        print("\nCalm steps, two such blocks compiled: milliseconds, and medians (quartiles) of the ratios of pairs\n\n"
              "| low path | forward, backward, alone | with GNMR | ratio | and clipping, alone | with GNMR | ratio |\n"
              "|---|---|---|---|---|---|---|")
        for kind in ("bfloat16", "torchao tensorwise", "torchao rowwise"):
            attempt(kind, lambda kind=kind: calm(kind))
    if "clipping" in wanted:
        print("\n| gradients | clip_grad_norm_, ms | ctl.step, ms | ratio | host, clip_grad_norm_ | host, ctl.step |"
              "\n|---|---|---|---|---|---|")
        for max_norm, what in ((1e9, "nothing to clip"), (1e-3, "clipped")):
            compare(f"280 weights of LLaMA-2 13B, {what}", "13B", max_norm, 9)
            freed()
            compare(f"44,544 experts of 256 Ki, {what}", "experts", max_norm, 5)
            freed()


if __name__ == "__main__":
    main()
