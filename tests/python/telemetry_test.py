# SPDX-License-Identifier: Apache-2.0
"""Listeners: what they write is read back by somebody else's reader, and nothing that they do reaches the loop."""

import json
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import low_path
from small_model import NO_PATROL, QUICK, make_model, run_backward
from telemetry_volume import KINDS, volume
from torch import nn

import gnmr
from gnmr import telemetry


def attached(**kwargs: Any) -> tuple[nn.Module, gnmr.Control]:
    model = make_model()
    return model, gnmr.attach(model, **{**low_path(model), "quiet": True, "strict": True, **QUICK, **kwargs})


def train(model: nn.Module, ctl: gnmr.Control, steps: range, fault_at: int = -1) -> list[gnmr.StepResult]:
    results = []
    for step in steps:
        model.zero_grad()
        loss = run_backward(model, step)
        if step == fault_at:
            model.layers[2].down.weight.grad *= 50
        results.append(ctl.step(max_norm=1.0, loss=loss))
    return results


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[gnmr.StepResult, list[str], str]] = []
        self.closed = 0

    def step(self, result: gnmr.StepResult, control: gnmr.Control) -> None:
        self.seen.append((result, control.high, control.mode))

    def close(self) -> None:
        self.closed += 1


def test_a_listener_hears_each_step() -> None:
    model, ctl = attached(patrol=NO_PATROL)
    recorder = Recorder()
    ctl.listeners.add(recorder)
    results = train(model, ctl, range(1, 12), fault_at=10)
    assert [one[0] for one in recorder.seen] == results
    # It sees the switches of the step that comes.
    assert recorder.seen[8][1] == [] and recorder.seen[9][1] == ["layers.2.down"]
    ctl._parts.gradients.measure = lambda: 1 / 0  # type: ignore[assignment,method-assign]
    ctl._strict = False
    with pytest.warns(UserWarning, match="a fault in gnmr"):
        train(model, ctl, range(12, 13))
    assert recorder.seen[-1][2] == "disarmed"
    ctl.detach()
    ctl.detach()
    assert recorder.closed == 1


def test_one_that_fails_is_told_nothing_any_more() -> None:
    class Failing(Recorder):
        def step(self, result: gnmr.StepResult, control: gnmr.Control) -> None:
            raise OSError("no")

    model, ctl = attached()
    failing, recorder = Failing(), Recorder()
    ctl.listeners.add(failing)
    ctl.listeners.add(recorder)
    with pytest.warns(UserWarning, match="Failing failed in step 1") as told:
        train(model, ctl, range(1, 4))
    assert len(told) == 1 and len(recorder.seen) == 3


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    model, ctl = attached(patrol=NO_PATROL)
    board = telemetry.TensorBoard(tmp_path)
    ctl.listeners.add(board)
    results = train(model, ctl, range(1, 16), fault_at=10)
    ctl.detach()
    assert board.dropped == 0
    events = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    norms = events.Scalars("gnmr/total_norm")
    assert [one.step for one in norms] == list(range(1, 16))
    assert [one.value for one in norms] == pytest.approx([result.wait().total_norm for result in results], rel=1e-6)
    assert [one.value for one in events.Scalars("gnmr/loss")] == pytest.approx([one.loss for one in results], rel=1e-6)
    assert [one.value for one in events.Scalars("gnmr/recovered")] == [len(result.recovered) for result in results]
    texts = {one.step: one.tensor_proto.string_val[0].decode() for one in events.Tensors("gnmr/events/text_summary")}
    assert "admitted: layers.2.down" in texts[10]
    assert set(texts) == {one.step for one in results if one.alarmed or one.admitted or one.released}


