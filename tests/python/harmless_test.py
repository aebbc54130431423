# SPDX-License-Identifier: Apache-2.0
"""It never kills or harms a run: each promise by injection."""

import json
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import gnmr.telemetry
import pytest
import torch
from small_model import NO_PATROL, QUICK, make_model, run_backward
from torch import nn
from torch.nn.utils import clip_grad_norm_

import gnmr


def attached(**kwargs: object) -> tuple[nn.Module, gnmr.Control]:
    model = make_model()
    return model, gnmr.attach(model, **{"recipe": "fp8-tensorwise", "quiet": True, **QUICK, **kwargs})


def one_step(model: nn.Module, ctl: gnmr.Control, step: int, **kwargs: object) -> gnmr.StepResult:
    model.zero_grad()
    run_backward(model, step)
    return ctl.step(**kwargs)


def recover_all(model: nn.Module, ctl: gnmr.Control) -> None:
    ctl.set("*", "high")
    one_step(model, ctl, 1)
    assert len(ctl.high) == 8


def test_a_fault_disarms_and_training_goes_on(tmp_path: Path) -> None:
    model, ctl = attached(out=tmp_path)
    recover_all(model, ctl)

    def broken() -> None:
        raise ZeroDivisionError("injected")

    ctl._parts.gradients.measure = broken  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="a fault in gnmr.*injected") as told:
        result = one_step(model, ctl, 2, max_norm=0.01)
    assert len(told) == 1
    # The backend's own recipe: everything low, and the gradients are clipped all the same.
    assert ctl.mode == "disarmed" and ctl.high == []
    assert all(not unit.switch.high for unit in ctl.units)
    assert result.step == 2 and result.applied
    total = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert float(total) == pytest.approx(0.01, rel=1e-4)
    # It stays quiet, and counts steps.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert one_step(model, ctl, 3).step == 3
        assert one_step(model, ctl, 4, max_norm=0.01).wait().total_norm > 0
    ctl.detach()
    assert any("injected" in line for line in (tmp_path / "journal.jsonl").read_text().splitlines())
    with pytest.raises(gnmr.Error, match="attach again"):
        ctl.arm()


def test_strict_raises() -> None:
    model, ctl = attached(strict=True)
    ctl._parts.gradients.measure = lambda: 1 / 0  # type: ignore[assignment,method-assign]
    with pytest.raises(ZeroDivisionError):
        one_step(model, ctl, 1)


def test_a_switch_that_fails_disarms() -> None:
    model, ctl = attached()
    one_step(model, ctl, 1)
    switch = ctl.units[3].switch

    def refuse(high: bool) -> None:
        raise OSError("stuck")

    switch.set_high = refuse
    ctl.set("layers.0.*", "high")
    run_backward(model, 2)
    ctl.set("*", "high")
    with pytest.warns(UserWarning, match="stuck"):
        ctl.step()
    assert ctl.mode == "disarmed"
    assert all(not unit.switch.high for unit in ctl.units)


def test_the_first_steps_only_watch() -> None:
    model, ctl = attached(watch_steps=12, patrol=NO_PATROL)
    admitted = []
    for step in range(1, 20):
        model.zero_grad()
        run_backward(model, step)
        if step in (9, 15):
            model.layers[0].up.weight.grad *= 100
        result = ctl.step()
        admitted.append((result.admitted, bool(ctl.high)))
        # What step 12 decides takes effect in step 13.
        assert result.would_be == (step < 12) and ("would_be=True" in repr(result)) == (step < 12)
        assert gnmr.telemetry.numbers_of(result, ctl)["would_be"] == (step < 12)
    # Both would be admitted; only the second one is switched, and only it counts as a recovery.
    row = ctl.summary().units[0]
    assert (row.name, row.admissions, row.would_be) == ("layers.0.up", 1, 1)
    assert row.recovery_steps == sum(high for _, high in admitted)
    assert admitted[8] == (("layers.0.up",), False)
    assert admitted[14] == (("layers.0.up",), True)


@pytest.mark.parametrize("lag", [0, 1])
def test_in_watch_results_are_what_would_have_been(lag: int) -> None:
    model, ctl = attached(lag=lag)
    assert not one_step(model, ctl, 1).would_be
    ctl.watch()
    one_step(model, ctl, 2)  # with lag 1 it is about the step before
    assert one_step(model, ctl, 3).would_be
    ctl.arm()
    one_step(model, ctl, 4)
    assert not one_step(model, ctl, 5).would_be


