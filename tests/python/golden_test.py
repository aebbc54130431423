# SPDX-License-Identifier: Apache-2.0
"""The golden traces, through the supervisor as Python has it, give the golden decisions."""

import json
from array import array
from pathlib import Path

import pytest

import gnmr

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
# Traces with errors are not for a supervisor of norms: tests/io/golden_errors_test.cpp.
WITH_ERRORS = {path.name.removesuffix(".errors.csv") for path in GOLDEN.glob("*.errors.csv")}
CASES = sorted({path.name.removesuffix(".csv").removesuffix(".errors") for path in GOLDEN.glob("*.csv")} - WITH_ERRORS)


def decisions_of(name: str, split: int = -1) -> list[dict]:
    """The decisions; after `split` rows the state goes to another supervisor."""
    trace = gnmr.Trace(str(GOLDEN / f"{name}.csv"))
    names = trace.units
    options = gnmr.Options.from_json((GOLDEN / f"{name}.options.json").read_text())
    units_file = GOLDEN / f"{name}.units.json"
    units = gnmr.read_units(str(units_file), names) if units_file.exists() else [gnmr.Unit(one) for one in names]
    supervisor = gnmr.Supervisor(units, options)
    decisions = []
    for count, row in enumerate(trace):
        if count == split:
            state = supervisor.save()
            supervisor = gnmr.Supervisor(units, options)
            assert supervisor.restore(state)["exact"]
        supervisor.begin(row.step)
        decision = supervisor.report(row.step, row.norms, row.sampled).decision
        fields = ("admitted", "denied", "futile", "released", "recovered")
        decisions.append(
            {
                "step": decision.step,
                "common": decision.common,
                **{field: [names[unit] for unit in getattr(decision, field)] for field in fields},
            }
        )
    return decisions


def test_there_are_traces() -> None:
    assert len(CASES) > 50


@pytest.mark.parametrize("name", CASES)
def test_decisions(name: str) -> None:
    expected = [json.loads(line) for line in (GOLDEN / f"{name}.decisions.jsonl").read_text().splitlines()]
    assert decisions_of(name) == expected
    assert decisions_of(name, split=len(expected) // 2) == expected


def test_norms_come_as_any_buffer() -> None:
    supervisor = gnmr.Supervisor([gnmr.Unit("a"), gnmr.Unit("b")])
    supervisor.begin(1)
    assert supervisor.report(1, array("d", [1.0, 2.0]), b"\1\1").decision.recovered == []
    supervisor.begin(2)
    with pytest.raises(gnmr.Error, match="2 .*1|expected"):
        supervisor.report(2, array("d", [1.0]))
    with pytest.raises(gnmr.Error):
        supervisor.report(2, array("d", [1.0, -1.0]))


def test_numpy_and_torch_are_buffers_too() -> None:
    numpy = pytest.importorskip("numpy")
    supervisor = gnmr.Supervisor([gnmr.Unit("a"), gnmr.Unit("b")])
    supervisor.begin(1)
    supervisor.report(1, numpy.array([1.0, 2.0]))
    torch = pytest.importorskip("torch")
    supervisor.begin(2)
    assert supervisor.report(2, torch.tensor([1.0, 2.0], dtype=torch.float64)).decision.step == 2
