# SPDX-License-Identifier: Apache-2.0
"""Our low path on a CUDA device: real FP8 codes and products, against the CPU's casts and float64 products.

Needs a GPU and a build with CUDA; products are real on compute capability 9.0 and made of numbers elsewhere, and both
have to pass. `pytest -s` prints what was measured.
"""

import copy
import json

import pytest
import torch
from device_layer import DTYPES, PLACES, RECIPES, Layer, attach, needs_device, off, uneven
from gnmr.checks.conformance import Subject, examine
from gnmr.checks.planted_faults import planted_fault
from gnmr.low.casts import SUMS_OVER_ROWS, cast_operand
from gnmr.low.front_end import LINEAR, FrontEnd
from small_model import QUICK, batch, make_model
from torch import Tensor, nn
from torch.nn import functional

import gnmr
from gnmr import _core

pytestmark = needs_device


def quantize(recipe: str, product: int, place: int, matrix: Tensor, by_rows: bool = True) -> list[Tensor]:
    """FP8 data and scales of a matrix, if wanted, and of the transposed one."""
    return _core.quantize_to_fp8(LINEAR, _core.Recipe(recipe), product, place, matrix, by_rows, True)


def same_bytes(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(left.cpu().view(torch.uint8), right.cpu().view(torch.uint8))
        for left, right in zip(one, other, strict=True)
    )


