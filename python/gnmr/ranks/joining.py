# SPDX-License-Identifier: Apache-2.0
"""The units of all ranks as one list that every rank has, and what of it lies where.

Goals: a rank knows all units by name, cost and whether anybody can switch them; those of other ranks have no switch
here. Non-goals: measuring, deciding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from gnmr import _core
from gnmr._core import Error
from gnmr.low.layer_switch import LayerSwitch
from gnmr.norms.gradients import Gradients, Source
from gnmr.ranks.group import Ranks
from gnmr.ranks.pieces import (
    AllReports,
    Copies,
    Layouts,
    RankReport,
    Replicas,
    UnitReport,
    copies_of,
    gather_reports,
    is_spread,
    merged,
)
from gnmr.step.patrol import TOKENS
from gnmr.switches import MeasuringSwitch, PatrolledSwitch, RecipeSwitch
from gnmr.units import Coverage, FoundUnits, LeftOut, WatchedUnit, count_adapters, plain_name, share_of, times_wrapped


@dataclass
class Joined:
    """The units of all ranks."""

    found: FoundUnits
    core_units: list[_core.Unit]
    places: list[str]  # what trials measure; empty: nothing
    expected: list[float]
    patrol_costs: list[float]  # per unit, multiply-adds of comparing it in a micro-batch; 0: it cannot be
    #: Units whose norm is that of an output's gradient, and on how many ranks they are.
    outputs: dict[int, int] = field(default_factory=dict)

    @property
    def switchable(self) -> bool:
        return any(not unit.forced for unit in self.core_units)

    @property
    def frozen(self) -> list[tuple[int, LayerSwitch[Any]]]:
        """Units of this process whose norm is that of their output's gradient, and who measures it."""
        return [
            (index, unit.switch)
            for index, unit in enumerate(self.found.units)
            if isinstance(unit.switch, LayerSwitch) and unit.switch.measures_output
        ]


def joined_alone(found: FoundUnits) -> Joined:
    """The units of one process."""
    reports = [_report_of(unit) for unit in found.units]
    places, expected = _what_trials_measure(reports)
    costs = [report.patrol_cost for report in reports]
    return Joined(found, [unit.as_core() for unit in found.units], places, expected, costs)


def join(ranks: Ranks, model: nn.Module, found: FoundUnits, replicas: Replicas) -> tuple[Joined, list[Copies]]:
    """The units of all ranks, and for each parameter of this one who else holds it."""
    report, names, layouts = ranks.together(lambda: _rank_report(ranks, model, found, replicas))
    gathered = gather_reports(ranks, report, layouts.coordinates)
    return _joined(gathered, found), copies_of(ranks.rank, gathered, names)


def gradients_of(
    model: nn.Module, units: Sequence[WatchedUnit], source: Source, copies: Sequence[Copies] | None
) -> Gradients:
    """The gradients of all parameters that this rank has."""
    owner = {id(parameter): index for index, unit in enumerate(units) for parameter in unit.parameters}
    parameters = list(model.parameters())
    return Gradients(parameters, [owner.get(id(one), len(units)) for one in parameters], len(units), source, copies)


def has_new_parameters(model: nn.Module, units: Sequence[WatchedUnit]) -> bool:
    """Whether something (fully_shard, parallelize_module) has put others in their place since they were looked for."""
    return any(
        len(now) != len(unit.parameters) or any(a is not b for a, b in zip(now, unit.parameters, strict=True))
        for unit in units
        for now in [list(unit.module.parameters())]
    )


def find_parameters_again(units: Sequence[WatchedUnit]) -> None:
    """Takes over what the modules have now."""
    for unit in units:
        unit.parameters = list(unit.module.parameters())


def check_low_paths(model: nn.Module, units: Sequence[WatchedUnit]) -> None:
    """Our own low path multiplies plain tensors: what fully_shard gathers, not what tensor parallel leaves spread."""
    if not any(isinstance(unit.switch, RecipeSwitch) for unit in units):
        return
    gathered = _gathered_by_fully_shard(model)
    for unit in units:
        if not isinstance(unit.switch, RecipeSwitch):
            continue
        for parameter in unit.parameters:
            if is_spread(parameter) and id(parameter) not in gathered:
                raise Error(
                    f"recipe: our low path needs the whole weight of a layer, and {unit.name} is tensor "
                    f"parallel ({getattr(parameter, 'placements', '')}). Leave recipe out to watch the model, "
                    "or register a switch for its layers"
                )


