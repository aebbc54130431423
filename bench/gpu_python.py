# SPDX-License-Identifier: Apache-2.0
"""The Python package on a GPU: what a step costs, what recovery and a trial add to memory. Prints Markdown.

    PYTHONPATH=build/python python3 bench/gpu_python.py [memory] [clipping]     # both unless one is named

- clipping: `ctl.step(max_norm=...)` against torch's `clip_grad_norm_`, in turns. Gradients of the 280 linear weights of
  LLaMA-2 13B and of 44,544 experts of 256 Ki elements, bfloat16; milliseconds of the host's clock from call to an idle
  device, and to its return, medians.
- memory: peaks of a step on one block of LLaMA-2 13B's shapes, 4,096 tokens, bfloat16, beside what preflight said.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable

import torch
from gnmr.checks.preflight import preflight
from llama_blocks import LARGE, blocks, own_recipe
from torch import Tensor, nn

import gnmr

TOKENS = LARGE.tokens
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
    model, recipe = blocks(kind, 1, LARGE, "cuda"), own_recipe(kind)
    ctl = gnmr.attach(
        model, recipe=recipe, quiet=True, strict=True, warmup_samples=4, lock_steps=1, common_share=1.0, max_o=1.0
    )
    for layer in model.layers if compiles else ():
        layer.compile()
    x = torch.empty(1, TOKENS, LARGE.width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
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
    worst = [unit.name for unit in needs[len(needs) - min(ctl.supervisor.max_recovered, len(needs)) :]]
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
    row = [
        f"{kind}, {how}",
        f"{calm / MIB:.0f}",
        f"{len(worst)} of {len(ctl.units)}",
        f"{(high - calm) / MIB:+.0f}{disturbed}",
        f"{ahead.recovery.at(TOKENS) / MIB:.0f}",
        f"{(trial - calm) / MIB:+.0f}" if rerun == "trial" else f"no trial ({rerun or 'none'})",
        f"{ahead.trial.at(TOKENS) / MIB:.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)
    ctl.detach()


def attempt(kind: str, make_row: Callable[[], None]) -> None:
    """What cannot be had is reported, and the rest goes on."""
    try:
        make_row()
    except Exception as fault:
        print(f"| {kind} | {type(fault).__name__}: {str(fault)[:200]} |", flush=True)
    finally:
        freed()


def main() -> None:
    wanted = sys.argv[1:] or ["memory", "clipping"]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    if "memory" in wanted:
        print(
            "\nWhat recovery and a trial add: one block of LLaMA-2 13B's shapes, 4,096 tokens, bfloat16, MiB\n\n"
            "| low path | peak of a calm step | worst set | it adds | expected | a trial adds | expected |\n"
            "|---|---|---|---|---|---|---|"
        )
        for kind in ("torchao tensorwise", "torchao rowwise", "own:fp8-tensorwise"):
            for compiles in (False, True):
                attempt(kind, lambda kind=kind, compiles=compiles: memory(kind, compiles))
    if "clipping" in wanted:
        print(
            "\n| gradients | clip_grad_norm_, ms | ctl.step, ms | ratio | host, clip_grad_norm_ | host, ctl.step |"
            "\n|---|---|---|---|---|---|"
        )
        for max_norm, what in ((1e9, "nothing to clip"), (1e-3, "clipped")):
            compare(f"280 weights of LLaMA-2 13B, {what}", "13B", max_norm, 9)
            freed()
            compare(f"44,544 experts of 256 Ki, {what}", "experts", max_norm, 5)
            freed()


if __name__ == "__main__":
    main()
