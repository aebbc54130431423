# SPDX-License-Identifier: Apache-2.0
"""Compiled blocks that are replayed as CUDA graphs: a switch holds in the next replay."""

from collections.abc import Callable

import pytest
import torch
from compile_test import Transformer, make, set_high, step
from compile_test import fresh_compiler as fresh_compiler  # a fixture of all tests here
from devices import cuda_only, near
from gnmr.checks.compiled import counted_compilations
from torch.profiler import ProfilerActivity, profile

import gnmr

pytestmark = cuda_only
SETS: list[list[str]] = [[], ["layers.1.q"], ["layers.0.down"], [], ["layers.1.q"]]
REPLAYS = 4  # of a set: a graph is warmed up, recorded, and replayed from the third step on


def compile_blocks(model: Transformer) -> None:
    for layer in model.layers:
        layer.compile(mode="reduce-overhead")


def compile_model(model: Transformer) -> None:
    model.compile(mode="reduce-overhead")


@pytest.mark.parametrize("compiles", [compile_blocks, compile_model])
def test_a_switch_holds_in_the_next_replay(compiles: Callable[[Transformer], None]) -> None:
    """Of torchao's layers; graphs are split around operators of ours that look at a switch (docs/backend.md)."""
    found, launches = [], 0
    for is_compiled in (False, True):
        model, recipe = make("torchao")
        ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
        if is_compiled:
            compiles(model)
        gradients = []
        for number, names in enumerate(SETS):
            set_high(ctl, names)
            with counted_compilations() as seen, profile(activities=[ProfilerActivity.CPU]) as profiled:
                for _ in range(REPLAYS):
                    torch.compiler.cudagraph_mark_step_begin()
                    gradients.append(step(model, ctl))
            launches += sum("cudaGraphLaunch" in event.key for event in profiled.key_averages())
            # Graphs that are recorded are counted too.
            assert number < 3 or not seen
        found.append(gradients)
    for eager, compiled in zip(*found, strict=True):
        for name, gradient in eager.items():
            assert near(gradient, compiled[name], rtol=1e-3, atol=1e-6), name
    assert launches > 0


def test_our_own_low_path_says_what_to_do() -> None:
    model, recipe = make("fp8-tensorwise")
    ctl = gnmr.attach(model, recipe=recipe, quiet=True, strict=True, watch=True)
    compile_blocks(model)
    with pytest.warns(UserWarning, match="14 layers with our own low path are compiled to CUDA graphs"):
        step(model, ctl)
