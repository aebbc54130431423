# SPDX-License-Identifier: Apache-2.0
"""GNMR in transformers.Trainer.

    loop = gnmr.loops.hugging_face.attach(trainer, max_o=0.01)
    trainer.train()

Goals: norms are taken where the Trainer clips, which its callbacks come after; GNMR clips from the same pass with
`args.max_grad_norm`; a step that the scaler passes over is no sample; all micro-batches of an update are one step; the
state lies beside the Trainer's checkpoints and is gone on with by `resume_from_checkpoint`.
Non-goals: DeepSpeed, SageMaker and apex, whose gradients are elsewhere (they are refused with the reason).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Unpack

from torch import Tensor

from gnmr._core import Error
from gnmr.attaching import attach as attach_model
from gnmr.checks import mistakes
from gnmr.control import Control
from gnmr.loops.checkpoints import read_beside, save_beside, take_over
from gnmr.loops.patches import Patches, loop_text
from gnmr.loops.scaling import overflowed, unscaled
from gnmr.options import AttachArguments
from gnmr.results import StepResult
from gnmr.telemetry.listeners import Listener
from gnmr.telemetry.warning import warn

_NEEDED = ("_clip_grad_norm", "_get_grad_norm", "_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler")


def attach(
    trainer: Any,
    *,
    clip: bool = True,
    rerun: bool = False,
    log: bool = True,
    listeners: Sequence[Listener] = (),
    **options: Unpack[AttachArguments],
) -> "TrainerLoop":
    """Puts GNMR into a Trainer's loop; `options` are those of `gnmr.attach`.

    The model is attached when training begins, as by then it is the one that is trained, and detached at its end.

    - `clip`: GNMR clips with `args.max_grad_norm`; False: the Trainer does, behind GNMR's measurement.
    - `rerun`: an alarmed step runs again as a trial (docs/python.md); the inputs of a step are kept until it has ended.
    - `log`: numbers of GNMR stand in the Trainer's own log lines, as `gnmr_...`.
    - `listeners`: of gnmr.telemetry; they are closed when training ends.
    """
    mistakes.check_loop("hugging_face.attach", trainer, "a transformers.Trainer", ("args", "add_callback", "model"))
    mistakes.check_names("hugging_face.attach", options)
    _refuse(trainer, clip, rerun)
    return TrainerLoop(trainer, LoopChoice(clip, rerun, log, listeners), options)


def _refuse(trainer: Any, clip: bool, rerun: bool) -> None:
    transformers = import_module("transformers")
    missing = [name for name in _NEEDED if not hasattr(trainer, name)]
    if missing:
        raise Error(
            f"attach: transformers {transformers.__version__} has no Trainer.{missing[0]}, where norms could "
            "be taken before clipping; expected 5.3 or later, or gnmr.loops.accelerate in a loop of your own"
        )
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise Error(
            "attach: DeepSpeed keeps gradients in buffers of its own, clips and updates within one call: there "
            "is no place where norms of layers could be taken before the update"
        )
    if import_module("transformers.utils").is_sagemaker_mp_enabled():
        raise Error("attach: SageMaker's model parallelism has an optimizer that clips by itself")
    if rerun and trainer.args.world_size > 1:
        raise Error("attach: rerun=True needs a single process: ranks would have to run a step again together")
    own = type(trainer)._clip_grad_norm is not transformers.Trainer._clip_grad_norm
    if own and clip:
        raise Error(
            f"attach: {type(trainer).__name__} has a _clip_grad_norm of its own, and clipping has one owner: "
            "clip=False leaves it with that, without it GNMR clips with args.max_grad_norm"
        )


@dataclass
class LoopChoice:
    """The arguments of `attach` about the loop."""

    clip: bool
    rerun: bool
    log: bool
    listeners: Sequence[Listener]


class TrainerLoop:
    """GNMR in one Trainer. `ctl` is there from the begin of training on."""

    def __init__(self, trainer: Any, choice: LoopChoice, options: AttachArguments) -> None:
        self._trainer = trainer
        self._clip = choice.clip
        self._rerun = choice.rerun
        self._listeners = choice.listeners
        self._options = options
        self._state: dict[str, Any] | None = None
        self._micro_batches: list[Callable[[], Tensor]] = []
        self._count = 0
        self._loss: Tensor | None = None
        self._alarms = 0
        self._last: StepResult | None = None
        self._model: object = None
        self.ctl: Control | None = None
        self._patches = Patches(trainer)
        replace = self._patches.replace
        replace(trainer, "_clip_grad_norm", self._clipping)
        replace(trainer, "_get_grad_norm", self._norm)
        replace(trainer, "training_step", self._training_step)
        replace(trainer, "_save_optimizer_and_scheduler", self._saving)
        replace(trainer, "_load_optimizer_and_scheduler", self._loading)
        if choice.log:
            replace(trainer, "log", self._logging)
        callback = _make_callback(self)
        trainer.add_callback(callback)
        self._patches.also(lambda: _remove_callback(trainer, callback))

    def __repr__(self) -> str:
        return loop_text(self, self._trainer, self.ctl)

    def begin(self) -> None:
        """Training begins: the model is the one that is trained."""
        model = self._trainer.model
        if self.ctl is not None and model is self._model:
            return
        if self.ctl is not None:
            self.ctl.detach()
        options: AttachArguments = {**self._options}
        if self._state is not None and options.get("out") is not None:
            options.setdefault("resume_step", int(self._state["step"]) + 1)
        self.ctl = attach_model(model, **options)
        self._model = model
        for listener in self._listeners:
            self.ctl.listeners.add(listener)
        take_over(self.ctl, self._state)
        self._state = None

    def detach(self) -> None:
        """Trainer and model are as they were. Called when training ends; call it yourself where that failed."""
        self._patches.undo()
        if self.ctl is None:
            return
        self.ctl.detach()
        if self._last is None and self._trainer.state.global_step > 0:
            warn(
                f"{type(self._trainer).__name__} trained without ever asking for a norm, so nothing "
                "was watched: has it a loop of its own?",
                stacklevel=2,
            )

    # The Trainer's methods, with GNMR in them.

    def _clipping(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def clip_grad_norm(model: Any) -> Any:
            if self.ctl is None:
                return original(model)
            if self._clip:
                self._step(self.ctl, float(self._trainer.args.max_grad_norm))
                return self.ctl.total_norm
            result = self._step(self.ctl, None)
            if not result.applied:
                return self.ctl.total_norm
            with unscaled(self._trainer.accelerator):
                return original(model)

        return clip_grad_norm

    def _norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_grad_norm(model: Any, grad_norm: Any = None) -> Any:
            # Without clipping the Trainer asks here only.
            if grad_norm is None and self.ctl is not None:
                self._step(self.ctl, None)
                grad_norm = self.ctl.total_norm
            return original(model, grad_norm=grad_norm)

        return get_grad_norm

    def _training_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def training_step(model: Any, *inputs: Any, **named: Any) -> Any:
            if self.ctl is None:
                return original(model, *inputs, **named)
            self.ctl.micro_batch(self._count)
            self._count += 1
            loss = original(model, *inputs, **named)
            if self._rerun:
                self._micro_batches.append(lambda: original(model, *inputs, **named))
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
            return loss

        return training_step

    def _saving(self, original: Callable[[str], None]) -> Callable[[str], None]:
        def save(output_dir: str) -> None:
            original(output_dir)
            if self.ctl is not None and self._trainer.args.should_save:
                save_beside(output_dir, self.ctl)

        return save

    def _loading(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def load(checkpoint: Any) -> None:
            original(checkpoint)
            if checkpoint is not None:
                self._state = read_beside(checkpoint)

        return load

    def _logging(self, original: Callable[..., None]) -> Callable[..., None]:
        def log(logs: dict[str, float], *rest: Any, **named: Any) -> None:
            if "loss" in logs and self._last is not None and self.ctl is not None:
                logs = {
                    **logs,
                    "gnmr_high": float(len(self.ctl.high)),
                    "gnmr_alarms": float(self._alarms),
                    "gnmr_clip_coefficient": self._last.wait().clip_coefficient,
                }
                self._alarms = 0
            original(logs, *rest, **named)

        return log

    # The step.

    def _step(self, ctl: Control, max_norm: float | None) -> StepResult:
        accelerator = self._trainer.accelerator
        # Nothing without float16; a second time before the update it would be an error, and is not called.
        accelerator.unscale_gradients()
        skipped = overflowed(accelerator.scaler, self._trainer.optimizer)
        if skipped:
            result = ctl.step(skipped=True, loss=self._loss)
        elif self._rerun and accelerator.scaler is None:
            result = ctl.trial(self._run_again, max_norm=max_norm, loss=self._loss)
        else:
            result = ctl.step(max_norm=max_norm, loss=self._loss)
        self._alarms += result.alarmed
        self._last = result
        self._micro_batches = []
        self._count = 0
        self._loss = None
        return result

    def _run_again(self) -> float:
        assert self.ctl is not None
        total = 0.0
        for index, run in enumerate(self._micro_batches):
            self.ctl.micro_batch(index)
            total += float(run())
        return total if self._micro_batches else math.nan


def _remove_callback(trainer: Any, callback: object) -> None:
    # A new list: the handler may be going through the old one, and would pass over the callback behind this one.
    handler = trainer.callback_handler
    handler.callbacks = [one for one in handler.callbacks if one is not callback]


def _make_callback(loop: TrainerLoop) -> Any:
    base: Any = import_module("transformers").TrainerCallback

    def begin(self: object, args: object, state: object, control: object, **rest: object) -> None:
        loop.begin()

    def end(self: object, args: object, state: object, control: object, **rest: object) -> None:
        loop.detach()

    return type("GnmrTrainerCallback", (base,), {"on_train_begin": begin, "on_train_end": end})()
