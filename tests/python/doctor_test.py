# SPDX-License-Identifier: Apache-2.0
"""`python -m gnmr doctor` on models of ours and of others: a table, and a code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gnmr.__main__ import main

MODELS = """
import os

import torch
from torch import nn

device = os.environ.get("GNMR_TEST_DEVICE", "cpu")

class Rounded(nn.Linear):
    low = True
    def forward(self, x):
        return nn.functional.linear(x.bfloat16(), self.weight.bfloat16()).float() if self.low else super().forward(x)

class Switch:
    def __init__(self, module, works):
        self.module, self.cost, self.works = module, module.weight.numel(), works
    def set_high(self, high):
        self.module.low = not (high and self.works)

def subject(works=True):
    import gnmr
    gnmr.register_switch(Rounded, lambda name, module: Switch(module, works))
    torch.manual_seed(0)
    model = nn.Sequential(Rounded(16, 16, bias=False), nn.GELU(), Rounded(16, 16, bias=False))
    x = torch.randn(8, 16, device=device)
    return model.to(device), lambda model: model(x).square().mean()

def broken():
    return subject(False)

def plain():
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16)).to(device)
    x = torch.randn(8, 16, device=device)
    return model, lambda model: model(x).square().mean()

def nothing():
    return 3
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models_for_doctor.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "models_for_doctor", raising=False)
    return tmp_path


def test_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--demo"]) == 0
    table = capsys.readouterr().out
    assert "13 ok, 0 failed, 2 skipped" in table and "bit for bit" in table


def test_a_model_of_the_users(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "models_for_doctor:subject", "--units", "1"]) == 0
    assert "1 units flipped one by one" in capsys.readouterr().out


def test_a_switch_that_does_nothing(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "models_for_doctor:broken"]) == 1
    table = capsys.readouterr().out
    assert "each unit   failed" in table and "change nothing when flipped" in table


def test_a_plain_model(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "models_for_doctor:plain"]) == 1
    table = capsys.readouterr().out
    assert "no unit can be switched" in table and "--recipe" in table and "Error" not in table
    assert "norms       ok" in table and "each unit   skipped  cannot be checked: no unit has a low path" in table
    assert "2 ok, 1 failed, 12 skipped" in table
    assert main(["doctor", "--model", "models_for_doctor:plain", "--recipe", "fp8-tensorwise"]) == 0


def test_what_is_no_model_is_an_error(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("models_for_doctor:nothing", "models_for_doctor:absent", "absent_module:subject", "no_function"):
        assert main(["doctor", "--model", text]) == 1
    assert "expected nothing to return a model" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    told = capsys.readouterr().out
    assert "def subject():" in told and "--demo" in told and "torchrun" in told


def test_ranks_agree() -> None:
    pytest.importorskip("torch.distributed.run")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
            "-m",
            "gnmr",
            "doctor",
            "--demo",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("2 ranks have the same units") == 1
