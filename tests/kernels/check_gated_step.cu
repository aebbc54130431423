// SPDX-License-Identifier: Apache-2.0
// A step that is queued in one call against its parts one by one, and what the host does for it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "core/random_run.h"
#include "gnmr/core/error.h"
#include "gnmr/kernels/gated_step.h"
#include "kernels/check.h"
#include "kernels/judged_run.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr std::uint32_t kParameters = 23;
constexpr std::uint32_t kUnits = 9;
constexpr double kMaxNorm = 0.5;

/// Parameters of a small model on the device, with moments; two of them start equal where they are made from one seed.
class Model {
 public:
  explicit Model(std::uint64_t seed) {
    Random random(seed);
    for (std::uint32_t i = 0; i < kParameters; ++i) {
      counts_.push_back(i == 0 ? 300'007 : 5 + random.below(3000));
      parameters_.push_back(drawn(random, counts_[i], 1e-2));
      means_.push_back(std::make_unique<OnDevice<float>>(std::vector<float>(counts_[i], 0.0f)));
      squares_.push_back(std::make_unique<OnDevice<float>>(std::vector<float>(counts_[i], 0.0f)));
      steps_.push_back(std::make_unique<OnDevice<float>>(std::vector<float>(1, 0.0f)));
    }
  }

  /// New gradients somewhere else in memory; some steps have none for parameter 5, in some those of a unit are large.
  void draw_gradients(std::uint64_t seed, int step) {
    Random random(seed + static_cast<std::uint64_t>(step));
    kept_ = std::exchange(gradients_, {});  // so that the new ones do not take their places
    for (std::uint32_t i = 0; i < kParameters; ++i) {
      gradients_.push_back(drawn(random, counts_[i], step % 6 == 3 && i % kUnits == 4 ? 1.0 : 1e-2));
    }
    has_fifth_ = step % 4 != 2;
  }

  const void* gradient(std::uint32_t i) const { return i == 5 && !has_fifth_ ? nullptr : gradients_[i]->data(); }

  std::vector<Slice> slices() const {
    std::vector<Slice> slices;
    for (std::uint32_t i = 0; i < kParameters; ++i)
      slices.push_back({.data = gradient(i), .count = counts_[i], .unit = i});
    return slices;
  }

  /// All parameters but the third, last one first.
  static std::vector<std::uint32_t> optimized() {
    std::vector<std::uint32_t> places;
    for (std::uint32_t i = kParameters; i-- > 0;) {
      if (i != 3) places.push_back(i);
    }
    return places;
  }

  std::vector<AdamWTensor> tensors() const {
    std::vector<AdamWTensor> tensors;
    for (const std::uint32_t i : optimized()) {
      tensors.push_back({.parameter = parameters_[i]->data(),
                         .gradient = gradients_.empty() ? nullptr : gradient(i),
                         .mean = means_[i]->data(),
                         .square = squares_[i]->data(),
                         .steps = steps_[i]->data(),
                         .count = counts_[i],
                         .weight_decay = i % 2 == 0 ? 0.1 : 0.0});
    }
    return tensors;
  }

  UnitLists lists() const {
    UnitLists lists{.first = {0}, .indices = {}};
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      for (std::uint32_t i = unit; i < kParameters; i += kUnits) {
        if (i != 5 || has_fifth_) lists.indices.push_back(i);
      }
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
    }
    return lists;
  }

  bool same_bits_as(const Model& other) const {
    bool same = true;
    for (std::uint32_t i = 0; i < kParameters; ++i) {
      same = same && same_bits(parameters_[i]->get(), other.parameters_[i]->get()) &&
             same_bits(means_[i]->get(), other.means_[i]->get()) &&
             same_bits(squares_[i]->get(), other.squares_[i]->get()) &&
             same_bits(steps_[i]->get(), other.steps_[i]->get());
    }
    return same;
  }

 private:
  using Floats = std::unique_ptr<OnDevice<float>>;
  static Floats drawn(Random& random, std::uint64_t count, double scale) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.normal() * scale);
    return std::make_unique<OnDevice<float>>(values);
  }

  std::vector<std::uint64_t> counts_;
  std::vector<Floats> parameters_, means_, squares_, steps_, gradients_, kept_;
  bool has_fifth_ = true;
};

constexpr std::uint32_t kSites = 2;

/// Errors of the units: two totals at the second site of each. In some steps one of a unit is large, in some a unit is
/// not measured, and some steps have no limits.
struct StepErrors {
  explicit StepErrors(int step) : totals(kUnits * 3, {0.01, 1.0, 1.0}) {
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) totals[unit * 3].difference = 1e-4 * (unit + 1);
    if (step % 5 == 1) totals[static_cast<std::size_t>(step) % kUnits * 3 + 2].difference = 1.0;
    if (step % 7 == 2) {
      for (std::size_t place = 0; place < 3; ++place) totals[4 * 3 + place] = {0, 0, 0};
    }
    if (step % 4 != 3) limits.assign(kUnits * kSites, 0.2f);
  }

  static UnitLists lists() {
    UnitLists lists{.first = {0}, .indices = {}};
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      lists.indices.push_back(unit * 3);
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
      lists.indices.push_back(unit * 3 + 1);
      lists.indices.push_back(unit * 3 + 2);
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
    }
    return lists;
  }

  std::vector<ErrorTotals> totals;
  std::vector<float> limits;
};

