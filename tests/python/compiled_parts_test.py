# SPDX-License-Identifier: Apache-2.0
"""Parts of a model that are compiled, found however and whenever that was done to them."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from compile_test import Checkpointed, Transformer, alarmed_rerun, make, step
from compile_test import fresh_compiler as fresh_compiler  # a fixture of all tests here
from devices import DEVICE
from gnmr.checks.compiled import counted_compilations
from gnmr.low.compiled_parts import look_at_parts
from small_model import NO_PATROL, QUICK
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import gnmr


def compile_blocks(model: Transformer) -> None:
    for layer in model.layers:
        layer.compile(backend="aot_eager")


def compile_whole_blocks(model: Transformer) -> None:
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)


def compile_forwards(model: Transformer) -> None:
    for layer in model.layers:
        layer.forward = torch.compile(layer.forward, backend="aot_eager")


def compile_forward(model: Transformer) -> None:
    model.forward = torch.compile(model.forward, backend="aot_eager")


def evaluate(model: Transformer) -> None:
    with torch.no_grad():
        model(torch.arange(16, device=DEVICE).view(2, 8))


@pytest.mark.parametrize("compiles", [compile_blocks, compile_whole_blocks, compile_forwards, compile_forward])
@pytest.mark.parametrize("evaluates", [False, True])
@pytest.mark.parametrize("kind", ["torchao", "fp8-tensorwise"])
def test_no_layer_is_called_idle(kind: str, compiles: Callable[[Transformer], None], evaluates: bool) -> None:
    model, recipe = make(kind)
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
    if evaluates:
        evaluate(model)
    compiles(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*called in the first step.*")
        step(model, ctl)


def test_blocks_may_be_compiled_after_an_evaluation() -> None:
    """Each goes by its own layers then, too."""
    model, recipe = make("fp8-tensorwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
    evaluate(model)
    compile_blocks(model)
    step(model, ctl)
    ctl.set("layers.1.q", "high")
    step(model, ctl)
    assert [unit.switch.neighbours.calm for unit in ctl.units] == [True] * 7 + [False] * 7
    ctl.set("*", "auto")
    step(model, ctl)
    assert all(unit.switch.neighbours.calm for unit in ctl.units)


def test_a_layer_of_two_parts_makes_neither_loud_for_good() -> None:
    model, recipe = make("fp8-tensorwise")
    model.layers[1].q = model.layers[0].q
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
    ctl.set("layers.0.q", "high")
    compile_blocks(model)
    step(model, ctl)
    ctl.set("layers.0.q", "auto")
    step(model, ctl)
    assert all(unit.switch.neighbours.calm for unit in ctl.units)


def test_parts_that_become_cuda_graphs_are_known() -> None:
    model, recipe = make("fp8-tensorwise")
    model.extra = nn.ModuleList(nn.Linear(8, 8, device=DEVICE) for _ in range(3))
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)

    def found() -> list[str]:
        recorded = {id(layer) for layer in look_at_parts(model, ctl.units, whole=False)}
        return [unit.name for unit in ctl.units if id(unit.switch) in recorded]

    model.layers[0].compile()
    model.extra[0].compile(backend="aot_eager")
    assert found() == []
    model.layers[1].compile(mode="reduce-overhead")
    model.extra[1] = torch.compile(model.extra[1], mode="max-autotune")
    model.extra[2].compile(options={"triton.cudagraphs": True})
    inside = [f"layers.1.{name}" for name in ("q", "k", "v", "o", "gate", "up", "down")]
    assert found() == [*inside, "extra.1", "extra.2"]


def test_another_recipe_elsewhere_compiles_nothing() -> None:
    model, recipe = make("fp8-tensorwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True, patrol=0.0)
    compile_blocks(model)
    step(model, ctl)
    with counted_compilations() as seen:
        gnmr.attach(make("fp8-rowwise")[0], recipe="fp8-rowwise", quiet=True, strict=True, watch=True)
        step(model, ctl)
    assert not seen


class KeepsProducts(Checkpointed):
    """A block of which only the products are kept for backward."""

    def forward(self, x: Tensor) -> Tensor:
        def policy(context: Any, operator: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
            return (
                CheckpointPolicy.MUST_SAVE
                if operator == torch.ops.aten.mm.default
                else CheckpointPolicy.PREFER_RECOMPUTE
            )

        return checkpoint(
            self.block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy)
        )


def test_a_trial_with_products_that_are_kept() -> None:
    """It runs as written, and changes nothing that selective checkpointing has kept."""
    model, recipe = make("fp8-tensorwise")
    for block in model.layers:
        block.q = nn.Linear(block.q.in_features, block.q.out_features, device=DEVICE)  # with a bias
    model.layers = nn.ModuleList(map(KeepsProducts, model.layers))
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, patrol=NO_PATROL, **QUICK)
    compile_blocks(model)
    assert alarmed_rerun(model, ctl)[0] == "trial"
