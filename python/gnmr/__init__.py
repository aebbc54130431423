# SPDX-License-Identifier: Apache-2.0
"""GNMR keeps low-precision training stable: three lines in the loop that you have.

    ctl = gnmr.attach(model, max_o=0.01)             # finds the units and how to switch each; says what it watches
    loss.backward(); ctl.step(); optimizer.step()    # norms, decision, switches for the next step

`gnmr.attach(model, recipe="fp8-tensorwise")` gives each linear layer our own low path. docs/python.md has the rest.
Decisions are made in `gnmr._core`, which is C++ and knows nothing of torch; torch is imported with `attach`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gnmr._core import (
    VERSION,
    Error,
    Options,
    Recipe,
    Supervisor,
    Trace,
    Unit,
    kernels_available,
    option_specs,
    read_units,
    recipe_names,
)
from gnmr.pages import explain, report

__version__ = VERSION

if TYPE_CHECKING:
    from gnmr.attaching import attach
    from gnmr.control import Control
    from gnmr.results import StepResult
    from gnmr.switches import MeasuringSwitch, Switch, register_switch

# What needs torch is looked up when it is first asked for: replaying norms does not.
_LAZY = {
    "attach": "gnmr.attaching",
    "Control": "gnmr.control",
    "StepResult": "gnmr.results",
    "MeasuringSwitch": "gnmr.switches",
    "Switch": "gnmr.switches",
    "register_switch": "gnmr.switches",
    "conformance": "gnmr.checks.conformance",
    "instance_forward": "gnmr.low.instance_forward",
    "loops": "gnmr.loops",
    "switches": "gnmr.switches",
    "telemetry": "gnmr.telemetry",
}

__all__ = [
    "Control",
    "Error",
    "MeasuringSwitch",
    "Options",
    "Recipe",
    "StepResult",
    "Supervisor",
    "Switch",
    "Trace",
    "Unit",
    "__version__",
    "attach",
    "explain",
    "kernels_available",
    "option_specs",
    "read_units",
    "recipe_names",
    "register_switch",
    "report",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'gnmr' has no attribute '{name}'")
    module = import_module(_LAZY[name])
    value: object = module if _LAZY[name].rpartition(".")[2] == name else getattr(module, name)
    # The next look finds it at once.
    globals()[name] = value
    return value
