// SPDX-License-Identifier: Apache-2.0
// No heap allocation in a step after construction: every way to allocate is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "gnmr/core/judge.h"

namespace {

std::atomic<std::size_t> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All of these belong together; the compiler cannot know.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) { return counted(size == 0 ? 1 : size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return counted(size == 0 ? 1 : size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size == 0 ? 1 : size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size == 0 ? 1 : size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;

TEST(Allocation, TheCounterCounts) {
  const std::size_t before = allocations;
  int* volatile value = new int(1);  // volatile, or the compiler leaves both out
  delete value;
  EXPECT_EQ(allocations, before + 1);
}

TEST(Allocation, AStepAllocatesNothing) {
  std::size_t risks = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::size_t count = 1 + random.below(300);
    const std::vector<Unit> units = testing::random_units(random, count);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    Controller controller(units, options);
    RandomRun run(random, count);
    for (int step = 0; step < 300; ++step) {
      const NormArrays arrays(run.next());
      const std::size_t before = allocations;
      risks += controller.observe({.step = step, .norms = arrays.norms, .sampled = arrays.sampled}).risks.size();
      if (step % 7 == 0) {
        controller.withdraw();
        controller.observe({.step = step, .norms = arrays.norms, .sampled = arrays.sampled});
      }
      if (step % 5 == 0) {
        const Candidate candidates[] = {{.severity = 2, .unit = 0}};
        controller.decide_among(candidates, false);
      } else {
        controller.decide();
      }
      for (UnitIndex unit = 0; unit < count; ++unit) (void)controller.signals(unit);
      ASSERT_EQ(allocations, before) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(risks, 1000u);
}

TEST(Allocation, AJudgedStepAllocatesNothing) {
  int trials = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::size_t count = 1 + random.below(200);
    const std::vector<Unit> units = testing::random_units(random, count);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    Judge judge(units, options, {.places = 3, .expected = {0.02, 0.0, 0.02}, .can_rerun = true});
    RandomRun run(random, count);
    RandomErrors errors(random, count, 3);
    for (int step = 0; step < 200; ++step) {
      const NormArrays arrays(run.next());
      const NormArrays again(run.next());
      const std::vector<double> patrol = errors.patrol();
      const std::vector<double> trial = errors.trial();
      const Observation observation{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const std::size_t before = allocations;
      if (step % 7 == 0) {
        judge.hear(observation, patrol);
        judge.withdraw();
      }
      if (judge.hear(observation, patrol).action == Action::trial && step % 3 != 0) {
        judge.conclude({.step = step, .norms = again.norms, .sampled = again.sampled}, trial);
        ++trials;
      } else {
        judge.decide();
      }
      ASSERT_EQ(allocations, before) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(trials, 100);
}

}  // namespace
}  // namespace gnmr
