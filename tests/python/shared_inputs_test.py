# SPDX-License-Identifier: Apache-2.0
"""Layers with one input share what it is quantized to, and compute what each would compute alone."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gnmr
from gnmr.low import linear, shared_inputs

RECIPE = "fp8-tensorwise"  # its quantized input serves forward and wgrad

Run = Callable[["Attention", Tensor], Tensor]


class Attention(nn.Module):
    """Three layers with one input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(48, 24) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.q(x) * self.k(x) + self.v(x)).float()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called, it ends all sharing."""
    yield lambda: monkeypatch.setattr(linear, "shared_operands", lambda *given: None)


def results(run: Run, recipe: str = RECIPE) -> tuple[list[Tensor], int]:
    """Output and gradients, and how many quantized inputs forward has kept."""
    torch.manual_seed(0)
    model = Attention()
    gnmr.attach(model, recipe=recipe, quiet=True, strict=True, patrol=0)
    x = (3 * torch.randn(4, 8, 48)).requires_grad_(True)
    kept: dict[int, Tensor] = {}

    def keep(saved: Tensor) -> Tensor:
        # Quantized numbers are float32 whatever the layer computes in; the input itself is kept by no low path.
        if saved.shape == (32, 48) and saved.dtype == torch.float32:
            kept[saved.data_ptr()] = saved
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        output = run(model, x * 1)
    output.square().sum().backward()
    assert x.grad is not None
    return [output.detach(), x.grad, *(parameter.grad for parameter in model.parameters())], len(kept)


def plain(model: Attention, x: Tensor) -> Tensor:
    return model(x)


def whole_autocast(model: Attention, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


def mixed_autocast(model: Attention, x: Tensor) -> Tensor:
    """The layers get one tensor as elements of three types."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q = model.q(x)
        with torch.autocast("cpu", enabled=False):
            k = model.k(x)
        with torch.autocast("cpu", dtype=torch.float16):
            v = model.v(x)
        return q.float() * k + v.float()


def changed_between(model: Attention, x: Tensor) -> Tensor:
    q = model.q(x)
    with torch.no_grad():
        x.mul_(1.5)
    return q * model.k(x) + model.v(x)


def recomputed(model: Attention, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(model, x, use_reentrant=False)
    return result


@pytest.mark.parametrize(
    ("run", "quantized"), [(plain, 1), (whole_autocast, 1), (mixed_autocast, 3), (changed_between, 2)]
)
def test_one_input_is_quantized_once(run: Run, quantized: int, alone: Callable[[], None]) -> None:
    shared, count = results(run)
    assert count == quantized
    alone()
    unshared, count = results(run)
    assert count == 3
    assert all(torch.equal(one, other) for one, other in zip(shared, unshared, strict=True))


@pytest.mark.parametrize("recipe", [RECIPE, "fp8-rowwise", "fp8-delayed", "nvfp4-hadamard"])
@pytest.mark.parametrize("run", [plain, mixed_autocast, changed_between, recomputed])
def test_the_bits_are_those_of_each_layer_alone(run: Run, recipe: str, alone: Callable[[], None]) -> None:
    shared, _ = results(run, recipe)
    alone()
    for one, other in zip(shared, results(run, recipe)[0], strict=True):
        assert torch.equal(one, other)


def test_what_is_recomputed_has_the_bits_of_the_first_run() -> None:
    for one, other in zip(results(plain)[0], results(recomputed)[0], strict=True):
        assert torch.equal(one, other)


def test_what_is_shared_ends_with_the_input() -> None:
    torch.manual_seed(0)
    model = Attention()
    gnmr.attach(model, recipe=RECIPE, quiet=True, strict=True)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, 48)
            model(x)
            assert shared_inputs._last._held
            del x
            assert not shared_inputs._last._held
