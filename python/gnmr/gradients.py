# SPDX-License-Identifier: Apache-2.0
"""The gradients of a model: where they are, one pass over them, clipping.

Goals: sources are explicit; one pass gives the norms of all units and what clipping needs; a parameter without a
gradient is no sample. Non-goals: ranks: what a process has is what is measured.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gnmr import _core
from gnmr._core import Error

#: `.grad`, `main_grad`, or a function that gives a parameter's gradient, or None.
Source = str | Callable[[nn.Parameter], Tensor | None]

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Gradients:
    """The gradients of all parameters, each of which belongs to one unit or to none."""

    def __init__(self, parameters: Sequence[nn.Parameter], unit_of: Sequence[int], units: int, source: Source) -> None:
        self._parameters = list(parameters)
        self._counts = [parameter.numel() for parameter in parameters]
        self._unit_of = list(unit_of)
        self._source = source
        if isinstance(source, str) and source not in (".grad", "main_grad"):
            raise Error(f"gradients: expected '.grad', 'main_grad' or a function of a parameter, got {source!r}")
        self._squares = _core.HostSquares(units, self._counts, self._unit_of)
        self._gradients: list[Tensor | None] = []

    def _gather(self) -> list[Tensor | None]:
        if callable(self._source):
            return [self._source(parameter) for parameter in self._parameters]
        if self._source == ".grad":
            return [parameter.grad for parameter in self._parameters]
        return [getattr(parameter, "main_grad", None) for parameter in self._parameters]

    def measure(self) -> None:
        """Reads all gradients once."""
        self._gradients = self._gather()
        pointers: list[int] = []
        types: list[int] = []
        elsewhere: list[int] = []
        for index, gradient in enumerate(self._gradients):
            if gradient is None:
                pointers.append(0)
                types.append(0)
                continue
            code = _TYPES.get(gradient.dtype)
            plain = (code is not None and gradient.is_cpu and gradient.layout is torch.strided
                     and gradient.is_contiguous() and gradient.numel() == self._counts[index])
            pointers.append(gradient.data_ptr() if plain else 0)
            types.append(code if plain and code is not None else 0)
            if not plain:
                elsewhere.append(index)
        others = self._sums_by_torch(elsewhere) if elsewhere else []
        self._squares.measure(pointers, types, others, threads=torch.get_num_threads())

    def _sums_by_torch(self, elsewhere: list[int]) -> list[float]:
        """Sums of squares of what does not lie plainly in host memory: odd types and layouts, devices."""
        others = [-1.0] * len(self._parameters)
        by_device: dict[torch.device, list[int]] = {}
        for index in elsewhere:
            by_device.setdefault(self._present(index).device, []).append(index)
        for places in by_device.values():
            # One wait a device.
            norms = torch._foreach_norm([_dense(self._present(index)) for index in places], 2, dtype=torch.float64)
            for index, norm in zip(places, torch.stack(list(norms)).tolist(), strict=True):
                others[index] = norm * norm
        return others

    def _present(self, index: int) -> Tensor:
        gradient = self._gradients[index]
        assert gradient is not None
        return gradient

    @property
    def norms(self) -> memoryview:
        """One a unit; until the next measurement."""
        return self._squares.norms

    @property
    def sampled(self) -> memoryview:
        """One a unit, 0: no gradient; until the next measurement."""
        return self._squares.sampled

    def set_norm(self, unit: int, square: float | None) -> None:
        """The norm of a unit that is not made from parameters' gradients; None: it has none."""
        self._squares.set_unit(unit, -1.0 if square is None else square)

    def squares(self) -> list[float]:
        """Squared norms of all units and of the rest, as a copy."""
        return list(self._squares.sums)

    def total(self, max_norm: float = math.inf) -> tuple[float, float]:
        """The norm of all gradients, and what clipping multiplies them with."""
        total, coefficient = self._squares.clip(max_norm)
        if math.isinf(max_norm):
            return total, 1.0
        return total, math.nan if math.isnan(total) else coefficient

    @torch.no_grad()
    def scale(self, coefficient: float) -> None:
        """Multiplies all gradients in place."""
        present = [gradient for gradient in self._gradients if gradient is not None]
        if present:
            torch._foreach_mul_(present, coefficient)

    @torch.no_grad()
    def clip_by_torch(self, max_norm: float) -> float:
        """Clipping without anything of ours, for loops that must go on; the norm of all gradients."""
        present = [gradient for gradient in self._gather() if gradient is not None]
        if not present:
            return 0.0
        norms = [torch.linalg.vector_norm(gradient).to(present[0].device, torch.float32) for gradient in present]
        total = float(torch.linalg.vector_norm(torch.stack(norms)))
        torch._foreach_mul_(present, min(max_norm / (total + 1e-6), 1.0))
        return total

    @torch.no_grad()
    def scale_units(self, coefficients: Sequence[float]) -> None:
        """Multiplies each unit's gradients; 0 removes them, whatever they were."""
        for gradient, unit in zip(self._gradients, self._unit_of, strict=True):
            if gradient is None or unit >= len(coefficients) or coefficients[unit] == 1:
                continue
            if coefficients[unit] == 0:
                gradient.zero_()
            else:
                gradient.mul_(coefficients[unit])

    @torch.no_grad()
    def drop(self) -> None:
        """There is no update, or the step runs again: gradients go, so that an optimizer passes over them."""
        if self._source == ".grad":
            for parameter in self._parameters:
                parameter.grad = None
            return
        for gradient in self._gather():
            if gradient is not None:
                gradient.zero_()


def _dense(gradient: Tensor) -> Tensor:
    values = gradient.detach()
    return values.coalesce().values() if values.layout is torch.sparse_coo else values


def distance(before: Sequence[float], after: Sequence[float]) -> float:
    """How far apart two gradients are at least, relative to the second, from the squared norms of their parts."""
    difference = sum((math.sqrt(a) - math.sqrt(b)) ** 2 for a, b in zip(before, after, strict=True))
    size = sum(after)
    return math.sqrt(difference / size) if size > 0 else math.inf
