# SPDX-License-Identifier: Apache-2.0
"""Frameworks are no dependencies: an adapter is imported without its framework, and says what it misses when used."""

import subprocess
import sys

PROGRAM = """
import sys
import gnmr, gnmr.loops, gnmr.telemetry
assert "torch" not in sys.modules
for name in ("transformers", "accelerate", "lightning", "pytorch_lightning", "torchtitan", "tensorboard", "wandb"):
    sys.modules[name] = None
import gnmr.loops.accelerate, gnmr.loops.hugging_face, gnmr.loops.lightning, gnmr.loops.torchtitan
gnmr.loops.scaled_step, gnmr.telemetry.JsonLines, gnmr.telemetry.Wandb
try:
    gnmr.telemetry.TensorBoard("here")
except gnmr.Error as missing:
    print(missing)
for name in ("lightning", "pytorch_lightning"):
    del sys.modules[name]
sys.path[:] = []
try:
    gnmr.loops.lightning.GnmrCallback
except gnmr.Error as missing:
    print(missing)
"""


def test_without_any_framework() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "expected the package tensorboard" in done.stdout
    assert "expected the package lightning or pytorch_lightning" in done.stdout
