# SPDX-License-Identifier: Apache-2.0
"""The low path in real codes, run on the CPU by the kernels' reference: everything but the kernels themselves."""

import pytest
import torch
from compile_test import codes as codes  # a fixture
from compile_test import fresh_compiler as fresh_compiler  # of all tests here
from compile_test import make, set_high, step, switched_at_random
from device_layer import PLACES, RECIPES, uneven
from gnmr.checks.planted_faults import planted_fault
from gnmr.low.casts import SUMS_OVER_ROWS, cast_operand
from gnmr.low.fp8_matrix import scale_shape
from gnmr.low.front_end import LINEAR, FrontEnd
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gnmr
from gnmr import _core
from gnmr.low import fp8_matrix


def both_sides(recipe: str, product: int, place: int, matrix: Tensor) -> list[Tensor]:
    """FP8 data and scales of a matrix, then of the transposed one."""
    return _core.quantize_to_fp8(LINEAR, _core.Recipe(recipe), product, place, matrix, True, True)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(128, 256), (33, 129), (1, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_codes_stand_for_the_numbers_of_the_emulation(recipe: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix, rules = uneven(*shape, 1).to(dtype), _core.Recipe(recipe)
    for product, place in PLACES:
        by_rows, row_scales, by_columns, column_scales = both_sides(recipe, product, place, matrix)
        groups = rules.fp8_groups(product, place)
        expected = cast_operand(matrix.float(), recipe, product, place, 0.0, 0, 0)
        if SUMS_OVER_ROWS[product][place]:
            assert torch.equal(FrontEnd().values_of(by_columns, column_scales, groups).t(), expected)
        else:
            assert torch.equal(FrontEnd().values_of(by_rows, row_scales, groups), expected)
        (alone, _) = _core.quantize_to_fp8(LINEAR, rules, product, place, matrix, False, True)
        assert torch.equal(alone.view(torch.uint8), by_columns.view(torch.uint8))


@pytest.mark.parametrize("recipe", RECIPES)
def test_scales_have_the_shape_of_the_kernels(recipe: str) -> None:
    for rows, columns in ((128, 256), (129, 1), (40, 385)):
        for product, place in PLACES:
            made = both_sides(recipe, product, place, torch.ones(rows, columns))
            groups = _core.Recipe(recipe).fp8_groups(product, place)
            assert made[0].shape == (rows, columns) and made[2].shape == (columns, rows)
            assert made[1].numel() == torch.empty(scale_shape(groups, rows, columns)).numel()
            assert made[3].numel() == torch.empty(scale_shape(groups, columns, rows)).numel()


def test_an_empty_matrix_has_codes() -> None:
    made = both_sides("fp8-deepseek", 0, 0, torch.empty(0, 16))
    assert made[0].shape == (0, 16) and made[2].shape == (16, 0)


def passes(recipe: str, dtype: torch.dtype, steps: int = 2, recompute: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 80), nn.GELU(), nn.Linear(80, 40, bias=False)).to(dtype)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
    for number in range(steps):
        model.zero_grad()
        x = uneven(4 * 9, 48, number).view(4, 9, 48).to(dtype).requires_grad_(True)
        out = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
        out.float().square().sum().backward()
        found = [out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]
        ctl.step()
    return found


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_in_codes_is_the_emulated_one(recipe: str, dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    emulated = passes(recipe, dtype)
    request.getfixturevalue("codes")
    in_codes = passes(recipe, dtype)
    # The same numbers in another order of sums, which casts further on see.
    limit = 2e-2 if dtype == torch.bfloat16 else 1e-3
    for mine, other in zip(in_codes, emulated, strict=True):
        assert float((mine - other).float().norm() / other.float().norm()) < limit
    for mine, again in zip(in_codes, passes(recipe, dtype, recompute=True), strict=True):
        assert torch.equal(mine, again)


@pytest.mark.usefixtures("codes")
@pytest.mark.parametrize("recipe", RECIPES)
def test_backward_keeps_codes_alone(recipe: str) -> None:
    model = nn.Sequential(nn.Linear(256, 128, bias=False))
    gnmr.attach(model, recipe=recipe, quiet=True, strict=True, patrol=0)
    kept: list[Tensor] = []
    x = torch.randn(512, 256, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        model(x)
    largest = sorted(kept, key=lambda one: -one.nbytes)
    assert [one.dtype for one in largest[:2]] == [torch.float8_e4m3fn] * 2
    assert sum(one.nbytes for one in kept) < 1.1 * (512 * 256 + 256 * 128)
    kept.clear()
    with (
        torch.no_grad(),
        torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one),
    ):
        model(x)
    assert not kept


@pytest.mark.usefixtures("codes")
def test_a_planted_fault_is_measured() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    ctl = gnmr.attach(model, recipe="fp8-deepseek", quiet=True, strict=True)
    found = []
    for faulty in (False, True):
        for unit in ctl.units:
            unit.switch.begin_trial()
        x = torch.randn(32, 64)
        if faulty:
            with planted_fault(ctl.units[1]):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        found.append([unit.switch.end_trial() for unit in ctl.units])
    healthy, broken = found
    # The input of the first layer needs no gradient.
    assert max(healthy[0][0], healthy[0][2], *healthy[1]) < 0.1 and min(broken[1]) > 2
    assert max(broken[0][0], broken[0][2]) < 0.1


@pytest.mark.usefixtures("codes")
@pytest.mark.parametrize("recipe", RECIPES)
def test_compiled_blocks_in_codes(recipe: str) -> None:
    found = []
    for compiles in (False, True):
        model, _ = make(recipe)
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend="aot_eager")
        gradients = []
        for names in ([], ["layers.1.q", "layers.0.down"], [unit.name for unit in ctl.units], []):
            set_high(ctl, names)
            gradients.append(step(model, ctl))
        found.append(gradients)
    for eager, compiled in zip(*found, strict=True):
        for name, gradient in eager.items():
            assert torch.allclose(gradient, compiled[name], rtol=1e-3, atol=1e-6), name


@pytest.mark.usefixtures("codes")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_planted_fault_reaches_compiled_blocks(recipe: str) -> None:
    found = []
    for compiles in (False, True):
        model, _ = make(recipe)
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend="aot_eager")
        healthy = step(model, ctl)
        with planted_fault(next(unit for unit in ctl.units if unit.name == "layers.0.up")):
            found.append(step(model, ctl))
        up = "layers.0.up.weight"
        assert float(found[-1][up].norm() / healthy[up].norm()) > 2
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], rtol=1e-3, atol=1e-6), name


@pytest.mark.usefixtures("codes")
def test_recovery_sets_compile_nothing() -> None:
    model, recipe = make("fp8-rowwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, group_max=1)
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    switched_at_random(ctl, lambda: step(model, ctl), 50)


def test_what_cannot_run_on_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    assert "mps" in fp8_matrix.refusal("fp8-rowwise", torch.device("mps"))
    monkeypatch.setattr(_core, "kernels_available", lambda: False)
    assert "built without CUDA" in fp8_matrix.refusal("fp8-rowwise", cuda)
    monkeypatch.setattr(_core, "kernels_available", lambda: True)
    for name in _core.recipe_names():
        reason = fp8_matrix.refusal(name, cuda)
        assert (reason == "") == (name in RECIPES), name
        assert not reason or all(able in reason for able in RECIPES)
        assert fp8_matrix.refusal(name, torch.device("cpu")) == ""
