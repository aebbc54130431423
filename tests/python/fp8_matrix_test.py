# SPDX-License-Identifier: Apache-2.0
"""The low path in real codes, run on the CPU by the kernels' reference: everything but the kernels themselves."""

from collections.abc import Iterator

import pytest
import torch
from compile_test import make, set_high, step, switched_at_random
from device_layer import PLACES, RECIPES, uneven
from gnmr.checks.planted_faults import planted_fault
from gnmr.low.amax_history import AmaxHistory
from gnmr.low.casts import SUMS_OVER_ROWS, cast_operand
from gnmr.low.fp8_matrix import Fp8Cast, cast_to_fp8, scale_shape
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gnmr
from gnmr import _core
from gnmr.low import fp8_matrix, linear


class HostScales:
    """What a CUDA device would hold of delayed scales, in host memory."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def scale_address(self, memory: AmaxHistory, product: int, place: int) -> int:
        scale = memory._host.scale(product, place)
        self.kept.append(torch.tensor([scale]))
        return self.kept[-1].data_ptr() if scale else 0

    def note(self, memory: AmaxHistory, operand: int, find: object) -> None:
        found = torch.empty(1)
        find(found.data_ptr())  # type: ignore[operator]
        memory._host.note(operand, float(found))


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low paths on the CPU make codes, as on a GPU."""
    scales = HostScales()
    for module in (fp8_matrix, linear):
        monkeypatch.setattr(module, "makes_codes", lambda matrix: True)
    monkeypatch.setattr(
        AmaxHistory, "scale_address", lambda self, product, place, device: scales.scale_address(self, product, place)
    )
    monkeypatch.setattr(
        AmaxHistory, "note_on_device", lambda self, operand, device, find: scales.note(self, operand, find)
    )


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(128, 256), (33, 129), (1, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_codes_stand_for_the_numbers_of_the_emulation(recipe: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = uneven(*shape, 1).to(dtype)
    for product, place in PLACES:
        cast = cast_to_fp8(matrix, Fp8Cast(_core.Recipe(recipe), product, place, True, True))
        over_rows = SUMS_OVER_ROWS[product][place]
        expected = cast_operand(matrix.float(), recipe, product, place, 0.0, 0, 0)
        assert torch.equal(cast.values(over_rows), expected)
        assert torch.equal((cast * 4.0).values(over_rows), 4 * expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_scales_have_the_shape_of_the_kernels(recipe: str) -> None:
    rules = _core.Recipe(recipe)
    for rows, columns in ((128, 256), (129, 1), (40, 385)):
        for product, place in PLACES:
            counts = _core.Fp8Cast(rules, product, place, 0, 0, rows, columns).scale_counts
            groups = rules.fp8_groups(product, place)
            assert counts == tuple(
                torch.empty(scale_shape(groups, *shape)).numel() for shape in ((rows, columns), (columns, rows))
            )


def test_an_empty_matrix_has_codes() -> None:
    cast = cast_to_fp8(torch.empty(0, 16), Fp8Cast(_core.Recipe("fp8-deepseek"), 0, 0, True, True))
    assert cast.values(False).shape == (0, 16) and cast.values(True).shape == (0, 16)


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
    gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
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
