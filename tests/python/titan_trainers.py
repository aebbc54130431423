# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own Trainer, 0.2 or 0.3, with its smallest LLaMA on this device; tokenizer and data are made here.

On a CPU it is told that it is on one, which it does not look for, and what it asks of a device's memory is answered
with nothing.
"""

import dataclasses
import sys
import types
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch
from devices import ON_CUDA
from loops_model import Tokens
from torch.nn import functional
from torch.utils.data import IterableDataset

IS_OLD = metadata.version("torchtitan").startswith("0.2")


class Host:
    """The CPU as a device, with nothing to tell of its memory."""

    set_device, current_device = staticmethod(lambda device: None), staticmethod(lambda: 0)
    get_device_name, device_count = staticmethod(lambda device: "cpu"), staticmethod(lambda: 1)
    get_device_properties = staticmethod(lambda device: types.SimpleNamespace(total_memory=1))
    memory_stats = staticmethod(lambda device: {})
    reset_peak_memory_stats, empty_cache = staticmethod(lambda: None), staticmethod(lambda: None)
    synchronize = staticmethod(lambda: None)


def import_trainer() -> Any:
    """The module with the Trainer; it imports `datasets` for data that is not read here."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        absent: Any = types.ModuleType("datasets")
        absent.Dataset, absent.load_dataset = object, None
        absent.distributed = types.ModuleType("datasets.distributed")
        absent.distributed.split_dataset_by_node = None
        sys.modules.update({"datasets": absent, "datasets.distributed": absent.distributed})
    if not ON_CUDA:
        utils: Any = import_module("torchtitan.tools.utils")
        utils.device_type, utils.device_module = "cpu", Host
        for name, module in list(sys.modules.items()):
            if name.startswith("torchtitan.") and hasattr(module, "device_type"):
                module.device_type, module.device_module = "cpu", Host  # type: ignore[attr-defined]
    return import_module("torchtitan.train" if IS_OLD else "torchtitan.trainer")


MODULE = import_trainer()
components: Any = import_module("torchtitan.components.dataloader")


class Rows(IterableDataset):  # type: ignore[type-arg]
    """Sequences and what comes next in them."""

    def __init__(self, length: int) -> None:
        self._tokens = Tokens(count=256, length=length + 1, vocabulary=64)

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self._tokens)):
            row = self._tokens[index]["input_ids"]
            places = {} if IS_OLD else {"positions": torch.arange(len(row) - 1)}
            yield {"input": row[:-1], **places}, row[1:]


def make_config(folder: Path, steps: int, max_norm: float, float8: bool) -> Any:
    """Two micro-batches a step, the same numbers in every run."""
    config = _old_config(folder, float8) if IS_OLD else _new_config(folder, float8)
    training = config.training
    training.steps, training.seq_len, training.local_batch_size, training.global_batch_size = steps, 16, 4, 8
    training.max_norm = max_norm
    config.lr_scheduler.warmup_steps, config.metrics.log_freq = 2, 1
    config.debug.seed, config.debug.deterministic, config.debug.deterministic_warn_only = 3, True, True
    return config


def _old_config(folder: Path, float8: bool) -> Any:
    specs = import_module("torchtitan.protocols.train_spec")
    if "gnmr_test" not in specs._extra_train_specs:
        specs.register_train_spec(
            "gnmr_test",
            dataclasses.replace(
                specs.get_train_spec("llama3"),
                build_dataloader_fn=_old_loader,
                build_tokenizer_fn=None,
                state_dict_adapter=None,
            ),
        )
    config = import_module("torchtitan.config").JobConfig()
    config.job.dump_folder = str(folder)
    config.model.name, config.model.flavor = "gnmr_test", "debugmodel"
    if float8:
        # The converter registers itself.
        import_module("torchtitan.components.quantization.float8")
        config.model.converters = ["quantize.linear.float8"]
        config.quantize.linear.float8.emulate = not ON_CUDA
        config.quantize.linear.float8.filter_fqns = ["output"]
    return config


def _old_loader(dp_world_size: int, dp_rank: int, tokenizer: Any, job_config: Any) -> Any:
    return components.ParallelAwareDataloader(
        Rows(job_config.training.seq_len), dp_rank, dp_world_size, batch_size=job_config.training.local_batch_size
    )


def _attention(q: Any, k: Any, v: Any, scale: float | None = None, enable_gqa: bool = False, **rest: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa), None


def _new_config(folder: Path, float8: bool) -> Any:
    from torchtitan.components.tokenizer import BaseTokenizer

    class Nothing(BaseTokenizer):
        """Nothing is read."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            pass

        def __init__(self, config: Any, **rest: Any) -> None:
            super().__init__()

        def encode(self, *arguments: Any, **rest: Any) -> list[int]:
            return []

        def decode(self, *arguments: Any, **rest: Any) -> str:
            return ""

        def get_vocab_size(self) -> int:
            return 2048

    class Loader(components.ParallelAwareDataloader):  # type: ignore[misc,name-defined]
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(components.ParallelAwareDataloader.Config):  # type: ignore[misc,name-defined]
            pass

        def __init__(
            self, config: Any, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **rest: Any
        ) -> None:
            super().__init__(Rows(seq_len), dp_rank, dp_world_size, batch_size=local_batch_size)

    if not ON_CUDA:
        # Flex attention has no backward on a CPU.
        import_module("torchtitan.models.common.attention").FlexAttention.compiled_flex_attn = staticmethod(_attention)
    llama3: Any = import_module("torchtitan.models.llama3")
    config = import_module("torchtitan.models.llama3.config_registry").llama3_debugmodel()
    if float8:
        quantization = import_module("torchtitan.components.quantization")
        converter = quantization.Float8LinearConverter.Config(emulate=not ON_CUDA, filter_fqns=["lm_head"])
        config.model_spec = llama3.model_registry("debugmodel", converters=[converter])
    config.model_spec = dataclasses.replace(config.model_spec, state_dict_adapter=None)
    config.dump_folder, config.tokenizer, config.dataloader = str(folder), Nothing.Config(), Loader.Config()
    if not hasattr(torch.distributed, "set_timeout"):
        # The Trainer shortens timeouts after its first step, by a function that came after torch 2.13.
        torch.distributed.set_timeout = lambda timeout, group: None  # type: ignore[attr-defined]
    config.training.disable_cuda_graphs = True
    config.debug.enable_structured_logging = False
    return config
