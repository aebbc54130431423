# SPDX-License-Identifier: Apache-2.0
"""The gradients of a model: where they are, one pass over them, clipping.

Goals: sources are explicit; one pass gives the norms of all units and what clipping needs; a parameter without a
gradient is no sample. With several ranks a process measures what lies on it, and takes over what all of them have.
Non-goals: talking to other ranks.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from gnmr import _core
from gnmr._core import Error
from gnmr.low.device_stream import TYPES
from gnmr.norms.device_squares import DeviceSquares
from gnmr.norms.local_sums import LocalSums, moved
from gnmr.ranks.pieces import Copies, is_spread, laid_as, local_of

#: `.grad`, `main_grad`, or a function that gives a parameter's gradient, or None.
Source = str | Callable[[nn.Parameter], Tensor | None]

_ALIKE = 1e-3  # relative to a squared norm: more than kernels that sum in any order, less than another batch


class Gradients:
    """The gradients of all parameters, each of which belongs to one unit or to none."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        unit_of: Sequence[int],
        units: int,
        source: Source,
        copies: Sequence[Copies] | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self._counts = [local_of(parameter).numel() for parameter in parameters]
        self._unit_of = list(unit_of)
        self._units = units
        self._source = source
        # What gives a parameter's gradient.
        self._get: Callable[[nn.Parameter], Tensor | None] = (
            source
            if callable(source)
            else attrgetter("grad")
            if source == ".grad"
            else lambda parameter: getattr(parameter, "main_grad", None)
        )
        if isinstance(source, str) and source not in (".grad", "main_grad"):
            raise Error(f"gradients: expected '.grad', 'main_grad' or a function of a parameter, got {source!r}")
        self._copies = copies
        self.has_spread = any(is_spread(parameter) for parameter in parameters)
        self._gradients: list[Tensor | None] = []  # as they lie on this rank
        self._devices: dict[torch.device, DeviceSquares] = {}
        self._by_kernels: dict[int, torch.device] = {}  # those that our kernels have measured, and can scale
        self._there: DeviceSquares | None = None  # where all of them are on one device
        self._is_there = False  # the last ones were
        self._all_sampled = b""  # one a slot, where no gradient is missing
        self._slot_of, self._slots = self._unit_of, units
        # Of units whose norm is not made from parameters' gradients, the squares; None: it has none.
        self.outputs: Mapping[int, float | Tensor | None] = {}
        # `numbers.norms`, `numbers.sampled`: one per unit, the second 0 where it has no gradient; until the next
        # measurement.
        if copies is None:
            self._local = self.numbers = _core.HostSquares(units, self._counts, self._unit_of)
            return
        # Of copies one rank's squares count: two sums per unit, those that do and those that do not.
        self._slot_of = [
            unit if one.counts else unit + units + 1 for unit, one in zip(self._unit_of, copies, strict=True)
        ]
        self._slots = 2 * units + 1
        self._local = _core.HostSquares(self._slots, self._counts, self._slot_of)
        self.numbers = _core.HostSquares(units, [], [])
        self._others_of = _other_copies(self._unit_of, units, copies)

    def _gather_anyway(self) -> list[Tensor | None]:
        """For clipping after a fault: of a parameter for which the user's function fails, `.grad`."""
        if not callable(self._source):
            return list(map(self._get, self.parameters))
        found: list[Tensor | None] = []
        for parameter in self.parameters:
            gradient: object = parameter.grad
            with suppress(Exception):
                gradient = self._source(parameter)
            found.append(gradient if gradient is None or isinstance(gradient, Tensor) else parameter.grad)
        return found

    def find_anyway(self) -> None:
        """For clipping without norms: the gradients as `scale` multiplies them."""
        self._is_there, self._by_kernels = False, {}
        self._gradients = self._gather_anyway()
        if self.has_spread:
            self._gradients = [None if one is None else local_of(one) for one in self._gradients]

    def measure(self, *, wait: bool = True) -> LocalSums | None:
        """Reads all gradients on this rank once, and waits for them; or else returns their sums, which are on their way
        where all gradients are on one device."""
        self._is_there, self._by_kernels = False, {}
        measured = self._gradients = list(map(self._get, self.parameters))
        if self.has_spread:
            self._gradients = [None if one is None else local_of(one) for one in measured]
            measured = [
                None if one is None else local_of(laid_as(one, parameter))
                for one, parameter in zip(measured, self.parameters, strict=True)
            ]
        first = next((gradient for gradient in measured if gradient is not None), None)
        local = self._queue_there(measured, first.device) if first is not None and first.is_cuda else None
        if local is not None:
            if not wait:
                return local
            self._local.replace(local.on_host(), local.sampled)
            return None
        pointers, types = [0] * len(measured), [0] * len(measured)
        elsewhere: list[int] = []
        for index, gradient in enumerate(measured):
            if gradient is None:
                continue
            code = TYPES.get(gradient.dtype)
            if (
                code is not None
                and gradient.is_cpu
                and gradient.layout is torch.strided
                and gradient.is_contiguous()
                and gradient.numel() == self._counts[index]
            ):
                pointers[index], types[index] = gradient.data_ptr(), code
            else:
                elsewhere.append(index)
        others = self._sums_elsewhere(measured, elsewhere) if elsewhere else []
        self._local.measure(pointers, types, others, threads=torch.get_num_threads())
        return None if wait else LocalSums(bytes(self._local.sampled), array("d", self._local.sums))

    def _queue_there(self, measured: Sequence[Tensor | None], device: torch.device) -> LocalSums | None:
        """Where all gradients are on this CUDA device, as they are scaled, and our kernels can read them."""
        if not _core.kernels_available():
            return None
        if self.has_spread and any(one is not two for one, two in zip(measured, self._gradients, strict=True)):
            return None
        pointers, types, missing = [0] * len(measured), [0] * len(measured), []
        device_index = device.index
        # Every question here is asked once per tensor and step.
        try:
            for index, gradient in enumerate(measured):
                if gradient is None:
                    missing.append(index)
                    continue
                code = TYPES.get(gradient.dtype)
                if (
                    code is None
                    or gradient.get_device() != device_index
                    or gradient.numel() != self._counts[index]
                    or not gradient.is_contiguous()
                ):
                    return None
                pointers[index], types[index] = gradient.data_ptr(), code
        except (RuntimeError, NotImplementedError):
            return None  # a layout that has no address
        if self._there is None or self._there.device != device:
            self._there = DeviceSquares(device, self._slot_of, self._slots)
        self._there.queue_at(pointers, types, self._counts)
        self._is_there = True
        return LocalSums(self._sampled_slots(missing), device=self._there)

    def _sampled_slots(self, missing: Sequence[int]) -> bytes:
        """One a slot that has a gradient."""
        if missing or not self._all_sampled:
            sampled, without = bytearray(self._slots + 1), set(missing)
            for index, slot in enumerate(self._slot_of):
                if index not in without:
                    sampled[slot] = 1
            if missing:
                return bytes(sampled[: self._slots])
            self._all_sampled = bytes(sampled[: self._slots])
        return self._all_sampled

    def _sums_elsewhere(self, gradients: Sequence[Tensor | None], elsewhere: Sequence[int]) -> list[float]:
        """Sums of squares of what does not lie plainly in host memory; below 0 for all others."""
        sums = [-1.0] * len(gradients)
        by_device: dict[torch.device, list[tuple[int, Tensor]]] = {}
        odd: list[int] = []
        for index in elsewhere:
            gradient = gradients[index]
            if gradient is not None and DeviceSquares.can_read(gradient) and gradient.numel() == self._counts[index]:
                by_device.setdefault(gradient.device, []).append((index, gradient))
            else:
                odd.append(index)
        for device, places in by_device.items():
            squares = self._devices.setdefault(device, DeviceSquares(device))
            found = squares.sums([gradient for _, gradient in places])
            for (index, gradient), square in zip(places, found, strict=True):
                sums[index] = square
                # What is scaled later is what was measured, unless that is another layout of it.
                if gradient is self._gradients[index]:
                    self._by_kernels[index] = device
        if len(self._by_kernels) != sum(map(len, by_device.values())):
            self._by_kernels = {}
        if odd:
            for index, square in enumerate(_sums_by_torch(gradients, odd)):
                sums[index] = max(sums[index], square) if not math.isnan(square) else square
        return sums

    def set_outputs(self, squares: Mapping[int, float | None]) -> None:
        """Norms that are not made from parameters' gradients, squared; None: it has none."""
        self.outputs = squares
        if self._copies is None:
            for unit, square in squares.items():
                self.numbers.set_unit(unit, -1.0 if square is None else square)

    # Several ranks.

    def contribution(self, local: LocalSums | None = None) -> Tensor:
        """What this rank adds to the sums of all: squares of all units and of the rest, samples, and what is 0 where
        copies are alike. It is where the sums are; without any, those of the last measurement."""
        units = self._units
        if local is None:
            local = LocalSums(bytes(self._local.sampled), array("d", self._local.sums))
        sums = local.where_they_are()
        counted, others = sums[: units + 1].clone(), sums[units + 1 :]
        if self._others_of.device != sums.device:
            self._others_of = moved(self._others_of, sums.device)
        others_of = self._others_of
        alike = torch.where(others_of < 0, 0.0, others - others_of * counted)
        # What is not finite on one copy is a fault of the unit, whoever counts.
        counted += torch.where(torch.isfinite(others), 0.0, others)
        flags = torch.frombuffer(bytearray(local.sampled), dtype=torch.uint8)
        samples = (flags[:units] | flags[units + 1 :]).to(torch.float64)
        for unit, square in self.outputs.items():
            counted[unit] = 0.0 if square is None else square
            samples[unit] = square is not None
        return torch.cat([counted, moved(samples, sums.device), alike])

    def put_back(self, total: Tensor, local: LocalSums, outputs: Iterable[int]) -> None:
        """The sums of all ranks take the place of this rank's, on the device: clipping goes by them, but for units
        whose norm is that of an output's gradient."""
        sums = local.where_they_are()
        sums[: self._units + 1] = total[: self._units + 1]
        sums[self._units + 1 :] = 0.0
        for unit in outputs:
            sums[unit] = 0.0

    def all_as_rest(self) -> Tensor:
        """The contribution of a rank that could not measure its units: its gradients count for clipping."""
        numbers = self.nothing()
        try:
            numbers[self._units] = self.local_square()
        except Exception:
            return numbers  # all ranks will learn of the failure that is behind this one
        return numbers

    def nothing(self) -> Tensor:
        """The contribution of a rank that has none."""
        return torch.zeros(3 * self._units + 2, dtype=torch.float64, device="cpu")

    def take(self, total: Tensor, outputs: Mapping[int, int]) -> list[int]:
        """The sums of all ranks' contributions; `outputs`: units whose norm is that of an output's gradient, and how
        many ranks have it. The units whose copies are not alike come back."""
        units = self._units
        sums, samples, alike = total[: units + 1].clone(), total[units + 1 : 2 * units + 1], total[2 * units + 1 :]
        kept = {unit: float(sums[unit]) for unit in outputs}
        for unit in outputs:
            sums[unit] = 0.0
        everywhere: Any = sums
        sampled: Any = (samples > 0).to(torch.uint8)
        self.numbers.replace(everywhere, sampled)
        for unit, holders in outputs.items():
            # Each rank's loss is a mean over its own part of the batch.
            self.numbers.set_unit(unit, kept[unit] / holders**2 if samples[unit] > 0 else -1.0)
        differing = alike.abs() > _ALIKE * sums
        return differing[:units].nonzero().flatten().tolist() if bool(differing.any()) else []

    def local_square(self) -> float:
        """Without anything of ours: this rank's share of the squared norm of all gradients, each copy once."""
        total = 0.0
        for index, gradient in enumerate(self._gather_anyway()):
            if gradient is not None and (self._copies is None or self._copies[index].counts):
                part = local_of(laid_as(gradient, self.parameters[index]))
                total += float(torch.linalg.vector_norm(_dense(part), dtype=torch.float64)) ** 2
        return total

    # Clipping.

    def squares(self) -> list[float]:
        """Squared norms of all units and of the rest, as a copy."""
        return list(self.numbers.sums)

    def total(self, max_norm: float = math.inf) -> tuple[float, float]:
        """The norm of all gradients, and what clipping multiplies them with."""
        return self.numbers.clip(max_norm)

    @torch.no_grad()
    def scale(self, coefficient: float, *, is_last: bool = False) -> None:
        """Multiplies all gradients in place. `is_last`: the step is over; they are the loop's again and may go."""
        if coefficient != 1.0 and self._is_there and self._there is not None:
            self._there.scale(coefficient)
        elif coefficient != 1.0:
            for device in set(self._by_kernels.values()):
                self._devices[device].scale(coefficient)
            present = [
                gradient
                for index, gradient in enumerate(self._gradients)
                if gradient is not None and index not in self._by_kernels
            ]
            if present:
                torch._foreach_mul_(present, coefficient)
        if is_last:
            self._gradients = [None] * len(self.parameters)
            self._by_kernels, self._is_there = {}, False

    @torch.no_grad()
    def clip_by_torch(
        self, max_norm: float, sum_of_ranks: Callable[[float], float] | None = None
    ) -> tuple[float, float]:
        """Clipping without anything of ours, for loops that must go on; the norm of all gradients, and what they were
        multiplied with."""
        if sum_of_ranks is not None:
            square, failure = math.nan, None
            try:
                square = self.local_square()
            except Exception as caught:
                failure = caught  # the other ranks are waiting
            total = math.sqrt(sum_of_ranks(square))
            if failure is not None:
                raise failure
            if math.isnan(total):
                return total, 1.0
            present = [local_of(gradient) for gradient in self._gather_anyway() if gradient is not None]
        else:
            present = [local_of(gradient) for gradient in self._gather_anyway() if gradient is not None]
            if not present:
                return 0.0, 1.0
            norms = [
                torch.linalg.vector_norm(_dense(gradient)).to(present[0].device, torch.float32) for gradient in present
            ]
            total = float(torch.linalg.vector_norm(torch.stack(norms)))
        coefficient = min(max_norm / (total + 1e-6), 1.0)
        if present:
            torch._foreach_mul_(present, coefficient)
        return total, coefficient

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
            for parameter in self.parameters:
                parameter.grad = None
            return
        for gradient in map(self._get, self.parameters):
            if gradient is not None:
                local_of(gradient).zero_()


