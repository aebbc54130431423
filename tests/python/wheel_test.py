# SPDX-License-Identifier: Apache-2.0
"""`pip install .`: a wheel is built from the sources and used in an environment of its own, without torch."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]

USE = """
import gnmr
import os
os.mkdir("run")
supervisor = gnmr.Supervisor([gnmr.Unit("a"), gnmr.Unit("b")], gnmr.Options(warmup_samples=2, max_o=1, common_share=1),
                             journal="run/journal.jsonl")
from array import array
for step in range(1, 9):
    supervisor.begin(step)
    decision = supervisor.report(step, array("d", [1.0, 1e3 if step == 8 else 1.0])).decision
assert decision.admitted == [1], decision.admitted
supervisor.close()
print(gnmr.__version__, gnmr.kernels_available(), gnmr.__file__)
"""


def pip(python: Path | str, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-m", "pip", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.packaging
def test_a_wheel_is_built_and_used(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    wheels = tmp_path / "wheels"
    # The builder of this environment is used, so that nothing is fetched; kernels are built elsewhere. Not optimized:
    # what is tested is the package.
    pip(
        sys.executable,
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(wheels),
        "-Cbuild-dir=" + str(tmp_path / "build"),
        "-Ccmake.build-type=Debug",
        "-Ccmake.define.GNMR_CUDA=OFF",
        str(SOURCE),
    )
    (wheel,) = wheels.glob("gnmr-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if ".dist-info/" not in name]
    assert all(name.startswith("gnmr/") for name in package), package
    for needed in ("gnmr/_core.pyi", "gnmr/_option_types.py", "gnmr/py.typed", "gnmr/attaching.py"):
        assert needed in names
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    python = tmp_path / "fresh" / "bin" / "python"
    pip(python, "install", "--no-index", str(wheel))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        used = subprocess.run(
            [str(python), "-I", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert used.returncode == 0, used.stderr
        return used.stdout

    used = run("-c", USE)
    version = used.split()[0]
    assert wheel.name.startswith(f"gnmr-{version}-")
    assert str(tmp_path) in used
    # What happened is explained and reported by the wheel alone.
    assert "HAS_PROGRAM False" in run("-c", "from gnmr import _core; print('HAS_PROGRAM', _core.HAS_PROGRAM)")
    assert "b by its norm" in run("-m", "gnmr", "explain", "run")
    assert "report.html" in run("-m", "gnmr", "report", "run")
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
