// SPDX-License-Identifier: Apache-2.0
// What a controller step costs, beside its floor: a memcpy of 96 bytes per unit, timed in turn with it.
//
// Counters are medians: step_us, floor_us, and ratio = step / floor (at or below 1 is the aim for calm steps).
// `samples` says how much history the units have: at 30 the weights of the means still count, at 10,000 they are 0.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "gnmr/core/controller.h"

namespace {

using gnmr::bench::median;
using gnmr::bench::microseconds_of;

constexpr std::size_t kFloorBytesPerUnit = 96;
constexpr std::size_t kStepsPerBatch = 8;

enum Load : std::int64_t { kCalm, kGaps, kOnePercentAtRisk, kAllAtRisk };
const char* const kLoadNames[] = {"calm", "5%-missing", "1%-at-risk", "all-at-risk"};

class Noise {
 public:
  double uniform() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }
  double log_normal(double sigma) {
    return std::exp(sigma * std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()));
  }

 private:
  std::uint64_t state_ = 42;
};

/// Steps of norms to go round, as floats, with masks where the load has gaps.
struct Steps {
  std::vector<std::vector<float>> norms;
  std::vector<std::vector<std::uint8_t>> sampled;

  Steps(std::size_t units, Load load) {
    Noise noise;
    for (std::size_t step = 0; step < kStepsPerBatch + 2; ++step) {
      auto& row = norms.emplace_back(units);
      for (std::size_t unit = 0; unit < units; ++unit) {
        double norm = noise.log_normal(0.1);
        if (load == kAllAtRisk || (load == kOnePercentAtRisk && noise.uniform() < 0.01)) norm *= 50;
        row[unit] = static_cast<float>(norm);
      }
      auto& mask = sampled.emplace_back(load == kGaps ? units : 0);
      for (std::uint8_t& flag : mask) flag = noise.uniform() < 0.05 ? 0 : 1;
    }
  }
};

/// Units with that much history.
gnmr::ControllerState make_state(std::size_t units, std::uint32_t samples, const gnmr::Options& options) {
  gnmr::ControllerState state{.options = options, .decisions = samples, .last_step = samples, .units = {}};
  Noise noise;
  const double mean_weight = 1 - std::pow(options.beta, samples);
  const double noise_weight = 1 - std::pow(options.noise_beta, samples);
  for (std::size_t unit = 0; unit < units; ++unit) {
    gnmr::UnitState saved;
    saved.name = "unit." + std::to_string(unit);
    saved.samples = samples;
    saved.changes = samples;
    saved.mean_sum = mean_weight;
    saved.rise_change_sum = 0.11 * noise_weight;
    saved.fall_change_sum = 0.11 * noise_weight;
    for (int i = 0; i < options.window; ++i) {
      saved.ratios.push_back(noise.log_normal(0.1));
      saved.inverses.push_back(noise.log_normal(0.1));
    }
    state.units.push_back(std::move(saved));
  }
  return state;
}

void controller_step(benchmark::State& bench) {
  const auto units = static_cast<std::size_t>(bench.range(0));
  const auto samples = static_cast<std::uint32_t>(bench.range(1));
  const auto load = static_cast<Load>(bench.range(2));
  gnmr::Options options;
  if (load == kAllAtRisk) options.common_share = 1;  // else the step is common and nothing is selected
  const gnmr::ControllerState state = make_state(units, samples, options);
  std::vector<gnmr::Unit> described;
  for (const gnmr::UnitState& unit : state.units) described.push_back({.name = unit.name});
  const Steps steps(units, load);
  std::vector<char> from(units * kFloorBytesPerUnit, 1);
  std::vector<char> to(units * kFloorBytesPerUnit, 2);
  std::vector<double> step_us, floor_us;
  std::size_t risks = 0, taken = 0;
  gnmr::Controller controller(described, options, gnmr::norms_only());

  const auto step = [&](std::size_t index) {
    const auto number = static_cast<std::int64_t>(index);
    controller.begin(number);
    const gnmr::Outcome& outcome =
        controller.report({.step = number, .norms = steps.norms[index], .sampled = steps.sampled[index]});
    risks += outcome.alarm.risks.size();
    ++taken;
    const gnmr::Outcome* kept = &outcome;
    benchmark::DoNotOptimize(kept);
  };
  for (auto _ : bench) {
    controller.restore(state);  // back to the same amount of history
    for (std::size_t i = 0; i < 2; ++i) step(i);
    double total = 0;
    for (std::size_t i = 2; i < steps.norms.size(); ++i) {
      step_us.push_back(microseconds_of([&] { step(i); }));
      total += step_us.back();
    }
    std::memcpy(to.data(), from.data(), to.size());
    for (std::size_t i = 0; i < kStepsPerBatch; ++i) {
      floor_us.push_back(microseconds_of([&] {
        std::memcpy(to.data(), from.data(), to.size());
        benchmark::ClobberMemory();
      }));
    }
    bench.SetIterationTime(total * 1e-6);
  }
  bench.SetLabel(kLoadNames[load]);
  bench.counters["step_us"] = median(step_us);
  bench.counters["floor_us"] = median(floor_us);
  bench.counters["ratio"] = median(step_us) / median(floor_us);
  bench.counters["ns_per_unit"] = 1000 * median(step_us) / static_cast<double>(units);
  bench.counters["risks_per_step"] = static_cast<double>(risks) / static_cast<double>(taken);
}

void register_all() {
  for (const std::int64_t units : {280, 44544, 1000000}) {
    const int iterations = units < 1000 ? 2000 : units < 100000 ? 60 : 4;
    for (const std::int64_t samples : {30, 10000}) {
      for (const std::int64_t load : {kCalm, kGaps, kOnePercentAtRisk, kAllAtRisk}) {
        benchmark::RegisterBenchmark("step", controller_step)
            ->ArgNames({"units", "samples", "load"})
            ->Args({units, samples, load})
            ->Iterations(iterations)
            ->UseManualTime();
      }
    }
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  benchmark::Initialize(&argument_count, arguments);
  if (benchmark::ReportUnrecognizedArguments(argument_count, arguments)) return 2;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
