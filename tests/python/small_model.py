# SPDX-License-Identifier: Apache-2.0
"""A small model for tests, and a loop's parts: all of it is a function of its seeds."""

import torch
from devices import DEVICE
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(functional.gelu(self.up(x))))


class SmallModel(nn.Module):
    def __init__(self, width: int = 32, blocks: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make_model(seed: int = 0, **kwargs: float) -> SmallModel:
    torch.manual_seed(seed)
    return SmallModel(**kwargs).to(DEVICE)


def batch(step: int, width: int = 32, tokens: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(tokens, width, generator=generator)
    return inputs.to(DEVICE), torch.randint(0, 8, (tokens,), generator=generator).to(DEVICE)


def run_backward(model: nn.Module, step: int) -> Tensor:
    """Forward and backward of one step."""
    x, y = batch(step)
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss.detach()


#: Options with which a small model can be judged after a few steps.
QUICK = {"warmup_samples": 4, "lock_steps": 3, "common_share": 1.0, "max_o": 1.0}

#: `patrol` of tests in which norms alarm: a patrol of all layers, as in the first steps of a run, would dismiss that.
NO_PATROL = 0.0
