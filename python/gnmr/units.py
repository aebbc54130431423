# SPDX-License-Identifier: Apache-2.0
"""The recoverable units of a model: found by walking its modules, each with its switch, and how much they cover.

Goals: units in the order of the modules, with names people know; whatever is left out has its reason.
Non-goals: measuring, deciding.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gnmr import _core
from gnmr._core import Error, glob_matches
from gnmr.low.conv1d import LowConv1D
from gnmr.low.fp8_matrix import refusal
from gnmr.low.instance_forward import is_replaced
from gnmr.low.layer_switch import LayerSwitch
from gnmr.low.linear import LowLinear
from gnmr.low.linear_layers import has_own_forward, is_linear, is_transposed, linear_cost
from gnmr.low.neighbours import Neighbours
from gnmr.ranks.pieces import is_spread
from gnmr.switches import Switch, backend_name, maker_of

#: Layers that make logits: neither low nor watched, as in the C++ trainer.
DEFAULT_DENY = ("head", "*.head", "lm_head", "*.lm_head", "output", "embed_out", "output_layer", "*.output_layer")

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@dataclass(repr=False)
class WatchedUnit:
    """A unit and what it is made of."""

    name: str
    cost: int
    module: nn.Module
    switch: Switch | None  # None: it is only watched
    parameters: list[nn.Parameter]

    @property
    def group(self) -> str:
        """`layers.3.down` belongs to `layers.3`: the path up to its first number. Empty: there is none."""
        parts = self.name.split(".")
        for index, part in enumerate(parts):
            if part.isdigit():
                return ".".join(parts[: index + 1])
        return ""

    def __repr__(self) -> str:
        shapes = ", ".join("x".join(map(str, parameter.shape)) for parameter in self.parameters) or "not on this rank"
        path = f"switched by {backend_name(self.switch)}" if self.switch is not None else "only watched"
        return f"{self.name}: {type(self.module).__name__} ({shapes}), {path}, cost {self.cost}"

    def as_core(self) -> _core.Unit:
        """What the controller knows of it; what cannot be switched is no candidate."""
        return _core.Unit(self.name, self.cost, self.group, forced=self.switch is None)


class UnitList(list[WatchedUnit]):
    """Units that print one per line."""

    def __repr__(self) -> str:
        return "\n".join([f"{len(self)} units", *(f"  {unit!r}" for unit in self)])


@dataclass
class LeftOut:
    """A unit that could have been."""

    name: str
    cost: int
    reason: str
    counts: bool = True  # in the share that is watched


@dataclass
class Coverage:
    """How much of a model is watched."""

    units: int
    switchable: int
    #: Of the multiply-adds of all weights that are trained or have a low path; layers that make logits do not count.
    share: float
    left_out: list[LeftOut] = field(default_factory=list)
    backends: dict[str, int] = field(default_factory=dict)  # units of this process by who switches them
    adapters: int = 0  # units without a switch that are LoRA's

    def text(self) -> str:
        """One line: `watching 278 of 280 units, 99.1% of multiply-adds; 2 skipped: lm_head (makes logits), ...`."""
        line = f"watching {self.units} of {self.units + len(self.left_out)} units, {self.share:.1%} of multiply-adds"
        if self.left_out:
            shown = ", ".join(f"{one.name} ({one.reason})" for one in self.left_out[:4])
            more = f" and {len(self.left_out) - 4} more" if len(self.left_out) > 4 else ""
            line += f"; {len(self.left_out)} skipped: {shown}{more}"
        if 0 < self.switchable < self.units - self.adapters:
            line += f"; {self.units - self.switchable - self.adapters} have no switch and are only watched"
        if self.switchable and self.adapters:
            line += f"; {self.adapters} LoRA adapters stay in high precision"
        if self.backends:
            several = len(self.backends) > 1
            line += "; switched by " + ", ".join(
                f"{name} ({count})" if several else name for name, count in self.backends.items()
            )
        return line


@dataclass
class FoundUnits:
    """What a walk over a model found."""

    units: list[WatchedUnit]
    coverage: Coverage


@dataclass
class UnitChoice:
    """Which layers are units, and what their low path is."""

    recipe: str | None
    allow: Sequence[str]
    deny: Sequence[str]
    clock: _core.StepClock


def plain_name(name: str, wrapped: int = 0) -> str:
    """The name without what wrappers put into it, so that states fit with and without them; `wrapped`: see below."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while wrapped and parts and parts[0] == "module":
        parts, wrapped = parts[1:], wrapped - 1
    return ".".join(parts)


