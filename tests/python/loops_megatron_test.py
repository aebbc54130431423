# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core without TransformerEngine: its GPT model, its DistributedDataParallel with `main_grad`, its optimizer.

On a CPU what it asks of CUDA (the device, a tracker of random numbers) is answered with the CPU.
"""

import contextlib
import math
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from devices import DEVICE, ON_CUDA, cuda_only
from gnmr.backends.megatron import make
from small_model import QUICK
from torch import Tensor
from torch.overrides import TorchFunctionMode

import gnmr

pytest.importorskip("megatron.core")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        from megatron.core import parallel_state, tensor_parallel
        from megatron.core.distributed import (
            DistributedDataParallel,
            DistributedDataParallelConfig,
            finalize_model_grads,
        )
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.transformer.transformer_config import TransformerConfig
    except ImportError as missing:
        pytest.skip(f"megatron.core cannot be imported: {missing}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")
TYPE = torch.bfloat16 if ON_CUDA else torch.float32  # its optimizer for bfloat16 asks for CUDA's tensors
UNITS = [
    f"decoder.layers.{layer}.{name}"
    for layer in range(2)
    for name in ("self_attention.linear_proj", "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.linear_fc2")
]


class OnHost(TorchFunctionMode):
    """What is made for "cuda" is made on the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if named.get("device") == "cuda":
            named["device"] = "cpu"
        return function(*args, **named)


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not ON_CUDA:
            patch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if ON_CUDA else "gloo",
            rank=0,
            world_size=1,
            init_method=f"file://{tmp_path_factory.mktemp('store') / 'file'}",
        )
        parallel_state.initialize_model_parallel(1, 1)
        if ON_CUDA:
            tensor_parallel.model_parallel_cuda_manual_seed(1)
        else:
            patch.setattr(tensor_parallel.get_cuda_rng_tracker(), "fork", lambda *name: contextlib.nullcontext())
        with contextlib.nullcontext() if ON_CUDA else OnHost():
            yield
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


class Training:
    """Two layers under Megatron's DistributedDataParallel, gradients in float32."""

    def __init__(self, clip_grad: float = 0.0) -> None:
        torch.manual_seed(0)
        config = TransformerConfig(
            num_layers=2,
            hidden_size=64,
            num_attention_heads=4,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            bf16=ON_CUDA,
            params_dtype=TYPE,
            use_cpu_initialization=True,
            gradient_accumulation_fusion=False,
            bias_dropout_fusion=False,
            masked_softmax_fusion=False,
            bias_activation_fusion=False,
        )
        model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=64, max_sequence_length=32).to(DEVICE)
        settings = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=False
        )
        self.model = DistributedDataParallel(config, settings, model.to(TYPE))
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam",
                lr=1e-3,
                bf16=ON_CUDA,
                params_dtype=TYPE,
                clip_grad=clip_grad,
                use_distributed_optimizer=False,
            ),
            [self.model],
        )
        self.losses: list[float] = []

    def backward(self, step: int, micro_batches: int = 2) -> None:
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        for micro_batch in range(micro_batches):
            tokens = (torch.arange(32, device=DEVICE).view(2, 16) * (micro_batch + 1) + step) % 64
            places = torch.arange(16, device=DEVICE).expand(2, 16)
            mask = torch.ones(1, 1, 16, 16, dtype=torch.bool, device=DEVICE).triu(1)
            loss = self.model(tokens, places, mask, labels=(tokens + 1) % 64).mean() / micro_batches
            loss.backward()
            self.losses.append(float(loss.detach()))
        finalize_model_grads([self.model])

    def gradients(self) -> dict[str, Tensor]:
        return {name.removeprefix("module."): parameter.main_grad for name, parameter in self.model.named_parameters()}


def norm_of(gradients: list[Tensor]) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in gradients))


def attached(training: Training, **options: Any) -> gnmr.Control:
    return gnmr.attach(training.model, gradients="main_grad", strict=True, **{"quiet": True, **QUICK, **options})


def test_its_layers_are_watched(capsys: pytest.CaptureFixture[str]) -> None:
    training = Training()
    ctl = attached(training, quiet=False)
    assert [unit.name for unit in ctl.units] == UNITS and all(unit.switch is None for unit in ctl.units)
    assert ctl.units[0].group == "decoder.layers.0"
    told = capsys.readouterr().err
    assert "1 skipped: output_layer (makes logits)" in told and "is only watched" in told
    ctl.detach()


def test_norms_are_those_of_main_grad() -> None:
    training = Training()
    ctl = attached(training)
    for step in range(1, 4):
        training.backward(step)
        gradients = training.gradients()
        wanted = [
            norm_of([gradient for name, gradient in gradients.items() if name.startswith(unit + ".")]) for unit in UNITS
        ]
        total = norm_of(list(gradients.values()))
        before = {name: gradient.clone() for name, gradient in gradients.items()}
        result = ctl.step(max_norm=0.5 * total)
        assert result.wait().total_norm == pytest.approx(total, rel=1e-6) and min(wanted) > 0
        assert list(ctl._parts.gradients.numbers.norms)[: len(UNITS)] == pytest.approx(wanted, rel=1e-6)
        # What its optimizer reads is clipped, where it lies.
        for name, gradient in training.gradients().items():
            assert torch.allclose(gradient, 0.5 * before[name], rtol=1e-5, atol=0)
        training.optimizer.step()
    ctl.detach()


@pytest.mark.parametrize("clip_grad", [0.0, pytest.param(0.1, marks=cuda_only)])
def test_watching_changes_no_bit(clip_grad: float) -> None:
    """Megatron's optimizer clips, behind the measurement."""
    runs = []
    for with_us in (False, True):
        training = Training(clip_grad)
        ctl = attached(training) if with_us else None
        for step in range(1, 7):
            training.backward(step)
            total = ctl.step().wait().total_norm if ctl is not None else math.nan
            applied, norm, _ = training.optimizer.step()
            assert applied and (ctl is None or clip_grad == 0 or norm == pytest.approx(total, rel=1e-4))
        runs.append((training.losses, [parameter.detach().clone() for parameter in training.model.parameters()]))
        if ctl is not None:
            assert ctl.steps == 6
            ctl.detach()
    assert runs[0][0] == runs[1][0] and runs[0][0][-1] < runs[0][0][0]
    assert all(torch.equal(one, two) for one, two in zip(runs[0][1], runs[1][1], strict=True))


def test_scattered_gradients_are_refused() -> None:
    """Without several ranks: settings that say so."""
    training = Training()
    training.model.ddp_config.use_distributed_optimizer = True
    attached(training).detach()
    training.model.dp_group = types.SimpleNamespace(size=lambda: 2)
    with pytest.raises(gnmr.Error, match="use_distributed_optimizer=False"):
        attached(training)


def test_what_is_split_is_left_out() -> None:
    """Without several ranks: a layer that says it has a part."""
    training = Training()
    layer = training.model.module.decoder.layers[0].mlp.linear_fc1
    layer.output_size_per_partition //= 2
    assert "taken for copies" in str(make("decoder.layers.0.mlp.linear_fc1", layer))
    with pytest.warns(UserWarning, match="min_coverage"):
        ctl = gnmr.attach(training.model, gradients="main_grad")
    assert [unit.name for unit in ctl.units] == [name for name in UNITS if name != "decoder.layers.0.mlp.linear_fc1"]
    ctl.detach()
