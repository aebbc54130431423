# SPDX-License-Identifier: Apache-2.0
"""Compiled transformer blocks: recovery sets do not make them compile again, and they compute what eager ones do."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from devices import DEVICE, cpu_only, cuda_only, near, needs_own_low_path, to_float8
from gnmr.checks.compiled import counted_compilations, random_set, recovery_sets
from gnmr.checks.planted_faults import planted_fault
from gnmr.low.traced import kind_of, kinds
from small_model import NO_PATROL, QUICK
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gnmr
from gnmr import _core
from gnmr.low import fp8_matrix, linear

WIDTH, HEADS, BLOCKS = 16, 2, 2


class Block(nn.Module):
    """Seven linear layers, as LLaMA has them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, _ = x.shape

        def heads(values: Tensor) -> Tensor:
            return values.view(rows, tokens, HEADS, -1).transpose(1, 2)

        h = self.norm(x)
        mixed = functional.scaled_dot_product_attention(
            heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), is_causal=True
        )
        x = x + self.o(mixed.transpose(1, 2).reshape(rows, tokens, WIDTH))
        h = self.norm2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make(kind: str) -> tuple[Transformer, str | None]:
    torch.manual_seed(0)
    model = Transformer().to(DEVICE)
    if kind != "torchao":
        needs_own_low_path(kind)
        return model, kind
    to_float8(model)
    return model, None


def step(model: nn.Module, ctl: gnmr.Control) -> dict[str, Tensor]:
    model.zero_grad()
    tokens = torch.arange(16, device=DEVICE).view(2, 8) % 64
    functional.cross_entropy(model(tokens).flatten(0, 1), (tokens.flatten() + 1) % 64).backward()
    gradients = {name.replace("_orig_mod.", ""): parameter.grad.clone() for name, parameter in model.named_parameters()}
    ctl.step()
    return gradients


def set_high(ctl: gnmr.Control, names: list[str]) -> None:
    ctl.set("*", "low")
    for name in names:
        ctl.set(name, "high")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # by which later tests see whether anything was compiled
    torch.set_num_threads(threads)


def variants(seen: list[str]) -> int:
    """How often one piece of code was compiled; entries are `frame/variant`."""
    return len({entry.partition("/")[2] for entry in seen})


def switched_at_random(ctl: gnmr.Control, run: Callable[[], object], sets: int) -> list[str]:
    """Runs every set once, then so many by chance, which compile nothing more; what was compiled."""
    if ctl._parts.patrol is not None:
        ctl._parts.patrol.survey_steps = 0  # turns begin at once
    with counted_compilations() as seen, torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for names in [[], [], *recovery_sets(ctl.units)]:  # the patrol is in one block, and not in the other
            set_high(ctl, names)
            run()
        warm = len(seen)
        draw = random.Random(1)
        for _ in range(sets):
            set_high(ctl, random_set(ctl.units, draw))
            run()
        assert len(seen) == warm
    return seen


def test_what_is_saved_may_be_copied() -> None:
    """As offloading of activations does: what backward does not need has its memory then."""
    model, recipe = make("fp8-tensorwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, group_max=1)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    found = []
    for high in (set(), {ctl.units[0].name}):
        set_high(ctl, high)
        plain = step(model, ctl)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clone(), lambda saved: saved):
            copied = step(model, ctl)
        found.append((plain, copied))
    assert all(torch.equal(plain[name], copied[name]) for plain, copied in found for name in plain)


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "fp8-delayed", "torchao"])
def test_two_hundred_recovery_sets_compile_nothing(kind: str) -> None:
    model, recipe = make(kind)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, group_max=1)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    seen = switched_at_random(ctl, lambda: step(model, ctl), 200)
    # All layers of a block are low, or it has operators that look at their layer's switch when they run.
    assert variants(seen) == 2


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "torchao"])
def test_a_model_that_is_compiled_as_one_has_two_variants(kind: str) -> None:
    model, recipe = make(kind)
    model.layers.extend(Block().to(DEVICE) for _ in range(3))
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, group_max=1)
    compiled = torch.compile(model, backend="aot_eager")
    step(compiled, ctl)  # the hook before the first forward is seen once
    switched_at_random(ctl, lambda: step(compiled, ctl), 20)


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "torchao"])
def test_blocks_that_are_compiled_apart_do_not_mind_each_other(kind: str) -> None:
    model, recipe = make(kind)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, patrol=0.0)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    ctl.set("layers.1.q", "high")
    step(model, ctl)
    with torch.profiler.profile() as profile:
        step(model, ctl)
    ran = {event.key: event.count for event in profile.key_averages()}
    operator = "gnmr::low_linear_4" if recipe else "gnmr::float8_linear_1"
    assert ran[operator] == 7 and (not recipe or ran["gnmr::low_cast_1"] == 7)


