# SPDX-License-Identifier: Apache-2.0
"""Our low path has the C++ engine's bits, and is a good citizen of torch."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from gnmr.low.casts import cast_operand
from torch import nn
from torch.utils.checkpoint import checkpoint

import gnmr
from gnmr import _core

PROBE = os.environ.get("GNMR_LINEAR_PROBE", "")


Results = dict[str, list[torch.Tensor]]  # by recipe: output, gradient of the input, gradient of the weight


def of_the_engine(recipes: list[str], steps: int, tensors: dict[str, torch.Tensor], folder: Path) -> Results:
    for name, tensor in tensors.items():
        (folder / f"{name}.bin").write_bytes(tensor.numpy().tobytes())
    tokens, width = tensors["input"].shape
    outputs = tensors["weight"].shape[0]
    subprocess.run([PROBE, str(steps), str(tokens), str(width), str(outputs), str(folder), *recipes], check=True)

    def read(name: str, *shape: int) -> torch.Tensor:
        data = bytearray((folder / f"{name}.bin").read_bytes())
        return torch.frombuffer(data, dtype=torch.float32).view(shape)

    return {
        recipe: [
            read(f"{recipe}.output", tokens, outputs),
            read(f"{recipe}.input_gradient", tokens, width),
            read(f"{recipe}.weight_gradient", outputs, width),
        ]
        for recipe in recipes
    }


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def of_python(recipe: str, steps: int, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    width = tensors["input"].shape[1]
    model = nn.Sequential(nn.Linear(width, tensors["weight"].shape[0], bias=False))
    with torch.no_grad():
        model[0].weight.copy_(tensors["weight"])
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
    for _ in range(steps):
        model[0].weight.grad = None
        inputs = tensors["input"].clone().requires_grad_(True)
        output = model(inputs)
        output.backward(tensors["gradient"])
        gradient = model[0].weight.grad
        ctl.step()
    assert inputs.grad is not None and gradient is not None
    return [output.detach(), inputs.grad, gradient]


def sample(tokens: int, width: int, outputs: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    tensors = {
        "input": 3 * torch.randn(tokens, width, generator=generator),
        "weight": 0.1 * torch.randn(outputs, width, generator=generator),
        "gradient": 1e-3 * torch.randn(tokens, outputs, generator=generator),
    }
    tensors["input"][:, 7] *= 100
    return tensors


@pytest.mark.skipif(not PROBE, reason="the C++ engine was not built")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("shape", [(96, 160, 272), (33, 129, 65)])
def test_bits_of_the_engine(steps: int, shape: tuple[int, int, int], tmp_path: Path) -> None:
    tensors = sample(*shape)
    for recipe, expected in of_the_engine(_core.recipe_names(), steps, tensors, tmp_path).items():
        for mine, other in zip(of_python(recipe, steps, tensors), expected, strict=True):
            assert torch.equal(mine, other), (recipe, (mine - other).abs().max())


@pytest.mark.skipif(not PROBE, reason="the C++ engine was not built")
@pytest.mark.usefixtures("one_thread")
def test_what_is_not_finite_goes_the_engines_way(tmp_path: Path) -> None:
    tensors = sample(300, 96, 64)
    tensors["input"][250, 3] = float("nan")
    tensors["gradient"][7, 9] = float("inf")
    # Transforms of rows with NaN are torch's own business.
    recipes = [recipe for recipe in _core.recipe_names() if "hadamard" not in recipe]
    for recipe, expected in of_the_engine(recipes, 1, tensors, tmp_path).items():
        for mine, other in zip(of_python(recipe, 1, tensors), expected, strict=True):
            assert torch.equal(mine.isnan(), other.isnan()), recipe
            assert torch.equal(mine.nan_to_num(0.0, 1e30, -1e30), other.nan_to_num(0.0, 1e30, -1e30)), recipe


def test_casts_do_not_depend_on_threads() -> None:
    matrix = torch.randn(700, 300, generator=torch.Generator().manual_seed(1))
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(
            [
                cast_operand(matrix, name, product, 0, 0.0, 11, 13)
                for name in _core.recipe_names()
                for product in range(3)
                if _core.Recipe(name).casts(product, 0)
            ]
        )
    torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_e4m3_is_that_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = torch.linspace(-440, 440, 4001)
    rounded = torch.empty_like(values)
    _core.round_values("e4m3", values, rounded)
    expected = values.numpy().astype(ml_dtypes.float8_e4m3fn).astype("float32")
    assert (rounded.numpy() == expected).all()


def test_recomputed_activations_find_the_same_numbers() -> None:
    def gradients(recompute: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        ctl = gnmr.attach(model, recipe="nvfp4-hadamard", quiet=True, strict=True)
        x = torch.randn(40, 32, generator=torch.Generator().manual_seed(2)).requires_grad_(True)
        out = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
        out.square().sum().backward()
        ctl.step()
        return [parameter.grad for parameter in model.parameters()]

    for plain, recomputed in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, recomputed)


def test_the_high_path_is_the_plain_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    x = torch.randn(40, 32)
    plain = model(x)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    assert not torch.equal(model(x), plain)
    ctl.step(skipped=True)
    ctl.set("*", "high")
    assert torch.equal(model(x), plain)


def test_autocast_is_followed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(40, 32))
        assert out.dtype == torch.bfloat16
        out.float().square().mean().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    assert ctl.step(max_norm=1.0).wait().total_norm > 0


def test_delayed_scales_remember_in_recovery_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16))
    ctl = gnmr.attach(model, recipe="fp8-delayed", quiet=True, strict=True)
    layer = ctl.units[0].switch.layer
    scales = []
    for scale in (1.0, 10.0, 100.0):
        ctl.set("*", "high")
        model(scale * torch.ones(4, 16)).sum().backward()
        ctl.step()
        scales.append(json.loads(layer.save())[0]["scale"])
    assert scales[0] < scales[1] < scales[2]


class OnDevice:
    """A layer whose forward has run on a device, as `_core` answers for it."""

    def __init__(self, has_square: bool) -> None:
        self.has_square = has_square

    def sums_on_device(self) -> torch.Tensor:
        return torch.tensor([7.0, 0.0, 0.0] if self.has_square else [0.0] * 3, dtype=torch.float64).view(torch.uint8)

    def square(self) -> float | None:
        return 7.0 if self.has_square else None


def test_a_frozen_layer_without_a_gradient_has_no_norm() -> None:
    """Not 0, which would count as a sample; also where a forward alone has run on a device."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    model[1].requires_grad_(False)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    switch = ctl.units[1].switch
    assert switch.measures_output
    output = model(torch.ones(4, 16))
    assert switch.output_number is None and switch.output_square is None
    output.sum().backward()
    assert switch.output_number == switch.output_square == 64.0
    ctl.step()
    assert switch.output_number is None
    for has_square in (False, True):
        switch.layer = OnDevice(has_square)
        assert switch.output_number == (7.0 if has_square else None)


