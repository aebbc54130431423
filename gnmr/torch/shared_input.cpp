// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/shared_input.h"

#include "gnmr/torch/device_stream.h"

namespace gnmr::nn {
namespace {

thread_local SharedInput* innermost = nullptr;

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

}  // namespace gnmr::nn
