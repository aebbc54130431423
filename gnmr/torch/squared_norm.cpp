// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/squared_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/dot.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace gnmr::nn {
namespace {

constexpr std::int64_t kChunkElements = 16384;  // what is summed in a fixed order by one thread
constexpr std::size_t kLanes = 16;

/// The sum over one chunk: lanes of double, added up in a fixed order.
template <class Number>
double sum_chunk(const Number* values, std::int64_t count) {
  std::array<double, kLanes> lanes{};
  std::int64_t index = 0;
  for (; index + static_cast<std::int64_t>(kLanes) <= count; index += static_cast<std::int64_t>(kLanes)) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(static_cast<float>(values[index + static_cast<std::int64_t>(lane)]));
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; index < count; ++index, ++lane) {
    const auto value = static_cast<double>(static_cast<float>(values[index]));
    lanes[lane] += value * value;
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

/// Whether the elements lie without gaps, in whatever order: a sum does not mind the order of dimensions.
bool is_dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

bool has_chunks(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return tensor.device().is_cpu() && is_dense(tensor) &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

double sum_part(const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return sum_chunk(tensor.const_data_ptr<at::BFloat16>() + first, count);
    case at::kHalf:
      return sum_chunk(tensor.const_data_ptr<at::Half>() + first, count);
    default:
      return sum_chunk(tensor.const_data_ptr<float>() + first, count);
  }
}

double sum_with_operators(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().reshape({-1}).to(at::kDouble);
  return at::dot(flat, flat).item<double>();
}

struct Chunk {
  std::size_t tensor;
  std::int64_t first;
  std::int64_t count;
};

}  // namespace

std::vector<double> squared_norms(std::span<const at::Tensor> tensors) {
  std::vector<double> sums(tensors.size(), 0.0);
  std::vector<Chunk> chunks;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const at::Tensor& tensor = tensors[index];
    if (!tensor.defined()) continue;
    if (!has_chunks(tensor)) {
      sums[index] = sum_with_operators(tensor);
      continue;
    }
    for (std::int64_t first = 0; first < tensor.numel(); first += kChunkElements) {
      chunks.push_back({index, first, std::min(kChunkElements, tensor.numel() - first)});
    }
  }
  std::vector<double> parts(chunks.size());
  at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 4, [&](std::int64_t first, std::int64_t last) {
    for (auto index = static_cast<std::size_t>(first); index < static_cast<std::size_t>(last); ++index) {
      const Chunk& chunk = chunks[index];
      parts[index] = sum_part(tensors[chunk.tensor], chunk.first, chunk.count);
    }
  });
  for (std::size_t index = 0; index < chunks.size(); ++index) sums[chunks[index].tensor] += parts[index];
  return sums;
}

double squared_norm(const at::Tensor& tensor) { return squared_norms(std::span(&tensor, 1)).front(); }

}  // namespace gnmr::nn
