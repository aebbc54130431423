// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/block_graphs.h"

#include <ATen/ATen.h>
#include <ATen/ops/_foreach_copy.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/models/graph_key.h"
#include "gnmr/torch/device_numbers.h"

namespace gnmr::models {
namespace {

using nn::kOperandCount;
using nn::LinearPaths;
using nn::Operand;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::uint64_t kMostFailures = 3;  // after so many nothing is captured any more

/// While it lives the block computes with leaves of their own that share its parameters' memory. Autograd ties a leaf
/// to the stream on which it was first used: a parameter's own would pull the stream of earlier steps into the capture.
class Leaves {
 public:
  explicit Leaves(LlamaBlockImpl& block) : members_(members_of(block)) {
    for (at::Tensor* const member : members_) {
      at::Tensor leaf = member->detach().requires_grad_(member->requires_grad());
      leaves_.push_back(leaf);
      parameters_.push_back(std::exchange(*member, leaf));
    }
  }
  Leaves(const Leaves&) = delete;
  Leaves& operator=(const Leaves&) = delete;
  ~Leaves() {
    for (std::size_t i = 0; i < members_.size(); ++i) *members_[i] = parameters_[i];
  }

  const variable_list& get() const { return leaves_; }

 private:
  std::vector<at::Tensor*> members_;
  variable_list leaves_;
  variable_list parameters_;
};

/// As recomputation has it: a step's state is updated in backward.
class Unobserved {
 public:
  explicit Unobserved(LlamaBlockImpl& block) : layers_(layers_of(block)) {
    for (std::size_t i = 0; i < kBlockLayers; ++i) before_[i] = std::exchange(layers_[i]->paths().observing, false);
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
  ~Unobserved() {
    for (std::size_t i = 0; i < kBlockLayers; ++i) layers_[i]->paths().observing = before_[i];
  }

 private:
  std::array<nn::SwitchableLinearImpl*, kBlockLayers> layers_;
  std::array<bool, kBlockLayers> before_{};
};

/// The largest magnitudes of this step, as they were when this was made.
class Amaxes {
 public:
  explicit Amaxes(LlamaBlockImpl& block) {
    for (nn::SwitchableLinearImpl* const layer : layers_of(block)) {
      LinearPaths& paths = layer->paths();
      if (paths.recipe == nullptr || paths.numbers == nullptr) continue;
      for (std::size_t operand = 0; operand < kOperandCount; ++operand) {
        const auto which = static_cast<Operand>(operand);
        if (!paths.recipe->uses_delayed(which)) continue;
        const at::Tensor place = nn::amax_of(paths, which);
        kept_.emplace_back(place, place.clone());
      }
    }
  }
  void restore() const {
    for (const auto& [place, value] : kept_) place.copy_(value);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

}  // namespace

/// Passes of the model whose backward may still come.
struct GraphPasses {
  std::atomic<std::uint64_t> flights = 0;
  std::atomic<std::uint64_t> latest = 0;  // the last one that replayed something
};

/// What lies between blocks.
struct GraphBuffers {
  std::vector<std::int64_t> shape;
  at::TensorOptions options;
  std::vector<at::Tensor> activations;  // the input of each block, and the last one's output
  std::array<at::Tensor, 2> gradients;  // the gradient of activation n is the one at n % 2

  bool fits(const at::Tensor& input) const {
    return input.sizes() == at::IntArrayRef(shape) && input.scalar_type() == options.dtype().toScalarType() &&
           input.device() == options.device();
  }
};

/// The two graphs of a block, and where they read and write.
struct BlockVariant {
  GraphKey key;
  std::size_t place = 0;
  RotaryTable table = {};
  std::shared_ptr<GraphBuffers> buffers = {};
  variable_list parameters = {};           // their memory
  variable_list parameter_gradients = {};  // where backward leaves them; undefined: not wanted
  std::unique_ptr<nn::CudaGraph> forward = {};
  std::unique_ptr<nn::CudaGraph> backward = {};  // null: it could not be captured

  const at::Tensor& input() const { return buffers->activations[place]; }
  const at::Tensor& output() const { return buffers->activations[place + 1]; }
  const at::Tensor& input_gradient() const { return buffers->gradients[place % 2]; }
  const at::Tensor& output_gradient() const { return buffers->gradients[(place + 1) % 2]; }

  void warm_up(LlamaBlock& block) const;
  void capture(LlamaBlock& block, const nn::GraphPool& shared, const nn::GraphPool& own);
  variable_list gradients(const at::Tensor& result, const at::Tensor& leaf, const variable_list& leaves,
                          const at::Tensor& gradient) const;
};

/// One block's variants.
struct GraphedBlock {
  GraphKeys keys = {};
  std::vector<std::shared_ptr<BlockVariant>> variants = {};
  std::unique_ptr<nn::GraphPool> pool = {};  // for what forward saves
};

namespace {

/// A variant between forward and backward.
struct Flight : torch::CustomClassHolder {
  Flight(std::shared_ptr<BlockVariant> the_variant, std::shared_ptr<GraphPasses> the_passes)
      : variant(std::move(the_variant)), passes(std::move(the_passes)), pass(passes->latest) {
    ++passes->flights;
  }
  ~Flight() override { land(); }

