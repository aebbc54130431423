# SPDX-License-Identifier: Apache-2.0
"""Writes `gnmr/_option_types.py`, the controller's options as a TypedDict, from the core's option table.

python write_option_types.py FOLDER_OF_CORE      (CMake runs it when `_core` was built)
"""

import sys
import textwrap
from pathlib import Path

#: Arguments of `gnmr.attach` in their own right.
OWN_ARGUMENTS = ("max_o", "lag")


def text_of(specs: list[dict[str, object]]) -> str:
    """The module's text."""
    lines: list[str] = []
    for spec in specs:
        if spec["name"] in OWN_ARGUMENTS:
            continue
        lines += textwrap.wrap(
            f"{spec['help']} ({spec['range']}; default {spec['default']})",
            width=120,
            initial_indent="    #: ",
            subsequent_indent="    #: ",
        )
        lines.append(f"    {spec['name']}: {type(spec['default']).__name__}")
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""Written from the core\'s option table (python/write_option_types.py): do not edit."""\n\n'
        "from typing import TypedDict\n\n\n"
        "class ControllerOptions(TypedDict, total=False):\n"
        '    """The controller\'s options by name; `python -m gnmr options` prints them."""\n\n'
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    import _core  # type: ignore[import-not-found]

    (folder / "_option_types.py").write_text(text_of(_core.option_specs()))
