// SPDX-License-Identifier: Apache-2.0
// Small helpers of the tests that look at tensors.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <memory>
#include <string>

#include "gnmr/recipes/recipe.h"

namespace gnmr::nn::testing {

/// Equal shapes and bits; a NaN is like any other NaN.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat) return false;
  const at::Tensor equal = a.contiguous().view(at::kInt) == b.contiguous().view(at::kInt);
  return equal.logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

/// The difference relative to the second, both as vectors.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return 1e30;
  const double length = b.to(at::kDouble).norm().item<double>();
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / (length > 0 ? length : 1);
}

/// Normal numbers that depend on the seed alone.
inline at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes);
}

/// So many threads while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

inline std::shared_ptr<const recipes::Recipe> builtin(const std::string& name) {
  return std::make_shared<const recipes::Recipe>(recipes::load_recipe(name));
}

}  // namespace gnmr::nn::testing
