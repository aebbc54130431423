# SPDX-License-Identifier: Apache-2.0
"""GNMR in transformers.Trainer, beside the same Trainer without it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import ON_CUDA, cuda_only, low_path
from loops_model import QUICK, LowPathFault, Tokens, close, make_llama, same, sampled_units, weights

import gnmr

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
if not hasattr(transformers.Trainer, "_clip_grad_norm"):
    pytest.skip("this transformers has no place to measure before clipping", allow_module_level=True)

from gnmr.loops import hugging_face  # noqa: E402
from gnmr.telemetry import JsonLines  # noqa: E402

FAULTY, GATE = "model.layers.1.mlp.up_proj", "model.layers.1.mlp.gate_proj"


def make_trainer(folder: Path, **settings: Any) -> Any:
    arguments = {
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": not ON_CUDA,
        "disable_tqdm": True,
        "max_grad_norm": 0.5,
        "seed": 5,
        "dataloader_num_workers": 0,
        **settings,
    }
    return transformers.Trainer(
        model=make_llama(), args=transformers.TrainingArguments(str(folder), **arguments), train_dataset=Tokens()
    )


def train(trainer: Any, **arguments: Any) -> Any:
    """The random numbers of dropout are those of every other run."""
    transformers.set_seed(5)
    trainer.train(**arguments)
    return trainer


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


class EachStep(transformers.TrainerCallback):
    """Calls a function with the step that begins."""

    def __init__(self, run: Callable[[int], None]) -> None:
        self._run = run

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._run(state.global_step + 1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The Trainer as it is, clipped in every step."""
    return train(make_trainer(tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize(
    "settings", [{"max_grad_norm": 0.0}, {"max_grad_norm": 1e6}, {"gradient_accumulation_steps": 3}]
)
def test_watching_changes_no_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"max_grad_norm": 0.0, **settings}
    alone, watched = make_trainer(tmp_path, **settings), make_trainer(tmp_path, **settings)
    train(alone)
    loop = hugging_face.attach(watched, **QUICK)
    train(watched)
    assert loop.ctl is not None and loop.ctl.steps == 12
    assert losses(watched) == losses(alone)
    assert same(weights(watched.model), weights(alone.model))


def test_clips_as_the_trainer_does(tmp_path: Path, plain: Any) -> None:
    watched = make_trainer(tmp_path)
    hugging_face.attach(watched, **QUICK)
    by_accelerate: list[Any] = []
    watched.accelerator.clip_grad_norm_ = lambda *all: by_accelerate.append(all)
    train(watched)
    # One owner.
    assert by_accelerate == []
    norms = [[line["grad_norm"] for line in one.state.log_history if "loss" in line] for one in (watched, plain)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    # All were clipped, or there was nothing to compare.
    assert min(norms[1]) > 0.5
    assert losses(watched) == pytest.approx(losses(plain), rel=1e-5)
    assert close(weights(watched.model), weights(plain.model), 1e-4)


def test_the_trainer_may_go_on_clipping(tmp_path: Path, plain: Any) -> None:
    watched = make_trainer(tmp_path)
    loop = hugging_face.attach(watched, clip=False, **QUICK)
    train(watched)
    assert losses(watched) == losses(plain) and same(weights(watched.model), weights(plain.model))
    assert loop.ctl is not None and loop.ctl.steps == 12


@pytest.mark.parametrize("lag", [0, 1])
def test_numbers_are_logged(tmp_path: Path, lag: int) -> None:
    watched = make_trainer(tmp_path, max_steps=4, logging_steps=2)
    listener = JsonLines(tmp_path / "steps.jsonl")
    hugging_face.attach(watched, listeners=[listener], lag=lag, **QUICK)
    train(watched)
    lines = [line for line in watched.state.log_history if "loss" in line]
    assert len(lines) == 2
    assert all({"gnmr_high", "gnmr_alarms", "gnmr_clip_coefficient"} <= set(line) for line in lines)
    assert 0 < lines[0]["gnmr_clip_coefficient"] < 1
    told = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in told] == [1, 2, 3, 4] and told[1]["total_norm"] == lines[0]["grad_norm"]


@pytest.mark.parametrize("rerun", [False, True])
def test_a_fault_in_one_layer_is_found(tmp_path: Path, rerun: bool) -> None:
    watched = make_trainer(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=8, learning_rate=1e-4)
    loop = hugging_face.attach(watched, rerun=rerun, **low_path(watched.model), out=tmp_path / "gnmr", **QUICK)
    high: dict[int, list[str]] = {}
    faults: list[LowPathFault] = []

    def each_step(step: int) -> None:
        assert loop.ctl is not None
        faults[:] = faults or [LowPathFault(loop.ctl, FAULTY)]
        faults[0].on = step >= 9
        high[step] = loop.ctl.high

    watched.add_callback(EachStep(each_step))
    train(watched)
    # What `up` makes is what the gate's gradient is multiplied by: by norms either may stand out, a trial knows.
    blamed = {FAULTY} if rerun else {FAULTY, GATE}
    assert high[9] == [] and blamed & set(high[10])
    lines = [json.loads(line) for line in (tmp_path / "gnmr/journal.jsonl").read_text().splitlines()]
    events = [line for line in lines if line["kind"] == "event" and line["event"] == "admitted"]
    assert events[0]["step"] == 9 and blamed & {line["unit"] for line in events if line["step"] == 9}
    trials = [line for line in lines if line["kind"] == "trial"]
    assert bool(trials) == rerun
    if rerun:
        # A trial says which layer it is, and that only.
        assert trials[0]["step"] == 9 and trials[0]["verdict"] == "numeric" and trials[0]["units"] == [FAULTY]
        assert high[10] == [FAULTY]
        steps = {line["step"]: line for line in lines if line["kind"] == "step"}
        assert steps[9]["loss"] == pytest.approx(steps[8]["loss"], rel=0.2)


def test_a_checkpoint_is_gone_on_with(tmp_path: Path) -> None:
    """Whole, and in two halves with the second from a checkpoint: the same decisions, weights and journal."""

    def run(folder: Path, steps: int, resume: bool) -> tuple[Any, Any]:
        trainer = make_trainer(
            folder, max_steps=steps, save_strategy="steps", save_steps=6, lr_scheduler_type="constant"
        )
        loop = hugging_face.attach(trainer, **low_path(trainer.model), out=folder / "gnmr", **QUICK)
        faults: list[LowPathFault] = []

        def each_step(step: int) -> None:
            assert loop.ctl is not None
            faults[:] = faults or [LowPathFault(loop.ctl, FAULTY)]
            faults[0].on = step == 9  # past the first decisions

        trainer.add_callback(EachStep(each_step))
        train(trainer, resume_from_checkpoint=resume)
        return trainer, loop.ctl.state_dict()

    whole, whole_state = run(tmp_path / "whole", 12, False)
    run(tmp_path / "halves", 6, False)
    saved = torch.load(tmp_path / "halves/checkpoint-6/gnmr.pt", weights_only=True)
    assert saved["step"] == 6
    half, half_state = run(tmp_path / "halves", 12, True)
    assert half_state["step"] == whole_state["step"] == 12
    assert same(weights(half.model), weights(whole.model))

    def decisions(folder: Path) -> list[str]:
        text = (folder / "gnmr/journal.jsonl").read_text()
        return [line for line in text.splitlines() if '"kind":"step"' in line or '"kind":"event"' in line]

    assert decisions(tmp_path / "halves") == decisions(tmp_path / "whole")
    assert any("admitted" in line for line in decisions(tmp_path / "whole"))


def test_a_checkpoint_without_a_state_starts_afresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    make_trainer(tmp_path, **settings).train()
    trainer = make_trainer(tmp_path, **{**settings, "max_steps": 4})
    loop = hugging_face.attach(trainer, **QUICK)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 4 and loop.ctl is not None and loop.ctl.steps == 2
    assert "has no gnmr.pt" in capsys.readouterr().err


def test_what_the_scaler_passes_over_is_no_sample(tmp_path: Path) -> None:
    """The Trainer's own scaler for fp16 on a GPU, one as it has it on a CPU; in one step the loss overflows."""
    trainers = [make_trainer(tmp_path, max_steps=8, fp16=ON_CUDA) for _ in range(2)]
    results: list[gnmr.StepResult] = []
    for trainer in trainers:
        use_scaler(trainer, overflow_at=5)
    loop = hugging_face.attach(trainers[0], **QUICK)
    plain_step = loop._step
    loop._step = lambda ctl, norm: results.append(plain_step(ctl, norm)) or results[-1]  # type: ignore[method-assign]
    for trainer in trainers:
        train(trainer)
        assert trainer.accelerator.scaler.get_scale() == 2.0**9
    assert [not result.applied for result in results] == [step == 5 for step in range(1, 9)]
    norms = [result.wait().total_norm for result in results if result.applied]
    assert math.isnan(results[4].wait().total_norm) and all(norm < 100 for norm in norms)
    assert close(weights(trainers[0].model), weights(trainers[1].model), 5e-2 if ON_CUDA else 1e-4)


def use_scaler(trainer: Any, overflow_at: int) -> None:
    """A small scale; on a CPU, where Accelerate refuses fp16, set up as it would, without autocast."""
    accelerator = trainer.accelerator
    if ON_CUDA:
        accelerator.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    else:
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        accelerator.native_amp = True
        accelerator.state._mixed_precision = "fp16"
        accelerator.autocast = __import__("contextlib").nullcontext
    plain = trainer.compute_loss

    def compute_loss(*inputs: Any, **named: Any) -> Any:
        loss = plain(*inputs, **named)
        return loss * math.inf if trainer.state.global_step + 1 == overflow_at else loss

    trainer.compute_loss = compute_loss


@cuda_only
def test_float16_on_a_gpu(tmp_path: Path) -> None:
    """The first scales are too large for float16, whatever the loss is."""
    trainers = [make_trainer(tmp_path, max_steps=24, fp16=True, max_grad_norm=0.0) for _ in range(2)]
    for trainer in trainers:
        trainer.accelerator.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**32)
    loop = hugging_face.attach(trainers[0], out=tmp_path / "gnmr", **QUICK)
    for trainer in trainers:
        train(trainer)
    sampled = sampled_units(tmp_path / "gnmr")
    skipped = sampled.count(0)
    assert loop.ctl is not None and loop.ctl.steps == 24 and 0 < skipped < 24
    assert set(sampled) == {0, 14} and sampled[0] == 0 and sampled[-1] == 14
    assert [trainer.accelerator.scaler.get_scale() for trainer in trainers] == [2.0 ** (32 - skipped)] * 2
    assert same(weights(trainers[0].model), weights(trainers[1].model))


