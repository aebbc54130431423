# SPDX-License-Identifier: Apache-2.0
"""The kernels through addresses and streams; where there is no GPU, or no kernels, every use says what to do."""

import math

import pytest
import torch

import gnmr
from gnmr import _core

ON_DEVICE = gnmr.kernels_available() and torch.cuda.is_available()
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@pytest.mark.skipif(ON_DEVICE, reason="there is a device")
def test_without_a_device() -> None:
    assert _core.compute_capability() == 0
    with pytest.raises(gnmr.Error):
        _core.ClippedNorms(3, [], [])
    assert _core.plan_fp8_product(_core.Recipe("fp8-rowwise"), 0, 64, 64, 64, 1).by == "numbers"


@pytest.mark.skipif(not ON_DEVICE, reason="no CUDA device, or built without kernels")
@pytest.mark.parametrize("max_norm", [1.0, 1e9, math.inf])
def test_norms_and_clipping_on_the_device(max_norm: float) -> None:
    torch.manual_seed(0)
    unit_of = [0, 1, 1, 2, 3]
    shapes = [(1000, 77), (33,), (5000,), (129,), (7, 7)]
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float32, torch.bfloat16]
    counts = [math.prod(shape) for shape in shapes]
    stream = torch.cuda.Stream()
    kernels = _core.ClippedNorms(3, counts, unit_of)
    for step in range(4):
        tensors = [torch.randn(shape, device="cuda").to(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        missing = 3 if step == 2 else -1
        present = [one for index, one in enumerate(tensors) if index != missing]
        expected = [0.0] * 4
        for index, tensor in enumerate(tensors):
            if index != missing:
                expected[unit_of[index]] += float(tensor.double().square().sum())
        copies = [one.clone() for one in present]
        if not math.isinf(max_norm):
            parameters = [torch.nn.Parameter(torch.zeros_like(one)) for one in copies]
            for parameter, copy in zip(parameters, copies, strict=True):
                parameter.grad = copy
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        stream.wait_stream(torch.cuda.current_stream())
        pointers = [0 if index == missing else one.data_ptr() for index, one in enumerate(tensors)]
        kernels.sum(pointers, [TYPES[dtype] for dtype in dtypes], stream.cuda_stream)
        ticket = kernels.finish(max_norm, stream.cuda_stream)
        total, coefficient = kernels.read(ticket)
        assert kernels.is_there(ticket)
        assert list(kernels.sums) == pytest.approx(expected, rel=1e-6)
        assert list(kernels.norms) == pytest.approx([square**0.5 for square in expected[:3]], rel=1e-6)
        assert list(kernels.sampled) == [1, 1, 0 if step == 2 else 1]
        assert total == pytest.approx(math.sqrt(sum(expected)), rel=1e-6)
        assert coefficient == pytest.approx(min(1.0, max_norm / (total + 1e-6)), rel=1e-5)
        for found, clipped in zip(present, copies, strict=True):
            torch.testing.assert_close(found, clipped)
    with pytest.raises(gnmr.Error, match="last two"):
        kernels.read(ticket - 2)


@pytest.mark.skipif(not ON_DEVICE, reason="no CUDA device, or built without kernels")
def test_a_model_on_the_device_is_watched() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
    ctl = gnmr.attach(model, quiet=True, strict=True)
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    assert ctl.step(max_norm=1.0).wait().total_norm == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(gnmr.Error, match="On a GPU run fp8-deepseek"):
        gnmr.attach(model, recipe="mxfp8", quiet=True)
