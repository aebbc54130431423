// SPDX-License-Identifier: Apache-2.0
// How far each block of units has come, so that the passes take the shortest way through it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/core/aligned_array.h"
#include "gnmr/core/signal_kernels.h"

namespace gnmr {

/// The stages of all blocks; a block never goes back.
class BlockStages {
 public:
  /// A last block that is not full never settles.
  BlockStages(std::size_t blocks, std::size_t full_blocks)
      : stages_(blocks, Stage::fresh), fresh_(blocks), unsettled_(full_blocks) {}

  const Stage* data() const { return stages_.data(); }

  /// Moves blocks on in the step after `rows` others. `is_warm(block)` and `is_settled(block)` are asked seldom;
  /// `settle(block)` is called when a block gets there.
  template <class IsWarm, class IsSettled, class Settle>
  void advance(std::uint32_t rows, IsWarm is_warm, IsSettled is_settled, Settle settle) {
    if (unsettled_ == 0) return;
    const bool time_to_look = rows % kSettleEvery == 0;
    if (fresh_ == 0 && !time_to_look) return;
    for (std::size_t block = 0; block < stages_.size(); ++block) {
      bool look_for_settled = time_to_look;
      if (stages_[block] == Stage::fresh && is_warm(block)) {
        stages_[block] = Stage::warm;
        --fresh_;
        look_for_settled = true;
      }
      if (look_for_settled && stages_[block] == Stage::warm && is_settled(block)) {
        stages_[block] = Stage::settled;
        --unsettled_;
        settle(block);
      }
    }
  }

 private:
  // Blocks are looked at this seldom for whether their means have settled.
  static constexpr std::uint32_t kSettleEvery = 32;

  AlignedArray<Stage> stages_;
  std::size_t fresh_;
  std::size_t unsettled_;
};

}  // namespace gnmr
