# SPDX-License-Identifier: Apache-2.0
"""Which gradients somebody wants to have clipped, beside those that GNMR watches.

Goals: GNMR takes clipping over only where it is about exactly its model. Non-goals: clipping (gnmr.norms.gradients).
"""

from collections.abc import Iterable
from enum import Enum

from torch import Tensor, nn


class Asked(Enum):
    """The parameters that are to be clipped, beside the model's."""

    THE_MODEL = "the model"
    MORE = "more than the model"
    PART = "a part of the model, or another one"


class ModelParameters:
    """The trained parameters of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def asked(self, parameters: Iterable[Tensor]) -> Asked:
        """What a call of a clipping function is about; parameters without a gradient do not count."""
        given = {id(one) for one in parameters if one.grad is not None}
        mine = {id(one) for one in self._model.parameters() if one.grad is not None}
        if given == mine:
            return Asked.THE_MODEL
        return Asked.MORE if given > mine else Asked.PART
