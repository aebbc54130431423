// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/stable_spam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/lab/rivals/rule_memory.h"

namespace gnmr::lab {
namespace {

constexpr std::uint32_t kStableSpamVersion = 1;
constexpr double kEpsilon = 1e-8;        // Adam's, which the authors' code uses here too
constexpr double kSmallestNorm = 1e-30;  // the factor for a smaller one would not be a float32 number
constexpr std::size_t kRecordBytes = sizeof(std::int64_t) + 3 * sizeof(double);

/// Takes a value into a running mean that is corrected for its start: the same as keeping the plain mean from 0 and
/// dividing it by 1 - decay^steps, but a value that does not change is met exactly.
void update_mean(double& mean, double value, double decay, std::int64_t steps) {
  mean += (1 - decay) / (1 - std::pow(decay, static_cast<double>(steps))) * (value - mean);
}

bool is_usable_square(double square) { return is_usable(std::sqrt(square)); }

}  // namespace

/// AdaClip; the sum of squares that is left.
double StableSpam::clip_elements(std::size_t index, double square, GradientElements& elements) {
  Tensor& tensor = tensors_[index];
  const double largest = elements.largest(index);
  update_mean(tensor.largest, largest, options_.gamma3, tensor.steps);
  if (!(largest > tensor.largest)) return square;
  return elements.scale_above(index, tensor.largest, tensor.largest / largest);
}

/// AdaGN; the tensor's factor.
double StableSpam::normalize(Tensor& tensor, double square) const {
  const double norm = std::sqrt(square);
  update_mean(tensor.norm, norm, options_.gamma1, tensor.steps);
  update_mean(tensor.square, square, options_.gamma2, tensor.steps);
  if (norm < kSmallestNorm) return 1.0;
  return tensor.norm / (std::sqrt(tensor.square) + kEpsilon) / norm;
}

std::optional<std::vector<double>> StableSpam::observe(std::span<const double> squares, std::span<const char> is_absent,
                                                       GradientElements& elements) {
  if (!tensors_.empty() && squares.size() != tensors_.size()) {
    throw Error("[stable-spam] expected " + std::to_string(tensors_.size()) + " tensors, got " +
                std::to_string(squares.size()));
  }
  if (!std::all_of(squares.begin(), squares.end(), is_usable_square)) return std::nullopt;
  tensors_.resize(squares.size());
  std::vector<double> factors(squares.size(), 1.0);
  for (std::size_t index = 0; index < squares.size(); ++index) {
    if (!is_absent.empty() && is_absent[index] != 0) continue;
    ++tensors_[index].steps;
    const double square = clip_elements(index, squares[index], elements);
    factors[index] = normalize(tensors_[index], square);
  }
  return factors;
}

std::string StableSpam::save() const {
  std::string bytes = begin_memory(StableSpamOptions::kRule, kStableSpamVersion);
  io::append_little_endian(bytes, static_cast<std::uint64_t>(tensors_.size()));
  for (const Tensor& tensor : tensors_) {
    io::append_little_endian(bytes, tensor.steps);
    for (const double number : {tensor.largest, tensor.norm, tensor.square}) io::append_little_endian(bytes, number);
  }
  return bytes;
}

void StableSpam::restore(std::string_view bytes) {
  MemoryReader reader(bytes, StableSpamOptions::kRule, kStableSpamVersion);
  std::vector<Tensor> tensors(reader.take_last_records(kRecordBytes));
  for (Tensor& tensor : tensors) {
    tensor.steps = reader.take_count(std::numeric_limits<std::int64_t>::max() - 1);
    tensor.largest = reader.take_norm();
    tensor.norm = reader.take_norm();
    tensor.square = reader.take_square();
  }
  tensors_ = std::move(tensors);
}

}  // namespace gnmr::lab
