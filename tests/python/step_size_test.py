# SPDX-License-Identifier: Apache-2.0
"""How much of the package a reader passes through who follows one calm step, and how much a class holds.

Counted by `sys.setprofile`: the functions of the package that one `ctl.step()` enters, each once however often it is
called (the two calls per layer count once, not once per layer), and the files that they are in. A comprehension is part
of the function that has it; calls into the core, torch and the standard library do not count. The step is calm: nothing
is alarmed, units have a low path, some of which the patrol compares, nothing is logged, and the first hundred steps, in
which the order of calls is checked as well, are over.
"""

import ast
import sys
from pathlib import Path
from types import CodeType, FrameType

import pytest
from devices import cpu_only
from small_model import make_model, run_backward

import gnmr

PACKAGE = Path(gnmr.__file__).parent

#: Members of the classes that own most.
MOST_MEMBERS = 20


def entered_in(run: object) -> tuple[list[str], set[str]]:
    """The functions of the package that are entered, and their files."""
    codes: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            codes.setdefault(frame.f_code)

    sys.setprofile(note)
    try:
        run()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    named = [code for code in codes if code.co_name not in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")]
    files = {str(Path(code.co_filename).relative_to(PACKAGE)) for code in named}
    return [code.co_qualname for code in named], files


@cpu_only
@pytest.mark.parametrize("recipe", ["fp8-tensorwise", "fp8-delayed"])
@pytest.mark.parametrize("lag", [0, 1])
def test_a_calm_step_is_short(lag: int, recipe: str) -> None:
    model = make_model(blocks=2)
    ctl = gnmr.attach(model, max_o=0.01, recipe=recipe, lag=lag, quiet=True, strict=True)
    for step in range(1, 104):
        model.zero_grad()
        run_backward(model, step)
        functions, files = entered_in(lambda: ctl.step(max_norm=0.01))
    print(len(functions), "functions:", *functions, "\n", len(files), "files:", *sorted(files))
    assert ctl.steps == 103 and not ctl.summary().alarms
    functions = [name for name in functions if "test_a_calm_step" not in name]
    assert "LowLinear.end_patrol" in functions and "Gradients.scale" in functions
    assert len(functions) <= 15
    assert len(files) <= 6


def members_of(definition: ast.ClassDef) -> set[str]:
    """Names that are assigned to `self`, and annotated fields."""
    fields = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = {
        target.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for place in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for target in ast.walk(place)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    return fields | assigned


def test_no_class_owns_too_much() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            # Dictionaries of options own nothing.
            if isinstance(node, ast.ClassDef) and not any(one.arg == "total" for one in node.keywords):
                members = members_of(node)
                assert len(members) <= MOST_MEMBERS, f"{file.name}: {node.name} has {len(members)}: {sorted(members)}"