/// The parts one by one.
class InParts {
 public:
  explicit InParts(const SignalSettings& settings)
      : norms_(kParameters),
        signals_(kUnits, settings),
        sums_(kParameters),
        unit_norms_(kUnits),
        sampled_(kUnits),
        patrol_(kUnits),
        gate_(1),
        alarm_(1) {}

  StepNumbers run(const Model& model, const StepErrors& errors, const std::vector<std::uint8_t>& flags, HoldRule hold,
                  double learning_rate) {
    norms_.sum_squares(model.slices(), sums_.data(), nullptr);
    norms_.clip(sums_.data(), kMaxNorm, {.gate = gate_.data()}, nullptr);
    gather_.set(model.lists(), nullptr);
    gather_.run(sums_.data(), kParameters, nullptr, unit_norms_.data(), sampled_.data(), nullptr);
    const std::uint8_t wanted = errors.limits.empty() ? 0 : 1;
    std::vector<std::uint8_t> patrol(kUnits);
    reference_judge(StepErrors::lists(), {errors.totals.data(), errors.limits.data(), &wanted, kSites}, patrol.data());
    patrol_.put(patrol);
    signals_.set_flags(flags, nullptr);
    signals_.observe({.norms = unit_norms_.data(), .sampled = sampled_.data(), .patrol = patrol_.data()}, hold,
                     {.gate = gate_.data(), .alarm = alarm_.data()}, nullptr);
    adamw_.step(model.tensors(), {.learning_rate = learning_rate, .beta2 = 0.95}, gate_.data(), nullptr);
    must(cudaDeviceSynchronize());
    sums_on_host_ = sums_.get();
    return {.gate = gate_.get()[0], .alarm = alarm_.get()[0], .sums = sums_on_host_};
  }

 private:
  UnitNorms norms_;
  UnitGather gather_;
  UnitSignals signals_;
  AdamW adamw_;
  OnDevice<double> sums_, unit_norms_;
  OnDevice<std::uint8_t> sampled_, patrol_;
  OnDevice<Gate> gate_;
  OnDevice<StepAlarm> alarm_;
  std::vector<double> sums_on_host_;
};

std::string difference(const StepNumbers& found, const StepNumbers& expected) {
  if (std::memcmp(&found.gate, &expected.gate, sizeof(Gate)) != 0) return "gate";
  if (found.alarm != expected.alarm) return "alarm";
  if (!std::equal(found.sums.begin(), found.sums.end(), expected.sums.begin(), expected.sums.end())) return "sums";
  return "";
}

void check_against_parts(Checks& checks) {
  const Options options = Options::preset("default");
  const SignalSettings settings = settings_of(options, Selector::trial);
  Model mine(31), theirs(31);
  GatedStep gated({.parameters = kParameters, .units = kUnits, .signals = settings, .max_norm = kMaxNorm});
  gated.set_tensors(mine.tensors(), Model::optimized(), nullptr);
  gated.set_errors(StepErrors::lists(), kSites, nullptr);
  InParts parts(settings);
  OnDevice<ErrorTotals> totals(kUnits * 3);
  OnDevice<double> loss(1);
  OnDevice<std::byte> more(std::vector<std::byte>(40, std::byte{7}));
  std::vector<std::uint8_t> flags(kUnits, gate_flag::kFree);
  std::string trouble;
  const int steps = checks.is_small() ? 24 : 40;
  std::uint64_t settled = 0;  // recordings after the first steps
  std::uint32_t held = 0;
  std::uint32_t held_by_errors = 0;
  StepTicket before;
  for (int step = 0; step < steps && trouble.empty(); ++step) {
    mine.draw_gradients(77, step);
    theirs.draw_gradients(77, step);
    loss.put({1.5 + step});
    const StepErrors errors(step);
    totals.put(errors.totals);
    flags[static_cast<std::size_t>(step) % kUnits] ^= gate_flag::kFree;
    const HoldRule hold = step % 3 == 0 ? HoldRule::for_trial : step % 3 == 1 ? HoldRule::for_guard : HoldRule::never;
    const double learning_rate = 1e-3 / (step + 1);
    const UnitLists lists = mine.lists();
    const StepTicket ticket = gated.run({.gradients = mine.slices(),
                                         .lists = lists,
                                         .loss = loss.data(),
                                         .flags = flags,
                                         .totals = totals.data(),
                                         .limits = errors.limits,
                                         .hold = hold,
                                         .optimizer = {.learning_rate = learning_rate, .beta2 = 0.95},
                                         .more = {more.data(), 40}},
                                        nullptr);
    const StepNumbers expected = parts.run(theirs, errors, flags, hold, learning_rate);
    const StepNumbers found = gated.read(ticket);
    trouble = difference(found, expected);
    if (found.loss != 1.5 + step) trouble = "loss";
    held += found.alarm.held;
    held_by_errors += found.alarm.counts.standing_out > 0 ? found.alarm.held : 0;
    if (found.more.size() != 40 || found.more[39] != std::byte{7}) trouble = "bytes that were asked for";
    if (trouble.empty() && !mine.same_bits_as(theirs)) trouble = "parameters or moments";
    if (before.number > 1) {
      try {
        gated.read({before.number - 1});
        trouble = "the numbers of a step long ago were read";
      } catch (const Error&) {
      }
    }
    if (!trouble.empty()) trouble += " in step " + std::to_string(step);
    before = ticket;
    if (step == 3) settled = gated.recordings();
  }
  checks.report("a step in one call has the bits of its parts, " + std::to_string(steps) + " steps", trouble);
  checks.expect("some of these steps were held, by norms and by errors", held > held_by_errors && held_by_errors > 0);
  checks.expect("a step is recorded anew only where shapes change", gated.recordings() == settled && settled <= 4);
}