  void land() {
    if (!landed.exchange(true)) --passes->flights;
  }

  std::shared_ptr<BlockVariant> variant;
  std::shared_ptr<GraphPasses> passes;
  std::uint64_t pass;
  std::atomic<bool> landed = false;
};

/// The same memory under a new name: no view, and of no interest to autograd.
at::Tensor renamed(const at::Tensor& tensor) { return tensor.variable_data(); }

void put(const at::Tensor& place, const at::Tensor& value) {
  const bool is_there = value.const_data_ptr() == place.const_data_ptr() && value.is_contiguous();
  if (!is_there) place.copy_(value);
}

/// Replays. Parameters are inputs, so that their gradients go the way of every other gradient.
class GraphedFunction : public torch::autograd::Function<GraphedFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList parameters,
                            const c10::intrusive_ptr<Flight>& flight) {
    context->saved_data["flight"] = c10::IValue::make_capsule(flight);
    context->saved_data["parameters"] = static_cast<std::int64_t>(parameters.size());
    const BlockVariant& variant = *flight->variant;
    put(variant.input(), input);
    variant.forward->replay();
    return renamed(variant.output());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = context->saved_data["flight"].toCapsule();
    auto& flight = static_cast<Flight&>(*holder);
    if (flight.pass != flight.passes->latest) {
      throw Error(
          "[graphs] a backward pass came after another forward pass had taken its memory: call backward once "
          "for each loss, or set_graphs(false)");
    }
    const BlockVariant& variant = *flight.variant;
    const at::NoGradGuard no_gradients;
    put(variant.output_gradient(), gradients[0]);
    variant.backward->replay();
    variable_list results(1 + static_cast<std::size_t>(context->saved_data["parameters"].toInt()) + 1);
    if (variant.key.input_gradient) results[0] = renamed(variant.input_gradient());
    copy_out(variant.parameter_gradients, results);
    flight.land();
    return results;
  }

 private:
  /// The next graph writes over them.
  static void copy_out(const variable_list& from, variable_list& results) {
    variable_list sources;
    variable_list copies;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (!from[i].defined()) continue;
      results[1 + i] = at::empty_strided(from[i].sizes(), from[i].strides(), from[i].options());
      sources.push_back(from[i]);
      copies.push_back(results[1 + i]);
    }
    if (!copies.empty()) at::_foreach_copy_(copies, sources);
  }
};

/// Names memory without holding it: the pool does as long as its graphs live.
at::Tensor unheld(const at::Tensor& tensor) {
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
}

at::Tensor run_eagerly(LlamaBlock& block, const at::Tensor& input, const RotaryTable& table, bool recompute) {
  return recompute ? forward_with_recompute(block, input, table) : block->forward(input, table);
}

}  // namespace

/// Gradients of the leaf and of the leaves, where they are wanted.
variable_list BlockVariant::gradients(const at::Tensor& result, const at::Tensor& leaf, const variable_list& leaves,
                                      const at::Tensor& gradient) const {
  variable_list all{leaf};
  all.insert(all.end(), leaves.begin(), leaves.end());
  variable_list wanted;
  std::copy_if(all.begin(), all.end(), std::back_inserter(wanted), [](const auto& one) { return one.requires_grad(); });
  const variable_list found = torch::autograd::grad({result}, wanted, {gradient}, /*retain_graph=*/std::nullopt,
                                                    /*create_graph=*/false, /*allow_unused=*/true);
  variable_list results(all.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].requires_grad()) results[i] = found[next++];
  }
  return results;
}

/// Whatever is set up at its first use (cuBLAS, kernels, autograd's threads) cannot be under capture.
void BlockVariant::warm_up(LlamaBlock& block) const {
  const Amaxes amaxes(*block);
  {
    const Leaves leaves(*block);
    const at::AutoGradMode with_gradients(true);
    const at::Tensor leaf = at::zeros_like(input()).requires_grad_(key.input_gradient);
    const at::Tensor result = block->forward(leaf, table);
    gradients(result, leaf, leaves.get(), at::zeros_like(result));
  }
  const at::NoGradGuard no_gradients;
  if (key.recompute) block->forward(at::zeros_like(input()), table);
  amaxes.restore();
}

