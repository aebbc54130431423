# SPDX-License-Identifier: Apache-2.0
"""Who holds which piece of which parameter: a squared norm is the sum over all pieces, each of them once.

A parameter that is a DTensor (fully_shard, tensor parallel) says how it is laid over its mesh: pieces differ along
dimensions that shard it, and are copies along the others. Beyond its mesh, and where it is a plain tensor (data
parallel, stages of a pipeline, experts), equal names on two ranks mean copies, unless the caller says otherwise.

Goals: any mixture of meshes and groups by one rule; of copies the lowest rank counts. Non-goals: measuring.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from gnmr._core import Error, glob_matches
from gnmr.ranks.group import ProcessGroup, Ranks

#: Names of parameters (globs) and the group whose ranks hold copies of them; None: each rank has a piece of its own.
Replicas = Mapping[str, ProcessGroup | None]


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor; where nobody has imported them there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_of(tensor: Tensor) -> Tensor:
    """What lies on this rank, in the same memory."""
    if not is_spread(tensor):
        return tensor
    spread: Any = tensor
    with torch.no_grad():
        local: Any = spread.to_local()
    # A collective of DTensor may still be under way.
    return local.wait() if hasattr(local, "wait") else local  # type: ignore[no-any-return]


def laid_as(gradient: Tensor, parameter: Tensor) -> Tensor:
    """A gradient as its parameter is laid out, where it is a DTensor that is not (partial sums, for one)."""
    if not is_spread(gradient) or not is_spread(parameter):
        return gradient
    one: Any = gradient
    other: Any = parameter
    if one.placements == other.placements:
        return gradient
    return one.detach().redistribute(other.device_mesh, other.placements)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class UnitReport:
    """What ranks report to each other about a unit."""

    name: str
    cost: int
    switchable: bool
    frozen: bool  # its norm is not made of gradients
    places: tuple[str, ...]
    expected: tuple[float, ...]
    patrol_cost: float  # multiply-adds of comparing it beside a step; 0: it cannot be


@dataclass
class RankReport:
    """What a rank has. The same on ranks that differ only in their mesh coordinates: sent once for all of them."""

    units: list[UnitReport] = field(default_factory=list)
    left_out: list[tuple[str, int, str, bool]] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)
    pieces: dict[str, int] = field(default_factory=dict)  # by parameter, which layout it has

    def digest(self) -> str:
        """Equal where reports are."""
        return sha256(repr((self.units, self.left_out, self.layouts, self.pieces)).encode()).hexdigest()


@dataclass
class Copies:
    """One parameter on this rank: whether its squares count here, and how many ranks hold the same piece."""

    counts: bool
    ranks: int


class Layouts:
    """The layouts of a rank's parameters, and the coordinates of this rank in each."""

    def __init__(self, ranks: Ranks, replicas: Replicas) -> None:
        self._ranks = ranks
        self._replicas = replicas
        self.texts: list[str] = []
        self.coordinates: list[tuple[int, ...]] = []
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, name: str, parameter: nn.Parameter) -> int:
        """The number of a parameter's layout."""
        text, coordinates = _mesh_layout(name, parameter)
        for glob, group in self._replicas.items():
            if not glob_matches(glob, name):
                continue
            if group is None:
                # Pieces of their own may have any shape.
                text, coordinates = "a piece a rank", (self._ranks.rank,)
            else:
                text, coordinates = f"{text}, copies in a group", (*coordinates, self._ranks.number_in(group))
            break
        key = (text, coordinates)
        if key not in self._known:
            self._known[key] = len(self.texts)
            self.texts.append(text)
            self.coordinates.append(coordinates)
        return self._known[key]


def _mesh_layout(name: str, parameter: nn.Parameter) -> tuple[str, tuple[int, ...]]:
    shape = f"shape {tuple(parameter.shape)}"
    if not is_spread(parameter):
        return shape, ()
    spread: Any = parameter
    mesh = spread.device_mesh
    if any(placement.is_partial() for placement in spread.placements):
        raise Error(f"attach: expected a parameter that is sharded or replicated, {name} is {spread.placements}")
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise Error(f"attach: expected a rank that is part of the mesh of {name}; it is not in {mesh}")
    coordinates = tuple(
        int(at) for at, placement in zip(coordinate, spread.placements, strict=True) if not placement.is_replicate()
    )
    return f"{shape} on a mesh {tuple(mesh.shape)} {mesh.mesh_dim_names or ''} as {spread.placements}", coordinates


@dataclass
class AllReports:
    """The reports of all ranks."""

    digests: list[str]  # per rank
    coordinates: list[list[tuple[int, ...]]]  # per rank and layout
    by_digest: dict[str, RankReport]  # in the order of the first rank that has it

    def first_with(self, digest: str) -> int:
        return self.digests.index(digest)


def gather_reports(ranks: Ranks, mine: RankReport, coordinates: Sequence[tuple[int, ...]]) -> AllReports:
    """The reports of all ranks. What ranks have in common is sent once."""
    digest = mine.digest()
    heads = ranks.gather((digest, list(coordinates)))
    gathered = AllReports([head[0] for head in heads], [head[1] for head in heads], {})
    for one in dict.fromkeys(gathered.digests):
        gathered.by_digest[one] = ranks.spread(mine, gathered.first_with(one))
    _check_layouts(gathered)
    return gathered


def _check_layouts(gathered: AllReports) -> None:
    """The same parameter has the same layout wherever it is."""
    seen: dict[str, tuple[str, str]] = {}
    for digest, report in gathered.by_digest.items():
        for name, layout in report.pieces.items():
            text, other = report.layouts[layout], seen.setdefault(name, (report.layouts[layout], digest))
            if other[0] != text:
                raise Error(
                    f"attach: expected {name} to be laid out alike on all ranks; it is {other[0]} on rank "
                    f"{gathered.first_with(other[1])} and {text} on rank {gathered.first_with(digest)}. "
                    "Where equal names are different pieces, replicas={glob: None} says so"
                )


def copies_of(rank: int, gathered: AllReports, names: Sequence[str]) -> list[Copies]:
    """For each of this rank's parameters, who else holds the same piece."""
    mine = gathered.by_digest[gathered.digests[rank]]
    known: dict[tuple[int, tuple[tuple[str, int], ...]], Copies] = {}
    result: list[Copies] = []
    for name in names:
        layout = mine.pieces[name]
        coordinates = gathered.coordinates[rank][layout]
        holders = tuple(
            (digest, report.pieces[name]) for digest, report in gathered.by_digest.items() if name in report.pieces
        )
        if (layout, holders) not in known:
            theirs = dict(holders)
            same = [
                other
                for other, digest in enumerate(gathered.digests)
                if digest in theirs and gathered.coordinates[other][theirs[digest]] == coordinates
            ]
            known[layout, holders] = Copies(same[0] == rank, len(same))
        result.append(known[layout, holders])
    return result


def merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """One order of all names in which each list keeps its own, as far as that can be: stages follow each other,
    experts of other ranks stand beside ours."""
    order: list[str] = []
    for names in lists:
        seen = set(order)
        before: dict[str, list[str]] = {}  # by the known name that follows them
        new: list[str] = []
        for name in names:
            if name in seen:
                before[name], new = new, []
            else:
                new.append(name)
        order = [one for name in order for one in (*before.get(name, ()), name)] + new
    return order