class Checkpointed(nn.Module):
    """A block whose forward runs again in backward."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


@pytest.mark.parametrize(
    ("kind", "wraps", "checkpoints"),
    [
        ("fp8-tensorwise", True, False),
        ("fp8-rowwise", False, True),
        ("fp8-deepseek", False, False),
        ("fp8-delayed", False, False),
        ("fp8-delayed", False, True),
        ("nvfp4-hadamard", False, False),
        ("int4-act", False, True),
        ("torchao", False, False),
        ("torchao", False, True),
    ],
)
def test_the_numbers_are_those_of_eager_blocks(
    kind: str, wraps: bool, checkpoints: bool, recwarn: pytest.WarningsRecorder
) -> None:
    found = []
    for compiles in (False, True):
        model, recipe = make(kind)
        if checkpoints:
            model.layers = nn.ModuleList(map(Checkpointed, model.layers))
        inside = ".block" if checkpoints else ""
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for index, layer in enumerate(model.layers if compiles else ()):
            if wraps:
                model.layers[index] = torch.compile(layer, backend="aot_eager", fullgraph=True)
            else:
                layer.compile(backend="aot_eager", fullgraph=True)
        gradients = []
        for names in ([], [f"layers.1{inside}.q", f"layers.0{inside}.down"], [unit.name for unit in ctl.units], []):
            set_high(ctl, names)
            gradients.append(step(model, ctl))
        found.append(gradients)
        if recipe is not None:
            assert all(unit.switch.calls == 0 for unit in ctl.units)
    assert not any("called in the first step" in str(warning.message) for warning in recwarn)
    for eager, compiled in zip(*found, strict=True):
        name = f"layers.0{inside}.q.weight"
        assert not torch.equal(found[0][0][name], found[0][2][name])
        for name, gradient in eager.items():
            assert near(gradient, compiled[name], rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "nvfp4-hadamard"])
def test_both_variants_of_a_block_make_the_same_bits(kind: str) -> None:
    found = []
    for calm in (True, False):
        model, recipe = make(kind)
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers:
            layer.compile(backend="aot_eager")
        gradients = []
        for _ in range(3):
            gradients.append(step(model, ctl))
            for unit in ctl.units:
                unit.switch.neighbours.trains_calm = calm
        found.append(gradients)
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Low paths on the CPU make FP8 data, as on a GPU."""
    for module in (fp8_matrix, linear):
        monkeypatch.setattr(module, "makes_codes", lambda matrix: True)
    _core.set_fp8_on_host(True)
    yield
    _core.set_fp8_on_host(False)


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "fp8-rowwise", "fp8-delayed"])
def test_a_planted_fault_reaches_compiled_blocks(kind: str) -> None:
    found = []
    for compiles in (False, True):
        model, recipe = make(kind)
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend="aot_eager", fullgraph=True)
        unit = next(unit for unit in ctl.units if unit.name == "layers.0.up")
        healthy = step(model, ctl)
        with planted_fault(unit, 4.0):
            broken = step(model, ctl)
        found.append((healthy, broken, step(model, ctl)))
    for (name, healthy), (_, broken), (_, healed) in zip(*(one.items() for one in found[1]), strict=True):
        assert near(broken, found[0][1][name], rtol=1e-3, atol=1e-6), name
        assert near(healthy, found[0][0][name], rtol=1e-3, atol=1e-6), name
        assert torch.equal(healthy, healed) or kind == "fp8-delayed", name
    # Its wgrad is four times as large, and its output in forward.
    ratio = float(found[1][1]["layers.0.up.weight"].norm() / found[1][0]["layers.0.up.weight"].norm())
    assert ratio > 2


