# SPDX-License-Identifier: Apache-2.0
"""Models with our low path on a CUDA device: training, recomputation, memory, compiled blocks, speed.

Needs a GPU and a build with CUDA. `pytest -s` prints what was measured.
"""

from collections.abc import Iterator

import pytest
import torch
from compile_test import make, set_high, switched_at_random, variants
from device_layer import RECIPES, attach, needs_device, off, uneven
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gnmr

pytestmark = needs_device


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Training.


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width: int = 128, blocks: int = 2, words: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def trained(recipe: str | None, device: str = "cuda", steps: int = 20) -> list[float]:
    """Losses of a small transformer in bfloat16 autocast that learns sequences in which a word tells the next one."""
    torch.manual_seed(0)
    model = Transformer().to(device)
    ctl = attach(model, recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 64, (8, 1), generator=generator)
        for _ in range(63):
            tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 17) % 64], 1)
        tokens = tokens.to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        ctl.step(max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_transformer_trains(recipe: str) -> None:
    plain, low = trained(None), trained(recipe)
    print(f"\n{recipe}: loss {low[0]:.4f} -> {low[-1]:.4f}, bfloat16 {plain[0]:.4f} -> {plain[-1]:.4f}")
    assert all(loss == loss and loss < 10 for loss in low)
    assert low[-1] < 0.75 * low[0]
    assert low[-1] == pytest.approx(plain[-1], rel=0.05)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recomputed_activations_find_the_same_numbers(recipe: str) -> None:
    def gradients(recompute: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to("cuda", torch.bfloat16)
        ctl = attach(model, recipe)
        for step in range(3):
            model.zero_grad()
            x = uneven(96, 64, step).to("cuda", torch.bfloat16).requires_grad_(True)
            out = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
            out.float().square().mean().backward()
            ctl.step()
        return [x.grad, *(parameter.grad for parameter in model.parameters())]

    for plain, recomputed in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, recomputed)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("high", [False, True])
def test_nothing_waits_for_the_device(recipe: str, high: bool) -> None:
    """A forward, a backward and the end of a step of all low paths; trials and frozen layers too."""
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to("cuda", torch.bfloat16)
    model[2].requires_grad_(False)
    ctl = attach(model, recipe)
    x = torch.randn(96, 64, device="cuda", dtype=torch.bfloat16)
    switches = [unit.switch for unit in ctl.units]

    def run(compares: bool) -> None:
        for switch in switches:
            switch.begin_trial() if compares else switch.set_high(high)
        for _ in range(2):
            model(x).square().mean().backward()
        for switch in switches:
            switch.set_high(False)
            switch.end_step()
            switch.begin_step()

    for compares in (False, True, False, True):
        run(compares)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(False)
        run(True)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("recipe", RECIPES)
def test_backward_keeps_codes(recipe: str) -> None:
    tokens, width = 4096, 1024
    model = nn.Sequential(nn.Linear(width, width, bias=False)).to("cuda", torch.bfloat16)
    ctl = attach(model, recipe)
    switch = ctl.units[0].switch

    leaf = torch.ones(tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def kept(high: bool) -> int:
        switch.set_high(high)
        for _ in range(2):  # the first one also makes what stays for good
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            out = model(leaf * 1)  # an input that nobody else holds
            held = torch.cuda.memory_allocated() - before - out.nbytes
            out.sum().backward()
            del out
            leaf.grad = None
            model.zero_grad()
        return held

    low, high = kept(False), kept(True)
    told = switch.recovery_bytes().at(tokens)
    print(f"\n{recipe}: low keeps {low}, high {high}, told at most {told} more")
    assert low < 1.1 * (tokens * width + width * width) + 2**21
    assert 0 < high - low <= told + 2**21


def test_evaluation_in_inference_mode_may_come_first() -> None:
    """What delayed scaling keeps on the device is made there, and training goes on with it."""
    found = []
    for evaluates in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64, bias=False)).to("cuda", torch.bfloat16)
        ctl = attach(model, "fp8-delayed")
        x = uneven(96, 64, 0).to("cuda", torch.bfloat16)
        if evaluates:
            with torch.inference_mode():
                model(x)
        for _ in range(3):
            model.zero_grad()
            model(x).float().square().mean().backward()
            ctl.step()
        found.append((model[0].weight.grad, ctl.state_dict()["memory"]))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


