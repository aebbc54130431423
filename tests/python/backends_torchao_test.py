# SPDX-License-Identifier: Apache-2.0
"""torchao's Float8Linear, emulated on a CPU and with real products on a GPU: found, switched, measured, left
as it was."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
from devices import DEVICE, cpu_only, run_on_two_ranks
from gnmr.checks.conformance import examine
from gnmr.checks.planted_faults import planted_fault
from small_model import NO_PATROL, QUICK, make_model, run_backward
from subjects import torchao_subject
from torch import nn

import gnmr

pytest.importorskip("torchao.float8")

FAULTY = "layers.1.up"


def float8_model(**config: object) -> nn.Module:
    return torchao_subject(**config).model


def recipe(name: str) -> dict[str, object]:
    """What a recipe of torchao's is, as arguments."""
    from torchao.float8 import Float8LinearConfig

    made = Float8LinearConfig.from_recipe_name(name)
    return {field: getattr(made, field) for field in made.__dataclass_fields__ if field.startswith(("cast", "round"))}


@pytest.mark.parametrize("name", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_it_conforms(name: str) -> None:
    checks = examine(torchao_subject(**recipe(name)))
    assert not [check for check in checks if check.outcome == "failed"], checks
    assert {check.name for check in checks if check.outcome == "skipped"} == {"ranks"}


def test_attach_finds_it(capsys: pytest.CaptureFixture[str]) -> None:
    ctl = gnmr.attach(float8_model(), strict=True)
    assert "switched by torchao Float8Linear\n" in capsys.readouterr().err
    assert ctl.mode == "armed"


def test_a_recipe_beside_it_is_refused() -> None:
    with pytest.raises(gnmr.Error, match="recipe='int8' would have no effect.*torchao Float8Linear.*Leave recipe out"):
        gnmr.attach(float8_model(), recipe="int8", quiet=True)


def test_what_derives_from_it() -> None:
    """Built otherwise is the same layer; a forward of its own is not."""
    from torchao.float8.float8_linear import Float8Linear

    class Built(Float8Linear):
        pass

    class Other(Float8Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    model = float8_model()
    model.layers[0].up.__class__, model.layers[0].down.__class__ = Built, Other
    ctl = gnmr.attach(model, quiet=True, strict=True, min_coverage=0.5)
    assert ctl.units[0].name == "layers.0.up" and ctl.units[0].switch is not None
    assert [one.name for one in ctl.coverage.left_out] == ["layers.0.down", "head"]
    assert "Other has a forward of its own" in ctl.coverage.left_out[0].reason


def test_bfloat16_models() -> None:
    subject = torchao_subject()
    subject.model.bfloat16()
    inner = subject.loss_of
    subject.loss_of = lambda model: inner(lambda x: model(x.bfloat16()).float())  # type: ignore[arg-type]
    assert not [check for check in examine(subject) if check.outcome == "failed"]


GATHERED = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from gnmr.backends.torchao_float8 import make

dist.init_process_group("gloo")
torch.manual_seed(0)
# The norm makes the gathered types differ, which gloo needs: it knows no float8 of its own.
model = nn.Sequential(nn.Linear(32, 64, bias=False), nn.GELU(), nn.Linear(64, 32, bias=False), nn.LayerNorm(32))
weights = [parameter.detach().clone() for parameter in model.parameters()]
x = torch.randn(16, 32)
targets = torch.randn(16, 32)
convert_to_float8_training(model, config=Float8LinearConfig(emulate=True, enable_fsdp_float8_all_gather=True))
fully_shard(model)
switches = [make(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]

def run():
    model.zero_grad()
    ((model(x) - targets) ** 2).mean().backward()
    return [parameter.grad.full_tensor().clone() for parameter in model.parameters()]

stock = run()
for switch in switches:
    switch.install()
assert all(torch.equal(a, b) for a, b in zip(run(), stock))
assert all(switch.patrol_cost(64) == 0 for switch in switches)
for switch in switches:
    switch.set_high(True)
high = run()
for switch in switches:
    switch.begin_trial()
trial = run()
errors = [switch.end_trial() for switch in switches]
for switch in switches:
    switch.set_high(False)
assert all(torch.equal(a, b) for a, b in zip(run(), stock))
plain = nn.Sequential(nn.Linear(32, 64, bias=False), nn.GELU(), nn.Linear(64, 32, bias=False), nn.LayerNorm(32))
with torch.no_grad():
    for parameter, weight in zip(plain.parameters(), weights):
        parameter.copy_(weight)
((plain(x) - targets) ** 2).mean().backward()
for parameter, one, two, low in zip(plain.parameters(), high, trial, stock):
    assert torch.allclose(one, parameter.grad, rtol=1e-5, atol=1e-7), (one - parameter.grad).abs().max()
    assert torch.allclose(two, parameter.grad, rtol=1e-5, atol=1e-7)
assert not torch.allclose(stock[0], high[0], rtol=1e-5, atol=1e-7)
assert all(0.005 < error < 0.2 for found in errors for error in found), errors
print("rank", dist.get_rank(), "done", flush=True)
dist.barrier()
# What gloo's threads do while a process is taken down is not what is tested.
os._exit(0)
"""


@cpu_only
def test_weights_that_are_gathered_in_float8(tmp_path: Path) -> None:
    run_on_two_ranks(GATHERED, tmp_path)


def test_copies_and_pickles_are_plain() -> None:
    model = float8_model()
    x = torch.randn(16, 32, device=DEVICE)
    low = model(x)
    ctl = gnmr.attach(model, quiet=True, strict=True)
    ctl.set("*", "high")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), low)
    assert not torch.equal(model(x), low)
    ctl.detach()
    assert torch.equal(model(x), low) and "forward" not in model.layers[0].up.__dict__


def test_a_trial_finds_the_layer_at_fault() -> None:
    model = float8_model()
    ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
    unit = next(unit for unit in ctl.units if unit.name == FAULTY)
    for step in range(1, 10):
        model.zero_grad()
        run_backward(model, step)
        assert not ctl.trial(lambda step=step: run_backward(model, step)).rerun
    with planted_fault(unit):
        model.zero_grad()
        run_backward(model, 10)
        result = ctl.trial(lambda: run_backward(model, 10))
    assert (result.rerun, result.verdict, result.admitted) == ("trial", "numeric", (FAULTY,))
    plain = make_model(blocks=2)
    run_backward(plain, 10)
    for one, two in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, rtol=1e-4, atol=1e-6)


def test_a_trial_with_changes_in_place() -> None:
    """Behind a layer that is compared, as behind torchao's own."""

    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = float8_model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.model.layers:
                h = layer.up(x.view(2, -1, x.shape[-1]))
                h *= 0.5
                x = x + layer.down(torch.relu_(h)).view(x.shape)
            return self.model.head(self.model.norm(x))

    model = Changed()
    ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK, lag=0, patrol=NO_PATROL)
    for step in range(1, 12):
        model.zero_grad()
        run_backward(model, step)
        if step == 10:
            for parameter in model.model.layers[1].down.parameters():
                parameter.grad *= 1000
        result = ctl.trial(lambda step=step: run_backward(model, step))
        assert (result.rerun == "trial") == (step == 10)


def test_all_idle_is_told_loudly() -> None:
    ctl = gnmr.attach(float8_model(), quiet=True, strict=True)
    other = make_model(blocks=2)
    run_backward(other, 1)
    with pytest.warns(UserWarning, match="NO LOW PATH RUNS"):
        ctl.step()
