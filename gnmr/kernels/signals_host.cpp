// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/signals_host.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

constexpr std::size_t kCountColumns = 2;

UnitColumns columns_of(SignalMemory& memory, std::size_t units) {
  double* const doubles = memory.doubles.data();
  std::uint32_t* const counts = memory.counts.data();
  UnitColumns columns = unit_columns(doubles, units);
  columns.samples = counts;
  columns.spare = counts + units;
  return columns;
}

/// The weight that is left after `count` samples.
double weight_after(double decay, std::uint32_t count) {
  double weight = 1.0;
  for (; count > 0 && weight > 0.0; --count) weight = unit_math::next_weight(decay, weight);
  return weight;
}

void add(Counts& sums, const Counts& more) {
  sums.sampled += more.sampled;
  sums.non_finite += more.non_finite;
  sums.finite_risks += more.finite_risks;
  sums.free_risks += more.free_risks;
  sums.unmeasured += more.unmeasured;
  sums.standing_out += more.standing_out;
}

}  // namespace

SignalMemory empty_memory(std::uint32_t units, const SignalSettings& settings) {
  if (settings.window < 1 || settings.window > 1024) {
    throw Error("[signals] expected a window of 1 to 1024, got " + std::to_string(settings.window));
  }
  const std::size_t kept = (std::size_t{settings.window} + 1) * units;
  SignalMemory memory{.doubles = std::vector<double>(kDoubleColumns * units),
                      .counts = std::vector<std::uint32_t>(kCountColumns * units),
                      .ratios = std::vector<double>(kept, 1.0),
                      .inverses = std::vector<double>(kept, 1.0)};
  const UnitColumns columns = columns_of(memory, units);
  for (std::size_t unit = 0; unit < units; ++unit) forget(columns, unit);
  return memory;
}

void store(SignalMemory& memory, const SignalSettings& settings, std::uint32_t unit, const UnitPast& past) {
  const std::size_t units = memory.counts.size() / kCountColumns;
  const UnitColumns columns = columns_of(memory, units);
  columns.mean_sum[unit] = past.mean_sum;
  columns.mean_weight[unit] = weight_after(settings.rules.beta, past.samples);
  columns.rise_change_sum[unit] = past.rise_change_sum;
  columns.fall_change_sum[unit] = past.fall_change_sum;
  columns.noise_weight[unit] = weight_after(settings.rules.noise_beta, past.changes);
  columns.samples[unit] = past.samples;
  columns.spare[unit] = 0;
  if (past.ratios.empty()) return;
  // From the newest back; the oldest stands for all that are missing.
  std::size_t index = past.ratios.size();
  for (std::size_t slot = settings.window; slot > 0; --slot) {
    if (index > 0) --index;
    memory.ratios[slot * units + unit] = past.ratios[index];
    memory.inverses[slot * units + unit] = past.inverses[index];
  }
}

HostSignals::HostSignals(std::uint32_t units, const SignalSettings& settings)
    : units_(units),
      settings_(settings),
      memory_(empty_memory(units, settings)),
      flags_(units, gate_flag::kFree),
      risks_(units),
      severities_(units) {}

const StepAlarm& HostSignals::observe(const SignalInputs& inputs, HoldRule given) {
  const HoldRule hold = inputs.hold != nullptr ? *inputs.hold : given;
  SignalMemory next = memory_;
  const StepColumns step{.rules = settings_.rules,
                         .units = units_,
                         .slots = settings_.window + 1,
                         .now = columns_of(memory_, units_),
                         .next = columns_of(next, units_),
                         .ratios = next.ratios.data(),
                         .inverses = next.inverses.data(),
                         .norms = inputs.norms,
                         .sampled = inputs.sampled,
                         .flags = inputs.flags != nullptr ? inputs.flags : flags_.data(),
                         .patrol = inputs.patrol};
  CentreShare shares{0, 0};
  for (std::size_t unit = 0; unit < units_; ++unit) {
    const CentreShare share = first_pass(step, unit);
    shares.sum += share.sum;
    shares.count += share.count;
  }
  const double centre = centre_of(shares.sum, shares.count);
  Counts counts{};
  for (std::size_t unit = 0; unit < units_; ++unit) {
    const Finding found = second_pass(step, unit, centre);
    risks_[unit] = found.risk;
    severities_[unit] = found.severity;
    add(counts, counts_of(step, unit, found));
  }
  alarm_ = alarm_of(settings_.alarm, counts, centre, hold);
  if (is_withdrawn(alarm_, hold)) {
    // Spare slots hold what was seen, and are written again.
    memory_.ratios = next.ratios;
    memory_.inverses = next.inverses;
  } else {
    memory_ = std::move(next);
  }
  return alarm_;
}

SignalMemory memory_of(const ControllerState& state, const SignalSettings& settings) {
  const auto units = static_cast<std::uint32_t>(state.units.size());
  SignalMemory memory = empty_memory(units, settings);
  for (std::uint32_t unit = 0; unit < units; ++unit) {
    const UnitState& from = state.units[unit];
    store(memory, settings, unit,
          {.samples = from.samples,
           .changes = from.changes,
           .mean_sum = from.mean_sum,
           .rise_change_sum = from.rise_change_sum,
           .fall_change_sum = from.fall_change_sum,
           .ratios = from.ratios,
           .inverses = from.inverses});
  }
  return memory;
}

}  // namespace gnmr::kernels
