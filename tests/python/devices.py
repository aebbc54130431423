# SPDX-License-Identifier: Apache-2.0
"""Where tests run: `GNMR_TEST_DEVICE` is cpu (the default) or cuda, and the test bodies are the same.

On a GPU a model's low path is torchao's float8 unless `GNMR_TEST_LOW=own` asks for ours; results of two equal runs are
compared bit for bit there too, which takes torch's deterministic kernels.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gnmr

DEVICE = torch.device(os.environ.get("GNMR_TEST_DEVICE", "cpu"))
ON_CUDA = DEVICE.type == "cuda"
OWN_LOW = os.environ.get("GNMR_TEST_LOW", "torchao" if ON_CUDA else "own") == "own"

if ON_CUDA:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)

cuda_only = pytest.mark.skipif(not ON_CUDA, reason="GNMR_TEST_DEVICE is not cuda")
cpu_only = pytest.mark.skipif(ON_CUDA, reason="about the CPU")


def skip_ranks() -> None:
    """For files whose processes are forked and meet over gloo: they stay on the CPU."""
    if ON_CUDA:
        pytest.skip("several processes are tested on the CPU", allow_module_level=True)


def needs_own_low_path(recipe: str = "fp8-tensorwise") -> None:
    """Skips where a recipe of ours does not run on this device, with what attach says."""
    try:
        gnmr.attach(nn.Sequential(nn.Linear(16, 16, device=DEVICE)), recipe=recipe, quiet=True).detach()
    except gnmr.Error as refused:
        pytest.skip(str(refused))


def to_float8(model: nn.Module, **config: Any) -> None:
    """Linear layers become torchao's, all but the head: real float8 products on a GPU, emulated ones on a CPU."""
    pytest.importorskip("torchao.float8")
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(
        model,
        config=Float8LinearConfig(**{"emulate": not ON_CUDA, **config}),
        module_filter_fn=lambda module, name: not name.endswith("head"),
    )


def low_path(model: nn.Module) -> dict[str, Any]:
    """Gives a model a low path; what attach has to be told of it: also that the next step is to be switched."""
    if OWN_LOW:
        needs_own_low_path()
        return {"recipe": "fp8-tensorwise", "lag": 0}
    to_float8(model)
    return {"lag": 0}


def near(one: Tensor, other: Tensor, rtol: float, atol: float) -> bool:
    """Element by element; on a GPU as a whole, because a cast may go another way where a sum went another way."""
    if not ON_CUDA:
        return torch.allclose(one, other, rtol=rtol, atol=atol)
    return float((one.double() - other.double()).norm()) <= max(rtol, 0.03) * float(other.double().norm()) + atol


def run_on_two_ranks(script: str, folder: Path) -> None:
    """Runs a program on two ranks of torchrun, on the CPU; each says `done` at its end."""
    file = folder / "two_ranks.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(file)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0 and done.stdout.count("done") == 2, done.stdout + done.stderr
