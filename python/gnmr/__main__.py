# SPDX-License-Identifier: Apache-2.0
"""python -m gnmr: what the package knows, on the command line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gnmr import _core, pages, program

_ABOUT = """\
GNMR keeps low-precision training stable. In a loop that you have:

    import gnmr
    ctl = gnmr.attach(model, max_o=0.01)             # finds the units and how to switch each; says what it watches
    loss.backward(); ctl.step(); optimizer.step()    # norms, decision, switches for the next step

While it runs: `echo high > FOLDER/control` (or watch, armed), where attach has out=FOLDER; or GNMR_MODE=watch.
What happened in a run? `python -m gnmr explain FOLDER`, `python -m gnmr report FOLDER`
What would it have done on a run that you have? `python -m gnmr replay norms.csv`
Can your model be switched on this machine? `python -m gnmr doctor --help`
"""

_PROGRAM = """\
This build has the other commands of the program `gnmr`, too: `python -m gnmr train --help` (lab, tune)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if _core.HAS_PROGRAM and words and not words[0].startswith("-") and words[0] not in _OWN:
        return _guarded(lambda: program.run(words))
    about = _ABOUT + (_PROGRAM if _core.HAS_PROGRAM else "")
    parser = argparse.ArgumentParser(
        prog="python -m gnmr", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"gnmr {_core.VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("options", help="the controller's options: names, defaults, ranges, what they mean")
    commands.add_parser("recipes", help="the built-in recipes for attach(recipe=...)")
    replay = commands.add_parser("replay", help="the decisions that a trace of gradient norms gives")
    replay.add_argument("trace", help="a CSV file with a norm per unit and step, or a training log")
    replay.add_argument("--preset", default="default", help="default or paper")
    replay.add_argument("--run", default="", help="which run of a W&B export or of a folder of TensorBoard runs")
    pages.add_commands(commands)
    _add_doctor(commands, words)
    chosen = parser.parse_args(words)
    return _guarded(lambda: _COMMANDS[chosen.command](chosen))


def _guarded(run: Callable[[], int]) -> int:
    try:
        return run()
    except _core.Error as error:
        print(f"gnmr: {error}", file=sys.stderr)
        return 1


def _add_doctor(commands: Any, words: Sequence[str]) -> None:
    """Its arguments come from where torch is imported, which the other commands do without."""
    about = "whether your model can be switched on this machine: flips every unit and compares"
    if "doctor" not in words[:1]:
        commands.add_parser("doctor", help=about)
        return
    from gnmr.checks import doctor

    parser = commands.add_parser(
        "doctor", help=about, description=doctor.ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    doctor.add_arguments(parser)


def _doctor(chosen: argparse.Namespace) -> int:
    from gnmr.checks import doctor

    return doctor.run(chosen)


def _options(_: argparse.Namespace) -> int:
    for spec in _core.option_specs():
        print(f"{spec['name']} = {spec['default']}\n    {spec['help']} ({spec['range']}; paper: {spec['paper']})")
    return 0


def _recipes(_: argparse.Namespace) -> int:
    for name in _core.recipe_names():
        print(f"{name:16} {_core.Recipe(name).about}")
    return 0


def _replay(chosen: argparse.Namespace) -> int:
    trace = _core.Trace(chosen.trace, run=chosen.run)
    names = trace.units
    supervisor = _core.Supervisor([_core.Unit(name) for name in names], _core.Options(chosen.preset))
    steps = 0
    for row in trace:
        steps += 1
        supervisor.begin(row.step)
        decision = supervisor.report(row.step, row.norms, row.sampled).decision
        for word, units in (("admitted", decision.admitted), ("denied", decision.denied), ("futile", decision.futile)):
            if units:
                print(f"step {row.step}: {word} {', '.join(names[unit] for unit in units)}")
    print(f"{steps} steps of {len(names)} units, at most {supervisor.max_recovered} in recovery at one time")
    return 0


#: What Python answers itself; all other commands are the program's, where that is built in.
_OWN = frozenset({"doctor", "options", "recipes"})

_COMMANDS = {
    "doctor": _doctor,
    "options": _options,
    "recipes": _recipes,
    "replay": _replay,
    "explain": pages.run_explain,
    "report": pages.run_report,
}

if __name__ == "__main__":
    sys.exit(main())
