# SPDX-License-Identifier: Apache-2.0
"""A module's instance with a `forward` of ours, until it is taken back.

Goals: the module's type, its names and its state dict do not change; a copy or a pickle of it is a plain module again;
compiled code is shared by all modules of one type, because compilers guard on the function and not on the instance.
Non-goals: what the forward does.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn

_SWITCH = "_gnmr_switch"


class ForgottenInCopies:
    """What a module holds of ours and its copies and pickles must not: they find None there."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def install(module: nn.Module, switch: ForgottenInCopies, forward: Callable[..., Any]) -> None:
    """`module(...)` runs `forward(module, ...)`, which finds `switch` at the module by `switch_of`."""
    # By this name a pickle finds the method of the class again.
    assert forward.__name__ == "forward"
    module.__dict__[_SWITCH] = switch
    module.__dict__["forward"] = MethodType(forward, module)


def switch_of(module: nn.Module) -> Any:
    """The switch of a module whose forward is ours; None in a copy of it."""
    return module._gnmr_switch


def is_installed(module: nn.Module) -> bool:
    """Whether the instance has a forward of ours."""
    return module.__dict__.get(_SWITCH) is not None


def is_replaced(module: nn.Module) -> bool:
    """Whether the instance has a forward of somebody else's. What copies and pickles keep of ours is none."""
    own = module.__dict__.get("forward")
    is_its_own = getattr(own, "__self__", None) is module and getattr(own, "__func__", None) is type(module).forward
    return own is not None and not _is_ours(own) and not is_its_own


def _is_ours(forward: Any) -> bool:
    # Wrappers take over the name of the module that what they wrap is from.
    function = getattr(forward, "__func__", None)
    return (
        isinstance(forward, MethodType)
        and not hasattr(function, "__wrapped__")
        and getattr(function, "__module__", "").partition(".")[0] == "gnmr"
    )


def remove(module: nn.Module) -> None:
    """The module is as it was; where somebody has put another forward over ours it stays, and ours is the plain one."""
    if not is_installed(module):
        return
    if _is_ours(module.__dict__.get("forward")):
        del module.__dict__["forward"], module.__dict__[_SWITCH]
    else:
        module.__dict__[_SWITCH] = None
