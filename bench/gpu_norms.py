# SPDX-License-Identifier: Apache-2.0
"""torch's norms, clipping and fused AdamW on the shapes of gnmr_gpu_bench, and ratios to its figures.

    python3 bench/gpu_norms.py build-gpu/gpu_norms.json

Medians between CUDA events, after a gigabyte was written, as gnmr_gpu_bench takes them.
"""

import json
import statistics
import sys

import torch

EXPERTS = 44544
LAYER = [(5120, 5120)] * 4 + [(5120, 13824)] * 3
DEVICE = "cuda"


def median_ms(work, runs=20, warm_up=3):
    flush = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for run in range(-warm_up, runs):
        flush.fill_(run & 255)
        start.record()
        work()
        end.record()
        end.synchronize()
        if run >= 0:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def filled(shape, dtype, scale=1e-2):
    return torch.empty(shape, dtype=dtype, device=DEVICE).uniform_(-scale, scale)


class Table:
    def __init__(self, path):
        with open(path) as file:
            self.ours = {row["name"]: row["ms"] for row in json.load(file)}
        print(f"\n| torch {torch.__version__} | ms | ours, ms | times as fast |\n|---|---|---|---|")

    def add(self, name, milliseconds, ours):
        mine = self.ours[ours]
        print(f"| {name} | {milliseconds:.4f} | {mine:.4f} | {milliseconds / mine:.2f} |", flush=True)


def llama(table):
    weights = []
    for _ in range(40):
        for shape in LAYER:
            weight = torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device=DEVICE))
            weight.grad = filled(shape, torch.bfloat16)
            weights.append(weight)
    gradients = [weight.grad for weight in weights]
    name = "280 weights of LLaMA-2 13B"
    table.add(
        f"{name}: _foreach_norm", median_ms(lambda: torch._foreach_norm(gradients, 2)), f"{name}: sums of squares"
    )
    table.add(
        f"{name}: clip_grad_norm_",
        median_ms(lambda: torch.nn.utils.clip_grad_norm_(weights, 1.0)),
        f"{name}: sums, norms and gate",
    )


def experts(table, elements, label, runs):
    every = filled((EXPERTS, elements), torch.bfloat16)
    views = list(every.unbind(0))
    name = f"44,544 experts of {label}"
    table.add(
        f"{name}: _foreach_norm", median_ms(lambda: torch._foreach_norm(views, 2), runs, 1), f"{name}: sums of squares"
    )
    table.add(
        f"{name}: vector_norm(dim=1)",
        median_ms(lambda: torch.linalg.vector_norm(every, dim=1)),
        f"{name}: sums of squares",
    )


def adamw(table, dtype, label):
    weights = []
    for _ in range(6):
        for shape in LAYER:
            weight = torch.nn.Parameter(filled(shape, dtype))
            weight.grad = filled(shape, dtype)
            weights.append(weight)
    optimizer = torch.optim.AdamW(weights, lr=1e-6, weight_decay=0.1, fused=True)
    name = f"6 layers, {label}"

    def clipped():
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    note = "" if dtype == torch.float32 else " (moments in bfloat16)"
    table.add(f"{name}: fused AdamW{note}", median_ms(optimizer.step), f"{name}: AdamW")
    table.add(f"{name}: clip_grad_norm_ and fused AdamW{note}", median_ms(clipped), f"{name}: norms, gate and AdamW")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    table = Table(sys.argv[1])
    with torch.no_grad():
        llama(table)
        torch.cuda.empty_cache()
        experts(table, 256 * 1024, "256 Ki", 20)
        torch.cuda.empty_cache()
        experts(table, 4 * 1024, "4 Ki", 20)
    adamw(table, torch.float32, "float32")
    torch.cuda.empty_cache()
    adamw(table, torch.bfloat16, "bfloat16")


if __name__ == "__main__":
    main()
