// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/adagc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/lab/rivals/rule_memory.h"

namespace gnmr::lab {
namespace {

constexpr std::uint32_t kAdaGcVersion = 1;

}  // namespace

std::vector<double> AdaGc::warm_up(std::span<const double> norms) {
  double square = 0;
  for (const double norm : norms) square += norm * norm;
  const double norm_of_all = std::sqrt(square);
  const double factor = norm_of_all > options_.lambda_abs ? options_.lambda_abs / norm_of_all : 1.0;
  for (std::size_t tensor = 0; tensor < norms.size(); ++tensor) {
    if (norms[tensor] == 0) continue;
    const double clipped = factor * norms[tensor];
    double& reference = references_[tensor];
    reference = reference == 0 ? clipped : std::min(reference, clipped);
  }
  return std::vector<double>(norms.size(), factor);
}

std::vector<double> AdaGc::clip(std::span<const double> norms) {
  std::vector<double> factors(norms.size(), 1.0);
  for (std::size_t tensor = 0; tensor < norms.size(); ++tensor) {
    const double norm = norms[tensor];
    double& reference = references_[tensor];
    if (norm == 0) continue;
    if (reference == 0) {
      reference = norm;
      continue;
    }
    const double limit = options_.lambda_rel * reference;
    if (norm > limit) factors[tensor] = limit / norm;
    reference = options_.beta * reference + (1 - options_.beta) * std::min(norm, limit);
  }
  return factors;
}

std::optional<std::vector<double>> AdaGc::observe(std::span<const double> norms) {
  if (!references_.empty() && norms.size() != references_.size()) {
    throw Error("[adagc] expected " + std::to_string(references_.size()) + " norms, got " +
                std::to_string(norms.size()));
  }
  if (!std::all_of(norms.begin(), norms.end(), is_usable)) return std::nullopt;
  references_.resize(norms.size(), 0.0);
  return steps_++ < options_.warmup ? warm_up(norms) : clip(norms);
}

std::string AdaGc::save() const {
  std::string bytes = begin_memory(AdaGcOptions::kRule, kAdaGcVersion);
  io::append_little_endian(bytes, steps_);
  io::append_little_endian(bytes, static_cast<std::uint64_t>(references_.size()));
  for (const double reference : references_) io::append_little_endian(bytes, reference);
  return bytes;
}

void AdaGc::restore(std::string_view bytes) {
  MemoryReader reader(bytes, AdaGcOptions::kRule, kAdaGcVersion);
  AdaGc restored(options_);
  restored.steps_ = reader.take_count(std::numeric_limits<std::int64_t>::max() - 1);
  restored.references_.resize(reader.take_last_records(sizeof(double)));
  for (double& reference : restored.references_) reference = reader.take_norm();
  *this = std::move(restored);
}

}  // namespace gnmr::lab
