# SPDX-License-Identifier: Apache-2.0
"""GNMR where torchtitan's Trainer clips: its own function, called as the Trainer calls it.

The Trainer itself needs Triton and a device; its loop is in `Loop`, line by line as far as it concerns clipping.
"""

import types
from typing import Any

import pytest
import torch
from devices import low_path
from loops_model import LowPathFault, close, same, weights
from small_model import QUICK, make_model, run_backward

import gnmr

dist_utils = pytest.importorskip("torchtitan.distributed.utils")
from gnmr.loops import torchtitan as adapter  # noqa: E402

OPTIONS = {**QUICK, "quiet": True, "strict": True}


class Loop:
    """What train_step does from the last backward on."""

    def __init__(self, max_norm: float) -> None:
        self.model_parts = [make_model()]
        self._optimizer = torch.optim.SGD(self.model_parts[0].parameters(), 0.1)
        self._max_norm = max_norm
        self.norms: list[float] = []

    def train(self, steps: range) -> "Loop":
        for step in steps:
            self._optimizer.zero_grad()
            run_backward(self.model_parts[0], step)
            norm = dist_utils.clip_grad_norm_(
                [p for m in self.model_parts for p in m.parameters()],
                self._max_norm,
                foreach=True,
                pp_mesh=None,
                ep_enabled=False,
            )
            self.norms.append(norm.item())
            self._optimizer.step()
        return self


@pytest.mark.parametrize("max_norm", [1e6, 0.05])
@pytest.mark.parametrize("clip", [True, False])
def test_is_as_without(max_norm: float, clip: bool) -> None:
    alone, watched = Loop(max_norm).train(range(1, 13)), Loop(max_norm)
    original = dist_utils.clip_grad_norm_
    loop = adapter.attach(watched, clip=clip, **OPTIONS)
    watched.train(range(1, 13))
    loop.detach()
    assert dist_utils.clip_grad_norm_ is original and loop.ctl.steps == 12
    assert watched.norms == pytest.approx(alone.norms, rel=1e-5)
    if clip and max_norm < 1:
        assert close(weights(watched.model_parts[0]), weights(alone.model_parts[0]))
    else:
        assert same(weights(watched.model_parts[0]), weights(alone.model_parts[0]))


def test_a_fault_is_found_and_others_are_left_alone() -> None:
    watched, other = Loop(1.0), Loop(1.0)
    loop = adapter.attach(watched, **low_path(watched.model_parts[0]), **OPTIONS)
    watched.train(range(1, 10))
    LowPathFault(loop.ctl, "layers.2.up").on = True
    other.train(range(1, 4))
    assert loop.ctl.steps == 9 and loop.ctl.high == []
    watched.train(range(10, 11))
    assert "layers.2.up" in loop.ctl.high
    loop.detach()


def test_what_is_refused() -> None:
    watched: Any = Loop(1.0)
    watched.config = types.SimpleNamespace(training=types.SimpleNamespace(disable_cuda_graphs=False))
    with pytest.raises(gnmr.Error, match="CUDA graphs"):
        adapter.attach(watched)
    adapter.attach(watched, watch=True, **OPTIONS).detach()
    watched.model_parts *= 2
    with pytest.raises(gnmr.Error, match="pipeline"):
        adapter.attach(watched)
