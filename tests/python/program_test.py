# SPDX-License-Identifier: Apache-2.0
"""The command line out of Python: the program's own commands, and one run on 1, 2 and 4 processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnmr import _core, program

pytestmark = pytest.mark.skipif(not _core.HAS_PROGRAM, reason="built without the command line")

FLAGS = [
    "--steps",
    "12",
    "--eval-every",
    "0",
    "--checkpoint-every",
    "0",
    "--sequence",
    "24",
    "--threads",
    "1",
    "--recipe",
    "none",
    "--controller",
    "watch",
    "--lr",
    "0.003",
]


def gnmr(*arguments: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m"]
    if processes > 1:
        start += ["torch.distributed.run", "--nproc-per-node", str(processes), "--standalone", "-m"]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run([*start, "gnmr", *arguments], capture_output=True, text=True, env=environment, timeout=100)


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


def test_commands_of_the_program_are_there() -> None:
    assert "--recast-weights" in gnmr("train", "--help").stdout
    assert "--truth" in gnmr("replay", "--help").stdout
    assert gnmr("no-such-command").returncode == 2


@pytest.mark.skipif(not program.ENGINE.exists(), reason="built without torch")
def test_one_two_and_four_processes_train_alike(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"".join(b"line %d of a text, %d\n" % (i, i * i % 977) for i in range(4000)))
    found = {}
    for processes in (1, 2, 4):
        out = tmp_path / f"run-{processes}"
        done = gnmr(
            "train", *FLAGS, "--data", str(text), "--batch", str(8 // processes), "--out", str(out), processes=processes
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("done in") == 1, "one rank speaks"
        found[processes] = losses(out)
    assert len(found[1]) == 12
    assert found[2] == pytest.approx(found[1], abs=1e-5)
    assert found[4] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.skipif(not program.ENGINE.exists(), reason="built without torch")
def test_a_rank_that_cannot_train_ends_all(tmp_path: Path) -> None:
    done = gnmr("train", *FLAGS, "--data", str(tmp_path / "missing.txt"), "--out", str(tmp_path / "run"), processes=2)
    assert done.returncode != 0
    assert "missing.txt" in done.stderr
