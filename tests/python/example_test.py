# SPDX-License-Identifier: Apache-2.0
"""The example does what it says."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "train.py"


def test_the_broken_layer_is_found() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE), "--steps", "80"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "watching 8 of 8 units, 100.0% of multiply-adds" in done.stderr
    assert "step 60: trial, verdict numeric; to high precision: 6" in done.stdout, done.stdout
    last = [line for line in done.stdout.splitlines() if line.startswith("step 80: loss")]
    assert last and float(last[0].split()[3].rstrip(",")) < 0.5, done.stdout
