# SPDX-License-Identifier: Apache-2.0
"""Speed of the training engine beside the same model in plain torch modules, both in this process.

    python bench/train_speed.py build/lib/libgnmr_engine.so [--steps 60] [--threads 2] [--rounds 3]

Prints tokens a second of both and their ratio (above 1: the engine is faster), what norms and control cost, and what
each recipe's emulated casts cost. The two sides take turns, and the median step counts, so that a busy
machine hits both.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS, INNER, VOCABULARY = 96, 4, 3, 256, 256  # the preset nano
BATCH, SEQUENCE = 8, 128


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        h = self.norm1(x)
        q, k, v = (layer(h).view(batch, length, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)
        size = WIDTH // HEADS
        angles = torch.outer(torch.arange(SEQUENCE).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def plain_torch_seconds(steps):
    """The median step of a plain loop: forward, backward, clipping, fused AdamW."""
    torch.manual_seed(0)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(0, VOCABULARY, (1 << 20,))
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        starts = torch.randint(0, data.numel() - SEQUENCE - 1, (BATCH,)).tolist()
        tokens = torch.stack([data[s : s + SEQUENCE] for s in starts])
        targets = torch.stack([data[s + 1 : s + 1 + SEQUENCE] for s in starts])
        loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[steps // 5 :])


def engine_run(steps, threads, **settings):
    with tempfile.TemporaryDirectory() as folder:
        wanted = {
            "model": "nano",
            "steps": steps,
            "batch": BATCH,
            "sequence": SEQUENCE,
            "threads": threads,
            "out": os.path.join(folder, "run"),
            "eval_every": 0,
            "eval_batches": 1,
            "checkpoint_every": 0,
            **settings,
        }
        result = json.loads(torch.ops.gnmr.train(json.dumps(wanted), ""))
    result["median"] = statistics.median(result["seconds"][steps // 5 :])
    return result


NORMS = {"selector": "norms"}  # the controller alone: no patrol, no trial


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", help="libgnmr_engine.so")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.engine)
    torch.set_num_threads(arguments.threads)
    tokens = BATCH * SEQUENCE
    plain, high, low, patrol = [], [], [], []
    for _ in range(arguments.rounds):
        plain.append(plain_torch_seconds(arguments.steps))
        high.append(engine_run(arguments.steps, arguments.threads, recipe="none", controller="none")["median"])
        low.append(
            engine_run(arguments.steps, arguments.threads, recipe="fp8-tensorwise", controller="gnmr", options=NORMS)
        )
        patrol.append(
            engine_run(arguments.steps, arguments.threads, recipe="fp8-tensorwise", controller="gnmr", patrol=1.0)[
                "median"
            ]
        )
    print(
        f"torch {torch.__version__}, {arguments.threads} threads, nano, {tokens} tokens a step, median of "
        f"{arguments.steps} steps, {arguments.rounds} rounds"
    )
    print(f"{'plain torch modules in Python':42} {tokens / statistics.median(plain):9.0f} tokens/s")
    print(
        f"{'engine, high precision, no controller':42} {tokens / statistics.median(high):9.0f} tokens/s   ratio "
        f"{statistics.median(plain) / statistics.median(high):.2f}"
    )
    norms = statistics.median(run["norm_share"] for run in low)
    control = statistics.median(run["control_share"] for run in low)
    print(f"{'norms (clipping needs them too)':42} {100 * norms:8.2f}% of a step with fp8-tensorwise and gnmr")
    print(f"{'control: signals, decision, journal':42} {100 * control:8.2f}%")
    ratio = statistics.median(patrol) / statistics.median(run["median"] for run in low)
    print(f"{'patrol of all layers in each step':42} {ratio:8.2f} of a step without it")
    base = statistics.median(high)
    for recipe in (
        "bf16",
        "int8",
        "int4-act",
        "fp8-tensorwise",
        "fp8-delayed",
        "fp8-rowwise",
        "fp8-deepseek",
        "mxfp8",
        "nvfp4",
        "nvfp4-hadamard",
    ):
        run = engine_run(arguments.steps, arguments.threads, recipe=recipe, controller="gnmr", options=NORMS)
        print(
            f"{'recipe ' + recipe:42} {tokens / run['median']:9.0f} tokens/s   step / high-precision step "
            f"{run['median'] / base:.2f}"
        )
    measured = engine_run(
        arguments.steps, arguments.threads, recipe="fp8-tensorwise", controller="gnmr", evidence=True, options=NORMS
    )
    print(
        f"{'recipe fp8-tensorwise with evidence':42} {tokens / measured['median']:9.0f} tokens/s   "
        f"step / high-precision step {measured['median'] / base:.2f}"
    )
    if not all(math.isfinite(value) for value in plain + high):
        raise SystemExit("a measurement is not finite")


if __name__ == "__main__":
    main()