@cpu_only
@pytest.mark.usefixtures("codes")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("by", "lengths"), [("numbers", [16]), ("torch", [16, 15, 32, 33])])
def test_codes_are_seen_one_by_one_too(
    by: str, lengths: list[int], dynamic: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU runs, with the codes of this host: casts that leave codes, and torch's product of them."""
    monkeypatch.setattr(linear.LowLinear, "is_calm", lambda low, device, trains: True)
    found = []
    for compiles in (False, True):
        model, recipe = make("fp8-tensorwise")
        model.bfloat16()
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for unit in ctl.units:
            kind = replace(
                kinds[unit.switch.kind],
                has_codes=True,
                groups=("tensor",) * 3,
                plans=(fp8_matrix.ProductPlan(by, False, False),) * 3,
            )
            unit.switch.kind = kind_of(kind)
        for tokens in lengths:
            model.zero_grad()
            model(torch.arange(tokens).view(1, tokens)).float().square().sum().backward()
            found.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for eager, compiled in zip(found[: len(lengths)], found[len(lengths) :], strict=True):
        assert all(torch.equal(gradient, compiled[name]) for name, gradient in eager.items())


@pytest.mark.parametrize("kind", ["fp8-tensorwise", "fp8-delayed"])
def test_autocast_is_that_of_eager_blocks(kind: str) -> None:
    found = []
    for compiles in (False, True):
        model, recipe = make(kind)
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        for layer in model.layers if compiles else ():
            layer.compile(backend="aot_eager")
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            found.append(step(model, ctl))
    for name, gradient in found[0].items():
        assert near(gradient, found[1][name], rtol=1e-2, atol=1e-5), name


def test_modules_that_are_made_in_compiled_code_compile_nothing_more() -> None:
    class Builds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.activation = nn.ReLU()
            return self.activation(x) + len(nn.ModuleList([self.activation]))

    model, recipe = make("fp8-tensorwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
    step(model, ctl)
    builds = Builds()
    builds.compile(backend="aot_eager", fullgraph=True)
    with counted_compilations() as seen:
        for _ in range(4):
            builds(torch.ones(4, device=DEVICE))
    assert len(seen) <= 2


def test_a_layer_that_is_never_called_is_told() -> None:
    """Also where its block is compiled."""

    class Idle(Block):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(WIDTH, WIDTH, bias=False)

    torch.manual_seed(0)
    model = Transformer().to(DEVICE)
    model.layers[1] = Idle().to(DEVICE)
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, watch=True)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    tokens = torch.arange(16, device=DEVICE).view(2, 8)
    model(tokens).sum().backward()
    with pytest.warns(UserWarning, match=r"1 units were not called in the first step.*: layers.1.spare"):
        ctl.step()


@pytest.mark.parametrize("kind", ["fp8-tensorwise", pytest.param("torchao", marks=cuda_only)])
def test_inductor_takes_it(kind: str) -> None:
    model, recipe = make(kind)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, patrol=0.0)
    eager = step(model, ctl)
    for layer in model.layers:
        layer.compile(fullgraph=True)
    with counted_compilations() as seen:
        compiled = step(model, ctl)
        set_high(ctl, ["layers.0.up"])
        high = step(model, ctl)
        assert variants(seen) == 2
        set_high(ctl, ["layers.1.q", "layers.0.k"])
        step(model, ctl)
        assert variants(seen) == 2
    set_high(ctl, [])
    with torch.profiler.profile() as profile:
        step(model, ctl)
    casts = sum(
        event.count
        for event in profile.key_averages()
        if event.key in ("gnmr::fp8_cast_1", "gnmr::low_cast_1", "gnmr::cast_operand")
    )
    # Of each block: four inputs (q, k and v share theirs, gate and up too), seven weights, seven gradients.
    assert recipe is None or casts == BLOCKS * 18
    for name, gradient in eager.items():
        assert near(gradient, compiled[name], rtol=1e-2, atol=1e-5), name
    assert not torch.equal(high["layers.0.up.weight"], compiled["layers.0.up.weight"])


def test_units_of_compiled_blocks_keep_their_names() -> None:
    model, recipe = make("fp8-tensorwise")
    for index, layer in enumerate(model.layers):
        model.layers[index] = torch.compile(layer, backend="aot_eager")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True)
    assert ctl.units[0].name == "layers.0.q" and ctl.units[0].group == "layers.0"


def alarmed_rerun(model: nn.Module, ctl: gnmr.Control) -> tuple[str, list[str]]:
    """How a step whose gradients are a hundred times larger runs again, and what was compiled in it."""

    def run(factor: float = 1.0) -> Tensor:
        model.zero_grad()
        tokens = torch.arange(16, device=DEVICE).view(2, 8) % 64
        loss = factor * functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        return loss.detach()

    for _ in range(8):
        run()
        ctl.trial(run)
    with counted_compilations() as seen:
        run(100.0)
        return ctl.trial(lambda: run(100.0)).rerun, seen


def test_a_trial_is_not_compiled() -> None:
    model, recipe = make("torchao")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, patrol=NO_PATROL, **QUICK)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    assert alarmed_rerun(model, ctl) == ("trial", [])
