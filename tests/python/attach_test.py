# SPDX-License-Identifier: Apache-2.0
"""attach finds units and says so; the model stays what it is; detach leaves nothing behind."""

import copy
import functools
import io
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from devices import needs_own_low_path
from small_model import QUICK, SmallModel, batch, make_model, run_backward
from torch import nn

import gnmr


def shape_of(model: nn.Module) -> list[tuple[str, type]]:
    return [(name, type(module)) for name, module in model.named_modules()]


@pytest.mark.parametrize("recipe", [None, "fp8-tensorwise", "fp8-delayed", "mxfp8"])
def test_the_model_is_what_it_was(recipe: str | None) -> None:
    if recipe:
        needs_own_low_path(recipe)
    model = make_model()
    x, _ = batch(1)
    before = model(x)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    shape = shape_of(model)
    attributes = [sorted(module.__dict__) for module in model.modules()]
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
    assert shape_of(model) == shape
    assert list(model.state_dict()) == list(state)
    changed = model(x)
    assert torch.equal(changed, before) == (recipe is None)
    ctl.detach()
    assert shape_of(model) == shape
    assert [sorted(module.__dict__) for module in model.modules()] == attributes
    assert not model._forward_pre_hooks
    assert torch.equal(model(x), before)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_checkpoints_load_both_ways() -> None:
    plain, attached = make_model(0), make_model(1)
    gnmr.attach(attached, recipe="fp8-tensorwise", quiet=True)
    attached.load_state_dict(plain.state_dict())
    other = make_model(2)
    other.load_state_dict(attached.state_dict())
    x, _ = batch(1)
    assert torch.equal(other(x), plain(x))


def test_copies_and_pickles_are_plain_models() -> None:
    model = make_model()
    x, _ = batch(1)
    high = model(x)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), high)
    with torch.no_grad():
        copied.layers[0].up.weight.zero_()
    assert not torch.equal(copied(x), high)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), high)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    assert torch.equal(torch.load(saved, weights_only=False)(x), high)
    assert not torch.equal(model(x), high)
    ctl.detach()


@pytest.mark.parametrize("recipe", [None, "fp8-tensorwise"])
def test_copies_can_be_attached_and_read_without_us(recipe: str | None, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    high = model(x)
    gnmr.attach(model, recipe=recipe, quiet=True)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(copy.deepcopy(model))):
        ctl = gnmr.attach(copied, recipe="fp8-tensorwise", quiet=True, strict=True)
        assert len(ctl.units) == 2 and not torch.equal(copied(x), high)
        ctl.detach()
        assert torch.equal(copied(x), high) and "forward" not in copied[0].__dict__
    for number, saved in enumerate((model, copy.deepcopy(model))):
        torch.save({"model": saved, "x": x, "y": high}, tmp_path / f"{number}.pt")
        read = (
            "import sys, torch; sys.modules['gnmr'] = None\n"
            f"d = torch.load(r'{tmp_path / f'{number}.pt'}', weights_only=False)\n"
            "assert torch.equal(d['model'](d['x']), d['y'])"
        )
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([sys.executable, "-c", read], check=True, env=environment, cwd=tmp_path)


def test_detach_leaves_what_others_have_put_there() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    high = model(x)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    ours = model[0].forward
    model[0].forward = lambda input: 2 * ours(input)
    del model[1].__dict__["forward"]
    ctl.detach()
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain(x), high)
    assert torch.equal(model(x), plain[2](plain[1](2 * plain[0](x))))
    # By the name of its module a wrapper may look like ours.
    second = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, deny=["0", "1"])
    wrapped = functools.wraps(model[2].forward.__func__)(lambda self, input: torch.zeros(4, 8))
    model[2].forward = types.MethodType(wrapped, model[2])
    second.detach()
    assert not model(x).any()
    del model[2].forward
    again = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    assert [(one.name, "replaced" in one.reason) for one in again.coverage.left_out] == [("0", True)]


def test_coverage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ctl = gnmr.attach(make_model())
    told = capsys.readouterr().err
    assert "watching 8 of 9 units, 100.0% of multiply-adds; 1 skipped: head (makes logits)" in told
    assert told.count("multiply-adds") == 1
    assert "only watched" in told
    assert ctl.mode == "watch"
    assert [unit.name for unit in ctl.units][:2] == ["layers.0.up", "layers.0.down"]
    assert ctl.units[1].group == "layers.0" and ctl.units[1].cost == 3 * 64 * 32
    gnmr.attach(make_model(), recipe="fp8-tensorwise")
    assert "only watched" not in capsys.readouterr().err