def _sums_by_torch(gradients: Sequence[Tensor | None], elsewhere: Sequence[int]) -> list[float]:
    """Sums of squares of what does not lie plainly in host memory: odd types and layouts, devices."""
    others = [-1.0] * len(gradients)
    by_device: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for index in elsewhere:
        gradient = gradients[index]
        if gradient is not None:
            by_device.setdefault(gradient.device, []).append((index, _dense(gradient)))
    for places in by_device.values():
        # One wait a device.
        norms = torch._foreach_norm([values for _, values in places], 2, dtype=torch.float64)
        for (index, _), norm in zip(places, torch.stack(list(norms)).tolist(), strict=True):
            others[index] = norm * norm
    return others


def _other_copies(unit_of: Sequence[int], units: int, copies: Sequence[Copies]) -> Tensor:
    """For each unit (and the rest): how many copies there are beside the one that counts; -1: not the same for all."""
    others = torch.full((units + 1,), -2.0, dtype=torch.float64, device="cpu")
    for unit, one in zip(unit_of, copies, strict=True):
        others[unit] = one.ranks - 1 if others[unit] in (-2.0, one.ranks - 1) else -1.0
    return others


def _dense(gradient: Tensor) -> Tensor:
    values = gradient.detach()
    if values.layout is torch.sparse_coo:
        values = values.coalesce().values()
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def distance(before: Sequence[float], after: Sequence[float]) -> float:
    """How far apart two gradients are at least, relative to the second, from the squared norms of their parts."""
    difference = sum((math.sqrt(a) - math.sqrt(b)) ** 2 for a, b in zip(before, after, strict=True))
    size = sum(after)
    return math.sqrt(difference / size) if size > 0 else math.inf
