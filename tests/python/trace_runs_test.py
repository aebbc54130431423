# SPDX-License-Identifier: Apache-2.0
"""Traces of several runs: one is named."""

from pathlib import Path

import pytest

import gnmr

EXPORT = "Step,small - grad_norm,large - grad_norm\n1,1,2\n2,1,3\n"


def test_one_run_of_an_export(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(EXPORT)
    trace = gnmr.Trace(str(path), run="large")
    assert trace.units == ["grad_norm"]
    assert [(row.step, list(row.norms)) for row in trace] == [(1, [2.0]), (2, [3.0])]
    with pytest.raises(gnmr.Error, match="has 2 runs, name one with --run: small, large"):
        gnmr.Trace(str(path))