def times_wrapped(model: nn.Module) -> int:
    """How many leading `module` of its names are a wrapper's (DistributedDataParallel, Float16Module), which holds
    nothing else; a model may have a `module` of its own."""
    times = 0
    while True:
        names = [name for name, child in model.named_children() if child is not None]
        if len(names) != 1 or names[0] not in ("module", *_WRAPPERS) or next(model.parameters(False), None) is not None:
            return times
        times += names[0] == "module"
        model = model.get_submodule(names[0])


def share_of(watched: int, left_out: Iterable[LeftOut]) -> float:
    """Which share of all that counts is watched."""
    everything = watched + sum(one.cost for one in left_out if one.counts)
    return watched / everything if everything else 0.0


def _trouble(module: nn.Module, recipe: str) -> str:
    """Why a linear layer cannot have our low path; empty: it can."""
    weight: Any = module.weight
    if is_replaced(module):
        return "its forward is replaced on the instance already"
    if has_own_forward(module):
        return f"{type(module).__name__} has a forward of its own: use register_switch to say how to switch it"
    if not weight.is_floating_point():
        return f"its weight is {str(weight.dtype).removeprefix('torch.')}"
    if weight.numel() == 0:
        return "its weight is empty"
    reason = refusal(recipe, weight.device)
    if reason:
        raise Error(
            f"recipe={recipe!r}: {reason}. Leave recipe out to watch the model, or register a switch for its layers"
        )
    return ""


def _unmeasured(module: nn.Module) -> str:
    """Why the gradients of a module have no norm; empty: they have one."""
    for parameter in module.parameters():
        if type(parameter.data) is not torch.Tensor and not is_spread(parameter.data):
            return f"its weight is a {type(parameter.data).__name__}, whose norm is not known here"
    return ""


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def count_adapters(names: Iterable[str]) -> int:
    """How many are LoRA adapters, by their names."""
    return sum(bool(_adapted_layer(name)) for name in names)


def _adapted_layer(name: str) -> str:
    """The name of the layer that a LoRA adapter (peft's `lora_A`, `lora_B`) belongs to; empty: it is no adapter."""
    parts = name.split(".")
    index = next((index for index, part in enumerate(parts) if part.lower().startswith("lora_")), 0)
    return ".".join([*parts[:index], "base_layer"]) if index else ""


