// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/zclip.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gnmr/lab/rivals/rule_memory.h"

namespace gnmr::lab {
namespace {

constexpr std::uint32_t kZClipVersion = 1;
constexpr double kDeviationEpsilon = 1e-6;
constexpr double kClipEpsilon = 1e-6;  // as in torch's clip_grad_norm_, which the authors' code follows

}  // namespace

void ZClip::warm_up(double norm) {
  warmup_norms_.push_back(norm);
  if (static_cast<std::int64_t>(warmup_norms_.size()) < options_.warmup) return;
  const auto count = static_cast<double>(warmup_norms_.size());
  double sum = 0;
  for (const double value : warmup_norms_) sum += value;
  mean_ = sum / count;
  double squares = 0;
  for (const double value : warmup_norms_) squares += (value - mean_) * (value - mean_);
  variance_ = squares / count;
  is_initialized_ = true;
  warmup_norms_.clear();
}

double ZClip::clipped_norm(double norm) const {
  const double deviation = std::sqrt(variance_);
  const double score = (norm - mean_) / (deviation + kDeviationEpsilon);
  if (!(score > options_.z)) return norm;
  switch (options_.clip_to) {
    case ZClipTo::mean:
      return mean_;
    case ZClipTo::max:
      return mean_ + options_.z * deviation;
    case ZClipTo::reciprocal:
      break;
  }
  return mean_ + options_.z * options_.z / score * deviation;
}

std::optional<double> ZClip::observe(double norm) {
  if (!is_usable(norm)) return std::nullopt;
  double allowed = norm;
  if (is_initialized_) {
    allowed = clipped_norm(norm);
    mean_ = options_.alpha * mean_ + (1 - options_.alpha) * allowed;
    variance_ = options_.alpha * variance_ + (1 - options_.alpha) * (allowed - mean_) * (allowed - mean_);
  } else {
    warm_up(norm);
  }
  if (options_.max_norm > 0) allowed = std::min(allowed, options_.max_norm);
  return norm > allowed ? allowed / (norm + kClipEpsilon) : 1.0;
}

std::string ZClip::save() const {
  std::string bytes = begin_memory(ZClipOptions::kRule, kZClipVersion);
  io::append_little_endian(bytes, static_cast<std::int64_t>(is_initialized_ ? 1 : 0));
  io::append_little_endian(bytes, mean_);
  io::append_little_endian(bytes, variance_);
  io::append_little_endian(bytes, static_cast<std::uint64_t>(warmup_norms_.size()));
  for (const double norm : warmup_norms_) io::append_little_endian(bytes, norm);
  return bytes;
}

void ZClip::restore(std::string_view bytes) {
  MemoryReader reader(bytes, ZClipOptions::kRule, kZClipVersion);
  ZClip restored(options_);
  restored.is_initialized_ = reader.take_count(1) == 1;
  restored.mean_ = reader.take_norm();
  restored.variance_ = reader.take_square();
  restored.warmup_norms_.resize(reader.take_last_records(sizeof(double)));
  for (double& norm : restored.warmup_norms_) norm = reader.take_norm();
  *this = std::move(restored);
}

}  // namespace gnmr::lab
