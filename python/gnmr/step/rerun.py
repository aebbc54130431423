# SPDX-License-Identifier: Apache-2.0
"""A step once more: as a trial (all units high, each low path measured beside it) or as a replay.

Goals: the rerun finds the random numbers of the first run, and the loop goes on as if there had been one run: random
numbers and buffers are where that left them.
Non-goals: what is done with what it finds (gnmr.control).
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gnmr import _core
from gnmr.norms.gradients import distance
from gnmr.switches import InstalledSwitch, MeasuringSwitch, set_path
from gnmr.units import WatchedUnit

_SMALL = 2**20  # elements of a buffer

Closure = Callable[[], float | Tensor | None]


class ClosureFailed(Exception):
    """The user's own code failed; that is not ours to hide."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def is_about_memory(failure: Exception) -> bool:
    """Whether something went wrong for want of memory."""
    # The CPU's allocator of torch has no kind of error of its own.
    return isinstance(failure, MemoryError) or (
        isinstance(failure, RuntimeError) and ("llocate" in str(failure) or "out of memory" in str(failure))
    )


def failure_of(run: Callable[[], None]) -> Exception | None:
    """What goes wrong; want of memory is the closure's, whoever asks for it."""
    try:
        run()
    except Exception as failure:
        return ClosureFailed(failure) if is_about_memory(failure) else failure
    return None


def number_of(loss: float | Tensor | None) -> float | None:
    """A loss as a number, None where it is none; one on a device is waited for."""
    if isinstance(loss, Tensor):
        return float(loss.detach()) if is_number(loss) else None
    try:
        return None if loss is None else float(loss)
    except (TypeError, ValueError):
        return None  # it is for the journal: nothing hangs on it


def is_number(loss: Tensor) -> bool:
    """Whether a tensor is one."""
    return loss.numel() == 1 and not loss.is_complex()


class RandomState:
    """The state of torch's generators when the first forward of a step began."""

    def __init__(self) -> None:
        self.begun = False  # whether a forward of this step has been seen; set back when the next one begins
        self._cpu = torch.empty(0)
        self._cuda: list[Tensor] = []

    def store(self, model: nn.Module) -> None:
        """Called before each forward of the model; evaluation does not count."""
        if self.begun or not (model.training and torch.is_grad_enabled()):
            return
        self.begun = True
        self._cpu, self._cuda = _random_state()

    def replay(self) -> Callable[[], None]:
        """Puts the generators back to the beginning of the step; the result puts them where they are now."""
        now = _random_state()
        if self.begun:
            _set_random_state(self._cpu, self._cuda)
        return lambda: _set_random_state(*now)


class FirstForward:
    """A hook that stores the generators' state, and looks at the model before its first forward (and again where
    that was evaluation); a copy or a pickle of the model has one that does nothing."""

    def __init__(self, random: RandomState, look: Callable[[bool], None], forward: Callable[[], None]) -> None:
        """`look` gets whether the whole model is compiled, `forward` is called for each forward that trains."""
        self._random = random
        self._forward = forward
        self._look: Callable[[bool], None] | None = look
        self._run = torch.compiler.disable(self._see)  # type: ignore[no-untyped-call]

    def __call__(self, model: nn.Module, args: object) -> None:
        self._run(model, torch.compiler.is_compiling())

    def _see(self, model: nn.Module, is_compiled: bool) -> None:
        if self._look is not None:
            look = self._look
            if model.training and torch.is_grad_enabled():
                self._look = None  # what comes before it is evaluation, and may be compiled after that
            look(is_compiled)
        self._random.store(model)
        if model.training and torch.is_grad_enabled():
            self._forward()

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        return _NoHook()

    def __reduce__(self) -> tuple[object, ...]:
        return _NoHook().__reduce__()


class _NoHook:
    """A hook that does nothing."""

    def __call__(self, model: nn.Module, args: object) -> None:
        pass

    def __reduce__(self) -> tuple[object, ...]:
        # Pickles can be read where there is no gnmr: this finds no model in an empty dict, and leaves its arguments.
        return getattr, ({}, "get")


class Buffers:
    """The buffers of a model as a step's first run has left them: running means, counters."""

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        self._places = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        written = {id(buffer): buffer for _, _, buffer in self._places if _may_be_written(buffer)}
        self._copies = [(buffer, buffer.clone()) for buffer in written.values()]

    @torch.no_grad()
    def put_back(self) -> None:
        """They are as they were."""
        for module, name, buffer in self._places:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
        for buffer, copy in self._copies:
            with suppress(RuntimeError):  # what cannot be written to was not written to
                buffer.copy_(copy)


def _may_be_written(buffer: Tensor) -> bool:
    """Large ones (masks, tables) are copied only where torch has seen a write; batch norm's kernels it does not see."""
    if (
        buffer.is_inference()
        or buffer.is_meta
        or any(size > 1 and not stride for size, stride in zip(buffer.shape, _strides(buffer), strict=False))
    ):
        return False
    return buffer.numel() <= _SMALL or buffer._version > 0


def _strides(buffer: Tensor) -> tuple[int, ...]:
    return buffer.stride() if buffer.layout is torch.strided else ()


def _random_state() -> tuple[Tensor, list[Tensor]]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), cuda


def _set_random_state(cpu: Tensor, cuda: Sequence[Tensor]) -> None:
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(list(cuda))