class _Walk:
    """A walk over the modules; a parameter belongs to the first unit that has it."""

    def __init__(self, choice: UnitChoice) -> None:
        self._choice = choice
        self._owner: dict[int, str] = {}
        self._neighbours = Neighbours()
        self.units: list[WatchedUnit] = []
        self.left_out: list[tuple[LeftOut, nn.Module]] = []

    def visit(self, name: str, module: nn.Module) -> None:
        make = maker_of(module)
        if make is None and not is_linear(module):
            return
        cost = linear_cost(module) if is_linear(module) else max(_parameter_count(module), 1)
        switch: Switch | None = None
        reason = self._refusal(name, module)
        if not reason and make is not None:
            made = make(name, module)
            if isinstance(made, str):
                reason = made
            elif made is not None and not isinstance(made, Switch):
                raise Error(f"the switch of {name}: expected `cost` and `set_high`, got {type(made).__name__}")
            elif made is not None:
                switch, cost = made, made.cost
                if isinstance(made, LayerSwitch):
                    made.layer.set_clock(self._choice.clock, len(self.units))
        # After the backend, which knows its own kinds of tensors and says more of them.
        reason = reason or _unmeasured(module)
        if not reason and make is None and self._choice.recipe is not None and not self._stays_high(name):
            reason = _trouble(module, self._choice.recipe)
            if not reason:
                low_path = LowConv1D if is_transposed(module) else LowLinear
                switch = low_path(module, self._choice.recipe, len(self.units), self._choice.clock, self._neighbours)
        if not reason and not _is_trained(module) and not isinstance(switch, LayerSwitch):
            # The norm of what is not trained is that of its output's gradient, which our own switches measure.
            reason = "frozen, has no low path" if switch is None else "frozen, its switch measures no output"
        if reason:
            # What is neither trained nor quantized here is nothing that could be missed.
            counts = (switch is not None or _is_trained(module)) and not any(
                glob_matches(glob, name) for glob in DEFAULT_DENY
            )
            self.left_out.append((LeftOut(name, cost, reason, counts), module))
            return
        parameters = list(module.parameters())
        for parameter in parameters:
            self._owner[id(parameter)] = name
        self.units.append(WatchedUnit(name, cost, module, switch, parameters))

    def _refusal(self, name: str, module: nn.Module) -> str:
        choice = self._choice
        if not any(glob_matches(glob, name) for glob in choice.allow):
            return "not allowed"
        if any(glob_matches(glob, name) for glob in choice.deny):
            return "makes logits" if any(glob_matches(glob, name) for glob in DEFAULT_DENY) else "denied"
        for parameter in module.parameters():
            if id(parameter) in self._owner:
                return f"its weight belongs to {self._owner[id(parameter)]}"
        return ""

    def _stays_high(self, name: str) -> bool:
        """Whether it is a LoRA adapter that no glob of `allow` means by itself, apart from the layer it belongs to."""
        adapted = _adapted_layer(name)
        return bool(adapted) and not any(
            glob_matches(glob, name) and not glob_matches(glob, adapted) for glob in self._choice.allow
        )


def _parameter_count(module: nn.Module) -> int:
    return 3 * sum(parameter.numel() for parameter in module.parameters())


def _looks_up(module: nn.Module) -> bool:
    """Whether its weights multiply nothing: also Megatron's VocabParallelEmbedding, and others of their own kind."""
    return any("Embedding" in kind.__name__ for kind in type(module).__mro__)


def _other_weights(modules: Sequence[tuple[str, nn.Module]], known: set[int]) -> list[LeftOut]:
    """Modules that multiply by weights of their own and are no candidates: convolutions, experts in one tensor."""
    counted = {
        id(parameter)
        for _, module in modules
        if id(module) in known or _looks_up(module)
        for parameter in module.parameters(recurse=False)
    }
    found = []
    for name, module in modules:
        count = 0
        for parameter in module.parameters(recurse=False):
            is_matrix = sum(size > 1 for size in parameter.shape) > 1
            if id(parameter) not in counted and parameter.requires_grad and is_matrix:
                counted.add(id(parameter))
                count += parameter.numel()
        if count and id(module) not in known:
            found.append(
                LeftOut(
                    name,
                    3 * count,
                    f"{type(module).__name__} is no linear layer: use register_switch to say how to switch it",
                )
            )
    return found


def find_units(model: nn.Module, choice: UnitChoice) -> FoundUnits:
    """All units of a model; their low paths are not installed yet."""
    walk = _Walk(choice)
    wrapped = times_wrapped(model)
    modules = [
        (plain_name(name, wrapped) or type(module).__name__.lower(), module) for name, module in model.named_modules()
    ]
    for name, module in modules:
        walk.visit(name, module)
    # A child of a unit is no unit that was left out.
    owned = {id(child) for unit in walk.units for child in unit.module.modules()}
    left_out = [(one, module) for one, module in walk.left_out if id(module) not in owned]
    known = owned | {id(child) for _, module in left_out for child in module.modules()}
    all_left_out = [one for one, _ in left_out] + _other_weights(modules, known)
    watched = sum(unit.cost for unit in walk.units)
    plain = [unit.name for unit in walk.units if unit.switch is None]
    backends = Counter(backend_name(unit.switch) for unit in walk.units if unit.switch is not None)
    return FoundUnits(
        walk.units,
        Coverage(
            len(walk.units),
            len(walk.units) - len(plain),
            share_of(watched, all_left_out),
            all_left_out,
            dict(backends),
            count_adapters(plain),
        ),
    )
