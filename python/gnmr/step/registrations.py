# SPDX-License-Identifier: Apache-2.0
"""Whether a model may have other parameters than a moment ago.

Goals: asked in every step, at the price of a comparison: torch tells of each parameter and module that is put into any
module. Non-goals: what is written past torch (FSDP2 does, and is known elsewhere).
"""

import torch
from torch import nn

_count = 0
_listens = False


def count() -> int:
    """Of parameters and modules that were registered since it was first asked."""
    global _listens
    if not _listens:
        _listens = True
        nn.modules.module.register_module_parameter_registration_hook(_note)
        nn.modules.module.register_module_module_registration_hook(_note)
    return _count


def _note(module: nn.Module, name: str, registered: object) -> None:
    global _count
    # Compiled code would be compiled anew for each number; what it registers is found when somebody looks again.
    if not torch.compiler.is_compiling():
        _count += 1