void BlockVariant::capture(LlamaBlock& block, const nn::GraphPool& shared, const nn::GraphPool& own) {
  const c10::Device device = input().device();
  const Leaves leaves(*block);
  at::Tensor leaf;
  at::Tensor result;
  variable_list found;
  const auto run_forward = [&] {
    const at::AutoGradMode with_gradients(true);
    leaf = input().detach().requires_grad_(key.input_gradient);
    result = block->forward(leaf, table);
  };
  const auto run_backward = [&] {
    found = gradients(result, leaf, leaves.get(), output_gradient());
    const at::NoGradGuard no_gradients;
    if (found[0].defined()) input_gradient().copy_(found[0]);
  };
  if (key.recompute) {
    forward = std::make_unique<nn::CudaGraph>(device, shared, [&] {
      const at::NoGradGuard no_gradients;
      const Unobserved unobserved(*block);
      output().copy_(block->forward(input(), table));
    });
    backward = std::make_unique<nn::CudaGraph>(device, shared, [&] {
      run_forward();
      run_backward();
    });
  } else {
    forward = std::make_unique<nn::CudaGraph>(device, own, [&] {
      run_forward();
      const at::NoGradGuard no_gradients;
      output().copy_(result);
    });
    backward = std::make_unique<nn::CudaGraph>(device, shared, run_backward);
  }
  parameters = leaves.get();
  for (std::size_t i = 1; i < found.size(); ++i) {
    parameter_gradients.push_back(found[i].defined() ? unheld(found[i]) : at::Tensor());
  }
}

BlockGraphs::BlockGraphs(std::size_t blocks) : passes_(std::make_shared<GraphPasses>()) {
  for (std::size_t i = 0; i < blocks; ++i) blocks_.push_back(std::make_unique<GraphedBlock>());
}

BlockGraphs::~BlockGraphs() = default;

void BlockGraphs::begin_pass(const c10::Device& device) {
  // What an earlier pass has put between blocks must stay until its backward.
  pass_can_replay_ = nn::can_capture(device) && at::GradMode::is_enabled() && passes_->flights == 0;
  pass_has_replayed_ = false;
}

std::shared_ptr<GraphBuffers> BlockGraphs::buffers_for(const at::Tensor& input) {
  for (const std::shared_ptr<GraphBuffers>& buffers : buffers_) {
    if (buffers->fits(input)) return buffers;
  }
  const at::TensorOptions options = at::TensorOptions().dtype(input.dtype()).device(input.device());
  auto made = std::make_shared<GraphBuffers>(GraphBuffers{input.sizes().vec(), options, {}, {}});
  for (std::size_t i = 0; i <= blocks_.size(); ++i) made->activations.push_back(at::empty(input.sizes(), options));
  for (at::Tensor& gradient : made->gradients) gradient = at::empty(input.sizes(), options);
  buffers_.push_back(made);
  return made;
}

/// Whether that worked; what did not is not tried again.
bool BlockGraphs::try_capture(BlockVariant& variant, LlamaBlock& block) {
  if (statistics_.failed_captures >= kMostFailures) return false;
  try {
    variant.warm_up(block);
    if (shared_pool_ == nullptr) shared_pool_ = std::make_unique<nn::GraphPool>();
    std::unique_ptr<nn::GraphPool>& own = blocks_[variant.place]->pool;
    if (own == nullptr) own = std::make_unique<nn::GraphPool>();
    variant.capture(block, *shared_pool_, *own);
  } catch (const std::exception& error) {
    ++statistics_.failed_captures;
    statistics_.last_failure = error.what();
    variant.forward.reset();
    variant.backward.reset();
    // A pool that a capture has ended in half-way is not used again.
    shared_pool_.reset();
    blocks_[variant.place]->pool.reset();
    return false;
  }
  ++statistics_.captures;
  return true;
}

/// Null: the block is to run operator by operator.
std::shared_ptr<BlockVariant> BlockGraphs::variant_for(std::size_t place, LlamaBlock& block, const at::Tensor& input,
                                                       const RotaryTable& table, bool recompute) {
  if (!pass_can_replay_) return nullptr;
  GraphedBlock& graphed = *blocks_[place];
  std::optional<GraphKey> key = graphed.keys.key_of(*block, input, recompute);
  if (graphed.keys.have_moved()) graphed.variants.clear();
  if (!key) return nullptr;
  for (const std::shared_ptr<BlockVariant>& variant : graphed.variants) {
    if (variant->key == *key) return variant->backward != nullptr ? variant : nullptr;
  }
  if (graphed.variants.size() == kMostVariants) {
    ++statistics_.over_limit;
    return nullptr;
  }
  graphed.variants.push_back(std::make_shared<BlockVariant>(
      BlockVariant{.key = std::move(*key), .place = place, .table = table, .buffers = buffers_for(input)}));
  const std::shared_ptr<BlockVariant> variant = graphed.variants.back();
  return try_capture(*variant, block) ? variant : nullptr;
}

at::Tensor BlockGraphs::forward(std::size_t place, LlamaBlock& block, const at::Tensor& input, const RotaryTable& table,
                                bool recompute) {
  const std::shared_ptr<BlockVariant> variant = variant_for(place, block, input, table, recompute);
  if (variant == nullptr) {
    if (at::GradMode::is_enabled()) ++statistics_.eager_runs;
    return run_eagerly(block, input, table, recompute);
  }
  ++statistics_.replays;
  if (!std::exchange(pass_has_replayed_, true)) ++passes_->latest;
  variable_list parameters;
  for (const at::Tensor* const member : members_of(*block)) parameters.push_back(*member);
  return GraphedFunction::apply(input, at::TensorList(parameters), c10::make_intrusive<Flight>(variant, passes_));
}

}  // namespace gnmr::models
