# SPDX-License-Identifier: Apache-2.0
"""GPT-2's Conv1D is a unit: watched, and with our own low path the numbers of a linear layer with its weight turned."""

import copy
import subprocess
import sys

import pytest
import torch
from devices import DEVICE, needs_own_low_path
from gnmr.checks.conformance import Subject, examine
from gnmr.checks.planted_faults import planted_fault
from torch import Tensor, nn
from torch.nn import functional

import gnmr

pytest.importorskip("transformers")
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

RECIPES = ["fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek", "mxfp8", "nvfp4"]


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return GPT2LMHeadModel(config).to(DEVICE)


def loss_of(model: nn.Module) -> Tensor:
    words = torch.arange(64, device=DEVICE).view(4, 16)
    logits = model(words).logits
    return functional.cross_entropy(logits.view(-1, 64), words.flip(0).reshape(-1))


def with_linear_layers(model: nn.Module) -> nn.Module:
    """The same model with torch.nn.Linear and turned weights in the place of Conv1D."""
    other = copy.deepcopy(model)
    for module in list(other.modules()):
        for name, child in module.named_children():
            if isinstance(child, Conv1D):
                layer = nn.Linear(child.nx, child.nf, device=DEVICE)
                with torch.no_grad():
                    layer.weight.copy_(child.weight.t())
                    layer.bias.copy_(child.bias)
                setattr(module, name, layer)
    return other


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_numbers_are_those_of_linear_layers(recipe: str) -> None:
    needs_own_low_path(recipe)
    models = [gpt2()]
    models.append(with_linear_layers(models[0]))
    controls = [gnmr.attach(model, recipe=recipe, quiet=True, strict=True) for model in models]
    assert [unit.name for unit in controls[0].units] == [unit.name for unit in controls[1].units]
    assert [unit.cost for unit in controls[0].units] == [unit.cost for unit in controls[1].units]
    for _ in range(2):
        losses = []
        for model in models:
            model.zero_grad()
            losses.append(loss_of(model))
            losses[-1].backward()
        assert torch.equal(*losses)
        for (name, one), two in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
            is_turned = ".c_" in name and name.endswith("weight")
            assert torch.allclose(one.grad, two.grad.t() if is_turned else two.grad, rtol=1e-6, atol=1e-9), name
        assert [control.step().wait().total_norm for control in controls][0] > 0


def test_all_of_a_gpt2_is_covered(capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder) -> None:
    ctl = gnmr.attach(gpt2())
    assert len(ctl.units) == 8 and ctl.coverage.share == 1.0
    assert ctl.units[0].name == "transformer.h.0.attn.c_attn" and ctl.units[0].cost == 3 * 32 * 96
    assert not [one for one in recwarn.list if "gnmr" in str(one.message)]
    assert capsys.readouterr().err.count("multiply-adds") == 1


@pytest.mark.parametrize("recipe", ["fp8-tensorwise", "fp8-delayed"])
def test_it_conforms(recipe: str) -> None:
    needs_own_low_path(recipe)
    checks = {check.name: check for check in examine(Subject(gpt2(), loss_of, recipe=recipe, plant=planted_fault))}
    assert not [check for check in checks.values() if check.outcome == "failed"]
    for name in ("runs low", "norms", "high", "back low", "each unit", "trial", "planted", "copies", "fresh"):
        assert checks[name].outcome == "ok", checks[name]
    assert "bit for bit" in checks["high"].detail


def test_a_compiled_layer_has_the_same_numbers() -> None:
    needs_own_low_path()
    torch.manual_seed(0)
    layer = nn.Sequential(Conv1D(48, 32)).to(DEVICE)
    gnmr.attach(layer, recipe="fp8-tensorwise", quiet=True, strict=True)
    x = torch.randn(2, 8, 32, device=DEVICE)

    def run(call: nn.Module) -> list[Tensor]:
        layer.zero_grad()
        out = call(x)
        out.square().mean().backward()
        return [out, layer[0].weight.grad.clone(), layer[0].bias.grad.clone()]

    eager = run(layer)
    for one, two in zip(run(torch.compile(layer, backend="aot_eager")), eager, strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-8)


def test_transformers_is_not_imported_for_it() -> None:
    code = (
        "import sys, torch, gnmr\nfrom torch import nn\n"
        "gnmr.attach(nn.Sequential(nn.Linear(8, 8)), recipe='fp8-tensorwise', quiet=True)\n"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