@pytest.mark.parametrize("ends", ["a fault", "a fault behind the update", "detach"])
def test_the_coefficient_is_what_gradients_were_multiplied_with(ends: str) -> None:
    model, ctl = attached()
    one_step(model, ctl, 1, max_norm=0.01)
    if ends == "a fault":
        ctl._parts.gradients.measure = lambda: 1 / 0  # type: ignore[assignment,method-assign]
    elif ends == "detach":
        ctl.detach()
    else:
        ctl._steps.installed[0].end_step = lambda: 1 / 0  # type: ignore[assignment,method-assign]
    for step in (2, 3):
        model.zero_grad()
        run_backward(model, step)
        before = [parameter.grad.clone() for parameter in model.parameters()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ctl.step(max_norm=0.01)
        assert ctl.mode == "disarmed" and result.wait().clip_coefficient < 0.5
        expected = float(torch.stack([one.norm() for one in before]).norm())
        assert result.wait().total_norm == pytest.approx(expected, rel=1e-5)
        for one, parameter in zip(before, model.parameters(), strict=True):
            assert torch.allclose(parameter.grad, one * result.wait().clip_coefficient, rtol=1e-5)
    assert one_step(model, ctl, 4).wait().clip_coefficient == 1.0


def test_the_file(tmp_path: Path) -> None:
    model, ctl = attached(out=tmp_path)
    one_step(model, ctl, 1)
    (tmp_path / "control").write_text("high\n")
    one_step(model, ctl, 2)
    assert ctl.mode == "high" and len(ctl.high) == 8
    (tmp_path / "control").write_text("watch\n")
    one_step(model, ctl, 3)
    assert ctl.mode == "watch" and ctl.high == []
    (tmp_path / "control").write_text("hgih\n")
    one_step(model, ctl, 4)
    assert ctl.mode == "watch"
    ctl.arm()
    assert ctl.mode == "armed"
    ctl.detach()
    kinds = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [line["mode"] for line in kinds if line["kind"] == "mode"] == ["high", "watch", "armed"]
    assert any(line["kind"] == "note" and "hgih" in line["text"] for line in kinds)


def test_signals() -> None:
    before = signal.getsignal(signal.SIGINT)
    model, ctl = attached(signals=True)
    one_step(model, ctl, 1)
    os.kill(os.getpid(), signal.SIGUSR2)
    one_step(model, ctl, 2)
    assert ctl.mode == "high"
    os.kill(os.getpid(), signal.SIGUSR1)
    one_step(model, ctl, 3)
    assert ctl.mode == "watch"
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    ctl.detach()


def test_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GNMR_MODE", "watch")
    assert attached()[1].mode == "watch"
    monkeypatch.setenv("GNMR_MODE", "nonsense")
    assert attached()[1].mode == "armed"
    monkeypatch.delenv("GNMR_MODE")
    monkeypatch.setenv("GNMR_CONTROL", str(tmp_path / "switch"))
    (tmp_path / "switch").write_text("high")
    assert attached()[1].mode == "high"


def test_watching_changes_nothing() -> None:
    def trained(watches: bool) -> list[torch.Tensor]:
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        ctl = gnmr.attach(model, quiet=True, **QUICK) if watches else None
        for step in range(1, 20):
            optimizer.zero_grad()
            run_backward(model, step)
            if step == 15:
                model.layers[0].up.weight.grad *= 100
            if ctl is not None:
                ctl.step()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    for one, two in zip(trained(True), trained(False), strict=True):
        assert torch.equal(one, two)


def test_a_stalled_disk_drops_lines(tmp_path: Path) -> None:
    """The journal is a pipe that nobody empties: steps go on, lines are dropped and counted."""
    pipe = tmp_path / "journal.jsonl"
    os.mkfifo(pipe)
    opened: list[int] = []
    # Opening a pipe to write waits for a reader.
    reader = threading.Thread(target=lambda: opened.append(os.open(pipe, os.O_RDONLY)))
    reader.start()
    units = [gnmr.Unit(f"unit{index}" + "x" * 200) for index in range(64)]
    supervisor = gnmr.Supervisor(
        units, gnmr.Options(warmup_samples=1, common_share=1, max_o=64, lock_steps=1), journal=str(pipe)
    )
    reader.join()
    slowest = 0.0
    for step in range(1, 4000):
        norms = torch.full((64,), 1.0 if step % 2 else 1e6, dtype=torch.float64)
        start = time.perf_counter()
        supervisor.begin(step)
        supervisor.report(step, norms)
        slowest = max(slowest, time.perf_counter() - start)
        if supervisor.dropped > 0:
            break
    assert supervisor.dropped > 0
    assert slowest < 1.0
    os.close(opened[0])
    supervisor.close()


def test_a_folder_that_is_taken_is_an_error_at_once(tmp_path: Path) -> None:
    model, ctl = attached(out=tmp_path)
    one_step(model, ctl, 1)
    state = ctl.state_dict()
    ctl.detach()
    with pytest.raises(gnmr.Error):
        gnmr.attach(make_model(), quiet=True, out=tmp_path)
    resumed = gnmr.attach(make_model(), recipe="fp8-tensorwise", quiet=True, out=tmp_path, resume_step=2, **QUICK)
    resumed.load_state_dict(state)
    assert resumed.steps == 1
    resumed.detach()
    assert '"kind":"resume","step":2' in (tmp_path / "journal.jsonl").read_text().replace(" ", "")


def test_after_detach_the_loop_still_runs() -> None:
    model, ctl = attached()
    ctl.detach()
    ctl.detach()
    result = one_step(model, ctl, 1, max_norm=0.5)
    other = make_model()
    run_backward(other, 1)
    assert result.wait().total_norm == pytest.approx(float(clip_grad_norm_(other.parameters(), 0.5)), rel=1e-6)


def test_warnings_as_errors_end_no_loop(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ctl = gnmr.attach(make_model(), recipe="fp8-tensorwise", allow=["layers.0.*"])
        model = make_model()
        run_backward(model, 1)  # not the one that is attached: none of its low paths is called
        assert ctl.step().applied and ctl.mode != "disarmed"
    told = capsys.readouterr().err
    assert "min_coverage" in told and "NO LOW PATH RUNS" in told


def test_a_default_device_is_no_matter() -> None:
    """Tensors of ours are where they are meant to be."""
    model = make_model()
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, strict=True, patrol=NO_PATROL, **QUICK)
    results = []
    for step in range(1, 12):
        model.zero_grad()
        run_backward(model, step)
        if step == 10:
            model.layers[2].down.weight.grad *= 50
        try:
            torch.set_default_device("meta")

            def again(step: int = step) -> torch.Tensor:
                torch.set_default_device(None)
                return run_backward(model, step)

            results.append(ctl.trial(again, max_norm=1.0))
        finally:
            torch.set_default_device(None)
    assert [result.rerun for result in results].count("trial") == 1