def test_the_operator_has_a_shape_for_compilers() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        matrix = torch.empty(5, 7)
        for product, place in ((0, 0), (1, 1), (2, 0)):
            cast = cast_operand(matrix, "fp8-deepseek", product, place, 0.0, 1, 1)
            assert cast.shape == matrix.shape


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("recipe", ["fp8-tensorwise", "fp8-delayed", "mxfp8"])
@pytest.mark.parametrize("shape", [(6, 16), (2, 3, 16)])
@pytest.mark.parametrize("bias", [False, True])
def test_results_may_be_changed_in_place(recipe: str, high: bool, shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    found = []
    for in_place in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16, bias=bias), nn.ReLU(inplace=in_place), nn.Linear(16, 16, bias=bias))
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
        if high:
            ctl.set("*", "high")
        x = torch.randn(shape, requires_grad=True)
        output = model(x)
        if in_place:
            output += 1.0
        else:
            output = output + 1.0
        output.square().sum().backward()
        found.append([x.grad, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_what_a_plain_layer_refuses_is_refused() -> None:
    """On the low path too: else the first recovery would be the one to refuse it."""
    layer = nn.Sequential(nn.Linear(8, 8, dtype=torch.bfloat16))
    gnmr.attach(layer, recipe="fp8-tensorwise", quiet=True, strict=True)
    with pytest.raises(RuntimeError, match="same dtype"):
        layer(torch.randn(4, 8))
    wide = nn.Sequential(nn.Linear(8, 8, dtype=torch.float64))
    gnmr.attach(wide, recipe="fp8-tensorwise", quiet=True, strict=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wide(torch.randn(4, 8, dtype=torch.float64)).dtype is torch.float64


def test_a_second_derivative_is_refused() -> None:
    """torch would drop a penalty on a gradient without a word."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    x = torch.randn(4, 8, requires_grad=True)
    with pytest.raises(gnmr.Error, match="no second derivative"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)
