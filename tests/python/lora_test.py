# SPDX-License-Identifier: Apache-2.0
"""LoRA (peft): frozen layers of torchao under adapters are watched and switched; adapters stay in high precision."""

import pytest
import torch
from devices import DEVICE, needs_own_low_path, to_float8
from gnmr.backends.torchao_float8 import Float8Switch
from gnmr.checks.conformance import Subject, examine
from gnmr.checks.doctor import float8_layers_as_linear
from gnmr.checks.planted_faults import planted_fault
from small_model import QUICK, batch, make_model, run_backward
from torch import Tensor, nn
from torch.nn import functional

import gnmr

peft = pytest.importorskip("peft")

BASE = [f"layers.{block}.{name}.base_layer" for block in range(2) for name in ("up", "down")]


def lora_model(is_float8: bool) -> nn.Module:
    model = make_model(blocks=2)
    if is_float8:
        to_float8(model)
    torch.manual_seed(1)
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["up", "down"], r=4, init_lora_weights=False), model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model.to(DEVICE)


class WithGradients(nn.Module):
    """Its input has gradients, as behind a layer that trains: those of all layers reach their outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, device=DEVICE))
        self.layers, self.norm, self.head = model.layers, model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        x = self.scale * x
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module) -> Tensor:
    inputs, targets = batch(1)
    return functional.cross_entropy(model(inputs), targets)


def test_frozen_float8_layers_are_watched_and_switched(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    model = WithGradients(lora_model(is_float8=True))
    ctl = gnmr.attach(model, strict=True, lag=0, **QUICK)
    told = capsys.readouterr().err
    assert "no unit has a low path" not in told and "switched by torchao Float8Linear" in told
    assert not recwarn.list and ctl.coverage.share == 1.0 and ctl.mode == "armed"
    base = {unit.name: unit for unit in ctl.units if unit.switch is not None}
    assert list(base) == BASE
    # Their norm is that of their output's gradient.
    outputs: dict[str, Tensor] = {}
    for name, unit in base.items():
        unit.module.register_forward_hook(
            lambda module, inputs, output, name=name: outputs.update({name: output}) or output.retain_grad()
        )
    run_backward(model, 1)
    ctl.step()
    norms = dict(zip([unit.name for unit in ctl.units], ctl._parts.gradients.numbers.norms, strict=True))
    for name in BASE:
        assert norms[name] == pytest.approx(float(outputs[name].grad.double().norm()), rel=1e-6)


def test_a_fault_in_a_frozen_layer_is_found() -> None:
    model = WithGradients(lora_model(is_float8=True))
    ctl = gnmr.attach(model, quiet=True, strict=True, lag=0, **QUICK)
    unit = next(unit for unit in ctl.units if unit.name == BASE[3])
    for step in range(1, 10):
        model.zero_grad()
        run_backward(model, step)
        assert not ctl.trial(lambda step=step: run_backward(model, step)).rerun
    with planted_fault(unit):
        model.zero_grad()
        run_backward(model, 10)
        result = ctl.trial(lambda: run_backward(model, 10))
    assert (result.verdict, result.admitted) == ("numeric", (BASE[3],))
    assert isinstance(unit.switch, Float8Switch) and unit.switch.high
    ctl.detach()


def test_frozen_float8_layers_conform() -> None:
    subject = Subject(
        WithGradients(lora_model(is_float8=True)), loss_of, reference=float8_layers_as_linear, plant=planted_fault
    )
    checks = {check.name: check for check in examine(subject)}
    assert not [check for check in checks.values() if check.outcome == "failed"]
    assert checks["each unit"].outcome == "ok" and "4 units" in checks["each unit"].detail


def test_compiled_blocks_measure_the_same() -> None:
    squares = []
    for compiles in (False, True):
        model = WithGradients(lora_model(is_float8=True))
        ctl = gnmr.attach(model, quiet=True, strict=True, lag=0)
        if compiles:
            for layer in model.layers:
                layer.compile(backend="aot_eager", fullgraph=True)
        run_backward(model, 1)
        squares.append([unit.switch.output_square for unit in ctl.units if isinstance(unit.switch, Float8Switch)])
        ctl.step()
        torch.compiler.reset()
    assert all(one is not None and one > 0 for one in squares[0])
    assert squares[1] == pytest.approx(squares[0], rel=1e-5)


def test_adapters_stay_in_high_precision() -> None:
    needs_own_low_path()
    model = lora_model(is_float8=False)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    switched = [unit.name for unit in ctl.units if unit.switch is not None]
    adapters = [unit.name for unit in ctl.units if unit.switch is None]
    assert switched == BASE and len(adapters) == 8 and all("lora_" in name for name in adapters)
    assert "8 LoRA adapters stay in high precision" in ctl.coverage.text()
    assert "only watched" not in ctl.coverage.text() and ctl.coverage.share == 1.0
    adapter = model.layers[0].up.lora_A["default"]
    x = torch.randn(4, 32, device=DEVICE)
    assert torch.equal(adapter(x), functional.linear(x, adapter.weight))
    ctl.detach()
    # A glob that fits a whole part of the model does not mean them; one that fits adapters alone does.
    for allow, count in ((["layers.*"], 4), (["*", "*.lora_B.*"], 8), (["*", "*lora_*"], 12)):
        ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, allow=allow)
        assert sum(unit.switch is not None for unit in ctl.units) == count, allow
        ctl.detach()


def test_frozen_layers_without_a_low_path_do_not_count() -> None:
    ctl = gnmr.attach(lora_model(is_float8=False), quiet=True)
    assert ctl.coverage.share == 1.0 and len(ctl.units) == 8
    assert {one.reason for one in ctl.coverage.left_out} == {"frozen, has no low path", "makes logits"}
