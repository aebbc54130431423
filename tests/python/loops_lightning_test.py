# SPDX-License-Identifier: Apache-2.0
"""GNMR in a Lightning Trainer, beside the same Trainer without it."""

import math
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE, ON_CUDA, cuda_only, low_path
from gnmr.step.gate import Gate
from late_guard_test import flagged
from late_test import NoEffect, journal
from loops_model import LowPathFault, close, same, sampled_units, weights
from small_model import QUICK, make_model
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gnmr
from gnmr import switches

# The package is the same under both names; each is there on its own where only that is installed.
FLAVOURS = [name for name in ("lightning.pytorch", "pytorch_lightning") if find_spec(name.split(".")[0]) is not None]
if not FLAVOURS:
    pytest.skip("neither lightning nor pytorch_lightning is there", allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    MODULES = {name: import_module(name) for name in FLAVOURS}

from gnmr.loops.lightning import GnmrCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS = {**QUICK, "quiet": True, "strict": True}


def make_module(flavour: str = FLAVOURS[0], overflow_at: int = -1, **methods: Any) -> Any:
    class Module(MODULES[flavour].LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = make_model(dropout=0.1)
            self.seen: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = functional.cross_entropy(self.net(batch[0]), batch[1])
            self.seen.append(float(loss.detach()))
            return loss * math.inf if index + 1 == overflow_at else loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    return type("Module", (Module,), methods)()


def data() -> Any:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(
        TensorDataset(torch.randn(2048, 32, generator=generator), torch.randint(0, 8, (2048,), generator=generator)),
        batch_size=64,
    )


def fit(
    module: Any,
    folder: Path,
    callbacks: list[Any],
    flavour: str = FLAVOURS[0],
    checkpoint: Path | None = None,
    **settings: Any,
) -> Any:
    arguments = {
        "max_steps": 12,
        "accelerator": "gpu" if ON_CUDA else "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        **settings,
    }
    torch.manual_seed(11)
    trainer = MODULES[flavour].Trainer(callbacks=callbacks, **arguments)
    trainer.fit(module, data(), ckpt_path=checkpoint)
    return trainer


def steps_of(callback: Any) -> int:
    return int(callback.state_dict()["step"])


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("settings", [{}, {"gradient_clip_val": 1e6}, {"accumulate_grad_batches": 2, "max_steps": 6}])
def test_watching_changes_no_bit(tmp_path: Path, flavour: str, settings: dict[str, Any]) -> None:
    alone, watched = make_module(flavour), make_module(flavour)
    fit(alone, tmp_path, [], flavour, **settings)
    callback = GnmrCallback(**OPTIONS)
    trainer = fit(watched, tmp_path, [callback], flavour, **settings)
    assert steps_of(callback) == trainer.global_step == settings.get("max_steps", 12)
    assert watched.seen == alone.seen and same(weights(watched), weights(alone))
    assert {"gnmr_high", "gnmr_alarmed", "gnmr_total_norm"} <= set(trainer.callback_metrics)


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("clip", [True, False])
def test_clipping_has_one_owner(tmp_path: Path, algorithm: str, clip: bool, capsys: pytest.CaptureFixture[str]) -> None:
    value = 0.05 if algorithm == "norm" else 0.003
    settings = {"gradient_clip_val": value, "gradient_clip_algorithm": algorithm}
    alone, watched = make_module(), make_module()
    fit(alone, tmp_path, [], **settings)
    callback = GnmrCallback(clip=clip, **{**OPTIONS, "quiet": False})
    clipped: list[float] = []  # norms of the gradients that an update was made with
    by_lightning: list[float] = []
    watched.on_before_zero_grad = lambda optimizer: clipped.append(
        float(
            torch.nn.utils.get_total_norm(
                [parameter.grad for parameter in watched.parameters() if parameter.grad is not None]
            )
        )
    )
    plain_clipping = watched.clip_gradients
    watched.clip_gradients = lambda *all, **named: (by_lightning.append(1.0), plain_clipping(*all, **named))
    fit(watched, tmp_path, [callback], **settings)
    ours = clip and algorithm == "norm"
    assert ("Lightning clips" in capsys.readouterr().err) is not ours
    assert steps_of(callback) == 12 and len(by_lightning) == (0 if ours else 12)
    if ours:
        assert close(weights(watched), weights(alone)) and max(clipped) == pytest.approx(0.05, rel=1e-4)
    else:
        assert same(weights(watched), weights(alone))
    assert "configure_gradient_clipping" not in vars(watched)


def test_a_module_that_clips_itself_is_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[float] = []

    def clipping(self: Any, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None) -> None:
        calls.append(float(gradient_clip_val))
        torch.nn.utils.clip_grad_norm_(self.parameters(), 0.02)

    alone = make_module(configure_gradient_clipping=clipping)
    watched = make_module(configure_gradient_clipping=clipping)
    fit(alone, tmp_path, [], gradient_clip_val=1.0)
    fit(watched, tmp_path, [GnmrCallback(**{**OPTIONS, "quiet": False})], gradient_clip_val=1.0)
    assert "configure_gradient_clipping clips" in capsys.readouterr().err
    assert len(calls) == 24 and same(weights(watched), weights(alone))


def test_an_overflow_is_no_sample(tmp_path: Path) -> None:
    plugins = import_module(FLAVOURS[0] + ".plugins.precision")

    def run(callbacks: list[Any]) -> tuple[Any, float]:
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
        plugin = plugins.MixedPrecision("16-mixed", DEVICE.type, scaler)
        module = make_module(overflow_at=5)
        fit(module, tmp_path, callbacks, plugins=[plugin], gradient_clip_val=0.05)
        return module, scaler.get_scale()

    alone, scale = run([])
    means: list[float] = []

    class Watch(GnmrCallback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            means.extend(self.ctl.supervisor.mean_norm(unit) for unit in range(8))
            super().on_train_end(trainer, pl_module)

    watched, scale_with = run([Watch(out=tmp_path, **OPTIONS)])
    assert scale == scale_with == 512.0
    assert sampled_units(tmp_path) == [8] * 4 + [0] + [8] * 7
    assert len(means) == 8 and all(0 < mean < 10 for mean in means)
    assert close(weights(watched), weights(alone), 5e-2 if ON_CUDA else 1e-3)


@cuda_only
def test_float16_on_a_gpu(tmp_path: Path) -> None:
    """Lightning's own scaler; the first scales are too large for float16, whatever the loss is."""
    plugins = import_module(FLAVOURS[0] + ".plugins.precision")

    def run(callbacks: list[Any]) -> tuple[Any, float]:
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**32)
        module = make_module()
        fit(module, tmp_path, callbacks, plugins=[plugins.MixedPrecision("16-mixed", "cuda", scaler)], max_steps=24)
        return module, scaler.get_scale()

    alone, scale = run([])
    watched, scale_with = run([GnmrCallback(out=tmp_path / "gnmr", **OPTIONS)])
    sampled = sampled_units(tmp_path / "gnmr")
    skipped = sampled.count(0)
    assert scale == scale_with == 2.0 ** (32 - skipped) and 0 < skipped < 24
    assert sampled == [0] * skipped + [8] * (24 - skipped)
    assert same(weights(watched), weights(alone))


class FaultAt(MODULES[FLAVOURS[0]].Callback):  # type: ignore[misc,name-defined]
    """Breaks one layer's low path in one step, and notes who runs high in each."""

    def __init__(self, callback: Any, step: int) -> None:
        self._callback, self._step, self.high = callback, step, {}
        self._fault: LowPathFault | None = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._fault = self._fault or LowPathFault(self._callback.ctl, "net.layers.2.up")
        self._fault.on = trainer.global_step + 1 == self._step
        self.high[trainer.global_step + 1] = self._callback.ctl.high


def test_a_fault_is_found_and_a_checkpoint_gone_on_with(tmp_path: Path) -> None:
    def run(steps: int, checkpoint: Path | None, save: Path | None) -> tuple[Any, dict[int, list[str]]]:
        module = make_module()
        out = tmp_path / ("whole" if save is None else "half")
        callback = GnmrCallback(**low_path(module), out=out, **OPTIONS)
        faults = FaultAt(callback, 10)
        trainer = fit(
            module,
            tmp_path,
            [callback, faults],
            max_steps=steps,
            checkpoint=checkpoint,
            gradient_clip_val=1.0,
            enable_checkpointing=False,
        )
        if save is not None:
            trainer.save_checkpoint(save)
        return module, faults.high

    whole, high = run(16, None, None)
    assert high[10] == [] and "net.layers.2.up" in high[11] and high[16] == []
    file = tmp_path / "middle.ckpt"
    _, first = run(11, None, file)
    # The state is in Lightning's own file, under the callback's name, as plain values.
    assert torch.load(file, weights_only=True)["callbacks"]["GnmrCallback"]["step"] == 11
    _, second = run(16, file, tmp_path / "end.ckpt")
    assert {**first, **second} == high
    # Without GNMR the same checkpoint goes on too.
    fit(make_module(), tmp_path, [], checkpoint=file, max_steps=12)


@pytest.mark.parametrize("fused", [False, True])
def test_a_held_update_with_lag_1(tmp_path: Path, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit as if the module had left it out; on a CPU with a flag as a gate on a GPU leaves it."""

    def disturb(self: Any) -> None:
        if self.trainer.global_step + 1 == 9:
            self.net.layers[1].down.weight.grad.mul_(50.0)

    def leave_out(self: Any, optimizer: Any) -> None:
        if self.trainer.global_step + 1 == 9:
            optimizer.zero_grad()

    monkeypatch.setitem(switches._MAKERS, torch.nn.Linear, lambda name, module: NoEffect(module))
    if not ON_CUDA:
        monkeypatch.setattr(Gate, "holds", flagged)
    methods = {
        "on_after_backward": disturb,
        "configure_optimizers": lambda self: torch.optim.AdamW(self.parameters(), 1e-2, fused=fused),
    }
    alone, held = make_module(**methods, on_before_optimizer_step=leave_out), make_module(**methods)
    fit(alone, tmp_path, [])
    callback = GnmrCallback(lag=1, guard="skip", out=tmp_path / "gnmr", **OPTIONS)
    fit(held, tmp_path, [callback])
    assert same(weights(held), weights(alone))
    steps = [line for line in journal(tmp_path / "gnmr") if line["kind"] == "step"]
    assert [line["step"] for line in steps if line.get("alarm") == "held"] == [9]


def test_what_is_refused(tmp_path: Path) -> None:
    manual = make_module()
    manual.automatic_optimization = False
    with pytest.raises(gnmr.Error, match="manual optimization"):
        fit(manual, tmp_path, [GnmrCallback(**OPTIONS)])
    two = make_module(configure_optimizers=lambda self: [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)])
    two.automatic_optimization = False
    with pytest.raises(gnmr.Error):
        fit(two, tmp_path, [GnmrCallback(**OPTIONS)])


def test_an_exception_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    module = make_module()
    callback = GnmrCallback(**low_path(module), **OPTIONS)
    forward = module.net.layers[0].up.forward

    def fail(*arguments: Any) -> None:
        raise RuntimeError("the user's own")

    module.on_train_batch_end = fail
    with pytest.raises(RuntimeError, match="own"):
        fit(module, tmp_path, [callback], gradient_clip_val=1.0)
    assert module.net.layers[0].up.forward == forward and callback.ctl is None
    assert not {"configure_gradient_clipping", "_gnmr_patched"} & set(vars(module))
