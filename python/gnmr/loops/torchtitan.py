# SPDX-License-Identifier: Apache-2.0
"""GNMR in torchtitan's Trainer.

    loop = gnmr.loops.torchtitan.attach(trainer, max_o=0.01)    # before trainer.train()

Goals: `dist_utils.clip_grad_norm_`, which the Trainer calls with `training.max_norm`, is GNMR's step and clips from the
same pass. Non-goals: pipeline stages, switching within CUDA graphs (refused with the reason); a Trainer's checkpoints:
keep `loop.ctl.state_dict()`.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Unpack

import torch
from torch import Tensor

from gnmr._core import Error
from gnmr.attaching import attach as attach_model
from gnmr.checks import mistakes
from gnmr.control import Control
from gnmr.loops.clipping import Asked, ModelParameters
from gnmr.loops.patches import Patches, loop_text
from gnmr.options import AttachArguments


def attach(trainer: Any, *, clip: bool = True, **options: Unpack[AttachArguments]) -> "TorchtitanLoop":
    """Puts GNMR into a Trainer's loop; `options` are those of `gnmr.attach`. `clip=False`: torchtitan clips, behind
    GNMR's measurement."""
    mistakes.check_loop("torchtitan.attach", trainer, "a torchtitan Trainer", ("model_parts",))
    mistakes.check_names("torchtitan.attach", options)
    if len(trainer.model_parts) != 1:
        raise Error(
            f"attach: expected one model part, got {len(trainer.model_parts)}: pipeline stages are not here yet"
        )
    training = getattr(getattr(trainer, "config", None), "training", None)
    if not getattr(training, "disable_cuda_graphs", True) and not options.get("watch", False):
        raise Error(
            "attach: the Trainer runs its steps as CUDA graphs, in which no layer can be switched: expected "
            "training.disable_cuda_graphs=True, or watch=True"
        )
    return TorchtitanLoop(trainer, clip, options)


class TorchtitanLoop:
    """GNMR in one Trainer."""

    def __init__(self, trainer: Any, clip: bool, options: AttachArguments) -> None:
        self._trainer = trainer
        self._clip = clip
        model = trainer.model_parts[0]
        self._parameters = ModelParameters(model)
        self._patches = Patches(trainer)
        try:
            self.ctl: Control = attach_model(model, **options)
        except BaseException:
            self._patches.undo()
            raise
        # The Trainer looks the function up in this module each time.
        self._patches.replace(import_module("torchtitan.distributed.utils"), "clip_grad_norm_", self._clipping)

    def __repr__(self) -> str:
        return loop_text(self, self._trainer, self.ctl)

    def detach(self) -> None:
        """torchtitan and the model are as they were."""
        self._patches.undo()
        self.ctl.detach()

    def _clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float, *rest: Any, **named: Any) -> Any:
            parameters = list(parameters)
            if self._parameters.asked(parameters) is not Asked.THE_MODEL:
                return original(parameters, max_norm, *rest, **named)
            if self._clip:
                self.ctl.step(max_norm=max_norm)
                return torch.as_tensor(self.ctl.total_norm)
            self.ctl.step()
            return original(parameters, max_norm, *rest, **named)

        return clip_grad_norm_
