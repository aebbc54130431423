# SPDX-License-Identifier: Apache-2.0
"""What gnmr/low takes from torch: memory, streams, threads, and GEMMs with torch's own bits.

`_core` calls these functions with plain tensors of one or two dimensions. Goals: one short list; each function does one
thing. Non-goals: deciding anything (gnmr/low, in C++).
"""

import torch
from torch import Tensor

from gnmr import _core

FP8_GROUP = int(_core.FP8_GROUP)

_CPU = torch.device("cpu")
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def current_stream(device: int) -> int:
    """The number of the current stream of a CUDA device."""
    if _raw_stream is not None:
        return int(_raw_stream(device))
    return int(torch.cuda.current_stream(device).cuda_stream)


class FrontEnd:
    """The functions for torch.nn.Linear."""

    def empty(self, beside: Tensor | None, dtype: torch.dtype, rows: int, columns: int) -> Tensor:
        return torch.empty((rows, columns), dtype=dtype, device=_CPU if beside is None else beside.device)

    def empty_vector(self, beside: Tensor | None, dtype: torch.dtype, count: int) -> Tensor:
        if torch.is_inference_mode_enabled():
            # The state outlives the mode that the first forward may run in.
            with torch.inference_mode(False):
                return self.empty_vector(beside, dtype, count)
        return torch.empty(count, dtype=dtype, device=_CPU if beside is None else beside.device)

    def copy(self, matrix: Tensor) -> Tensor:
        return matrix.clone(memory_format=torch.contiguous_format)

    def some_rows(self, matrix: Tensor, stride: int) -> Tensor:
        return matrix[::stride].contiguous()

    def on_host(self, matrix: Tensor, dtype: torch.dtype) -> Tensor:
        return matrix.to(_CPU, dtype).contiguous()

    def beside(self, matrix: Tensor, other: Tensor) -> Tensor:
        return matrix.to(other.device)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(left, right)

    def multiply_high(self, product: int, left: Tensor, right: Tensor) -> Tensor:
        """forward: input x weight^T; dgrad: gradient x weight; wgrad: gradient^T x input."""
        return torch.mm(left.t() if product == 2 else left, right.t() if product == 0 else right)

    def multiply_codes(
        self,
        left: tuple[Tensor, Tensor],
        right: tuple[Tensor, Tensor],
        right_groups: str,
        dtype: torch.dtype,
        sums_fast: bool,
        spreads_blocks: bool,
    ) -> Tensor:
        """torch._scaled_mm of FP8 data and scales, left [m, k] x right [n, k]^T: float32 or bfloat16."""
        return multiply_codes(left, right, right_groups, dtype, sums_fast, spreads_blocks)

    def values_of(self, codes: Tensor, scales: Tensor, groups: str) -> Tensor:
        """The numbers that FP8 data stand for, float32 [m, k]."""
        m, k = codes.shape
        if groups == "row":
            scales = scales.view(-1, 1)
        elif groups == "tile":
            scales = scales.t().repeat_interleave(FP8_GROUP, 1)[:, :k]
        elif groups == "block":
            scales = scales.repeat_interleave(FP8_GROUP, 0)[:m].repeat_interleave(FP8_GROUP, 1)[:, :k]
        return codes.to(torch.float32) * scales

    def subtract(self, left: Tensor, right: Tensor) -> Tensor:
        return left - right

    def count_differences(self, left: Tensor, right: Tensor) -> int:
        return int((left != right).sum())

    def sum_parts(self, matrix: Tensor, rows: int) -> Tensor:
        """The sum of all rows, each seen as a matrix of `rows` rows."""
        parts = matrix.view(matrix.shape[0], rows, matrix.shape[1] // max(rows, 1))
        return parts[0] if matrix.shape[0] == 1 else parts.sum(0)

    def multiply_stretches(self, matrix: Tensor, entries: bytes, size: int) -> Tensor:
        """A copy whose stretches of `size` columns are multiplied by a matrix; what is left of `size` stays."""
        result = self.copy(matrix)
        whole = matrix.shape[1] // size * size
        if whole == 0:
            return result
        transform = torch.frombuffer(bytearray(entries), dtype=torch.float32).view(size, size).to(matrix.device)
        part = result[:, :whole].reshape(matrix.shape[0], whole // size, size)
        result[:, :whole].copy_(torch.matmul(part, transform).view(matrix.shape[0], whole))
        return result

    def square(self, matrix: Tensor) -> float:
        """The sum of the squares of all elements; a device is waited for."""
        return float(matrix.to(torch.float64).square().sum())

    def threads(self) -> int:
        return torch.get_num_threads()

    def stream(self, device: int) -> int:
        return current_stream(device)

    def exchange_device(self, device: int) -> int:
        """Makes a CUDA device the current one; the one before."""
        return int(torch.cuda._exchange_device(device))


class Conv1DFrontEnd(FrontEnd):
    """The functions for GPT-2's Conv1D, whose weight lies transposed: its own kernel, to the bit."""

    def multiply_high(self, product: int, left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(right.t(), left).t() if product == 2 else super().multiply_high(product, left, right)


def multiply_codes(
    left: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    right_groups: str,
    dtype: torch.dtype,
    sums_fast: bool,
    spreads_blocks: bool,
) -> Tensor:
    """As the method of this name; compilers look into it."""
    (left_codes, left_scales), (right_codes, right_scales) = left, right
    if right_groups == "row":
        left_scales, right_scales = left_scales.view(-1, 1), right_scales.view(1, -1)
    elif right_groups == "tile":
        left_scales = left_scales.t()
    elif right_groups == "block":
        left_scales = left_scales.t()
        right_scales = right_scales.t()
        if spreads_blocks:
            right_scales = right_scales.repeat_interleave(FP8_GROUP, 1)[:, : right_codes.shape[0]].contiguous()
    result: Tensor = torch._scaled_mm(
        left_codes, right_codes.t(), left_scales, right_scales, out_dtype=dtype, use_fast_accum=sums_fast
    )
    return result


#: For each kind of layers.
LINEAR = _core.FrontEnd(FrontEnd())
CONV1D = _core.FrontEnd(Conv1DFrontEnd())