@runtime_checkable
class SummingSwitch(Protocol):
    """A switch whose errors can be added to those of other ranks."""

    def error_squares(self) -> Sequence[tuple[float, float]]:
        """||low - high||^2 and ||high||^2 of the last trial, one pair a place."""


class ErrorSquares:
    """Errors of low paths as sums of squares, units times places: those of several ranks can be added."""

    def __init__(self, units: int, places: int) -> None:
        self._places = places
        count = units * places
        self.difference, self.reference, self.measured = torch.zeros(3, count, dtype=torch.float64, device="cpu")

    def add(self, unit: int, switch: MeasuringSwitch) -> None:
        """The errors of a trial that has run. A switch that only knows ratios has references of 1."""
        errors = switch.end_trial()
        sums: Sequence[tuple[float, float]] = (
            switch.error_squares() if isinstance(switch, SummingSwitch) else [(error**2, 1.0) for error in errors]
        )
        for place, (error, (difference, reference)) in enumerate(zip(errors, sums, strict=True)):
            if not math.isnan(error):
                at = unit * self._places + place
                self.difference[at], self.reference[at], self.measured[at] = difference, reference, 1.0

    def numbers(self) -> Tensor:
        """All of it, for a sum over ranks."""
        return torch.cat([self.difference, self.reference, self.measured])

    def take(self, total: Tensor) -> None:
        """The sums over all ranks."""
        self.difference, self.reference, self.measured = total.chunk(3)

    def errors(self) -> Any:
        """A buffer: ||low - high|| / ||high||; NaN where nothing was measured."""
        sums = zip(self.difference.tolist(), self.reference.tolist(), self.measured.tolist(), strict=True)
        ratios = [_core.relative_error(low, high) if measured > 0 else math.nan for low, high, measured in sums]
        return torch.tensor(ratios, dtype=torch.float64, device="cpu")


@dataclass(frozen=True, slots=True)
class HighUnits:
    """The units that run high, and which of them because of a recovery."""

    units: Sequence[int] = field(default_factory=list)
    in_recovery: Sequence[int] = field(default_factory=list)


class Rerun:
    """One step that may run again, at most once."""

    def __init__(
        self,
        model: nn.Module,
        units: Sequence[WatchedUnit],
        own: Sequence[InstalledSwitch],
        random: RandomState,
        closure: Closure,
        check: Callable[[Exception | None], None],
    ) -> None:
        """`check` gets what failed while a rerun was prepared; it raises where the closure must not run."""
        self._model = model
        self._buffers: Buffers | None = None
        self._units = units
        self._check = check
        self._own = own
        self._random = random
        self._closure = closure
        self._seconds = 0.0
        self.loss: float | None = None

    def _run(self) -> None:
        start = time.perf_counter()
        put_back = self._random.replay()
        try:
            loss = self._closure()
        except Exception as failure:
            raise ClosureFailed(failure) from failure
        finally:
            put_back()
            if self._buffers is not None:
                self._buffers.put_back()
        self.loss = number_of(loss)
        self._seconds = time.perf_counter() - start

    def trial(self, afterwards: HighUnits, errors: ErrorSquares) -> None:
        """All units high, low paths compared: their errors."""
        measuring = [unit.switch if isinstance(unit.switch, MeasuringSwitch) else None for unit in self._units]
        try:
            self._check(failure_of(lambda: self._begin_trial(measuring)))
            # Measuring is no part of what was compiled.
            with torch.compiler.set_stance("force_eager"):
                self._run()
            for index, switch in enumerate(measuring):
                if switch is not None:
                    errors.add(index, switch)
        finally:
            self._switch(afterwards)

    def _keep_buffers(self) -> None:
        self._buffers = self._buffers or Buffers(self._model)

    def _begin_trial(self, measuring: Sequence[MeasuringSwitch | None]) -> None:
        self._keep_buffers()
        for unit, switch in zip(self._units, measuring, strict=True):
            if switch is not None:
                switch.begin_trial()
            elif unit.switch is not None:
                unit.switch.set_high(True)

    def plain(self) -> None:
        """The step as the switches are."""
        failure_of(self._keep_buffers)  # without memory for it the step runs all the same
        self._run()

    def with_high(self, high: HighUnits, afterwards: HighUnits) -> None:
        """The step with these units high."""
        try:
            self._check(failure_of(lambda: self._begin(high)))
            self._run()
        finally:
            self._switch(afterwards)

    def _begin(self, high: HighUnits) -> None:
        self._keep_buffers()
        for own in self._own:
            own.begin_step()
        self._switch(high)

    def _switch(self, high: HighUnits) -> None:
        units, in_recovery = set(high.units), set(high.in_recovery)
        for index, unit in enumerate(self._units):
            if unit.switch is not None:
                set_path(unit.switch, index in units, index in in_recovery)

    def context(
        self,
        before: Sequence[float],
        norm_before: float,
        after: Sequence[float],
        norm: float,
        loss_before: float | None,
        applied: bool,
    ) -> _core.RerunContext:
        """What it came to, for the journal."""
        loss = math.nan if self.loss is None else self.loss
        return _core.RerunContext(
            loss=loss,
            norm=norm,
            seconds=self._seconds,
            applied=applied,
            loss_before=loss_before,
            norm_before=norm_before,
            distance=distance(before, after),
        )
