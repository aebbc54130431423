// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/device_numbers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>

#include "gnmr/core/error.h"
#include "gnmr/kernels/delayed_scales.h"
#include "gnmr/kernels/device.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/linear_paths.h"

namespace gnmr::nn {
namespace {

using recipes::kOperandCount;
using recipes::kProductCount;
using recipes::Operand;
using recipes::Product;

constexpr std::size_t kTotals = sizeof(kernels::ErrorTotals) / sizeof(double);

std::size_t cast_index(std::size_t layer, Product product, std::size_t place) {
  return (layer * kProductCount + static_cast<std::size_t>(product)) * 2 + place;
}

std::int64_t as_signed(std::size_t count) { return static_cast<std::int64_t>(count); }

std::size_t double_bytes(std::size_t layers) {
  return layers * (kProductCount + kErrorPlaces * kTotals) * sizeof(double);
}
std::size_t amax_bytes(std::size_t layers) { return layers * kOperandCount * sizeof(float); }

}  // namespace

DeviceNumbers::DeviceNumbers(std::size_t layers, std::shared_ptr<const recipes::Recipe> recipe,
                             const c10::Device& device)
    : layers_(layers), device_(device) {
  const auto options = at::TensorOptions().device(device);
  bytes_ = at::empty({as_signed(double_bytes(layers) + amax_bytes(layers))}, options.dtype(at::kByte));
  doubles_ = bytes_.narrow(0, 0, as_signed(double_bytes(layers))).view(at::kDouble);
  amaxes_ = bytes_.narrow(0, as_signed(double_bytes(layers)), as_signed(amax_bytes(layers))).view(at::kFloat);
  begin_step();
  seen_.assign(layers * kOperandCount, 0);
  delayed_index_.resize(layers * kProductCount * 2);
  if (recipe == nullptr) return;
  std::vector<kernels::DelayedTensor> tensors;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t product = 0; product < kProductCount; ++product) {
      for (std::size_t place = 0; place < 2; ++place) {
        const auto& rule = recipe->rules[product][place];
        if (!rule || rule->grouping != recipes::Grouping::delayed) continue;
        const Operand operand = recipes::operands_of(static_cast<Product>(product))[place];
        const std::size_t amax = layer * kOperandCount + static_cast<std::size_t>(operand);
        delayed_index_[cast_index(layer, static_cast<Product>(product), place)] =
            static_cast<std::uint32_t>(tensors.size());
        tensors.push_back({rule->delayed_scaling(), static_cast<std::uint32_t>(amax)});
      }
    }
  }
  if (tensors.empty()) return;
  delayed_ = std::make_unique<kernels::DelayedScales>(tensors);
  remembered_.assign(tensors.size(), 0);
  // The address stays, and nobody writes through the view.
  scales_ =
      at::from_blob(const_cast<float*>(delayed_->scales()), {as_signed(tensors.size())}, options.dtype(at::kFloat));
}

DeviceNumbers::~DeviceNumbers() = default;

void DeviceNumbers::begin_step() {
  doubles_.zero_();
  amaxes_.fill_(-1.0);
  std::fill(seen_.begin(), seen_.end(), std::uint8_t{0});
  casts_.clear();
}

void DeviceNumbers::end_step() {
  if (delayed_ == nullptr) return;
  delayed_->observe(amaxes_.const_data_ptr<float>(), current_stream(device_));
  for (std::size_t index = 0; index < delayed_index_.size(); ++index) {
    if (!delayed_index_[index]) continue;
    const std::size_t layer = index / (kProductCount * 2);
    const auto product = static_cast<Product>(index / 2 % kProductCount);
    const auto operand = static_cast<std::size_t>(recipes::operands_of(product)[index % 2]);
    if (seen_[layer * kOperandCount + operand] != 0) remembered_[*delayed_index_[index]] = 1;
  }
}

NumbersOnTheWay DeviceNumbers::send() const { return send({bytes_}); }

NumbersOnTheWay DeviceNumbers::send_rest() const { return send(std::vector<at::Tensor>()); }

std::span<const std::byte> DeviceNumbers::bytes() const {
  return {static_cast<const std::byte*>(bytes_.const_data_ptr()), static_cast<std::size_t>(bytes_.numel())};
}

