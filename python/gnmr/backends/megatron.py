# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's own parallel linear layers: units that are watched, because they have one path only.

    ctl = gnmr.attach(model, gradients="main_grad", watch=True)     # model: Megatron's DistributedDataParallel
    finalize_model_grads([model]); ctl.step(); optimizer.step()

Its layers with a low path are TransformerEngine's, which gnmr.backends.transformer_engine knows.

Goals: norms of layers from the buffers that Megatron's optimizer reads. Non-goals: layers that are split over
tensor-parallel ranks (left out with the reason), gradients that a distributed optimizer has scattered.
"""

from typing import Any


def make(name: str, module: Any) -> str | None:
    """None: the layer is watched; else why it is not."""
    inputs = getattr(module, "input_size_per_partition", module.input_size)
    outputs = getattr(module, "output_size_per_partition", module.output_size)
    if (inputs, outputs) != (module.input_size, module.output_size):
        return "it is split over tensor-parallel ranks, whose parts would be taken for copies"
    return None