# Compiled.


def step(model: nn.Module, ctl: gnmr.Control) -> dict[str, Tensor]:
    model.zero_grad()
    tokens = torch.arange(64, device="cuda").view(4, 16) % 64
    functional.cross_entropy(model(tokens).flatten(0, 1), (tokens.flatten() + 1) % 64).backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    ctl.step()
    return gradients


@pytest.mark.parametrize("recipe", RECIPES)
def test_random_recovery_sets_compile_nothing(recipe: str) -> None:
    model, _ = make(recipe)
    model.cuda()
    ctl = attach(model, recipe, watch=True, group_max=1)
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    seen = switched_at_random(ctl, lambda: step(model, ctl), 50)
    assert variants(seen) == 2


def has_inductor() -> bool:
    """Whether Inductor can compile for this device at all: it wants Triton and a C compiler."""
    try:
        one = torch.ones(64, device="cuda")
        return float(torch.compile(lambda x: x.sin() + 1)(one).sum()) > 0
    except Exception as fault:
        print(f"Inductor does not work here: {fault}")
        return False


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_blocks_compute_what_eager_ones_do(recipe: str, backend: str) -> None:
    if backend == "inductor" and not has_inductor():
        pytest.skip("Inductor does not work here")
    found = []
    for compiles in (False, True):
        model, _ = make(recipe)
        model.cuda()
        ctl = attach(model, recipe, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend=backend)
        gradients = []
        for names in ([], ["layers.1.q", "layers.0.down"], [unit.name for unit in ctl.units], []):
            set_high(ctl, names)
            gradients.append(step(model, ctl))
        with torch.no_grad():
            gradients.append({"logits": model(torch.arange(32, device="cuda").view(2, 16))})
        found.append(gradients)
    # What a compiler rounds otherwise can end at the next code.
    limit = 1e-2 if backend == "aot_eager" else 5e-2
    for eager, compiled in zip(*found, strict=True):
        for name, one in eager.items():
            assert off(compiled[name], one) < limit, name


# Speed.


def test_speed_is_told() -> None:
    """Printed, not judged: milliseconds of a forward and backward by the device's clock, medians of turns."""
    width, tokens = 5120, 8192
    layers = {"nn.Linear": None, **{recipe: recipe for recipe in RECIPES}}
    models = {}
    for name, recipe in layers.items():
        model = nn.Sequential(nn.Linear(width, width, bias=False)).to("cuda", torch.bfloat16)
        if recipe is not None:
            models[name] = model, attach(model, recipe)
        else:
            models[name] = model, None
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(12):
        for name, (model, ctl) in models.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # Calls that are queued while the device is busy cost what they cost in a large model.
            torch.cuda._sleep(20_000_000)
            begin.record()
            for _ in range(4):
                torch.autograd.grad(model(x), (x, model[0].weight), gradient)
            end.record()
            torch.cuda.synchronize()
            if ctl is not None:
                ctl.units[0].switch.end_step()
            if turn >= 2:
                times[name].append(begin.elapsed_time(end) / 4)
    middle = {name: sorted(found)[len(found) // 2] for name, found in times.items()}
    print(f"\nLinear {width} x {width}, {tokens} tokens, bfloat16, on {torch.cuda.get_device_name()}:")
    for name, found in middle.items():
        print(f"  {name}: {found:.3f} ms, {middle['nn.Linear'] / found:.2f} times as fast as nn.Linear")
    assert all(found > 0 for found in middle.values())