def test_little_coverage_is_loud(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match=r"watching 2 of 9 units, 25.0% of multiply-adds.*min_coverage=0.9") as warned:
        gnmr.attach(make_model(), allow=["layers.0.*"])
    # The line is there once, as the warning.
    assert len(warned) == 1 and "multiply-adds" not in capsys.readouterr().err
    with pytest.raises(gnmr.Error, match="all were left out"):
        gnmr.attach(make_model(), allow=["nothing"])
    with pytest.raises(gnmr.Error, match="expected a model with"):
        gnmr.attach(nn.Sequential(nn.LayerNorm(3)))
    with pytest.raises(gnmr.Error, match="lazy layers"):
        gnmr.attach(nn.Sequential(nn.LazyLinear(3)))


def test_weights_that_are_no_linear_layers_count() -> None:
    model = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(16, 2),
            "conv": nn.Conv1d(16, 32, 3),
            "words": nn.Embedding(100, 16),
            "norm": nn.LayerNorm(16),
        }
    )
    ctl = gnmr.attach(model, quiet=True)
    left_out = {one.name: (one.cost, one.reason) for one in ctl.coverage.left_out}
    assert set(left_out) == {"attention", "conv"} and left_out["conv"][0] == 3 * 16 * 32 * 3
    assert "register_switch" in left_out["conv"][1] and "Conv1d" in left_out["conv"][1]
    assert [unit.name for unit in ctl.units] == ["attention.out_proj"]
    assert ctl.coverage.share == pytest.approx(16 * 16 / (4 * 16 * 16 + 16 * 32 * 3))
    # A weight that two modules have is counted once.
    tied = nn.ModuleDict({"words": nn.Embedding(100, 16), "lm_head": nn.Linear(16, 100), "proj": nn.Linear(16, 16)})
    tied["lm_head"].weight = tied["words"].weight
    assert gnmr.attach(tied, quiet=True, deny=["words"]).coverage.share == 1.0
    assert [one.name for one in gnmr.attach(tied, quiet=True).coverage.left_out] == ["lm_head"]


def test_logits_of_a_small_model_do_not_count(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5000, 16), "proj": nn.Linear(16, 16), "lm_head": nn.Linear(16, 5000)})
    ctl = gnmr.attach(model)
    assert ctl.coverage.share == 1.0 and not recwarn.list
    assert capsys.readouterr().err.count("multiply-adds") == 1
    # What the user leaves out counts, logits that are watched do too.
    assert gnmr.attach(model, quiet=True, deny=["proj"]).coverage.share == pytest.approx(5000 / 5016)


def test_weights_of_the_model_itself_and_of_what_is_left_out_count_once() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(8, 8)
            self.mixed = nn.Parameter(torch.zeros(8, 24))

    ctl = gnmr.attach(Encoder(), quiet=True)
    assert [(one.name, one.cost) for one in ctl.coverage.left_out] == [("encoder", 3 * 8 * 24)]
    assert ctl.coverage.share == pytest.approx(0.25)

    class Convs(nn.Sequential):
        pass

    gnmr.register_switch(Convs, lambda name, module: None)
    model = nn.ModuleDict({"a": Convs(nn.Conv1d(8, 8, 3, bias=False)), "b": nn.Linear(8, 24)})
    ctl = gnmr.attach(model, quiet=True, deny=["a"])
    assert ctl.coverage.share == pytest.approx(0.5)


def test_a_module_of_the_models_own_keeps_its_name() -> None:
    model = nn.ModuleDict({"module": nn.Sequential(nn.Linear(8, 8)), "linear": nn.Linear(8, 8)})
    assert [unit.name for unit in gnmr.attach(model, quiet=True).units] == ["module.0", "linear"]
    wrapped = nn.ModuleDict({"module": nn.ModuleDict({"module": model})})
    assert [unit.name for unit in gnmr.attach(wrapped, quiet=True).units] == ["module.0", "linear"]


def test_what_has_no_low_path_is_left_out_or_refused() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.complex64), nn.Linear(8, 0))
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    assert {one.name: one.reason for one in ctl.coverage.left_out} == {
        "1": "its weight is complex64",
        "2": "its weight is empty",
    }
    parallel = nn.DataParallel(nn.Sequential(nn.Linear(8, 8)))
    gnmr.attach(parallel, quiet=True).detach()
    with pytest.raises(gnmr.Error, match="DistributedDataParallel"):
        gnmr.attach(parallel, recipe="fp8-tensorwise", quiet=True)


def test_what_is_left_out_has_a_reason() -> None:
    class OwnForward(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), OwnForward(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    model[3].forward = model[0].forward
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    reasons = {one.name: one.reason for one in ctl.coverage.left_out}
    assert "belongs to 0" in reasons["1"]
    assert "register_switch" in reasons["2"]
    assert "replaced" in reasons["3"]
    frozen = make_model()
    for parameter in frozen.layers[0].parameters():
        parameter.requires_grad_(False)
    watched = gnmr.attach(frozen, quiet=True)
    assert {one.name for one in watched.coverage.left_out} == {"layers.0.up", "layers.0.down", "head"}
    assert watched.coverage.share == 1.0 and "frozen" in watched.coverage.left_out[0].reason


def test_a_low_path_that_never_runs_is_told() -> None:
    class UsesWeightsOnly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.a(x), self.b.weight)

    model = UsesWeightsOnly()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True)
    model(torch.randn(4, 8)).sum().backward()
    with pytest.warns(UserWarning, match="1 units were not called.*: b"):
        ctl.step()


