// SPDX-License-Identifier: Apache-2.0
// No heap allocation in a step after construction: every way to allocate is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"

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
using testing::run_step;

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
    Controller controller = testing::norms_controller(units, options);
    RandomRun run(random, count);
    for (int step = 0; step < 300; ++step) {
      const NormArrays arrays(run.next());
      const StepReport report{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const StepReport dropped{.step = step, .done = Completion::dropped};
      const std::size_t before = allocations;
      controller.begin(step);
      risks += run_step(controller, step % 7 == 0 ? dropped : report).alarm.risks.size();
      for (UnitIndex unit = 0; unit < count; ++unit) (void)controller.signals(unit);
      ASSERT_EQ(allocations, before) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(risks, 1000u);
}

TEST(Allocation, AStepWithErrorsAndRerunsAllocatesNothing) {
  int trials = 0;
  int replays = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::size_t count = 1 + random.below(200);
    const std::vector<Unit> units = testing::random_units(random, count);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    options.lag = 0;
    Controller controller(units, options, {.can_rerun = true, .sites = 3, .expected_errors = {0.02, 0.0, 0.02}});
    RandomRun run(random, count);
    RandomErrors errors(random, count, 3);
    for (int step = 0; step < 200; ++step) {
      const NormArrays arrays(run.next());
      const NormArrays again(run.next());
      const std::vector<double> patrol = errors.patrol();
      const std::vector<double> trial = errors.trial();
      const StepReport first{.step = step, .norms = arrays.norms, .sampled = arrays.sampled, .errors = patrol};
      const StepReport rerun{.step = step, .norms = again.norms, .sampled = again.sampled, .errors = trial};
      const StepReport failed{.step = step, .done = Completion::rerun_failed};
      const std::size_t before = allocations;
      if (step % 9 == 0) controller.set_mode(step % 2 == 0 ? Mode::high : Mode::watch);
      if (step % 9 == 1) controller.set_mode(Mode::armed);
      if (step % 7 == 0) controller.begin(step + 1);  // left for another
      const Outcome& outcome = run_step(controller, first);
      if (outcome.action == Action::rerun) {
        const bool is_trial = testing::wants_trial(outcome);
        run_step(controller, step % 3 != 0 ? rerun : failed);
        trials += is_trial && step % 3 != 0 ? 1 : 0;
        replays += is_trial ? 0 : 1;
      }
      ASSERT_EQ(allocations, before) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(trials, 100);
  EXPECT_GT(replays, 10);
}

TEST(Allocation, AStepWithLagOneAllocatesNothing) {
  int again = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::size_t count = 1 + random.below(200);
    const std::vector<Unit> units = testing::random_units(random, count);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    options.lock_steps = 10;
    options.lag = 1;
    const bool by_errors = options.selector == Selector::evidence || options.selector == Selector::evidence_after_alarm;
    options.guard = by_errors ? Guard::none : Guard::replay;
    Controller controller(units, options, {.can_rerun = true, .sites = 3});
    RandomRun run(random, count);
    RandomErrors errors(random, count, 3);
    controller.begin(1);
    controller.begin(2);
    bool may_hold = false;
    for (int step = 1; step < 200; ++step) {
      const NormArrays arrays(run.next());
      const std::vector<double> patrol = errors.patrol();
      const std::size_t before = allocations;
      controller.report({.step = step,
                         .norms = arrays.norms,
                         .sampled = arrays.sampled,
                         .errors = patrol,
                         .held = may_hold && step % 11 == 0});
      may_hold = controller.plan_state().undecided.front().hold != HoldRule::never;
      again += controller.begin(step + 2).again ? 1 : 0;
      ASSERT_TRUE(step < 3 || allocations == before) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(again, 20);
}

}  // namespace
}  // namespace gnmr
