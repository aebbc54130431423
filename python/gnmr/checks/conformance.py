# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: whether a backend's switches do what docs/backend.md asks of them, on a model at hand.

    for check in examine(Subject(model, lambda model: loss(model(inputs), targets))):
        print(check.name, check.outcome, check.detail)

Goals: needs no test framework; knows no backend; each check says what it found, also where it passes; the model is left
as it came. Non-goals: speed; what the controller decides.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from gnmr.attaching import attach
from gnmr.checks.compiled import check_compiled
from gnmr.checks.preflight import preflight, readable_bytes
from gnmr.checks.runs import Bench, Outcome, Subject, whole
from gnmr.low.compiled_parts import has_compiled_parts
from gnmr.step.blind_units import counted
from gnmr.switches import MeasuringSwitch
from gnmr.units import WatchedUnit

__all__ = ["Check", "Subject", "examine", "passed"]

_HEALTHY = 3.0  # so many times what the format does at best may a healthy layer be off
_AT_MOST = 0.6  # where that is not known
_PLANTED = 5.0  # a planted fault is at least so many times the healthy error
_GROWTH = 64.0  # of a unit's input, to see whether its scale follows
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}  # of gradients made by other sums of the same products


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: str  # ok, failed, skipped
    detail: str


class _Skipped(Exception):
    """There is nothing to look at."""


class _Failed(Exception):
    """It is not as it should be."""


def passed(checks: Sequence[Check]) -> bool:
    """Whether nothing failed."""
    return all(check.outcome != "failed" for check in checks)


def examine(subject: Subject, most_units: int | None = None, random_sets: int = 20) -> list[Check]:
    """All checks, in their order. `most_units`: so many are flipped one by one, evenly chosen (None: all);
    `random_sets`: so many recovery sets are tried where parts of the model are compiled."""
    trained = subject.model.training
    subject.model.train()
    examination = _Examination(subject, most_units)
    try:
        checks = list(examination.all_checks())
        if examination.bench.control is not None and examination.bench.units and has_compiled_parts(subject.model):
            checks.append(_checked("compiled", lambda: check_compiled(examination.bench, random_sets)))
    finally:
        examination.end()
        subject.model.zero_grad(set_to_none=True)
        subject.model.train(trained)
    return checks


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", look())
    except _Skipped as skipped:
        return Check(name, "skipped", str(skipped))
    except (_Failed, AssertionError) as failed:
        return Check(name, "failed", str(failed))
    except Exception as fault:
        return Check(name, "failed", f"{type(fault).__name__}: {fault}")


#: What can be looked at in a model that is only watched.
_WITHOUT_SWITCHES = ("norms", "copies")


def _nothing_to_switch() -> str:
    raise _Skipped("cannot be checked: no unit has a low path")


