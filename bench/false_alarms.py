# SPDX-License-Identifier: Apache-2.0
"""Reruns of healthy runs: a small Llama on the bytes of a text, `ctl.trial`, without a patrol and with all layers.

    PYTHONPATH=build/python python bench/false_alarms.py TEXT [--steps 200] [--seeds 0 1]

Nothing is injected, so every rerun is a false alarm, or trouble that the recipe makes by itself.
"""

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import gnmr

BATCH, LENGTH = 16, 64
LATE = 30  # steps after which a model is no longer at its very start
# Learning rate and warm-up steps.
RATES = ((1e-3, 50), (3e-3, 0))


def reruns(text: np.ndarray, recipe: str, rate: tuple[float, int], seed: int, patrol: float, steps: int) -> list[int]:
    """The steps that ran again."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=176,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
    )
    ctl = gnmr.attach(model, recipe=recipe, max_o=0.1, patrol=patrol, lag=0, quiet=True, strict=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate[0], betas=(0.9, 0.95), weight_decay=0.1)
    random = np.random.default_rng(seed)
    found = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate[0] * min(1, step / rate[1]) if rate[1] else rate[0]
        starts = random.integers(0, len(text) - LENGTH - 1, BATCH)
        tokens = torch.from_numpy(np.stack([text[start : start + LENGTH] for start in starts]).astype(np.int64))

        def run(tokens: torch.Tensor = tokens) -> torch.Tensor:
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            return loss

        optimizer.zero_grad()
        result = ctl.trial(run, loss=run(), max_norm=1.0)
        if result.rerun:
            found.append(step)
        if result.applied:
            optimizer.step()
    ctl.detach()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a file, read as bytes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = np.fromfile(arguments.text, dtype=np.uint8)
    print(f"| recipe | rate, warm-up | seed | patrol | reruns | after step {LATE} |\n|---|---|---|---|---|---|")
    cases = itertools.product(("fp8-delayed", "fp8-tensorwise"), RATES, arguments.seeds, (0.0, 1.0))
    for recipe, rate, seed, patrol in cases:
        found = reruns(text, recipe, rate, seed, patrol, arguments.steps)
        late = sum(step > LATE for step in found)
        print(f"| {recipe} | {rate[0]}, {rate[1]} | {seed} | {patrol:g} | {len(found)} | {late} |", flush=True)


if __name__ == "__main__":
    main()
