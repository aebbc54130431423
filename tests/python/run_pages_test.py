# SPDX-License-Identifier: Apache-2.0
"""`explain` and `report` out of the package: what the program makes of the same run, without the program."""

import base64
import hashlib
import json
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

import gnmr
from gnmr import __main__ as command_line
from gnmr import _core


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in which one unit goes to recovery."""
    folder = tmp_path / "run"
    folder.mkdir()
    supervisor = gnmr.Supervisor(
        [gnmr.Unit("layers.0.up"), gnmr.Unit("layers.0.down")],
        gnmr.Options(warmup_samples=2, max_o=1, common_share=1, lock_steps=3),
        journal=str(folder / "journal.jsonl"),
        signals=str(folder / "signals.bin"),
    )
    for step in range(1, 21):
        supervisor.begin(step)
        supervisor.begin(step)
        supervisor.report(step, array("d", [1.0, 1e3 if step == 8 else 1.0]))
    supervisor.close()
    return folder


def without_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a wheel."""
    monkeypatch.setattr(_core, "HAS_PROGRAM", False)


def test_a_run_is_explained(run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = gnmr.explain(run)
    assert "layers.0.down" in text and "20 (1 to 20)" in text
    assert gnmr.explain(run / "journal.jsonl").count("layers.0.down") >= 1
    assert "layers.0.down" not in gnmr.explain(run, to_step=5).partition("What happened")[2]
    assert json.loads(gnmr.explain(run, json=True))["recoveries"]
    if _core.HAS_PROGRAM:
        assert command_line.main(["explain", str(run)]) == 0
        assert capfd.readouterr().out == text
    without_program(monkeypatch)
    assert command_line.main(["explain", str(run)]) == 0
    assert capfd.readouterr().out == text
    assert command_line.main(["explain", str(run / "nothing")]) == 1
    assert "nothing" in capfd.readouterr().err
    with pytest.raises(gnmr.Error, match="from_step"):
        gnmr.explain(run, from_step=5, to_step=3)
    with pytest.raises(gnmr.Error, match="limit"):
        gnmr.explain(run, limit=-1)


def test_a_run_is_reported(run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(gnmr.report(run, plain=True))
    assert page == run / "report.html" and "layers.0.down" in page.read_text()
    plain = page.read_text()
    if _core.HAS_PROGRAM:
        assert command_line.main(["report", str(run), "--plain", "-o", "-"]) == 0
        assert capfd.readouterr().out == plain
    without_program(monkeypatch)
    assert command_line.main(["report", str(run), "--plain", "-o", "-"]) == 0
    assert capfd.readouterr().out == plain
    assert command_line.main(["report", str(run), "-o", str(run / "other.html")]) == 0
    assert "other.html" in capfd.readouterr().out and (run / "other.html").read_text().startswith("<!doctype html>")
    # Its policy admits the script in it and no other.
    text = (run / "other.html").read_text()
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "<script" not in plain
    # A slip costs nothing.
    journal = (run / "journal.jsonl").read_bytes()
    with pytest.raises(gnmr.Error, match="is no report"):
        gnmr.report(run, run / "journal.jsonl")
    assert (run / "journal.jsonl").read_bytes() == journal
    with pytest.raises(gnmr.Error, match="neither a suite nor a run"):
        gnmr.report(run.parent)


def test_torch_is_not_needed(run: Path) -> None:
    code = f"import sys; sys.modules['torch'] = None; import gnmr; assert 'layers' in gnmr.explain(r'{run}')"
    subprocess.run([sys.executable, "-c", code], check=True)