def test_everything_is_as_it_was(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=3)
    low = low_path(trainer.model)
    before, callbacks = set(vars(trainer)), list(trainer.callback_handler.callbacks)
    forward = [module.forward for module in trainer.model.modules()]
    loop = hugging_face.attach(trainer, **low, **QUICK)
    with pytest.raises(gnmr.Error, match="already"):
        hugging_face.attach(trainer)
    assert repr(loop) == "<gnmr TrainerLoop in Trainer: training has not begun>"
    trainer.train()
    assert loop.ctl is not None and loop.ctl.mode == "disarmed"
    assert repr(loop).startswith("<gnmr TrainerLoop in Trainer: <gnmr.Control: disarmed, 3 steps")
    assert not {"_clip_grad_norm", "_get_grad_norm", "training_step", "log", "_gnmr_patched"} & set(vars(trainer))
    assert trainer.callback_handler.callbacks == callbacks
    assert [module.forward for module in trainer.model.modules()] == forward
    assert {"args", "model"} <= before
    hugging_face.attach(trainer).detach()


def test_what_is_refused(tmp_path: Path) -> None:
    class OwnClipping(transformers.Trainer):
        def _clip_grad_norm(self, model: Any) -> Any:
            return super()._clip_grad_norm(model)

    trainer = make_trainer(tmp_path)
    trainer.__class__ = OwnClipping
    with pytest.raises(gnmr.Error, match="one owner"):
        hugging_face.attach(trainer)
    hugging_face.attach(trainer, clip=False).detach()
    trainer = make_trainer(tmp_path)
    trainer.is_deepspeed_enabled = True
    with pytest.raises(gnmr.Error, match="DeepSpeed"):
        hugging_face.attach(trainer)
