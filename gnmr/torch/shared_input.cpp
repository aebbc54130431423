// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/shared_input.h"

#include "gnmr/torch/device_stream.h"

namespace gnmr::nn {
namespace {

thread_local SharedInput* innermost = nullptr;

/// Whether every layer with this rule makes the same of a matrix.
bool is_of_no_layer(const CastRule& rule) {
  return rule.rounding == formats::Rounding::nearest_even && rule.hadamard == 0 &&
         rule.grouping != recipes::Grouping::delayed;
}

}  // namespace

SharedInput::SharedInput(const at::Tensor& input)
    : input_(input), stream_(current_stream(input.device())), outer_(innermost) {
  if (!input.is_inference()) version_ = static_cast<std::uint32_t>(input._version());
  innermost = this;
}

SharedInput::~SharedInput() { innermost = outer_; }

SharedInput* SharedInput::of(const at::Tensor& input) {
  SharedInput* const shared = innermost;
  if (shared == nullptr || !shared->input_.is_same(input) || input.is_inference()) return nullptr;
  const bool is_unchanged = static_cast<std::uint32_t>(input._version()) == shared->version_;
  return is_unchanged && current_stream(input.device()) == shared->stream_ ? shared : nullptr;
}

LowOperand SharedInput::operand(LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix) {
  const auto& rule = paths.recipe->rule(use.product, use.place);
  if (!rule || paths.hook != nullptr || !is_of_no_layer(*rule)) return low_operand(paths, use, matrix);
  Cast& cast = casts_[use.shared ? 1 : 0];
  const bool counts = counts_casts(paths);
  const bool is_there = cast.operand.defined() && cast.rule == *rule && (cast.counts.counted || !counts);
  if (!is_there) {
    cast = {.rule = *rule};
    cast.operand = low_operand(paths, use, matrix, &cast.counts);
  } else if (counts) {
    add_evidence(paths, use, cast.counts, matrix.device());
  }
  return cast.operand;
}

SavedMatrix SharedInput::in_8_bits(const at::Tensor& matrix) {
  if (!bits_.codes.defined()) bits_ = save_in_8_bits(matrix);
  return bits_;
}

}  // namespace gnmr::nn
