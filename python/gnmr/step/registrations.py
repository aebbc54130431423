# SPDX-License-Identifier: Apache-2.0
"""Whether a model may have other parameters than a moment ago.

Goals: asked in every step, at the price of a comparison: torch reports each parameter and module that is put into any
module. Non-goals: what is written past torch (FSDP2 does, and is known elsewhere).
"""

import torch
from torch import nn

#: Parameters and modules that were registered since `listen` was called.
changes = 0

#: Steps after which parameters are looked at though torch has reported none.
LOOK_EVERY = 100

_listens = False


def listen() -> None:
    """Counts from here on."""
    global _listens
    if not _listens:
        _listens = True
        nn.modules.module.register_module_parameter_registration_hook(_note)
        nn.modules.module.register_module_module_registration_hook(_note)


def _note(module: nn.Module, name: str, registered: object) -> None:
    global changes
    # Compiled code would be compiled anew for each number; what it registers is found when somebody looks again.
    if not torch.compiler.is_compiling():
        changes += 1
