// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/device_numbers.h"

#include <algorithm>
#include <cstring>

#include "gnmr/kernels/delayed_scales.h"
#include "gnmr/low/amax_history.h"
#include "gnmr/low/linear_paths.h"
#include "gnmr/recipes/delayed_states.h"

namespace gnmr::low {
namespace {

constexpr std::size_t kTotals = sizeof(kernels::ErrorTotals) / sizeof(double);

std::size_t cast_index(std::size_t layer, Product product, std::size_t place) {
  return (layer * kProductCount + index_of(product)) * 2 + place;
}

std::size_t double_bytes(std::size_t layers) {
  return layers * (kProductCount + kErrorPlaces * kTotals) * sizeof(double);
}
std::size_t amax_bytes(std::size_t layers) { return layers * kOperandCount * sizeof(float); }

/// A part of a matrix of bytes as numbers.
Matrix part_of(const Matrix& bytes, std::size_t first, std::size_t size, Type type, std::size_t element_bytes) {
  Matrix part = bytes;
  part.data = bytes.bytes() + first;
  part.type = type;
  part.rows = static_cast<std::int64_t>(size / element_bytes);
  return part;
}

}  // namespace

DeviceNumbers::DeviceNumbers(const FrontEnd& front_end, std::size_t layers, const std::shared_ptr<const Recipe>& recipe,
                             const Matrix& like)
    : front_end_(front_end), layers_(layers) {
  const std::size_t doubles = double_bytes(layers);
  bytes_ = front_end.empty_vector(like, Type::byte, static_cast<std::int64_t>(doubles + amax_bytes(layers)));
  doubles_ = part_of(bytes_, 0, doubles, Type::float64, sizeof(double));
  amaxes_ = part_of(bytes_, doubles, amax_bytes(layers), Type::float32, sizeof(float));
  tickets_ = front_end.empty_vector(like, Type::byte,
                                    static_cast<std::int64_t>(layers * kErrorPlaces * sizeof(std::uint32_t)));
  front_end.zero(tickets_);
  begin_step();
  seen_.assign(layers * kOperandCount, 0);
  delayed_index_.resize(layers * kProductCount * 2);
  if (recipe == nullptr) return;
  std::vector<kernels::DelayedTensor> tensors;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    recipes::for_delayed(*recipe, [&](std::size_t product, std::size_t place, const CastRule& rule) {
      const Operand operand = recipes::operands_of(static_cast<Product>(product))[place];
      const std::size_t amax = layer * kOperandCount + static_cast<std::size_t>(operand);
      delayed_index_[cast_index(layer, static_cast<Product>(product), place)] =
          static_cast<std::uint32_t>(tensors.size());
      tensors.push_back({.rule = rule.delayed_scaling(),
                         .amax = static_cast<std::uint32_t>(amax),
                         .totals = static_cast<std::uint32_t>(layer * kErrorPlaces + product)});
    });
  }
  if (tensors.empty()) return;
  delayed_ = std::make_unique<kernels::DelayedScales>(tensors);
  has_observation_.assign(tensors.size(), 0);
}

DeviceNumbers::~DeviceNumbers() = default;

void DeviceNumbers::begin_step() {
  judge_samples();  // of a step that nobody asked about
  front_end_.zero(bytes_);
  kernels::clear_amaxes(amaxes_.floats(), static_cast<std::uint64_t>(amaxes_.count()), front_end_.stream(bytes_));
  std::fill(seen_.begin(), seen_.end(), std::uint8_t{0});
  statistics_ = {};
}

void DeviceNumbers::leave_out_answered(const formats::Refresh& refresh) {
  if (delayed_ == nullptr) return;
  delayed_->leave_out_answered(amaxes_.floats(), refresh, error(0, 0).totals, front_end_.stream(bytes_));
}

void DeviceNumbers::end_step(const formats::Refresh& refresh) {
  if (delayed_ == nullptr) return;
  delayed_->observe(amaxes_.floats(), front_end_.stream(bytes_), refresh);
  for (std::size_t index = 0; index < delayed_index_.size(); ++index) {
    if (!delayed_index_[index]) continue;
    const std::size_t layer = index / (kProductCount * 2);
    const auto product = static_cast<Product>(index / 2 % kProductCount);
    const auto operand = static_cast<std::size_t>(recipes::operands_of(product)[index % 2]);
    if (seen_[layer * kOperandCount + operand] != 0) has_observation_[*delayed_index_[index]] = 1;
  }
}

std::span<const std::byte> DeviceNumbers::bytes() const {
  return {static_cast<const std::byte*>(bytes_.data), static_cast<std::size_t>(bytes_.count())};
}