# Casts.


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("shape", [(256, 384), (33, 129), (1, 7), (130, 1)])
def test_codes_and_scales_are_those_of_the_cpu(recipe: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    matrix = uneven(*shape, 1).to(dtype)
    matrix.view(-1)[-1] = float("inf")
    for product, place in PLACES:
        here = quantize(recipe, product, place, matrix)
        there = quantize(recipe, product, place, matrix.cuda())
        assert same_bytes(here, there), (product, place)
        groups = _core.Recipe(recipe).fp8_groups(product, place)
        over_rows = SUMS_OVER_ROWS[product][place]
        codes, scales = there[2:] if over_rows else there[:2]
        values = FrontEnd().values_of(codes, scales, groups).cpu()
        emulated = cast_operand(matrix.float(), recipe, product, place, 0.0, 0, 0)
        assert torch.equal(values.t() if over_rows else values, emulated), (product, place)
        # One direction alone has the same bytes as both together.
        assert same_bytes(quantize(recipe, product, place, matrix.cuda(), by_rows=False), there[2:])


def test_a_matrix_with_gaps_and_one_without_elements() -> None:
    wide = uneven(64, 300, 2).cuda()
    part = quantize("fp8-deepseek", 0, 0, wide[:, 3:200])
    assert same_bytes(part, quantize("fp8-deepseek", 0, 0, wide[:, 3:200].contiguous()))
    model = nn.Sequential(nn.Linear(32, 32)).cuda()
    attach(model, "fp8-deepseek")
    out = model(torch.empty(0, 32, device="cuda"))
    out.sum().backward()
    assert out.shape == (0, 32) and float(model[0].weight.grad.abs().sum()) == 0


# A layer.


SHAPES = [((8, 32), 384, 272), ((256,), 640, 512), ((3, 11), 129, 65), ((48,), 96, 40)]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_products_are_those_of_the_casts(
    recipe: str, dtype: torch.dtype, shape: tuple[tuple[int, ...], int, int], bias: bool
) -> None:
    layer = Layer(*shape, dtype, bias)
    model = layer.on_device()
    attach(model, recipe)
    found = layer.run(model)
    assert all(one.dtype == dtype for one in found)
    # Tensor cores keep some 14 bits of a sum, bfloat16 eight of a result. A cast alone is off by 2e-2.
    limit = 4e-3 if dtype == torch.float32 else 6e-3
    for name, one, expected in zip(("output", "input", "weight"), found[:3], layer.expected(recipe), strict=True):
        assert off(one, expected) < limit, (name, off(one, expected))
    if bias:
        assert off(found[3], layer.gradient.double().flatten(0, -2).sum(0)) < 1e-2


@pytest.mark.parametrize("recipe", RECIPES)
def test_float16_and_autocast(recipe: str) -> None:
    layer = Layer((64,), 96, 80, torch.float16)
    layer.input, layer.gradient = layer.input / 8, layer.gradient * 8
    expected = layer.expected(recipe)
    model = layer.on_device()
    attach(model, recipe)
    for one, wanted in zip(layer.run(model)[:3], expected, strict=True):
        assert one.dtype == torch.float16 and off(one, wanted) < 4e-3
    layer.dtype = torch.float32
    model = layer.on_device()
    attach(model, recipe)
    leaf = layer.input.cuda().requires_grad_(True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(leaf)
    output.backward(layer.gradient.to(output))
    assert output.dtype == torch.bfloat16 and leaf.grad.dtype == torch.float32
    for one, wanted in zip((output, leaf.grad, model[0].weight.grad), expected, strict=True):
        assert off(one, wanted) < 1e-2


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
def test_the_high_path_is_the_plain_layer(recipe: str, dtype: torch.dtype, bias: bool) -> None:
    layer = Layer((8, 32), 384, 272, dtype, bias)
    plain, model = layer.on_device(), layer.on_device()
    expected = layer.run(plain)
    ctl = attach(model, recipe)
    low = layer.run(model)
    ctl.step()
    ctl.set("*", "high")
    names = ("output", "input", "weight", "bias")[: len(low)]
    for name, one, wanted in zip(names, layer.run(model), expected, strict=True):
        assert torch.equal(one, wanted), (name, off(one, wanted))
    assert not torch.equal(low[0], expected[0]) and not torch.equal(low[2], expected[2])
    ctl.step()
    ctl.set("*", "low")
    for one, wanted in zip(layer.run(model), low, strict=True):
        assert torch.equal(one, wanted)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_backward_takes_the_path_of_its_forward(recipe: str) -> None:
    layer = Layer((64,), 128, 96, torch.bfloat16)
    model = layer.on_device()
    ctl = attach(model, recipe)
    switch = ctl.units[0].switch
    low = layer.run(model)
    for one, wanted in zip(layer.run(model, between=lambda: switch.set_high(True)), low, strict=True):
        assert torch.equal(one, wanted)
    high = layer.run(model)
    for one, wanted in zip(layer.run(model, between=lambda: switch.set_high(False)), high, strict=True):
        assert torch.equal(one, wanted)
    assert not torch.equal(low[2], high[2])


def test_what_cannot_run_here_is_refused() -> None:
    model = nn.Sequential(nn.Linear(32, 32)).cuda()
    for recipe in set(_core.recipe_names()) - set(RECIPES):
        with pytest.raises(gnmr.Error, match="fp8-tensorwise"):
            attach(model, recipe)
    moved = nn.Sequential(nn.Linear(32, 32))
    attach(moved, "mxfp8")
    moved.cuda()
    with pytest.raises(gnmr.Error, match="fp8-tensorwise"):
        moved(torch.ones(4, 32, device="cuda"))


# Trials.


def trial(model: nn.Module, ctl: gnmr.Control, inputs: Tensor) -> dict[str, list[float]]:
    for unit in ctl.units:
        unit.switch.begin_trial()
    model(inputs).square().mean().backward()
    found = {unit.name: list(unit.switch.end_trial()) for unit in ctl.units}
    for unit in ctl.units:
        squares = unit.switch.error_squares()
        assert [(a / b) ** 0.5 for a, b in squares] == pytest.approx(found[unit.name])
        unit.switch.set_high(False)
    return found


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_those_of_the_emulation(recipe: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    on_cpu = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))
    on_device = copy.deepcopy(on_cpu).to("cuda", dtype)
    inputs = uneven(192, 128, 6).requires_grad_(True)
    expected = trial(on_cpu, attach(on_cpu, recipe), inputs)
    ctl = attach(on_device, recipe)
    found = trial(on_device, ctl, inputs.detach().to("cuda", dtype).requires_grad_(True))
    print(f"\n{recipe} {dtype}: errors {found['0']}, on the CPU {expected['0']}")
    for name, errors in expected.items():
        assert found[name] == pytest.approx(errors, rel=0.05 if dtype == torch.float32 else 0.2), name
    with planted_fault(ctl.units[1]):
        broken = trial(on_device, ctl, inputs.detach().to("cuda", dtype).requires_grad_(True))
    assert min(broken["2"]) > 2 and broken["0"] == pytest.approx(found["0"], rel=1e-3)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_unit_at_fault_is_found(recipe: str) -> None:
    model = make_model().cuda()
    ctl = attach(model, recipe, **QUICK)
    unit = next(one for one in ctl.units if one.name == "layers.2.up")

    def run(step: int) -> Tensor:
        x, y = batch(step)
        loss = functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        return loss.detach()

    results = []
    for step in range(1, 13):
        unit.switch.plant_factor(40.0 if step >= 10 else None)
        model.zero_grad()
        loss = run(step)
        results.append(ctl.trial(lambda step=step: run(step), loss=loss, max_norm=1e9))
    assert all(not result.rerun for result in results[:9])
    assert (results[9].rerun, results[9].admitted) == ("trial", ("layers.2.up",)), results[9]
    assert ctl.high == ["layers.2.up"] and all(not result.alarmed for result in results[10:])


def test_a_frozen_layer_is_measured_by_its_output() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
    model[1].requires_grad_(False)
    ctl = attach(model, "fp8-rowwise")
    seen: list[Tensor] = []
    model[1].register_full_backward_hook(lambda module, to_input, to_output: seen.append(to_output[0].clone()))
    for _ in range(3):
        model(torch.randn(48, 64, device="cuda")).square().sum().backward()
    square = ctl.units[1].switch.output_square
    assert square == pytest.approx(sum(float(one.double().square().sum()) for one in seen), rel=1e-5)
    assert float(ctl.units[1].switch.output_number) == square
    ctl.step()
    # A step without a gradient of the output has no sample: its norm is not 0.
    model(torch.randn(48, 64, device="cuda"))
    assert ctl.units[1].switch.output_number is None and ctl.units[1].switch.output_square is None


def test_measurements_without_a_recipe_may_move() -> None:
    layer = _core.LowLayer(LINEAR, None)
    layer.add_square(torch.ones(4, 4, device="cuda"))
    assert layer.square() == 16.0 and layer.has_square
    layer.begin_step()
    assert layer.square() is None and not layer.has_square
    layer.add_square(torch.ones(2, 2))
    assert layer.square() == 4.0 and layer.sums_on_device() is None


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_suite_is_passed(recipe: str) -> None:
    def loss_of(model: nn.Module) -> Tensor:
        inputs, targets = batch(1)
        return functional.cross_entropy(model(inputs.cuda()), targets.cuda())

    checks = examine(
        Subject(make_model(blocks=2).cuda(), loss_of, recipe=recipe, plant=planted_fault, options={"lag": 0})
    )
    print()
    for check in checks:
        print(f"{recipe} {check}")
    assert not [check for check in checks if check.outcome == "failed"]


# The amax histories of delayed scaling.


def run_steps(layer: Layer, model: nn.Module, ctl: gnmr.Control, factors: list[float]) -> None:
    """A step a factor, of two micro-batches of which the first is the larger."""
    original = layer.input
    for factor in factors:
        for part in (1.0, 0.5):
            layer.input = original * factor * part
            layer.run(model)
        ctl.step()
    layer.input = original


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("high", [False, True])
def test_histories_are_those_of_the_cpu(dtype: torch.dtype, high: bool) -> None:
    layer = Layer((64,), 96, 80, dtype)
    on_cpu, on_device = copy.deepcopy(layer.model), layer.on_device()
    memories = []
    for model in (on_cpu, on_device):
        ctl = attach(model, "fp8-delayed")
        if high:
            ctl.set("*", "high")
        run_steps(layer, model, ctl, [1.0, 8.0, 2.0])
        memories.append(ctl.units[0].switch.layer.save())
    assert memories[0] == memories[1]
    assert json.loads(memories[0])[0]["scale"] > 0


def test_checkpoints_go_from_one_device_to_the_other() -> None:
    layer = Layer((64,), 96, 80, torch.float32)
    on_cpu, on_device = copy.deepcopy(layer.model), layer.on_device()
    here, there = attach(on_cpu, "fp8-delayed"), attach(on_device, "fp8-delayed")
    run_steps(layer, on_device, there, [1.0, 8.0])
    state = there.state_dict()
    here.load_state_dict(state)
    assert here.state_dict()["memory"] == state["memory"]
    for one, other in zip(layer.run(on_cpu), layer.run(on_device), strict=True):
        assert off(other, one) < 4e-3
    here.step()
    there.step()
    run_steps(layer, on_cpu, here, [0.25])
    fresh = layer.on_device()
    again = attach(fresh, "fp8-delayed")
    again.load_state_dict(here.state_dict())
    assert again.state_dict()["memory"] == here.state_dict()["memory"]
    for one, other in zip(layer.run(on_cpu), layer.run(fresh), strict=True):
        assert off(other, one) < 4e-3


def test_a_model_may_move() -> None:
    layer = Layer((64,), 96, 80, torch.float32)
    model = copy.deepcopy(layer.model)
    ctl = attach(model, "fp8-delayed")
    run_steps(layer, model, ctl, [4.0])
    before = ctl.units[0].switch.layer.save()
    model.cuda()
    layer.run(model)
    assert ctl.units[0].switch.layer.save() == before
    ctl.step()
    after = ctl.units[0].switch.layer.save()
    model.cpu()
    layer.run(model)
    assert ctl.units[0].switch.layer.save() == after != before