def refuse_flat_parameters(model: nn.Module) -> None:
    """The first FSDP puts many layers into one flat parameter: a unit's part of it is not known. Megatron's
    distributed optimizer leaves each rank a stretch of one flat gradient."""
    for name, module in model.named_modules():
        settings = getattr(module, "ddp_config", None)
        ranks = getattr(module, "dp_group", None)
        if getattr(settings, "use_distributed_optimizer", False) and ranks is not None and ranks.size() > 1:
            raise Error(
                "attach: with Megatron's distributed optimizer each rank has a part of main_grad, whose layers "
                "cannot be found: expected use_distributed_optimizer=False"
            )
        if type(module).__name__ == "FullyShardedDataParallel":
            raise Error(
                f"attach: {name or 'the model'} is wrapped by FullyShardedDataParallel, whose flat parameters "
                "hide the units: use fully_shard (FSDP2)"
            )


def _gathered_by_fully_shard(model: nn.Module) -> set[int]:
    """Parameters that are plain tensors while their module runs: sharded by nothing but fully_shard."""
    gathered: set[int] = set()
    for module in model.modules():
        if not any(base.__name__ == "FSDPModule" for base in type(module).__mro__):
            continue
        for parameter in module.parameters():
            placements = getattr(parameter, "placements", ())
            # One mesh dimension that shards, or with copies before it (HSDP); more of them are tensor parallel.
            if placements and all(one.is_replicate() for one in placements[:-1]) and not placements[-1].is_replicate():
                gathered.add(id(parameter))
    return gathered


def _report_of(unit: WatchedUnit) -> UnitReport:
    measuring = unit.switch if isinstance(unit.switch, MeasuringSwitch) else None
    return UnitReport(
        unit.name,
        unit.cost,
        unit.switch is not None,
        isinstance(unit.switch, LayerSwitch) and unit.switch.measures_output,
        tuple(measuring.places) if measuring is not None else (),
        tuple(measuring.expected) if measuring is not None else (),
        unit.switch.patrol_cost(TOKENS) if isinstance(unit.switch, PatrolledSwitch) else 0.0,
    )


def _rank_report(
    ranks: Ranks, model: nn.Module, found: FoundUnits, replicas: Replicas
) -> tuple[RankReport, list[str], Layouts]:
    layouts = Layouts(ranks, replicas)
    names: list[str] = []
    pieces: dict[str, int] = {}
    wrapped = times_wrapped(model)
    for name, parameter in model.named_parameters():
        names.append(plain_name(name, wrapped))
        pieces[names[-1]] = layouts.add(names[-1], parameter)
    report = RankReport(
        [_report_of(unit) for unit in found.units],
        [(one.name, one.cost, one.reason, one.counts) for one in found.coverage.left_out],
        layouts.texts,
        pieces,
    )
    return report, names, layouts


def _joined(gathered: AllReports, found: FoundUnits) -> Joined:
    reports = list(gathered.by_digest.values())
    known: dict[str, UnitReport] = {}
    switchable: set[str] = set()
    for report in reports:
        for unit in report.units:
            known.setdefault(unit.name, unit)
            if unit.switchable:
                switchable.add(unit.name)
    names = merged([[unit.name for unit in report.units] for report in reports])
    here = {unit.name: unit for unit in found.units}
    units = [here.get(name) or WatchedUnit(name, known[name].cost, nn.Identity(), None, []) for name in names]
    core_units = [_core.Unit(unit.name, unit.cost, unit.group, forced=unit.name not in switchable) for unit in units]
    places, expected = _what_trials_measure([unit for report in reports for unit in report.units])
    outputs = {index: _holders(gathered, name) for index, name in enumerate(names) if known[name].frozen}
    coverage = _coverage(found.coverage, reports, known, switchable)
    costs = [known[name].patrol_cost for name in names]
    return Joined(FoundUnits(units, coverage), core_units, places, expected, costs, outputs)


def _holders(gathered: AllReports, name: str) -> int:
    have = {digest for digest, report in gathered.by_digest.items() if any(unit.name == name for unit in report.units)}
    return sum(digest in have for digest in gathered.digests)


def _coverage(
    here: Coverage, reports: Sequence[RankReport], known: dict[str, UnitReport], switchable: set[str]
) -> Coverage:
    """The coverage of all ranks' units."""
    left_out = {row[0]: LeftOut(*row) for report in reports for row in report.left_out if row[0] not in known}
    watched = sum(unit.cost for unit in known.values())
    return replace(
        here,
        units=len(known),
        switchable=len(switchable),
        share=share_of(watched, left_out.values()),
        left_out=list(left_out.values()),
        adapters=count_adapters(set(known) - switchable),
    )


def _what_trials_measure(units: Sequence[UnitReport]) -> tuple[list[str], list[float]]:
    """Of the unit that measures most: its places are those of all units; what a unit lacks is never measured."""
    most = max(units, key=lambda unit: len(unit.places), default=None)
    return (list(most.places), list(most.expected)) if most is not None else ([], [])
