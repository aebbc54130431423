# SPDX-License-Identifier: Apache-2.0
"""Options, their help and their errors come from the one declaration in the core."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gnmr
from gnmr import _core

SOURCE = Path(__file__).resolve().parents[2]


def test_every_declared_option_is_there() -> None:
    text = (SOURCE / "gnmr" / "core" / "options.h").read_text()
    declared = re.findall(r"^  X\([\w:]+, (\w+),", text, re.MULTILINE)
    assert [spec["name"] for spec in gnmr.option_specs()] == declared
    options = gnmr.Options()
    for spec in gnmr.option_specs():
        name = str(spec["name"])
        assert getattr(options, name) == spec["default"]
        assert getattr(gnmr.Options("paper"), name) == spec["paper"]
        documentation = inspect.getdoc(getattr(gnmr.Options, name)) or ""
        assert str(spec["help"]) in documentation and str(spec["range"]) in documentation


def test_the_table_is_that_of_the_docs() -> None:
    assert _core.options_markdown() in (SOURCE / "docs" / "options.md").read_text()


def test_types_and_text() -> None:
    options = gnmr.Options(window=7, selector="norms", max_o=3)
    assert isinstance(options.window, int) and isinstance(options.max_o, float)
    assert options.selector == "norms"
    assert gnmr.Options.from_json(options.to_json()) == options
    assert gnmr.Options.from_json('{"preset": "paper"}') == gnmr.Options("paper")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beta": 1.0}, r"`beta`: expected \[0, 1\), got 1"),
        ({"windw": 3}, "unknown option `windw`"),
        ({"guard": "hope"}, "`guard`: expected one of none, clip, skip, replay"),
        ({"lag": True}, "`lag`.*True"),
        ({"max_o": 2.5}, "`max_o`"),
        ({"beta": None}, "`beta`"),
        ({"preset": "mine"}, "default.*paper"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(gnmr.Error, match=message):
        gnmr.Options(**wrong)


def test_the_program_teaches() -> None:
    def told(*words: str) -> str:
        return subprocess.run([sys.executable, "-m", "gnmr", *words], capture_output=True, text=True, check=True).stdout

    assert "gnmr.attach(model" in told("--help")
    for spec in gnmr.option_specs():
        assert str(spec["help"]) in told("options")
        break
    assert "fp8-tensorwise" in told("recipes")
    replayed = told("replay", str(SOURCE / "tests" / "golden" / "fall.csv"))
    assert "20" in replayed and "layers." in replayed


def test_the_core_needs_no_torch() -> None:
    code = "import sys, gnmr; gnmr.Options(); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
