# SPDX-License-Identifier: Apache-2.0
"""Weights that FSDP2 gathers in float8: a layer that runs high gathers them as they are.

torchao wraps such a weight in a tensor whose `fsdp_pre_all_gather` casts it. Here that method of one instance is
replaced while the layer runs high, and FSDP2's buffers, which have the type of what was gathered first, are made anew.

Goals: flagged layers gather the parameter's own type (or that of the mixed precision), all others what they did.
Non-goals: switching while a weight is gathered: steps begin with sharded weights, else it is an error.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gnmr._core import Error

_BUFFERS = ("all_gather_outputs", "_unsharded_inner_tensors")


class Gathered:
    """How the weight of one layer is gathered."""

    def __init__(self, module: nn.Linear) -> None:
        self._module = module
        self._high = False

    def set_high(self, high: bool) -> None:
        """From the next gathering on; the weight is sharded now. Without FSDP2 the wrapped weight is whole: it is used
        as it is."""
        parameter = _fsdp_parameter(self._module) if high != self._high else None
        if parameter is None:
            return
        shard = _local(self._module.weight)
        if str(getattr(parameter.sharded_state, "name", "")) != "SHARDED":
            raise Error("a float8 all-gather: expected a sharded weight between steps")
        if high:
            dtype = parameter.param_dtype or parameter.orig_dtype
            shard.fsdp_pre_all_gather = lambda mesh: ((shard._tensor.to(dtype),), None)
            shard.fsdp_post_all_gather = _as_gathered
        else:
            del shard.fsdp_pre_all_gather, shard.fsdp_post_all_gather
        for name in _BUFFERS:
            setattr(parameter, name, [])
        parameter.__dict__.pop("_unsharded_param", None)
        self._high = high


def _as_gathered(outputs: tuple[Tensor, ...], metadata: Any, dtype: torch.dtype, *, out: Tensor | None = None) -> Any:
    (data,) = outputs
    return None if out is not None else (data, (data,))


def _local(weight: Tensor) -> Any:
    return getattr(weight, "_local_tensor", weight)


def _fsdp_parameter(module: nn.Module) -> Any:
    """FSDP2's own record of a layer's weight; None: it has none."""
    from torch.distributed import _composable_state

    for reference in list(_composable_state._module_state_mapping.values()):
        state = reference()
        # Versions with one group of parameters a module have it under the name without the s.
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for parameter in (one for group in groups if group is not None for one in group.fsdp_params):
            if parameter._module_info.module is module and parameter._module_info.param_name == "weight":
                return parameter
    return None