def test_a_writer_that_is_there_already(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from torch.utils.tensorboard import SummaryWriter

    model, ctl = attached()
    writer = SummaryWriter(tmp_path)
    ctl.listeners.add(telemetry.TensorBoard(writer, every=5))
    train(model, ctl, range(1, 11))
    ctl.detach()
    writer.add_scalar("mine", 1.0, 1)
    writer.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [one.step for one in events.Scalars("gnmr/total_norm")] == [5, 10] and events.Scalars("mine")


def test_json_lines(tmp_path: Path) -> None:
    model, ctl = attached(patrol=NO_PATROL)
    path = tmp_path / "steps.jsonl"
    ctl.listeners.add(telemetry.JsonLines(path, every=4))
    results = train(model, ctl, range(1, 13), fault_at=10)
    ctl.step(skipped=True)
    ctl.detach()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    # Every fourth, and those in which something happened.
    assert [line["step"] for line in lines if not line["alarmed"] and not line["released"]][:2] == [4, 8]
    tenth = next(line for line in lines if line["step"] == 10)
    assert tenth["admitted_units"] == ["layers.2.down"] and tenth["mode"] == "armed"
    assert tenth["total_norm"] == results[9].total_norm
    assert lines[-1]["step"] == 13 and lines[-1]["applied"] == 0 and "total_norm" not in lines[-1]


def test_json_lines_are_bounded(tmp_path: Path) -> None:
    model, ctl = attached(recipe=None)
    path = tmp_path / "steps.jsonl"
    listener = telemetry.JsonLines(path, most_bytes=20_000, most_waiting=100_000)
    result = gnmr.StepResult(0, math.inf)
    for step in range(2000):
        listener.step(gnmr.StepResult(step, math.inf), ctl)
    listener.close(30)
    assert listener.dropped == 0 and result.applied
    sizes = [os.path.getsize(file) for file in tmp_path.iterdir()]
    assert len(sizes) == 2 and all(0 < size <= 20_000 for size in sizes)
    lines = [
        json.loads(line)
        for name in ("steps.jsonl.1", "steps.jsonl")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    # The newest are there, without a gap.
    assert [line["step"] for line in lines] == list(range(2000 - len(lines), 2000)) and lines[0]["total_norm"] == "inf"


@pytest.mark.parametrize("kind", ["json", "tensorboard", "wandb"])
def test_a_stall_drops_steps_and_nobody_waits(tmp_path: Path, kind: str) -> None:
    """A pipe that nobody reads, a writer and a run that never come back."""
    released = threading.Event()

    class Stalled:
        def add_scalar(self, *arguments: Any) -> None:
            released.wait(30)

        def log(self, *arguments: Any, **named: Any) -> None:
            released.wait(30)

        add_text = flush = add_scalar

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    listener: Any = (
        telemetry.JsonLines(pipe, most_waiting=16)
        if kind == "json"
        else telemetry.TensorBoard(Stalled(), most_waiting=16)
        if kind == "tensorboard"
        else telemetry.Wandb(Stalled(), most_waiting=16)
    )
    model, ctl = attached()
    ctl.listeners.add(listener)
    slowest = 0.0
    for step in range(1, 40):
        start = time.perf_counter()
        train(model, ctl, range(step, step + 1))
        slowest = max(slowest, time.perf_counter() - start)
    assert listener.dropped >= 39 - 17 and slowest < 1.0
    start = time.perf_counter()
    listener.close(0.1)
    assert time.perf_counter() - start < 1.0
    released.set()


def test_a_disk_that_refuses_is_counted(tmp_path: Path) -> None:
    model, ctl = attached()
    listener = telemetry.JsonLines(tmp_path / "missing" / "steps.jsonl")
    ctl.listeners.add(listener)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, ctl, range(1, 6))
        ctl.detach()
    assert listener.dropped == 5


def test_a_stalled_listener_does_not_keep_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    program = (
        "import sys, gnmr\nfrom gnmr.telemetry import JsonLines\n"
        "listener = JsonLines(sys.argv[1])\nlistener._background.give({})\nlistener.close(0.1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "pipe")], timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_is_bounded(tmp_path: Path, kind: str) -> None:
    """By the budget, not by the number of units: in the worst case all of them are at risk, and nearly all denied."""
    units, steps = 6000, 400
    size, lines, _ = volume(kind, units, steps, tmp_path)
    assert lines["step"] == steps and lines["header"] == 1
    # Every tenth step after the 200th has an alarm.
    assert lines["risk"] <= 32 * 20 and lines["denied"] <= 32 * 20
    assert max(lines["admitted"], lines["released"], lines["futile"]) <= 0.01 * units * 20
    assert (lines["denied"] == 32 * 20) == (kind == "worst")
    step_lines = [
        json.loads(line)
        for line in (tmp_path / f"{kind}.jsonl").read_text().splitlines()
        if line.startswith('{"kind":"step"')
    ]
    assert max(line.get("denied", 0) for line in step_lines) >= {"calm": 0, "storms": 200, "worst": 5900}[kind]
    # All but the header, a step: 150 bytes, and 220 a line of an event.
    assert sum(size.values()) - size["header"] < 180 * steps + 220 * 20 * (2 * 32 + 3 * 60)


class FakeRun:
    def __init__(self) -> None:
        self.rows: list[tuple[dict[str, float], bool]] = []

    def log(self, numbers: dict[str, float], commit: bool) -> None:
        self.rows.append((numbers, commit))


def test_wandb_gets_rows_where_there_is_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ctl = attached()
    ctl.listeners.add(telemetry.Wandb())
    module = type(sys)("wandb")
    module.run = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    train(model, ctl, range(1, 4))
    run = FakeRun()
    module.run = run  # type: ignore[attr-defined]
    results = train(model, ctl, range(4, 7))
    ctl.detach()
    assert [row["gnmr/step"] for row, _ in run.rows] == [4, 5, 6] and not any(commit for _, commit in run.rows)
    assert [row["gnmr/total_norm"] for row, _ in run.rows] == [result.wait().total_norm for result in results]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, without a network: the loop's own step counter is not moved."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="gnmr-test")
    model, ctl = attached()
    listener = telemetry.Wandb()
    ctl.listeners.add(listener)
    for step in range(1, 6):
        train(model, ctl, range(step, step + 1))
        # The background's thread has to have been there, or the numbers stand in the next row.
        while listener._background._queue:
            time.sleep(0.01)
        time.sleep(0.05)
        run.log({"mine": float(step)}, step=step)
    assert dict(run.summary)["gnmr/step"] >= 4 and run.step >= 5
    ctl.detach()
    run.finish()
    assert listener.dropped == 0


def test_a_model_without_listeners_pays_nothing() -> None:
    model, ctl = attached()
    assert torch.is_tensor(next(model.parameters()))
    result = gnmr.StepResult(1)
    assert ctl.listeners.notify(result, ctl) is result
