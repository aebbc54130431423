# SPDX-License-Identifier: Apache-2.0
"""What autograd functions of ours have in common: their results are their own, and they have no second derivative."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from gnmr._core import Error


def unviewed(result: Tensor) -> Tensor:
    """No view: autograd would let nobody change in place what a function returns as one."""
    if not result._is_view():
        return result
    own: Tensor = torch.ops.aten._unsafe_view.default(result, result.shape)
    return own


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward of kernels. torch's own decorator only refuses what depends on the output's gradient: a penalty on a
    gradient would be dropped without a word."""

    @wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise Error(
                "create_graph=True: a low path has no second derivative. Leave recipe out, or these layers out "
                "of it (deny=)"
            )
        return backward(ctx, *gradients)

    return run
