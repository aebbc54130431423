# SPDX-License-Identifier: Apache-2.0
"""`gnmr.explain` and `gnmr.report`: what happened in a run, as text and as a page. Neither needs torch.

Goals: what the program `gnmr` makes of the same files, also where it is not built in. Non-goals: reading files here.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from gnmr import _core

_Path = str | os.PathLike[str]


def explain(
    path: _Path,
    *,
    limit: int = 40,
    unit: str = "",
    from_step: int | None = None,
    to_step: int | None = None,
    json: bool = False,
) -> str:
    """What happened in a run, as text: `path` is its folder (`out=` of attach) or a journal.

    `limit`: so many episodes at most, the weightiest (0: all); `unit`: only those with a unit that fits this glob;
    `from_step`, `to_step`: only those in these steps; `json`: one JSON object instead.
    """
    if limit < 0:
        raise _core.Error(f"explain: expected limit of at least 0, got {limit}")
    return _core.explain(os.fspath(path), limit, unit, from_step, to_step, json)


def report(path: _Path, out: _Path | None = None, *, plain: bool = False) -> str:
    """Writes a run (or a suite) as one HTML page and returns where it is: `out`, or report.html in the folder.
    `plain`: no script in the page, charts are given in words."""
    target = os.path.join(os.fspath(path), _core.REPORT_NAME) if out is None else os.fspath(out)
    _core.write_page(target, _core.make_report(os.fspath(path), plain).html)
    return target


def add_commands(commands: Any) -> None:
    """The commands `explain` and `report`, with the flags that the program has for them."""
    story = commands.add_parser("explain", help="what happened in a run, from its journal")
    story.add_argument("run", metavar="RUN|FILE", help="the folder of a run, or a journal (- is standard input)")
    story.add_argument("--limit", type=int, default=40, metavar="N", help="episodes to list at most [40]; 0: all")
    story.add_argument("--unit", default="", metavar="GLOB", help="only episodes with a unit whose name fits")
    story.add_argument(
        "--from", dest="from_step", type=int, metavar="STEP", help="only episodes that end here or later"
    )
    story.add_argument(
        "--to", dest="to_step", type=int, metavar="STEP", help="only episodes that begin here or earlier"
    )
    story.add_argument("--json", action="store_true", help="print one JSON object for programs")
    page = commands.add_parser("report", help="a run or a suite of runs as one HTML file")
    page.add_argument("run", metavar="DIRECTORY", help="the folder of a run or of a suite")
    page.add_argument(
        "-o", "--out", metavar="FILE", help="file to write [report.html in the folder]; - is standard output"
    )
    page.add_argument("--plain", action="store_true", help="no script in the page: charts are given in words")
    page.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")


def run_explain(chosen: argparse.Namespace) -> int:
    """The command; its exit code."""
    print(
        explain(
            chosen.run,
            limit=chosen.limit,
            unit=chosen.unit,
            from_step=chosen.from_step,
            to_step=chosen.to_step,
            json=chosen.json,
        ),
        end="",
    )
    return 0


def run_report(chosen: argparse.Namespace) -> int:
    """The command; its exit code."""
    made = _core.make_report(chosen.run, chosen.plain)
    if chosen.out == "-":
        print(made.html, end="")
    else:
        target = chosen.out or str(Path(chosen.run) / _core.REPORT_NAME)
        _core.write_page(target, made.html)
    if chosen.quiet:
        return 0
    for remark in made.remarks:
        print(f"gnmr: {remark}", file=sys.stderr)
    if chosen.out != "-":
        print(f"{target} ({(len(made.html.encode()) + 999) // 1000} kB)")
    return 0