HostNumbers DeviceNumbers::from_bytes(std::span<const std::byte> bytes, std::size_t layers) {
  HostNumbers numbers{.squares = std::vector<double>(layers * kProductCount),
                      .errors = std::vector<kernels::ErrorTotals>(layers * kErrorPlaces),
                      .amaxes = std::vector<float>(layers * kOperandCount)};
  const auto take = [&](auto& values) {
    const std::size_t size = values.size() * sizeof(values[0]);
    std::memcpy(values.data(), bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  take(numbers.squares);
  take(numbers.errors);
  take(numbers.amaxes);
  return numbers;
}

float* DeviceNumbers::amaxes() const { return amaxes_.floats(); }

void DeviceNumbers::set_seen(std::span<const float> amaxes) {
  for (std::size_t index = 0; index < amaxes.size(); ++index) seen_[index] = amaxes[index] >= 0 ? 1 : 0;
}

std::vector<formats::DelayedState> DeviceNumbers::save() const {
  if (delayed_ == nullptr) return {};
  return delayed_->save(front_end_.stream(bytes_));
}

void DeviceNumbers::load(const std::vector<formats::DelayedState>& states) {
  if (delayed_ == nullptr) return;
  delayed_->load(states, front_end_.stream(bytes_));
  for (std::size_t index = 0; index < states.size(); ++index)
    has_observation_[index] = states[index].observations > 0 ? 1 : 0;
}

double* DeviceNumbers::square(std::size_t layer, Product product) {
  return static_cast<double*>(doubles_.data) + layer * kProductCount + index_of(product);
}

const kernels::ErrorTotals* DeviceNumbers::errors() const {
  return reinterpret_cast<const kernels::ErrorTotals*>(squares() + layers_ * kProductCount);
}

kernels::TotalsPlace DeviceNumbers::error(std::size_t layer, std::size_t place) {
  double* const first = static_cast<double*>(doubles_.data) + layers_ * kProductCount;
  const std::size_t index = layer * kErrorPlaces + place;
  return {reinterpret_cast<kernels::ErrorTotals*>(first) + index, static_cast<std::uint32_t*>(tickets_.data) + index};
}

kernels::SamplePlace DeviceNumbers::sample(std::size_t layer, Product product) {
  if (!slots_.defined()) {
    const std::size_t count = layers_ * kProductCount;
    slots_ =
        front_end_.empty_vector(bytes_, Type::byte, static_cast<std::int64_t>(count * sizeof(kernels::SampleSlot)));
    front_end_.zero(slots_);
    waits_.assign(count, 0);
  }
  const std::size_t index = layer * kProductCount + index_of(product);
  kernels::SampleSlot* const slot = static_cast<kernels::SampleSlot*>(slots_.data) + index;
  if (waits_[index] != 0) kernels::judge_samples(slot, 1, front_end_.stream(bytes_));
  waits_[index] = 1;
  return {slot, error(layer, index_of(product)).totals};
}

void DeviceNumbers::judge_samples() {
  if (std::find(waits_.begin(), waits_.end(), 1) == waits_.end()) return;
  kernels::judge_samples(static_cast<kernels::SampleSlot*>(slots_.data), waits_.size(), front_end_.stream(bytes_));
  std::fill(waits_.begin(), waits_.end(), std::uint8_t{0});
}

bool DeviceNumbers::has_seen(std::size_t layer, Operand operand) const {
  return seen_[layer * kOperandCount + static_cast<std::size_t>(operand)] != 0;
}

float* DeviceNumbers::amax(std::size_t layer, Operand operand) {
  const std::size_t index = layer * kOperandCount + static_cast<std::size_t>(operand);
  seen_[index] = 1;
  return amaxes_.floats() + index;
}

const float* DeviceNumbers::delayed_scale(std::size_t layer, Product product, std::size_t place) const {
  const std::optional<std::uint32_t> index = delayed_index_[cast_index(layer, product, place)];
  if (!index || has_observation_[*index] == 0) return nullptr;
  return delayed_->scales() + *index;
}

formats::Statistics* DeviceNumbers::statistics(std::size_t layer, Product product, std::size_t place) {
  statistics_.bytes.push_back(
      front_end_.empty_vector(bytes_, Type::byte, static_cast<std::int64_t>(sizeof(formats::Statistics))));
  statistics_.indices.push_back(cast_index(layer, product, place));
  return static_cast<formats::Statistics*>(statistics_.bytes.back().data);
}

LayerNumbers numbers_of(const FrontEnd& front_end, LinearPaths& paths, const Matrix& on) {
  if (paths.numbers == nullptr) {
    paths.numbers = std::make_shared<DeviceNumbers>(front_end, paths.numbers_row + 1, paths.recipe, on);
  }
  return {*paths.numbers, paths.numbers_row};
}

}  // namespace gnmr::low
