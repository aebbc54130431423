# SPDX-License-Identifier: Apache-2.0
"""Reruns of healthy runs, and faults that are found: small models on the bytes of a text, `ctl.trial`.

    PYTHONPATH=build/python python bench/false_alarms.py TEXT [--steps 200] [--seeds 0 1] [--patrol 1] [--faults]
        [--recipes NAME ...] [--settings NAME ...]

Nothing is injected, so every rerun is a false alarm, or trouble that the recipe makes by itself. With `--faults` the
low path of a random layer is 1.5 times too large in five of every twenty steps from step 30 on; a fault is found if its
layer is admitted meanwhile. Steps are printed with the first letter of their verdict.
"""

import argparse
import itertools
import math
import random
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import gnmr

LENGTH = 64
FACTOR, FIRST_FAULT, EACH, LASTS = 1.5, 30, 20, 5


@dataclass(frozen=True)
class Setting:
    """What a healthy run is."""

    rate: float = 1e-3
    warmup: int = 50
    rows: int = 16  # of a micro-batch
    micro_batches: int = 1
    cosine: bool = False  # to 0 at the last step
    autocast: bool = False
    gpt2: bool = False
    torchao: bool = False

    def rate_at(self, step: int, steps: int) -> float:
        rate = self.rate * min(1.0, step / self.warmup) if self.warmup else self.rate
        return rate * (0.5 + 0.5 * math.cos(math.pi * step / steps)) if self.cosine else rate


SETTINGS = {
    "1e-3": Setting(),
    "3e-3-no-warm-up": Setting(3e-3, 0),
    "warm-up-100": Setting(1e-3, 100, rows=32),
    "cosine": Setting(2e-3, 20, cosine=True),
    "bfloat16": Setting(autocast=True),
    "accumulation": Setting(rows=8, micro_batches=4),
    "gpt2": Setting(gpt2=True),
    "torchao": Setting(torchao=True),
}


def make_model(setting: Setting) -> nn.Module:
    if setting.gpt2:
        return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_embd=64, n_layer=4, n_head=4, n_positions=128)).eval()
    sizes = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, max_position_embeddings=128, **sizes))
    if setting.torchao:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(
            model,
            config=Float8LinearConfig(emulate=True),
            module_filter_fn=lambda module, name: not name.endswith("head"),
        )
    return model


class Faults:
    """A low path that is wrong for some steps, now and then."""

    def __init__(self, ctl: gnmr.Control, seed: int) -> None:
        self._random = random.Random(seed)
        self._units = [unit for unit in ctl.units if unit.switch is not None]
        self._unit = self._units[0]
        self.planted = 0
        self.found = 0
        self._is_open = False

    def before(self, step: int) -> None:
        since = step - FIRST_FAULT
        if since >= 0 and since % EACH == 0:
            self._unit = self._random.choice(self._units)
            self._unit.switch.plant_factor(FACTOR)
            self.planted += 1
            self._is_open = True
        elif since >= 0 and since % EACH == LASTS:
            self._unit.switch.plant_factor(None)
            self._is_open = False

    def after(self, result: gnmr.StepResult) -> None:
        if self._is_open and self._unit.name in result.admitted + result.standing:
            self.found += 1
            self._is_open = False


def train(
    text: np.ndarray, recipe: str, setting: Setting, seed: int, patrol: float, steps: int, has_faults: bool
) -> tuple[list[str], Faults]:
    """The steps that ran again, with their verdicts; the faults."""
    torch.manual_seed(seed)
    model = make_model(setting)
    own = {} if setting.torchao else {"recipe": recipe}
    ctl = gnmr.attach(model, max_o=0.1, patrol=patrol, lag=0, quiet=True, strict=True, **own)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.rate, betas=(0.9, 0.95), weight_decay=0.1)
    random_rows, faults, found = np.random.default_rng(seed), Faults(ctl, seed), []
    casts = torch.autocast("cpu", torch.bfloat16) if setting.autocast else nullcontext()

    def rows() -> Tensor:
        starts = random_rows.integers(0, len(text) - LENGTH - 1, setting.rows)
        return torch.from_numpy(np.stack([text[start : start + LENGTH] for start in starts]).astype(np.int64))

    def runner(batches: list[Tensor]) -> Callable[[], Tensor]:
        def run() -> Tensor:
            total = torch.zeros(())
            for batch in batches:
                with casts:
                    loss = model(input_ids=batch, labels=batch).loss / len(batches)
                loss.backward()
                total += loss.detach()
            return total

        return run

    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = setting.rate_at(step, steps)
        if has_faults:
            faults.before(step)
        run = runner([rows() for _ in range(setting.micro_batches)])
        optimizer.zero_grad()
        result = ctl.trial(run, loss=run(), max_norm=1.0)
        faults.after(result)
        if result.rerun:
            found.append(f"{step}{(result.verdict or result.rerun)[0]}")
        if result.applied:
            optimizer.step()
    ctl.detach()
    return found, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a file, read as bytes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--patrol", type=float, default=1.0)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--recipes", nargs="+", default=["fp8-tensorwise", "fp8-delayed"])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = np.fromfile(given.text, dtype=np.uint8)
    print(f"| setting | recipe | seed | {'found' if given.faults else 'reruns'} | steps |\n|---|---|---|---|---|")
    for name, recipe, seed in itertools.product(given.settings, given.recipes, given.seeds):
        setting = SETTINGS[name]
        if setting.torchao and recipe != given.recipes[0]:
            continue
        found, faults = train(text, recipe, setting, seed, given.patrol, given.steps, given.faults)
        count = f"{faults.found} of {faults.planted}" if given.faults else str(len(found))
        shown = "torchao tensorwise" if setting.torchao else recipe
        print(f"| {name} | {shown} | {seed} | {count} | {' '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