def test_wrong_options_are_errors_at_once() -> None:
    for wrong in ({"tau": 0.5}, {"lag": 2}, {"recipe": "fp7"}, {"gradients": "grad"}):
        with pytest.raises(gnmr.Error):
            gnmr.attach(make_model(), quiet=True, **wrong)


def test_a_word_for_nobody_is_told() -> None:
    ctl = gnmr.attach(make_model(), recipe="fp8-tensorwise", quiet=True)
    with pytest.warns(UserWarning, match="'layers.*.dwon' fits the name of no unit"):
        ctl.set("layers.*.dwon", "high")


def test_the_switchboard() -> None:
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True)
    ctl.set("*.down", "high", steps=2)
    downs = [f"layers.{index}.down" for index in range(4)]
    seen = []
    for step in range(1, 5):
        seen.append(ctl.high)
        run_backward(model, step)
        ctl.step()
    assert seen == [downs, downs, [], []]
    run_backward(model, 5)
    ctl.set("layers.0.*", "high")
    assert ctl.high == []  # the step is going on
    ctl.step()
    assert ctl.high == ["layers.0.up", "layers.0.down"]
    ctl.set("layers.0.*", "auto")
    assert ctl.high == []
    ctl.set("layers.1.up", "high")
    ctl.set("*.down", "high")
    ctl.set("layers.*", "auto")  # what was said of names that fit it, too
    assert ctl.high == downs
    ctl.set("*", "auto")
    assert ctl.high == []
    for wrong in (("*", "middle", None), ("*", "high", 0)):
        with pytest.raises(gnmr.Error):
            ctl.set(wrong[0], wrong[1], steps=wrong[2])


class TwoPaths(nn.Module):
    """A user's own module: a product with and without rounding to bfloat16."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.rounds = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.bfloat16().float() if self.rounds else self.weight
        return x @ weight


class TwoPathsSwitch:
    def __init__(self, module: TwoPaths) -> None:
        self.module = module
        self.cost = 3 * module.weight.numel()

    def set_high(self, high: bool) -> None:
        self.module.rounds = not high


def test_a_registered_switch_is_used() -> None:
    from gnmr import switches

    gnmr.register_switch(TwoPaths, lambda name, module: TwoPathsSwitch(module) if name != "2" else "it is the last")
    try:
        model = nn.Sequential(TwoPaths(16), TwoPaths(16), TwoPaths(16))
        ctl = gnmr.attach(model, quiet=True, strict=True, min_coverage=0.5, **QUICK)
        assert [unit.name for unit in ctl.units] == ["0", "1"]
        assert ctl.coverage.left_out[0].reason == "it is the last"
        assert ctl.mode == "armed"
        admitted = None
        for step in range(1, 12):
            model.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            if step == 8:
                model[1].weight.grad *= 1000
            result = ctl.step()
            admitted = admitted or result.admitted
            if result.admitted:
                assert (model[0].rounds, model[1].rounds) == (True, False)
        assert admitted == ("1",)
        ctl.detach()
        assert model[1].rounds
    finally:
        switches._MAKERS.pop(TwoPaths)
    with pytest.raises(gnmr.Error):
        gnmr.register_switch("Linear", lambda name, module: "no")  # type: ignore[arg-type]


def test_a_whole_block_can_be_a_unit() -> None:
    from small_model import Block

    from gnmr import switches

    class BlockSwitch:
        cost = 10

        def set_high(self, high: bool) -> None:
            pass

    gnmr.register_switch(Block, lambda name, module: BlockSwitch())
    try:
        ctl = gnmr.attach(SmallModel(), quiet=True, min_coverage=0)
        assert [unit.name for unit in ctl.units] == [f"layers.{index}" for index in range(4)]
        assert [one.name for one in ctl.coverage.left_out] == ["head"]
    finally:
        switches._MAKERS.pop(Block)


def test_a_registered_module_may_only_be_watched() -> None:
    from gnmr import switches

    gnmr.register_switch(TwoPaths, lambda name, module: TwoPathsSwitch(module) if name == "0" else None)
    try:
        model = nn.Sequential(TwoPaths(16), TwoPaths(16))
        ctl = gnmr.attach(model, quiet=True, strict=True, **QUICK)
        assert [unit.switch is None for unit in ctl.units] == [False, True]
        assert "1 have no switch and are only watched" in ctl.coverage.text()
        model(torch.randn(8, 16)).square().mean().backward()
        ctl.step()
        assert ctl._parts.gradients.numbers.norms[1] == pytest.approx(
            float(torch.nn.utils.get_total_norm([parameter.grad for parameter in model[1].parameters()])), rel=1e-6
        )
    finally:
        switches._MAKERS.pop(TwoPaths)
