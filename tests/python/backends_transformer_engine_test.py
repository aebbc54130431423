# SPDX-License-Identifier: Apache-2.0
"""TransformerEngine's switch on a stand-in with the names and the behaviour that its public source has.

The library itself cannot be had here: this shows that the switch does what was read, not that the library does.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest
import torch
from gnmr.checks.conformance import Subject, examine
from torch import Tensor, nn
from torch.nn import functional

import gnmr


class Recipe:
    def delayed(self) -> bool:
        return True


class State:
    enabled, calibrating, recipe, group = False, False, None, None


class Manager:
    is_fp8_enabled = staticmethod(lambda: State.enabled)
    get_fp8_recipe = staticmethod(lambda: State.recipe)
    get_fp8_group = staticmethod(lambda: State.group)


@contextmanager
def autocast(
    enabled: bool = True, calibrating: bool = False, recipe: object = None, amax_reduction_group: object = None
) -> Iterator[None]:
    before = (State.enabled, State.calibrating, State.recipe)
    State.enabled, State.calibrating, State.recipe = enabled, calibrating, recipe
    try:
        yield
    finally:
        State.enabled, State.calibrating, State.recipe = before


def engine_classes() -> type[nn.Linear]:
    class Linear(nn.Linear):
        """Rounds to bfloat16 in the place of FP8; it notes magnitudes as the library does."""

        primary_weights_in_fp8 = False

        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            self.fp8_meta: dict[str, object] = {}
            self.calibrated = 0

        def forward(self, inp: Tensor) -> Tensor:
            if State.enabled or State.calibrating:
                self.fp8_meta["recipe"] = State.recipe
                self.fp8_meta.setdefault("scaling_bwd", SimpleNamespace(amax_history=torch.zeros(4, 2)))
            self.calibrated += State.calibrating
            if not State.enabled:
                return functional.linear(inp, self.weight, self.bias)
            return functional.linear(inp.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16()).float()

    Linear.__module__ = "transformer_engine.pytorch.module.linear"
    return Linear


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> type[nn.Linear]:
    library, pytorch, quantization = (
        ModuleType(name)
        for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.quantization")
    )
    quantization.FP8GlobalStateManager = Manager  # type: ignore[attr-defined]
    pytorch.autocast = autocast  # type: ignore[attr-defined]
    for module in (library, pytorch, quantization):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return engine_classes()


def make_subject(layer: type[nn.Linear]) -> Subject:
    torch.manual_seed(0)
    model = nn.Sequential(layer(16, 32), nn.GELU(), layer(32, 16))
    x = torch.randn(8, 16)

    def loss_of(model: nn.Module) -> Tensor:
        with autocast(recipe=Recipe()):
            return model(x).square().mean()

    @contextmanager
    def reference(model: nn.Module) -> Iterator[None]:
        for module in model:
            if isinstance(module, nn.Linear):
                module.forward = nn.Linear.forward.__get__(module)
        yield
        for module in model:
            module.__dict__.pop("forward", None)

    return Subject(model, loss_of, reference=reference)


def test_what_was_read_conforms(layer: type[nn.Linear]) -> None:
    checks = examine(make_subject(layer))
    assert not [check for check in checks if check.outcome == "failed"], checks
    assert "switched by TransformerEngine (not tested)" in checks[0].detail


def test_magnitudes_are_noted_while_high(layer: type[nn.Linear]) -> None:
    subject = make_subject(layer)
    ctl = gnmr.attach(subject.model, quiet=True, strict=True, min_coverage=0)
    ctl.set("0", "high")
    subject.loss_of(subject.model).backward()
    first, last = subject.model[0], subject.model[2]
    assert first.calibrated == 1 and last.calibrated == 0
    assert first.fp8_meta["scaling_bwd"].amax_history[0][0] > 0 and first.fp8_meta["recipe"] is not None
    assert last.fp8_meta["scaling_bwd"].amax_history[0][0] == 0


def test_what_cannot_be_switched_is_refused(layer: type[nn.Linear]) -> None:
    for attribute, reason in (
        ("primary_weights_in_fp8", "exist in FP8 only"),
        ("ub_overlap_ag_fprop", "overlaps"),
        ("ub_bulk_dgrad", "overlaps"),
    ):
        model = nn.Sequential(layer(16, 16), layer(16, 16))
        setattr(model[1], attribute, True)
        ctl = gnmr.attach(model, quiet=True, min_coverage=0)
        assert [reason in one.reason for one in ctl.coverage.left_out] == [True], attribute
