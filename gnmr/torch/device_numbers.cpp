// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/device_numbers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "gnmr/core/error.h"
#include "gnmr/torch/front_end.h"

namespace gnmr::nn {
namespace {

c10::Device device_of(const low::DeviceNumbers& numbers) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(numbers.device())};
}

at::Tensor floats_at(float* numbers, std::size_t count, const c10::Device& device) {
  return at::from_blob(numbers, {static_cast<std::int64_t>(count)},
                       at::TensorOptions().dtype(at::kFloat).device(device));
}

NumbersOnTheWay send(std::vector<at::Tensor> tensors, const low::DeviceNumbers& numbers,
                     const std::shared_ptr<PinnedPool>& pool) {
  std::vector<at::Tensor> parts;
  for (const low::Matrix& bytes : numbers.statistics_so_far().bytes) parts.push_back(tensor_of(bytes));
  if (!parts.empty()) tensors.push_back(at::cat(parts));
  return {PinnedCopies(tensors, pool), numbers.statistics_so_far().indices, numbers.layers()};
}

}  // namespace

NumbersOnTheWay send_numbers(const low::DeviceNumbers& numbers, const std::shared_ptr<PinnedPool>& pool) {
  const std::span<const std::byte> bytes = numbers.bytes();
  const at::Tensor all = at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())},
                                       at::TensorOptions().dtype(at::kByte).device(device_of(numbers)));
  return send({all}, numbers, pool);
}

NumbersOnTheWay send_rest(const low::DeviceNumbers& numbers, const std::shared_ptr<PinnedPool>& pool) {
  return send(std::vector<at::Tensor>(), numbers, pool);
}

low::HostNumbers NumbersOnTheWay::wait() {
  const at::Tensor& all = copies_.wait().front();
  return wait({static_cast<const std::byte*>(all.const_data_ptr()), static_cast<std::size_t>(all.numel())});
}

low::HostNumbers NumbersOnTheWay::wait(std::span<const std::byte> bytes) {
  low::HostNumbers numbers = low::DeviceNumbers::from_bytes(bytes, layers_);
  if (cast_indices_.empty()) return numbers;
  const auto* const casts = copies_.wait().back().const_data_ptr<std::uint8_t>();
  numbers.casts.resize(layers_ * low::kProductCount * 2);
  for (std::size_t index = 0; index < cast_indices_.size(); ++index) {
    formats::Statistics seen;
    std::memcpy(&seen, casts + index * sizeof seen, sizeof seen);
    numbers.casts[cast_indices_[index]] += seen;
  }
  return numbers;
}

void set_amaxes(low::DeviceNumbers& numbers, std::span<const float> amaxes) {
  const std::size_t expected = numbers.layers() * low::kOperandCount;
  if (amaxes.size() != expected) {
    throw Error("[set_amaxes] expected " + std::to_string(expected) + " numbers, got " + std::to_string(amaxes.size()));
  }
  floats_at(numbers.amaxes(), expected, device_of(numbers))
      .copy_(at::tensor(at::ArrayRef<float>(amaxes.data(), amaxes.size()), at::kFloat));
  numbers.set_seen(amaxes);
}

at::Tensor amax_of(low::LinearPaths& paths, recipes::Operand operand) {
  return floats_at(paths.numbers->amax(paths.numbers_row, operand), 1, device_of(*paths.numbers));
}

}  // namespace gnmr::nn
