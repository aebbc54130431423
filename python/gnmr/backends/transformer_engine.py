# SPDX-License-Identifier: Apache-2.0
"""TransformerEngine's modules with weights: high is the same module in a nested autocast that is off.

Written from the library's public source (2.x, to 2.20.0.dev0) and never run against it: coverage says so.

While a unit runs high the nested autocast calibrates, which keeps its state and notes the magnitudes of inputs and
weights; that of the output's gradient is noted here. Trials compare the forward product only: a second backward would
add to gradients that the library accumulates itself.

Goals: a module that runs low is not touched; what cannot be switched is left out with the reason.
Non-goals: attention without weights; modules that were captured as CUDA graphs.
"""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from gnmr.low.instance_forward import switch_of
from gnmr.low.layer_switch import PLACES, LayerSwitch
from gnmr.low.output_gradients import with_measured_gradient
from gnmr.switches import ExtraBytes

_ONE_PRODUCT = ("Linear", "LayerNormLinear")


def make(name: str, module: nn.Module) -> "EngineSwitch | str":
    """The switch of a module, or why it has none."""
    if "forward" in module.__dict__:
        return "its forward is replaced on the instance already (a CUDA graph?)"
    if getattr(module, "primary_weights_in_fp8", False):
        return "its weights exist in FP8 only (quantized_model_init): there is no high precision to go to"
    overlaps = [
        key for key, value in vars(module).items() if key.startswith(("ub_overlap", "ub_bulk")) and value is True
    ]
    if overlaps:
        return f"its communication overlaps GEMMs in buffers of one type ({overlaps[0]})"
    recipe = getattr(module, "fp8_meta", {}).get("recipe")
    if _class_name(module) not in _ONE_PRODUCT and recipe is not None and recipe.delayed():
        return "scales of gradients inside it would grow stale while it runs high (delayed scaling, several GEMMs)"
    return EngineSwitch(module)


class EngineSwitch(LayerSwitch[nn.Module]):
    """The switch of one module: measuring, installed, frugal."""

    backend = "TransformerEngine (not tested)"

    def __init__(self, module: nn.Module) -> None:
        weights = sum(one.numel() for one in module.parameters() if one.dim() > 1)
        experts = int(getattr(module, "num_gemms", 1)) if _class_name(module) == "GroupedLinear" else 1
        super().__init__(module, forward, 3 * weights // max(experts, 1), [0.0] * len(PLACES))

    @property
    def has_state(self) -> bool:
        """Whether its scales go by earlier steps."""
        recipe = getattr(self.module, "fp8_meta", {}).get("recipe")
        return recipe is not None and bool(recipe.delayed())

    def recovery_bytes(self) -> ExtraBytes:
        # The low path keeps its operands in one byte an element, the high one in the type of the parameters.
        matrices = [one for one in self.module.parameters() if one.dim() > 1]
        return ExtraBytes(0, sum(one.shape[-1] * (one.element_size() - 1) for one in matrices))

    def trial_bytes(self) -> ExtraBytes:
        matrices = [one for one in self.module.parameters() if one.dim() > 1]
        return ExtraBytes(
            sum(2 * one.numel() for one in matrices),
            sum(2 * one.shape[0] * one.element_size() + one.shape[-1] for one in matrices),
        )

    def note_gradient(self, gradient: Tensor) -> None:
        """The magnitude of the output's gradient goes where the low path would have put it."""
        state = self.module.fp8_meta.get("scaling_bwd")  # type: ignore[union-attr,operator]
        if self.has_state and state is not None and _class_name(self.module) in _ONE_PRODUCT:
            state.amax_history[0][0].copy_(gradient.detach().abs().amax().to(torch.float32))


def forward(module: nn.Module, *arguments: Any, **named: Any) -> Any:
    """The `forward` of an instance that can be switched."""
    switch: EngineSwitch | None = switch_of(module)
    if switch is None:
        return type(module).forward(module, *arguments, **named)
    if torch.is_grad_enabled():
        switch.note_call()
    result = _run(switch, *arguments, **named)
    output = with_measured_gradient(switch, _first(result))
    return (output, *result[1:]) if isinstance(result, tuple) else output


def _run(switch: EngineSwitch, *arguments: Any, **named: Any) -> Any:
    """The module on the path that the switch says."""
    module, manager = switch.module, _manager()
    plain = type(module).forward
    if not (switch.high or switch.comparing) or not manager.is_fp8_enabled():
        return plain(module, *arguments, **named)
    low: Any = None
    if switch.comparing:
        with torch.no_grad():
            low = _first(plain(module, *arguments, **named))
    with _switched_off(manager):
        result = plain(module, *arguments, **named)
    output = _first(result)
    if low is not None:
        switch.add_error(0, low, output)
    if output.requires_grad:
        output.register_hook(switch.note_gradient)  # type: ignore[no-untyped-call]
    return result


def _first(result: Any) -> Tensor:
    output: Tensor = result[0] if isinstance(result, tuple) else result
    return output


def _manager() -> Any:
    for place in ("quantization", "fp8"):
        try:
            return import_module(f"transformer_engine.pytorch.{place}").FP8GlobalStateManager
        except (ImportError, AttributeError):
            continue
    raise ImportError("transformer_engine.pytorch: expected FP8GlobalStateManager in quantization or fp8")


def _switched_off(manager: Any) -> AbstractContextManager[Any]:
    """No FP8, but the state that FP8 needs is kept and fed."""
    library = import_module("transformer_engine.pytorch")
    recipe, group = manager.get_fp8_recipe(), manager.get_fp8_group()
    off: AbstractContextManager[Any]
    if hasattr(library, "autocast"):
        off = library.autocast(enabled=False, calibrating=True, recipe=recipe, amax_reduction_group=group)
    else:
        off = library.fp8_autocast(enabled=False, calibrating=True, fp8_recipe=recipe, fp8_group=group)
    return off


def _class_name(module: nn.Module) -> str:
    """That of the library's class, where a module's own comes from it."""
    for one in type(module).__mro__:
        if one.__module__.partition(".")[0] == "transformer_engine":
            return one.__name__
    return type(module).__name__
