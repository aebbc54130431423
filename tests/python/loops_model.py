# SPDX-License-Identifier: Apache-2.0
"""What tests of loops share: a tiny LLaMA with its data, and a fault in the low path of one layer."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import gnmr

#: Options with which a tiny model is judged after a few steps.
QUICK = {"warmup_samples": 5, "lock_steps": 4, "common_share": 1.0, "max_o": 1.0, "quiet": True, "strict": True}


class Tokens(Dataset):  # type: ignore[type-arg]
    """Sequences that are a function of their place, with something to learn in them."""

    def __init__(self, count: int = 256, length: int = 16, vocabulary: int = 64) -> None:
        generator = torch.Generator().manual_seed(7)
        starts = torch.randint(0, vocabulary, (count, 1), generator=generator)
        strides = torch.randint(1, 4, (count, 1), generator=generator)
        self._rows = (starts + strides * torch.arange(length)) % vocabulary

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def make_llama(seed: int = 0) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            attention_dropout=0.1,
        )
    )


class LowPathFault:
    """What the low path of one layer makes is too large while `on`."""

    def __init__(self, ctl: gnmr.Control, name: str, factor: float = 40.0) -> None:
        self._switch: Any = next(unit.switch for unit in ctl.units if unit.name == name)
        self._factor = factor
        self._on = False

    @property
    def on(self) -> bool:
        return self._on

    @on.setter
    def on(self, on: bool) -> None:
        self._on = on
        self._switch.plant_factor(self._factor if on else None)


def sampled_units(folder: Path) -> list[int]:
    """How many units had a sample in each step, as the journal tells."""
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [line["sampled"] for line in lines if line["kind"] == "step"]


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def close(one: list[Tensor], other: list[Tensor], tolerance: float = 1e-5) -> bool:
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(one, other, strict=True))
