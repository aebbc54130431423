# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own Trainer, with its smallest LLaMA and its float8 converter: with GNMR and without."""

import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE, ON_CUDA
from loops_model import LowPathFault, same, weights
from small_model import QUICK

for needed in ("torchtitan.distributed.utils", "triton", "torchdata"):
    pytest.importorskip(needed)
try:
    from titan_trainers import IS_OLD, MODULE, make_config
except ImportError as missing:
    pytest.skip(f"torchtitan's Trainer cannot be imported: {missing}", allow_module_level=True)

from gnmr.loops import torchtitan as adapter  # noqa: E402

import gnmr  # noqa: E402

STEPS = 20 if ON_CUDA else 10
OPTIONS = {**QUICK, "quiet": True, "strict": True}
FAULTY = "layers.3.feed_forward.w2"


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("store") / "file"
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if ON_CUDA else "gloo", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


class Watched(MODULE.Trainer):  # type: ignore[misc,name-defined]
    """Its Trainer, with a function that is called before each step."""

    before: Callable[[int], None] = staticmethod(lambda step: None)

    def train_step(self, data_iterator: Any) -> None:
        self.before(self.step)
        super().train_step(data_iterator)


class Run:
    """A training with everything that is compared."""

    def __init__(self, folder: Path, max_norm: float, float8: bool = False) -> None:
        self.trainer = Watched(make_config(folder, STEPS, max_norm, float8))
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.updated_with: list[float] = []  # norms of the gradients that updates were made with
        self.trainer.metrics_processor.log = self._log

    def _log(self, step: int, loss: float, most: float, norm: float, **rest: Any) -> None:
        self.losses.append(loss)
        self.norms.append(norm)

    def train(self) -> "Run":
        model = self.trainer.model_parts[0]

        def note(*arguments: Any) -> None:
            self.updated_with.append(
                float(
                    torch.nn.utils.get_total_norm(
                        [parameter.grad.double() for parameter in model.parameters() if parameter.grad is not None]
                    )
                )
            )

        for optimizer in self.trainer.optimizers.optimizers:
            optimizer.register_step_pre_hook(note)
        self.trainer.train()
        self.trainer.close()
        self.weights = weights(model)
        return self


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """At its end the Trainer sleeps for other ranks; and it turns torch's settings."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(MODULE, "time", types.SimpleNamespace(perf_counter=time.perf_counter, sleep=lambda s: None))
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before, warn_only=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[float, bool], Run]:
    return {}


def without(alone: dict[tuple[float, bool], Run], folder: Path, max_norm: float, float8: bool) -> Run:
    """The same without GNMR, once for all tests."""
    if (max_norm, float8) not in alone:
        alone[max_norm, float8] = Run(folder, max_norm, float8).train()
    return alone[max_norm, float8]


@pytest.mark.parametrize("float8", [False, True])
def test_nothing_is_changed_where_nothing_is_clipped(tmp_path: Path, alone: Any, float8: bool) -> None:
    if float8:
        pytest.importorskip("torchao.float8")
    plain = without(alone, tmp_path, 1e6, float8)
    run = Run(tmp_path, 1e6, float8)
    if float8 and not IS_OLD:
        # From 0.3 on every module of its has a forward of its instance.
        with pytest.raises(gnmr.Error, match="its forward is replaced on the instance already"):
            adapter.attach(run.trainer, **OPTIONS, watch=True)
        return
    loop = adapter.attach(run.trainer, **OPTIONS, watch=True)
    run.train()
    assert loop.ctl.steps == STEPS == len(run.losses) and loop.ctl.high == []
    assert all(unit.switch is not None for unit in loop.ctl.units) is float8
    assert len(loop.ctl.units) == (42 if IS_OLD else 30) and loop.ctl.units[0].name.startswith("layers.0.attention.")
    assert run.losses == plain.losses and same(run.weights, plain.weights)
    # torch adds half a million squares up in float32.
    assert run.norms == pytest.approx(plain.norms, rel=5e-4) and run.norms == pytest.approx(run.updated_with, rel=1e-6)
    assert plain.losses[-1] < plain.losses[0]
    loop.detach()


@pytest.mark.parametrize("clip", [True, False])
def test_clipping_has_one_owner(tmp_path: Path, alone: Any, clip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    max_norm = 0.3
    plain = without(alone, tmp_path, max_norm, False)
    assert min(plain.norms) > max_norm
    run = Run(tmp_path, max_norm)
    loop = adapter.attach(run.trainer, clip=clip, **OPTIONS)
    calls: list[float] = []
    by_torch = torch.nn.utils.clip_grads_with_norm_
    monkeypatch.setattr(
        torch.nn.utils, "clip_grads_with_norm_", lambda *all, **named: (calls.append(max_norm), by_torch(*all, **named))
    )
    run.train()
    assert len(calls) == (0 if clip else STEPS)
    assert run.updated_with == pytest.approx([max_norm] * STEPS, rel=1e-3)
    if clip:
        # The coefficient may differ in its last bit, and what follows with it.
        assert run.norms[:4] == pytest.approx(plain.norms[:4], rel=1e-3)
        assert run.losses == pytest.approx(plain.losses, rel=1e-2)
    else:
        assert run.losses == plain.losses and run.norms == plain.norms and same(run.weights, plain.weights)
    loop.detach()


@pytest.mark.skipif(not IS_OLD, reason="its float8 layers cannot be switched from 0.3 on")
def test_a_fault_in_float8_is_left(tmp_path: Path) -> None:
    pytest.importorskip("torchao.float8")
    run = Run(tmp_path, 1.0, float8=True)
    loop = adapter.attach(run.trainer, **OPTIONS, lag=0)
    fault = LowPathFault(loop.ctl, FAULTY)
    high: dict[int, list[str]] = {}

    def before(step: int) -> None:
        fault.on = step == STEPS - 2
        high[step] = loop.ctl.high

    run.trainer.before = before
    run.train()
    assert high[STEPS - 2] == [] and high[STEPS - 1], high
    assert next(run.trainer.model_parts[0].parameters()).device.type == DEVICE.type
    loop.detach()
