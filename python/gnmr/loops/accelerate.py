# SPDX-License-Identifier: Apache-2.0
"""GNMR in a loop on Hugging Face Accelerate.

    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    loop = gnmr.loops.accelerate.attach(accelerator, model, max_o=0.01)
    ...
    if accelerator.sync_gradients:
        accelerator.clip_grad_norm_(model.parameters(), 1.0)     # as before: GNMR's step, and it clips
    optimizer.step()

A loop that does not clip calls `loop.step()` in that place.

Goals: `accelerator.clip_grad_norm_` of the whole model is GNMR's step; micro-batches that only accumulate, and steps
that the scaler passes over, are no samples; the state lies in the folders of `accelerator.save_state`.
Non-goals: DeepSpeed, Megatron-LM, XLA and the first FSDP (they are refused with the reason).
"""

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from torch import Tensor

from gnmr._core import Error
from gnmr.attaching import attach as attach_model
from gnmr.checks import mistakes
from gnmr.control import Control
from gnmr.loops.checkpoints import read_beside, save_beside, take_over
from gnmr.loops.clipping import Asked, ModelParameters
from gnmr.loops.patches import Patches, loop_text
from gnmr.loops.scaling import overflowed, unscaled
from gnmr.options import AttachArguments
from gnmr.results import StepResult
from gnmr.telemetry.warning import warn

_REFUSED = {
    "DEEPSPEED": "DeepSpeed keeps gradients in buffers of its own, clips and updates within one call",
    "MEGATRON_LM": "Megatron-LM clips within its optimizer",
    "XLA": "gradients on XLA are reduced when they are clipped",
}

_MOST_MISSED = 10  # backwards in a row with synchronised gradients and no step between them


def attach(accelerator: Any, model: Any, **options: Unpack[AttachArguments]) -> "AcceleratorLoop":
    """Puts GNMR into a loop, after `accelerator.prepare`; `options` are those of `gnmr.attach`."""
    mistakes.check_loop("accelerate.attach", accelerator, "an accelerate.Accelerator", ("distributed_type", "backward"))
    mistakes.check_names("accelerate.attach", options)
    kind = getattr(accelerator.distributed_type, "name", str(accelerator.distributed_type))
    if kind in _REFUSED:
        raise Error(f"attach: {_REFUSED[kind]}: there is no place where norms of layers could be taken before")
    if kind == "FSDP" and not getattr(accelerator, "is_fsdp2", False):
        raise Error(
            "attach: the first FSDP flattens layers into one parameter, so they have no norms of their own; "
            "FSDP2 (fsdp_version=2) keeps them"
        )
    return AcceleratorLoop(accelerator, accelerator.unwrap_model(model), options)


class AcceleratorLoop:
    """GNMR in the loop of one accelerator."""

    def __init__(self, accelerator: Any, model: Any, options: AttachArguments) -> None:
        self._accelerator = accelerator
        self._parameters = ModelParameters(model)
        self._loss: Tensor | None = None
        self._synchronised = False  # whether the last backward was the last of a step
        self._fresh = True  # whether there was a backward since the last step
        self._count = 0
        self._missed = 0  # steps that nobody asked for
        self._reported: set[str] = set()
        self._last: StepResult | None = None
        self._patches = Patches(accelerator)
        try:
            self.ctl: Control = attach_model(model, **options)
        except BaseException:
            self._patches.undo()
            raise
        self._patches.replace(accelerator, "backward", self._backward)
        self._patches.replace(accelerator, "clip_grad_norm_", self._clipping)
        save = accelerator.register_save_state_pre_hook(self._save)
        load = accelerator.register_load_state_pre_hook(self._load)
        self._patches.also(save.remove)
        self._patches.also(load.remove)

    def __repr__(self) -> str:
        return loop_text(self, self._accelerator, self.ctl)

    def step(self, max_norm: float | None = None) -> StepResult | None:
        """After a backward and before `optimizer.step()`, for loops that do not clip; None: gradients only accumulate.
        A second call in a step, or one beside `accelerator.clip_grad_norm_`, does nothing but warn."""
        if not self._accelerator.sync_gradients:
            return None
        if not self._fresh:
            self._warn_once(
                "the gradients of a step were to be measured and clipped twice; clipping has one owner, so the "
                "second call did nothing"
            )
            return self._last
        self._accelerator.unscale_gradients()
        return self._take_step(max_norm)

    def detach(self) -> None:
        """Accelerator and model are as they were."""
        self._patches.undo()
        self.ctl.detach()

    # What the accelerator's methods become.

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        def backward(loss: Tensor, **rest: Any) -> None:
            if self._fresh and self._synchronised:
                self._miss()
            original(loss, **rest)
            self._fresh = True
            self._synchronised = bool(self._accelerator.sync_gradients)
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
            self._count += 1
            self.ctl.micro_batch(self._count)

        return backward

    def _clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2) -> Any:
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            if not self._accelerator.sync_gradients:
                self._warn_once("clip_grad_norm_ was called while gradients accumulate; that is no step of GNMR's")
                return original(parameters, max_norm, norm_type)
            asked = self._parameters.asked(parameters)
            if asked is Asked.PART:
                self._warn_once(f"clip_grad_norm_ was called for {asked.value}; that is no step of GNMR's")
                return original(parameters, max_norm, norm_type)
            if asked is Asked.THE_MODEL and norm_type == 2 or not self._fresh:
                result = self.step(max_norm)
                return self.ctl.total_norm if result is not None else None
            # Not ours to clip, but measured before.
            result = self.step()
            with unscaled(self._accelerator):
                return original(parameters, max_norm, norm_type)

        return clip_grad_norm_

    def _save(self, models: object, weights: object, folder: str) -> None:
        if self._accelerator.is_main_process:
            save_beside(folder, self.ctl)

    def _load(self, models: object, folder: str) -> None:
        take_over(self.ctl, read_beside(folder))

    # The step.

    def _take_step(self, max_norm: float | None) -> StepResult:
        optimizers = self._accelerator._optimizers
        skipped = any(overflowed(self._accelerator.scaler, one) for one in optimizers)
        # Several backwards make a mean, as the accelerator divides each.
        loss = None if self._loss is None else self._loss / self._count
        self._last = self.ctl.step(max_norm=max_norm, skipped=skipped, loss=loss)
        self._loss = None
        self._count = 0
        self._missed = 0
        self._fresh = False
        return self._last

    def _miss(self) -> None:
        # Several backwards may make one step, but not for ever.
        self._missed += 1
        if self._missed == _MOST_MISSED:
            self._warn_once(
                "nobody asks for GNMR's step, so nothing is watched: call loop.step() or "
                "accelerator.clip_grad_norm_(model.parameters(), ...) before optimizer.step()"
            )

    def _warn_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            warn(text, stacklevel=3)
