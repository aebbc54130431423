# SPDX-License-Identifier: Apache-2.0
"""`ctl.step(max_norm=...)` against torch's `clip_grad_norm_` on a GPU, in turns in the same run.

    PYTHONPATH=build/python python3 bench/gpu_python.py

Gradients of the 280 linear weights of LLaMA-2 13B and of 44,544 experts of 256 Ki elements, bfloat16; milliseconds of the
host's clock from call to an idle device, medians. Prints Markdown.
"""

import statistics
import time

import torch
from torch import nn

import gnmr


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


def timed(work, parameters) -> float:
    """Milliseconds until the device is idle, on gradients as they come out of a backward."""
    torch._foreach_zero_([parameter.grad for parameter in parameters])
    torch._foreach_add_([parameter.grad for parameter in parameters], 1e-3)
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


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
    a, b = statistics.median(torchs), statistics.median(ours)
    print(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} |", flush=True)
    ctl.detach()


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| gradients | clip_grad_norm_, ms | ctl.step, ms | times as fast |\n|---|---|---|---|")
    for max_norm, what in ((1e9, "nothing to clip"), (1e-3, "clipped")):
        compare(f"280 weights of LLaMA-2 13B, {what}", "13B", max_norm, 9)
        torch.cuda.empty_cache()
        compare(f"44,544 experts of 256 Ki, {what}", "experts", max_norm, 5)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
