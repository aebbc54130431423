# SPDX-License-Identifier: Apache-2.0
"""GNMR in a Lightning Trainer: `lightning.pytorch` or `pytorch_lightning`, whichever is there.

    from gnmr.loops.lightning import GnmrCallback
    trainer = lightning.Trainer(gradient_clip_val=1.0, callbacks=[GnmrCallback(max_o=0.01)])

Goals: norms are taken when gradients are unscaled and before Lightning clips; clipping has one owner: GNMR where the
Trainer has a `gradient_clip_val` by norm, else a module's own `configure_gradient_clipping`, or Lightning; a step that
the scaler passes over is no sample; the state lies in Lightning's checkpoints.
Non-goals: manual optimization, several optimizers, DeepSpeed, the first FSDP (they are refused with the reason).
"""

import math
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Unpack

from torch import Tensor

from gnmr._core import Error
from gnmr.attaching import attach as attach_model
from gnmr.checks import mistakes
from gnmr.control import Control
from gnmr.loops.checkpoints import take_over
from gnmr.loops.patches import Patches
from gnmr.loops.scaling import overflowed
from gnmr.options import AttachArguments
from gnmr.results import GatedResult
from gnmr.telemetry.listeners import Listener

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class CallbackHooks:
    """The hooks of `GnmrCallback`. `ctl` is there while the Trainer fits.

    - `clip`: GNMR clips where the Trainer has a `gradient_clip_val` by norm; False: Lightning does, behind GNMR.
    - `log`: numbers of GNMR are logged as `gnmr_...`. `listeners`: of gnmr.telemetry, closed when training ends.
    - `options` are those of `gnmr.attach`; the model is attached when training starts and detached at its end.
    """

    def __init__(
        self,
        *,
        clip: bool = True,
        log: bool = True,
        listeners: Sequence[Listener] = (),
        **options: Unpack[AttachArguments],
    ) -> None:
        mistakes.check_names("GnmrCallback", options)
        self._clip = clip
        self._log = log
        self._listeners = listeners
        self._options = options
        self._pending: dict[str, Any] | None = None
        self._kept: dict[str, Any] = {}
        self._patches: Patches | None = None
        self._max_norm: float | None = None
        self._count = 0
        self._loss: Tensor | float | None = None
        self.ctl: Control | None = None

    # When training starts and ends.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _refuse(trainer, pl_module)
        options: AttachArguments = {**self._options}
        if self._pending is not None and options.get("out") is not None:
            options.setdefault("resume_step", int(self._pending["step"]) + 1)
        patches = Patches(pl_module)
        try:
            self.ctl = attach_model(pl_module, **options)
        except BaseException:
            patches.undo()
            raise
        self._patches = patches
        self._max_norm = self._own_clipping(trainer, pl_module, patches)
        take_over(self.ctl, self._pending)
        self._pending = None
        for listener in self._listeners:
            self.ctl.listeners.add(listener)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.detach()

    def detach(self) -> None:
        """The module is as it was; checkpoints that are written later still have the state."""
        if self._patches is not None:
            self._patches.undo()
            self._patches = None
        if self.ctl is not None:
            self._kept = self.ctl.state_dict()
            self.ctl.detach()
            self.ctl = None

    # Steps, in Lightning's order.

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.ctl is not None:
            self.ctl.micro_batch(self._count)
        self._count += 1

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        scaler = _scaler(trainer)
        scale = scaler.get_scale() if scaler is not None else 1.0
        self._loss = loss.detach() / scale + (0.0 if self._loss is None else self._loss)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self.ctl is None:
            return
        skipped = overflowed(_scaler(trainer), optimizer)
        result = self.ctl.step(max_norm=self._max_norm, skipped=skipped, loss=self._loss)
        # Lightning updates with a closure, in which we are: the optimizer asks no gate on a device.
        if isinstance(result, GatedResult) and not result.applied:
            optimizer.zero_grad(set_to_none=True)
        self._loss = None
        self._count = 0
        if self._log:
            numbers: dict[str, Any] = {"gnmr_high": float(len(self.ctl.high)), "gnmr_alarmed": float(result.alarmed)}
            norm = self.ctl.total_norm
            if isinstance(norm, Tensor) or not math.isnan(norm):
                numbers["gnmr_total_norm"] = norm
            pl_module.log_dict(numbers, on_step=True, on_epoch=False)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        return self.ctl.state_dict() if self.ctl is not None else self._kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._pending = state or None

    # Who clips.

    def _own_clipping(self, trainer: Any, pl_module: Any, patches: Patches) -> float | None:
        """The norm that GNMR clips to; None: it does not clip."""
        value = trainer.gradient_clip_val
        algorithm = str(getattr(trainer.gradient_clip_algorithm, "value", trainer.gradient_clip_algorithm) or "norm")
        own = type(pl_module).configure_gradient_clipping
        if not own.__module__.startswith(_PACKAGES):
            self._print(f"{type(pl_module).__name__}.configure_gradient_clipping clips, behind GNMR's measurement")
            return None
        if not value or algorithm != "norm" or not self._clip:
            if value:
                self._print(f"Lightning clips (by {algorithm}), behind GNMR's measurement")
            return None
        patches.replace(pl_module, "configure_gradient_clipping", lambda original: _leave_clipping)
        return float(value)

    def _print(self, text: str) -> None:
        if not self._options.get("quiet", False):
            print(f"gnmr: {text}", file=sys.stderr)


def _leave_clipping(optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None) -> None:
    """GNMR has clipped."""


def _scaler(trainer: Any) -> Any:
    return getattr(trainer.precision_plugin, "scaler", None)


def _refuse(trainer: Any, pl_module: Any) -> None:
    strategy = type(trainer.strategy).__name__
    if "DeepSpeed" in strategy:
        raise Error(
            "GnmrCallback: DeepSpeed keeps gradients in buffers of its own, clips and updates within one call: "
            "there is no place where norms of layers could be taken before the update"
        )
    if strategy == "FSDPStrategy":
        raise Error(
            "GnmrCallback: the first FSDP flattens layers into one parameter, so they have no norms of their "
            "own; ModelParallelStrategy (FSDP2) keeps them"
        )
    if not pl_module.automatic_optimization:
        raise Error(
            "GnmrCallback: with manual optimization the module itself clips and updates: call ctl.step() there "
            "(gnmr.attach), before self.clip_gradients"
        )
    if len(trainer.optimizers) != 1:
        raise Error(
            f"GnmrCallback: expected one optimizer, got {len(trainer.optimizers)}: a step of each would be "
            "taken for a step of the model"
        )


def _make_callback() -> type:
    loaded = [name for name in _PACKAGES if name in sys.modules]
    names = loaded or [name for name in _PACKAGES if find_spec(name.split(".")[0]) is not None][:1]
    if not names:
        raise Error("GnmrCallback: expected the package lightning or pytorch_lightning, found neither")
    bases = tuple(import_module(name).Callback for name in names)
    return type("GnmrCallback", (CallbackHooks, *bases), {"__doc__": CallbackHooks.__doc__, "__module__": __name__})


def __getattr__(name: str) -> Any:
    # The class has Lightning's own as its base, so it is made when it is first asked for.
    if name != "GnmrCallback":
        raise AttributeError(f"module 'gnmr.loops.lightning' has no attribute '{name}'")
    globals()[name] = _make_callback()
    return globals()[name]
