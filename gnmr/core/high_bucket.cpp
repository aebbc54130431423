// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/high_bucket.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gnmr {
namespace {

// The bucket holds what so many decisions add.
constexpr std::int64_t kFill = kHighBucketDecisions;

// Promises of a state that other options left may be larger than any bucket; they count as this.
constexpr std::int64_t kMost = std::int64_t{1} << 61U;

std::int64_t price_of(std::int64_t cost, std::uint32_t steps) {
  return steps == 0 || cost <= kMost / steps ? cost * steps : kMost;
}

}  // namespace

HighBucket::HighBucket(double share, std::int64_t total)
    : is_on_(share < 1),
      size_(is_on_
                ? static_cast<std::int64_t>(std::floor(share * static_cast<double>(kFill) * static_cast<double>(total)))
                : 0),
      level_(size_),
      most_standing_(3 * size_ / (4 * kFill)) {}

void HighBucket::pass(std::uint64_t decision, std::int64_t recovered_cost) {
  was_refused_ = false;
  const std::int64_t taken = recovered_cost + due_;
  due_ = 0;
  if (!is_on_) return;
  // A hundred decisions add exactly the size: of the remainder each adds its part.
  const auto number = static_cast<std::int64_t>(decision % static_cast<std::uint64_t>(kFill));
  const std::int64_t rest = size_ % kFill;
  const std::int64_t added = size_ / kFill + (number + 1) * rest / kFill - number * rest / kFill;
  level_ = std::clamp<std::int64_t>(level_ + added - taken, 0, size_);
}

void HighBucket::take_now(std::int64_t cost) {
  if (is_on_) level_ = std::max<std::int64_t>(level_ - cost, 0);
}

void HighBucket::promise(std::int64_t cost, std::uint32_t steps) {
  if (is_on_) promised_ = std::min(promised_ + price_of(cost, steps), kMost);
}

void HighBucket::promise_standing(std::int64_t cost) {
  if (!is_on_) return;
  promise(cost, 1);
  standing_ += cost;
}

void HighBucket::end_standing(std::int64_t cost) {
  if (!is_on_) return;
  promised_ -= cost;
  standing_ -= cost;
}

bool HighBucket::affords(std::int64_t cost, std::uint32_t steps, std::int64_t freed) const {
  return !is_on_ || price_of(cost, steps) <= level_ - promised_ + freed;
}

bool HighBucket::may_stand(std::int64_t cost, std::int64_t freed) const {
  return !is_on_ || (standing_ - freed + cost <= most_standing_ && affords(cost, 1, freed));
}

std::uint32_t HighBucket::steps_of(std::int64_t cost) const {
  constexpr std::int64_t kAny = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(is_on_ ? std::clamp<std::int64_t>((level_ - promised_) / cost, 1, kAny) : kAny);
}

}  // namespace gnmr