NumbersOnTheWay DeviceNumbers::send(std::vector<at::Tensor> tensors) const {
  std::vector<at::Tensor> parts;
  std::vector<std::size_t> indices;
  for (const CastEntry& entry : casts_) {
    parts.push_back(entry.bytes);
    indices.push_back(entry.index);
  }
  if (!parts.empty()) tensors.push_back(at::cat(parts));
  return {PinnedCopies(tensors, pool_), std::move(indices), layers_};
}

HostNumbers NumbersOnTheWay::wait() {
  const at::Tensor& bytes = copies_.wait().front();
  return wait({static_cast<const std::byte*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())});
}

HostNumbers NumbersOnTheWay::wait(std::span<const std::byte> bytes) {
  HostNumbers numbers{.squares = std::vector<double>(layers_ * kProductCount),
                      .errors = std::vector<kernels::ErrorTotals>(layers_ * kErrorPlaces),
                      .amaxes = std::vector<float>(layers_ * kOperandCount)};
  const auto take = [&](auto& values) {
    const std::size_t size = values.size() * sizeof(values[0]);
    std::memcpy(values.data(), bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  take(numbers.squares);
  take(numbers.errors);
  take(numbers.amaxes);
  if (cast_indices_.empty()) return numbers;
  const auto* const casts = copies_.wait().back().const_data_ptr<std::uint8_t>();
  numbers.casts.resize(layers_ * kProductCount * 2);
  for (std::size_t index = 0; index < cast_indices_.size(); ++index) {
    formats::Statistics seen;
    std::memcpy(&seen, casts + index * sizeof seen, sizeof seen);
    numbers.casts[cast_indices_[index]] += seen;
  }
  return numbers;
}

void DeviceNumbers::set_amaxes(const std::vector<float>& amaxes) {
  if (as_signed(amaxes.size()) != amaxes_.numel()) {
    throw Error("[set_amaxes] expected " + std::to_string(amaxes_.numel()) + " numbers, got " +
                std::to_string(amaxes.size()));
  }
  amaxes_.copy_(at::tensor(amaxes, at::kFloat));
  for (std::size_t index = 0; index < amaxes.size(); ++index) seen_[index] = amaxes[index] >= 0 ? 1 : 0;
}

std::vector<formats::DelayedState> DeviceNumbers::save() const {
  if (delayed_ == nullptr) return {};
  return delayed_->save(current_stream(device_));
}

void DeviceNumbers::load(const std::vector<formats::DelayedState>& states) {
  if (delayed_ == nullptr) return;
  delayed_->load(states, current_stream(device_));
  for (std::size_t index = 0; index < states.size(); ++index)
    remembered_[index] = states[index].observations > 0 ? 1 : 0;
}

double* DeviceNumbers::square(std::size_t layer, Product product) {
  return doubles_.mutable_data_ptr<double>() + layer * kProductCount + static_cast<std::size_t>(product);
}

kernels::ErrorTotals* DeviceNumbers::error(std::size_t layer, std::size_t place) {
  double* const first = doubles_.mutable_data_ptr<double>() + layers_ * kProductCount;
  return reinterpret_cast<kernels::ErrorTotals*>(first) + layer * kErrorPlaces + place;
}

at::Tensor DeviceNumbers::amax(std::size_t layer, Operand operand) {
  const std::size_t index = layer * kOperandCount + static_cast<std::size_t>(operand);
  seen_[index] = 1;
  return amaxes_.narrow(0, as_signed(index), 1);
}

at::Tensor DeviceNumbers::delayed_scale(std::size_t layer, Product product, std::size_t place) {
  const std::optional<std::uint32_t> index = delayed_index_[cast_index(layer, product, place)];
  if (!index || remembered_[*index] == 0) return {};
  return scales_.narrow(0, static_cast<std::int64_t>(*index), 1);
}

formats::Statistics* DeviceNumbers::statistics(std::size_t layer, Product product, std::size_t place) {
  const at::Tensor bytes =
      at::empty({as_signed(sizeof(formats::Statistics))}, at::TensorOptions().dtype(at::kByte).device(device_));
  casts_.push_back({cast_index(layer, product, place), bytes});
  return static_cast<formats::Statistics*>(bytes.mutable_data_ptr());
}

bool has_device_numbers(const at::Tensor& matrix) { return matrix.is_cuda() && kernels::available(); }

LayerNumbers numbers_of(LinearPaths& paths, const c10::Device& device) {
  if (paths.numbers == nullptr) {
    paths.numbers = std::make_shared<DeviceNumbers>(std::size_t{paths.layer} + 1, paths.recipe, device);
  }
  return {*paths.numbers, paths.layer};
}

}  // namespace gnmr::nn
