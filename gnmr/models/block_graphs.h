// SPDX-License-Identifier: Apache-2.0
// A model's blocks as CUDA graphs, one pair (forward, backward) for each block and variant, chosen by the host.
//
// A variant is everything that the host decides in a block: which GEMMs of its seven linear layers run low, whether
// the micro-batch is a step's first (when scales are updated), the input's shape and type, whose gradients are
// wanted, recomputation. It is captured when it is first met and kept, so a change of the set of units in recovery
// costs a capture the first time and nothing later. At most `kMostVariants` of a block are kept; more run operator by
// operator.
//
// What runs operator by operator: whatever is not the same work in each step, or leaves numbers with the host. Hooks,
// patrols and trials (their seeds would be frozen), measured quantization and GEMMs, evaluation and other unobserved
// passes, recipes with stochastic rounding or Hadamard transforms, inputs saved in 8 bits, passes without gradients,
// delayed scales before the first observation, devices other than CUDA, and a forward pass that begins while the
// backward of another one is still to come.
//
// Memory. What graphs take comes from pools of torch's allocator and stays taken as long as a graph lives.
//   Between blocks: the input of each block lies at a fixed address, [batch, positions, hidden] per block, as a step
//   without graphs keeps it too; blocks read and write there, so nothing is copied between captured neighbours. Two
//   gradients of that shape take turns.
//   With recomputation: forward keeps nothing but its input, and backward computes the rest again. All graphs of all
//   blocks and variants overlap in one pool, which is as large as the largest of them: one block's backward.
//   Without: what forward saves must outlast the other blocks, so each block has a pool of its own for it, as large as
//   that of its largest variant; variants of a block overlap there, for only one is between forward and backward at a
//   time. The sum is what a step without graphs needs at its peak, but it is held between steps too; backward's own
//   memory overlaps in the one pool.
//   Gradients of parameters are copied out after each replay, to memory like that of any gradient: 1% of a large
//   block's step. Without the copy each variant would hold gradients of all of its parameters for good, and whoever
//   keeps a gradient across passes, or adds up micro-batches, would see it overwritten.
//
// Goals: the bits of the same operators in the same order; no decision of the host that a graph freezes unseen.
// Non-goals: embedding, head, loss and optimizer (they are not captured); several devices; second derivatives.
//
// Parameters keep their addresses (they are updated in place); where they do not, as after `to`, all is captured anew.
// Torch's own switches (which attention, TF32) are those at capture.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/models/llama_block.h"
#include "gnmr/torch/cuda_graph.h"

namespace gnmr::models {

/// How many variants of a block are kept.
inline constexpr std::size_t kMostVariants = 8;

/// What was done so far. A run is one block's forward pass, with its backward.
struct GraphStatistics {
  std::uint64_t captures = 0;         // variants of blocks
  std::uint64_t replays = 0;          // runs as graphs
  std::uint64_t eager_runs = 0;       // runs operator by operator, of passes with gradients
  std::uint64_t over_limit = 0;       // of these: because `kMostVariants` were there
  std::uint64_t failed_captures = 0;  // such variants are not tried again
  std::string last_failure = {};
};

struct GraphPasses;
struct GraphBuffers;
struct BlockVariant;
struct GraphedBlock;

/// The graphs of one model. One thread calls it at a time.
class BlockGraphs {
 public:
  explicit BlockGraphs(std::size_t blocks);
  ~BlockGraphs();
  BlockGraphs(const BlockGraphs&) = delete;
  BlockGraphs& operator=(const BlockGraphs&) = delete;

  /// A forward pass of the whole model begins.
  void begin_pass(const c10::Device& device);

  /// Runs a block, by its place in the model, as a graph where that can be; otherwise operator by operator.
  at::Tensor forward(std::size_t place, LlamaBlock& block, const at::Tensor& input, const RotaryTable& table,
                     bool recompute);

  const GraphStatistics& statistics() const { return statistics_; }

 private:
  std::shared_ptr<BlockVariant> variant_for(std::size_t place, LlamaBlock& block, const at::Tensor& input,
                                            const RotaryTable& table, bool recompute);
  bool try_capture(BlockVariant& variant, LlamaBlock& block);
  std::shared_ptr<GraphBuffers> buffers_for(const at::Tensor& input);

  std::vector<std::unique_ptr<GraphedBlock>> blocks_;
  std::vector<std::shared_ptr<GraphBuffers>> buffers_;  // one per shape
  std::shared_ptr<GraphPasses> passes_;
  std::unique_ptr<nn::GraphPool> shared_pool_;  // null: nothing was captured yet
  bool pass_can_replay_ = false;
  bool pass_has_replayed_ = false;
  GraphStatistics statistics_;
};

}  // namespace gnmr::models
