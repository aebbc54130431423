# SPDX-License-Identifier: Apache-2.0
"""The package is typed: mypy's strict rules hold, and the stub of the core is that of the module that was built."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gnmr
from gnmr import _core

PACKAGE = Path(gnmr.__file__).parent


def test_mypy_has_nothing_to_say(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "gnmr"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_stub_is_fresh(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    made = tmp_path / "_core.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-i", str(PACKAGE), "-m", "_core", "-o", str(made)], check=True
    )
    assert made.read_text() == (PACKAGE / "_core.pyi").read_text()


def test_option_types_are_those_of_the_core() -> None:
    """Written when the package is built; `max_o` and `lag` are arguments of attach in their own right."""
    from gnmr import options

    types = {str(spec["name"]): type(spec["default"]) for spec in gnmr.option_specs()}
    controller = options.ControllerOptions.__annotations__
    assert controller == {name: one for name, one in types.items() if name not in ("max_o", "lag")}
    assert set(options.AttachOptions.__annotations__) == set(controller) | set(options.DEFAULTS)
    plain = set(inspect.signature(gnmr.attach).parameters) - {"model", "options"}
    assert set(options.AttachArguments.__annotations__) == set(options.AttachOptions.__annotations__) | plain


def test_everything_public_is_documented() -> None:
    for name in gnmr.__all__:
        assert name == "__version__" or getattr(gnmr, name).__doc__, name
    for name in dir(_core):
        if not name.startswith("_") and name not in ("VERSION", "HAS_PROGRAM", "REPORT_NAME"):
            assert getattr(_core, name).__doc__, name
    for name, member in vars(gnmr.Control).items():
        if not name.startswith("_"):
            assert member.__doc__, name


def test_files_are_readable() -> None:
    for file in PACKAGE.rglob("*.py"):
        lines = file.read_text().splitlines()
        assert lines[0].startswith("# SPDX-License-Identifier"), file
        assert max(map(len, lines)) <= 120, file