/// Keeps the device busy for so many nanoseconds.
__global__ void stay(unsigned long long nanoseconds) {
  unsigned long long start;
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

/// The host queues a step of 280 units, whose gradients have moved, while the device is busy, and is through soon.
void check_host_time(Checks& checks) {
  constexpr std::uint32_t kMany = 280;
  constexpr std::uint64_t kCount = 1024;
  constexpr double kMostMicroseconds = 50;
  const SignalSettings settings = settings_of(Options::preset("default"), Selector::trial);
  const std::vector<float> zeros(kMany * kCount, 0.0f);
  OnDevice<float> parameters(zeros), means(zeros), squares(zeros), one_place(zeros), other_place(zeros);
  OnDevice<float> steps(std::vector<float>(kMany, 0.0f));
  OnDevice<double> loss(std::vector<double>(1, 1.0));
  std::vector<AdamWTensor> tensors;
  UnitLists lists{.first = {0}, .indices = {}};
  for (std::uint32_t i = 0; i < kMany; ++i) {
    tensors.push_back({.parameter = parameters.data() + i * kCount,
                       .mean = means.data() + i * kCount,
                       .square = squares.data() + i * kCount,
                       .steps = steps.data() + i,
                       .count = kCount});
    lists.indices.push_back(i);
    lists.first.push_back(i + 1);
  }
  GatedStep gated({.parameters = kMany, .units = kMany, .signals = settings, .max_norm = 1.0});
  gated.set_tensors(tensors, lists.indices, nullptr);
  gated.set_errors(lists, 1, nullptr);
  OnDevice<ErrorTotals> totals(std::vector<ErrorTotals>(kMany, {0.01, 1.0, 1.0}));
  const std::vector<float> limits(kMany, 0.2f);
  const std::vector<std::uint8_t> flags(kMany, gate_flag::kFree);
  std::vector<double> microseconds;
  bool was_busy = true;
  cudaEvent_t passed = nullptr;
  must(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
  for (int step = 0; step < 31; ++step) {
    std::vector<Slice> slices;
    const OnDevice<float>& place = step % 2 == 0 ? one_place : other_place;
    for (std::uint32_t i = 0; i < kMany; ++i) {
      slices.push_back({.data = place.data() + i * kCount, .count = kCount, .unit = i});
    }
    must(cudaDeviceSynchronize());
    stay<<<1, 1>>>(5'000'000ull);
    must(cudaEventRecord(passed, nullptr));
    const auto start = std::chrono::steady_clock::now();
    gated.run({.gradients = slices,
               .lists = lists,
               .loss = loss.data(),
               .flags = flags,
               .totals = totals.data(),
               .limits = limits,
               .hold = HoldRule::for_trial},
              nullptr);
    const double time = 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (step < 4) continue;  // recorded, and launched for the first time
    microseconds.push_back(time);
    was_busy = was_busy && cudaEventQuery(passed) == cudaErrorNotReady;
  }
  must(cudaDeviceSynchronize());
  must(cudaEventDestroy(passed));
  std::sort(microseconds.begin(), microseconds.end());
  const double median = microseconds[microseconds.size() / 2];
  checks.report("the host queues a step of 280 units in " + std::to_string(median) + " microseconds",
                median < kMostMicroseconds ? "" : "expected less than 50");
  checks.expect("while the device is busy with something else", was_busy);
}

}  // namespace

void check_gated_step(Checks& checks) {
  check_against_parts(checks);
  if (!checks.is_small()) check_host_time(checks);  // a sanitizer takes its own time
}

}  // namespace gnmr::kernels::testing
