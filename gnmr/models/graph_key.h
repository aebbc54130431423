// SPDX-License-Identifier: Apache-2.0
// What distinguishes the variants of a block: everything that the host decides in its layers (block_graphs.h).
//
// Goals: whatever a graph would freeze is in the key, or there is no key and the block runs operator by operator.
// Non-goals: capturing.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gnmr/models/llama_block.h"
#include "gnmr/torch/switchable_linear.h"

namespace gnmr::models {

/// Linear layers of a block.
inline constexpr std::size_t kBlockLayers = 7;

/// They, always in this order.
std::array<nn::SwitchableLinearImpl*, kBlockLayers> layers_of(LlamaBlockImpl& block);

/// All parameters as the block's modules hold them, always in this order.
std::vector<at::Tensor*> members_of(LlamaBlockImpl& block);

/// Everything that the host decides in a block. It holds what it points to, so that no address comes back as another's.
struct GraphKey {
  std::vector<std::int64_t> shape = {};
  at::ScalarType type = at::kFloat;
  bool recompute = false;
  bool input_gradient = false;
  std::uint32_t wanted = 0;               // parameters with gradients, a bit each
  std::uint32_t low = 0;                  // GEMMs that run low, three bits per layer
  std::uint32_t later_micro_batches = 0;  // layers that compare their largest magnitudes with those of earlier ones
  std::array<std::shared_ptr<const nn::Recipe>, kBlockLayers> recipes = {};
  std::array<std::shared_ptr<low::DeviceNumbers>, kBlockLayers> numbers = {};

  bool operator==(const GraphKey&) const = default;
};

/// Finds the keys of one block.
class GraphKeys {
 public:
  /// None where the block is to run operator by operator.
  std::optional<GraphKey> key_of(LlamaBlockImpl& block, const at::Tensor& input, bool recompute);

  /// Whether the last call found parameters at other addresses than the one before: no earlier graph is of use then.
  bool have_moved() const { return have_moved_; }

 private:
  bool take_parameters(LlamaBlockImpl& block, const at::Tensor& input, GraphKey& key);
  bool take_layer(std::size_t index, nn::SwitchableLinearImpl& layer, GraphKey& key);

  std::vector<const void*> addresses_;  // of the parameters
  bool have_moved_ = false;
  // Answers that stay the same as long as the parameters stay where they are.
  std::array<std::shared_ptr<const nn::Recipe>, kBlockLayers> steady_recipes_ = {};
  std::array<const void*, kBlockLayers> known_numbers_ = {};  // DeviceNumbers whose scales were all there
};

}  // namespace gnmr::models