class _Examination:
    """The checks on one model."""

    def __init__(self, subject: Subject, most_units: int | None) -> None:
        self.bench = Bench(subject)
        self._subject = subject
        self._most_units = most_units
        self._stock: Outcome | None = None
        self._reference: Outcome | None = None
        self._low: Outcome | None = None
        self._all_high: Outcome
        self._healthy: dict[str, Sequence[float]] = {}
        self._shape: list[object] = []

    def all_checks(self) -> Iterator[Check]:
        """One after the other: later ones build on what earlier ones found."""
        with self.bench.eager():
            yield _checked("attaches", self._attach)
            if self.bench.control is None:
                return
            for name, look in (
                ("runs low", self._runs_low),
                ("calm", self._calm),
                ("norms", self._norms),
                ("high", self._high),
                ("back low", self._back_low),
                ("each unit", self._each_unit),
                ("frozen", self._frozen),
                ("recomputed", self._recomputed),
                ("trial", self._trial),
                ("planted", self._planted),
                ("bytes", self._bytes),
                ("copies", self._copies),
                ("ranks", self._ranks),
                ("fresh", self._fresh),
            ):
                yield _checked(name, look if self.bench.units or name in _WITHOUT_SWITCHES else _nothing_to_switch)

    def end(self) -> None:
        """The model is as it came."""
        if self.bench.control is not None:
            self.bench.control.detach()

    def _attach(self) -> str:
        subject = self._subject
        self._shape = _shape_of(subject.model)
        self._stock = self.bench.run()
        if subject.reference is not None or subject.recipe is not None:
            with subject.reference(subject.model) if subject.reference is not None else nullcontext():
                self._reference = self.bench.run()
        options = {"watch": True, "min_coverage": 0.0, "lag": 0, **subject.options}
        self.bench.control = attach(subject.model, recipe=subject.recipe, quiet=True, strict=True, **options)
        if _shape_of(subject.model) != self._shape:
            raise _Failed("types of modules or keys of the state dict are not what they were")
        if not self.bench.units:
            raise _Failed(
                f"no unit can be switched: {self.bench.attached.coverage.text()}. A recipe gives linear "
                "layers a low path (--recipe fp8-tensorwise); register_switch is for modules of your own"
            )
        return self.bench.attached.coverage.text()

    def _runs_low(self) -> str:
        self.bench.step()
        self.bench.run()
        counting, idle = counted(self.bench.units)
        self.bench.attached.step()
        self._low = self.bench.settled()
        if idle:
            raise _Failed(f"{len(idle)} of {len(counting)} units are never called, the first is {idle[0]}")
        if not counting:
            raise _Skipped("the switches do not count calls, or not in compiled code")
        return f"{len(counting)} units are called"

    def _calm(self) -> str:
        if self._subject.recipe is not None:
            raise _Skipped("without us the model has no low path")
        if self._low is None:
            raise _Skipped("the low path is not the same twice")
        assert self._stock is not None
        if not self._low.equals(self._stock):
            raise _Failed(
                f"with every unit low, gradients differ by {self._low.distance(self._stock):.1e} from those "
                "of the model without us"
            )
        return "with every unit low the model computes what it does without us, bit for bit"

    def _norms(self) -> str:
        outcome = self.bench.run()
        result = self.bench.attached.step().wait()
        total = math.sqrt(sum(float(one.double().square().sum()) for one in outcome.gradients.values()))
        _near(result.total_norm, total, "the norm of all gradients")
        names = {id(parameter): name for name, parameter in self.bench.model.named_parameters()}
        norms = self.bench.attached._parts.gradients.numbers.norms
        measured = 0
        for index, unit in enumerate(self.bench.attached.units):
            own = [
                outcome.gradients[name]
                for name in (names.get(id(one), "") for one in unit.parameters)
                if name in outcome.gradients
            ]
            if own:
                square = sum(float(whole(one).double().square().sum()) for one in own)
                _near(norms[index], math.sqrt(square), f"the norm of {unit.name}")
                measured += 1
        return f"{measured} units have the norms of their gradients; all together {total:.4g}"

    def _high(self) -> str:
        self.bench.attached.set("*", "high")
        high = self.bench.step()
        self._all_high = high
        if self._reference is None:
            raise _Skipped("nothing to compare with: no reference was given")
        exact = all(getattr(unit.switch, "high_is_exact", False) for unit in self.bench.units)
        if exact and high.equals(self._reference):
            return "with every unit high the model is the high-precision one, bit for bit"
        distance = high.distance(self._reference)
        if not distance <= self._tolerance():
            raise _Failed(f"with every unit high, gradients differ by {distance:.1e} from those in high precision")
        return f"with every unit high, gradients differ by {distance:.1e} from those in high precision"

    def _back_low(self) -> str:
        self.bench.attached.set("*", "low")
        return self._is_low_again()

    def _is_low_again(self) -> str:
        if self._low is None:
            raise _Skipped("the low path is not the same twice")
        outcome = self.bench.settled() if self.bench.has_state else self.bench.step()
        if outcome is None:
            raise _Failed("the low path is not the same twice any more")
        if outcome.equals(self._low):
            return "the low path has its numbers again, bit for bit"
        distance = outcome.distance(self._low)
        if not (self.bench.has_state and distance <= self._all_high.distance(self._low)):
            raise _Failed(f"gradients of the low path differ by {distance:.1e} from earlier ones")
        # Scales follow what they scale, and can come to rest elsewhere.
        self._low = outcome
        return f"the low path is back; its scales rest elsewhere, and gradients differ by {distance:.1e}"

    def _each_unit(self) -> str:
        if self._low is None:
            raise _Skipped("the low path is not the same twice")
        units = list(self.bench.units)
        most = len(units) if self._most_units is None else max(self._most_units, 1)
        chosen = units[:: max(1, -(-len(units) // most))]
        idle = []
        for unit in chosen:
            self.bench.set_high([unit.name])
            if self.bench.step().equals(self._low):
                idle.append(unit.name)
        self.bench.set_high([])
        self._is_low_again()
        if idle:
            raise _Failed(f"{len(idle)} of {len(chosen)} units change nothing when flipped: {', '.join(idle[:3])}")
        return f"{len(chosen)} units flipped one by one, each changes the gradients and goes back"

    def _frozen(self) -> str:
        return self._changed_within(recompute=False)

    def _recomputed(self) -> str:
        return self._changed_within(recompute=True)

    def _changed_within(self, recompute: bool) -> str:
        if self._low is None:
            raise _Skipped("the low path is not the same twice")
        control = self.bench.attached
        control.set("*", "low")
        self._is_low_again()
        within = self.bench.step(between=lambda: control.set("*", "high"), recompute=recompute)
        if not within.equals(self._low):
            raise _Failed("a switch that was changed between forward and backward had an effect within the step")
        after = self.bench.step()
        control.set("*", "low")
        if after.equals(self._low):
            raise _Failed("a switch that was changed within a step had no effect in the next one")
        return "a change within a step holds from the next one on" + (", activations made again" if recompute else "")

    def _errors(self) -> tuple[dict[str, Sequence[float]], Outcome]:
        measuring = [unit for unit in self.bench.units if isinstance(unit.switch, MeasuringSwitch)]
        if not measuring:
            raise _Skipped("the switches do not measure: there are no trials, norms decide")
        for unit in self.bench.units:
            if isinstance(unit.switch, MeasuringSwitch):
                unit.switch.begin_trial()
            elif unit.switch is not None:
                unit.switch.set_high(True)
        outcome = self.bench.run()
        errors = {unit.name: unit.switch.end_trial() for unit in measuring if isinstance(unit.switch, MeasuringSwitch)}
        for unit in self.bench.units:
            if unit.switch is not None:
                unit.switch.set_high(False)
        self.bench.attached.step()
        return errors, outcome

    def _trial(self) -> str:
        errors, outcome = self._errors()
        distance = outcome.distance(self._all_high)
        if not distance <= self._tolerance():
            raise _Failed(f"the gradients of a trial differ by {distance:.1e} from those of the high path")
        for unit in self.bench.units:
            if isinstance(unit.switch, MeasuringSwitch):
                for place, error, best in zip(unit.switch.places, errors[unit.name], unit.switch.expected, strict=True):
                    limit = _HEALTHY * best if best > 0 else _AT_MOST
                    if error > limit:
                        raise _Failed(f"{unit.name}: the error of {place} is {error:.3g}, expected at most {limit:.3g}")
        self._healthy = errors
        return "errors beside the high path: " + _summary(self.bench.units, errors)

    def _planted(self) -> str:
        if self._subject.plant is None:
            raise _Skipped("nobody said how to break a low path")
        measuring = [unit for unit in self.bench.units if isinstance(unit.switch, MeasuringSwitch)]
        unit = measuring[len(measuring) // 2] if measuring else self.bench.units[0]
        with self._subject.plant(unit):
            errors, _ = self._errors()
        worst = max(_numbers(errors[unit.name]))
        healthy = max(_numbers(self._healthy.get(unit.name, ())), default=math.inf)
        others = max(
            (number for name, error in errors.items() if name != unit.name for number in _numbers(error)), default=0.0
        )
        if not worst >= _PLANTED * healthy:
            raise _Failed(f"{unit.name}: with a planted fault its error is {worst:.3g}, without one {healthy:.3g}")
        return (
            f"{unit.name} with a planted fault: error {worst:.3g} instead of {healthy:.3g}; others at most {others:.3g}"
        )

    def _bytes(self) -> str:
        control = self.bench.attached
        tokens = self._tokens()
        ahead = preflight(control.units, len(self.bench.units))
        control.set("*", "low")
        low = self.bench.saved_bytes()
        control.set("*", "high")
        high = self.bench.saved_bytes()
        control.set("*", "low")
        if ahead.unknown:
            return f"every unit high keeps {readable_bytes(high - low)} more; the backend says nothing of its memory"
        if high - low > ahead.recovery.at(tokens) * 1.01 + 4096:
            raise _Failed(
                f"every unit high keeps {readable_bytes(high - low)} more than low, "
                f"{readable_bytes(ahead.recovery.at(tokens))} were predicted"
            )
        admitted = preflight(control.units, control.supervisor.max_recovered)
        return f"{admitted.text(tokens)} ({tokens} tokens); every unit high keeps {readable_bytes(high - low)} more"

    def _tokens(self) -> int:
        """Rows that the busiest unit sees in a forward."""
        rows = [0]

        def count(module: nn.Module, arguments: tuple[object, ...]) -> None:
            if arguments and isinstance(arguments[0], torch.Tensor) and arguments[0].dim():
                rows.append(arguments[0].numel() // arguments[0].shape[-1])

        hooks = [unit.module.register_forward_pre_hook(count) for unit in self.bench.units]
        self.bench.step()
        for hook in hooks:
            hook.remove()
        return max(rows)

    def _copies(self) -> str:
        if _shape_of(self.bench.model) != self._shape:
            raise _Failed("types of modules or keys of the state dict are not what they were")
        return f"{len(self._shape)} types of modules and keys of the state dict are what they were"

    def _ranks(self) -> str:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
            raise _Skipped("there is one process")
        control = self.bench.attached
        control.set("*", "high")
        mine = ([(unit.name, unit.cost) for unit in control.units], control.high)
        control.set("*", "low")
        everyone: list[object] = [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, mine)
        if any(other != everyone[0] for other in everyone):
            raise _Failed("ranks have different units, or switch different ones")
        return f"{len(everyone)} ranks have the same units and switch the same ones"

    def _fresh(self) -> str:
        measuring = [unit for unit in self.bench.units if isinstance(unit.switch, MeasuringSwitch)]
        if not measuring:
            raise _Skipped("the switches do not measure")
        largest: list[float] = []
        for unit in {id(one): one for one in (measuring[0], measuring[len(measuring) // 2], measuring[-1])}.values():
            hook = unit.module.register_forward_pre_hook(_grown)
            self.bench.set_high([unit.name])
            for _ in range(3):
                self.bench.step()
            errors, _ = self._errors()
            hook.remove()
            self.bench.set_high([])
            worst = max(_numbers(errors[unit.name]))
            healthy = max(_numbers(self._healthy.get(unit.name, ())), default=math.inf)
            if not worst <= _HEALTHY * max(healthy, 1e-6):
                raise _Failed(
                    f"{unit.name}: its input grew while it ran high, and its low path is off by {worst:.3g} "
                    f"now ({healthy:.3g} before): its state is stale"
                )
            largest.append(worst)
        return f"inputs grew by {_GROWTH:.0f} while high; back low, errors are at most {max(largest):.3g}"

    def _tolerance(self) -> float:
        types = {parameter.dtype for parameter in self.bench.model.parameters()}
        return max((_TOLERANCE.get(one, 2e-2) for one in types), default=1e-4)


def _grown(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (arguments[0] * _GROWTH, *arguments[1:])


def _numbers(errors: Sequence[float]) -> list[float]:
    return [error for error in errors if not math.isnan(error)]


def _near(mine: float, expected: float, what: str) -> None:
    if not (abs(mine - expected) <= 1e-5 * abs(expected) or (mine != mine and expected != expected)):
        raise _Failed(f"{what}: expected {expected:.8g}, got {mine:.8g}")


def _shape_of(model: nn.Module) -> list[object]:
    return [*((name, type(module)) for name, module in model.named_modules()), *model.state_dict().keys()]


def _summary(units: Sequence[WatchedUnit], errors: dict[str, Sequence[float]]) -> str:
    by_place: dict[str, list[float]] = {}
    for unit in units:
        if isinstance(unit.switch, MeasuringSwitch):
            for place, error in zip(unit.switch.places, errors[unit.name], strict=True):
                by_place.setdefault(place, []).append(error)
    return ", ".join(f"{place} {median(_numbers(found)):.3g}" for place, found in by_place.items() if _numbers(found))
