# SPDX-License-Identifier: Apache-2.0
"""Runs of a model under examination: the same batch again and again, and what came of it.

Goals: equal switches give equal numbers, whatever the model draws from torch's generators.
Non-goals: what is asked of them (gnmr.checks.conformance).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gnmr.control import Control
from gnmr.units import WatchedUnit

_LONGEST_MEMORY = 20  # steps that a low path's scale looks back; of longer ones it is not known when they settle


@dataclass
class Subject:
    """A model, and what is known of it."""

    model: nn.Module
    loss_of: Callable[[nn.Module], Tensor]  # forward and loss of one batch, the same in every call
    recipe: str | None = None  # gives its linear layers our low path
    # While it is entered the model computes in high precision, by means that are not the switch's.
    reference: Callable[[nn.Module], AbstractContextManager[Any]] | None = None
    # While it is entered the low path of the unit is broken.
    plant: Callable[[WatchedUnit], AbstractContextManager[Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of attach


@dataclass
class Outcome:
    """The loss and the gradients of a run."""

    loss: float
    gradients: dict[str, Tensor]

    def equals(self, other: "Outcome") -> bool:
        """Bit for bit; NaN is like NaN."""
        same_loss = self.loss == other.loss or (math.isnan(self.loss) and math.isnan(other.loss))
        return (
            same_loss
            and self.gradients.keys() == other.gradients.keys()
            and all(torch.equal(_bits(one), _bits(other.gradients[name])) for name, one in self.gradients.items())
        )

    def distance(self, other: "Outcome") -> float:
        """How far its gradients are from the other's, relative to those."""
        difference = sum(_square(one.double() - other.gradients[name].double()) for name, one in self.gradients.items())
        size = sum(_square(one) for one in other.gradients.values())
        return math.sqrt(difference / size) if size > 0 else math.inf if difference > 0 else 0.0


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8) if values.dim() else values.reshape(1).view(torch.uint8)


def _square(values: Tensor) -> float:
    return float(values.double().square().sum())


def whole(values: Tensor) -> Tensor:
    """A gradient as one tensor, where ranks have parts of it."""
    full = getattr(values, "full_tensor", None)
    result: Tensor = full() if full is not None else values
    return result


class Bench:
    """Runs the subject, step by step once it is attached."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.model = subject.model
        self.control: Control | None = None

    @property
    def attached(self) -> Control:
        """Its control."""
        assert self.control is not None
        return self.control

    @property
    def units(self) -> Sequence[WatchedUnit]:
        """The units that can be switched."""
        return [unit for unit in self.attached.units if unit.switch is not None]

    @property
    def has_state(self) -> bool:
        """Whether a low path goes by what it saw in earlier steps."""
        return any(getattr(unit.switch, "has_state", False) for unit in self.units)

    def run(self, between: Callable[[], None] | None = None, recompute: bool = False) -> Outcome:
        """Forward and backward; `between` is called between them, `recompute`: backward makes activations again."""
        self.model.zero_grad(set_to_none=True)
        if self.control is not None:
            # Stochastic rounding goes by the step: here it is always the same one.
            self.control._parts.clock.step = 1
        with torch.random.fork_rng():
            torch.manual_seed(0)
            if recompute:
                # Where its argument is, random numbers are put back.
                device = next((parameter.device for parameter in self.model.parameters()), None)
                loss = checkpoint(
                    lambda _: self.subject.loss_of(self.model),
                    torch.zeros(1, device=device, requires_grad=True),
                    use_reentrant=False,
                )
            else:
                loss = self.subject.loss_of(self.model)
            if between is not None:
                between()
            loss.backward()
        gradients = {
            name: whole(parameter.grad).detach().clone()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }
        return Outcome(float(loss.detach()), gradients)

    def step(self, **kwargs: Any) -> Outcome:
        """A run, and the step's end."""
        outcome = self.run(**kwargs)
        self.attached.step()
        return outcome

    def set_high(self, names: Sequence[str]) -> None:
        """From the next step on these units run high, and no others."""
        self.attached.set("*", "low")
        for name in names:
            self.attached.set(name, "high")

    def settled(self) -> Outcome | None:
        """Steps until they are all equal; None: they never are."""
        # A scale that follows a scale takes its time: equal for as long as a memory lasts is equal for good.
        wanted = _LONGEST_MEMORY if self.has_state else 1
        last, equal = self.step(), 0
        for _ in range(20 * wanted):
            now = self.step()
            equal = equal + 1 if now.equals(last) else 0
            if equal == wanted:
                return now
            last = now
        return None

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Compiled parts run as they are written."""
        with torch.compiler.set_stance("force_eager"):
            yield

    def saved_bytes(self) -> int:
        """Bytes that a forward keeps for its backward, parameters not counted; the step ends."""
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        seen: dict[int, int] = {}

        def pack(values: Tensor) -> Tensor:
            storage = values.untyped_storage()
            if storage.data_ptr() not in own:
                seen[storage.data_ptr()] = storage.nbytes()
            return values

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda values: values):
            self.step()
        return sum(seen.values())
