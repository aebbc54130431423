# SPDX-License-Identifier: Apache-2.0
"""Transformer blocks for the benches of the Python package: LLaMA's seven linear layers, positions left out."""

import types
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    width: int
    heads: int
    inner: int
    tokens: int


#: Of LLaMA-2 13B.
LARGE = Sizes(5120, 40, 13824, 4096)


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes.width, sizes.inner
        self.heads = sizes.heads
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape

        def heads(values: Tensor) -> Tensor:
            return values.view(rows, tokens, self.heads, -1).transpose(1, 2)

        h = self.norm(x)
        mixed = functional.scaled_dot_product_attention(
            heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), is_causal=True
        )
        x = x + self.o(mixed.transpose(1, 2).reshape(rows, tokens, width))
        h = self.norm2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Twin(Block):
    """The same with code of its own, so that the compiler keeps what it makes of the two apart."""

    forward = types.FunctionType(Block.forward.__code__.replace(co_name="forward_of_twin"), globals())


class Blocks(nn.Module):
    def __init__(self, count: int, sizes: Sizes, block: type[Block]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block(sizes) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def blocks(kind: str, count: int, sizes: Sizes, device: str, block: type[Block] = Block) -> Blocks:
    """Blocks in bfloat16 on a GPU, in float32 elsewhere, with the layers of a kind."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Blocks(count, sizes, block)
    if device == "cuda":
        model = model.bfloat16()
    if kind.startswith("torchao "):
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name(kind.split()[1])
        convert_to_float8_training(model, config=config if device == "cuda" else replace(config, emulate=True))
    return model


def own_recipe(kind: str) -> str | None:
    """The recipe where the low path is ours."""
    return kind.split(":")[1] if kind.startswith("own:") else None
