// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/signals.h"

// Compiled with -fmad=false: every operation is rounded by itself, as in the core.

namespace gnmr::kernels {
namespace {

// One thread per unit. Small blocks: 44,544 units are 348 of these, on 132 SMs.
constexpr unsigned kThreads = 128;

/// What a step adds up, and which of the two histories is the present one. All but that are 0 between steps.
struct Totals {
  unsigned long long centre_sum;
  std::uint32_t centre_count;
  Counts counts;
  std::uint32_t current;
  unsigned tickets;
};

/// The step as a kernel gets it; which memory is now and which is next only the device knows.
struct Step {
  StepColumns columns;
  UnitColumns histories[2];
  Totals* totals;
};

__device__ StepColumns columns_of(const Step& step) {
  StepColumns columns = step.columns;
  const bool odd = step.totals->current != 0;
  columns.now = odd ? step.histories[1] : step.histories[0];
  columns.next = odd ? step.histories[0] : step.histories[1];
  return columns;
}

__global__ void __launch_bounds__(kThreads) ratios(const __grid_constant__ Step step) {
  const StepColumns columns = columns_of(step);
  const unsigned unit = blockIdx.x * kThreads + threadIdx.x;
  CentreShare share{0, 0};
  if (unit < columns.units) share = first_pass(columns, unit);
  const unsigned long long sum = block_sum<kThreads>(share.sum);
  const std::uint32_t count = block_sum<kThreads>(share.count);
  if (threadIdx.x != 0 || count == 0) return;
  atomicAdd(&step.totals->centre_sum, sum);
  atomicAdd(&step.totals->centre_count, count);
}

/// Adds the counts of a block to those of the step; a calm step has few that are not 0.
__device__ void add_counts(const Counts& mine, Counts* to) {
  const auto add = [](bool counted, std::uint32_t* sum) {
    const int count = __syncthreads_count(counted ? 1 : 0);
    if (threadIdx.x == 0 && count > 0) atomicAdd(sum, static_cast<std::uint32_t>(count));
  };
  add(mine.sampled != 0, &to->sampled);
  add(mine.non_finite != 0, &to->non_finite);
  add(mine.finite_risks != 0, &to->finite_risks);
  add(mine.free_risks != 0, &to->free_risks);
  add(mine.unmeasured != 0, &to->unmeasured);
  add(mine.standing_out != 0, &to->standing_out);
}

__device__ Counts read_counts(const Counts* from) {
  return {__ldcg(&from->sampled),    __ldcg(&from->non_finite), __ldcg(&from->finite_risks),
          __ldcg(&from->free_risks), __ldcg(&from->unmeasured), __ldcg(&from->standing_out)};
}

__global__ void __launch_bounds__(kThreads) changes(const __grid_constant__ Step step, AlarmRules rules, HoldRule given,
                                                    const HoldRule* __restrict__ on_device, SignalOutputs outputs) {
  Totals& totals = *step.totals;
  const StepColumns columns = columns_of(step);
  const double centre = centre_of(totals.centre_sum, totals.centre_count);
  const unsigned unit = blockIdx.x * kThreads + threadIdx.x;
  Counts mine{};
  if (unit < columns.units) {
    const Finding found = second_pass(columns, unit, centre);
    mine = counts_of(columns, unit, found);
    if (outputs.risks != nullptr) outputs.risks[unit] = found.risk;
    if (outputs.severities != nullptr) outputs.severities[unit] = found.severity;
  }
  add_counts(mine, &totals.counts);
  if (!is_last_block(&totals.tickets) || threadIdx.x != 0) return;

  const HoldRule hold = on_device != nullptr ? *on_device : given;
  const StepAlarm alarm = alarm_of(rules, read_counts(&totals.counts), centre, hold);
  if (outputs.alarm != nullptr) *outputs.alarm = alarm;
  if (outputs.gate != nullptr && alarm.held != 0) outputs.gate->apply = 0;
  totals.centre_sum = 0;
  totals.centre_count = 0;
  totals.counts = {};
  if (!is_withdrawn(alarm, hold)) totals.current = 1 - totals.current;
}

void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

}  // namespace

struct UnitSignals::Impl {
  Impl(std::uint32_t unit_count, const SignalSettings& given)
      : units(unit_count), settings(given), totals(1), ratios(kept()), inverses(kept()) {
    for (auto& history : histories) history.reserve(std::size_t{units} * kBytesPerUnit / sizeof(double) + 1);
  }

  std::size_t kept() const { return (std::size_t{settings.window} + 1) * units + 1; }

  Step step(const SignalInputs& inputs) const {
    return {.columns = {.rules = settings.rules,
                        .units = units,
                        .slots = settings.window + 1,
                        .now = {},
                        .next = {},
                        .ratios = ratios.data(),
                        .inverses = inverses.data(),
                        .norms = inputs.norms,
                        .sampled = inputs.sampled,
                        .flags = inputs.flags != nullptr ? inputs.flags
                                                         : reinterpret_cast<const std::uint8_t*>(flags.device()),
                        .patrol = inputs.patrol},
            .histories = {unit_columns(histories[0].data(), units), unit_columns(histories[1].data(), units)},
            .totals = totals.data()};
  }

  std::uint32_t units;
  SignalSettings settings;
  DeviceArray<Totals> totals;
  DeviceArray<double> ratios;
  DeviceArray<double> inverses;
  std::array<DeviceArray<double>, 2> histories;
  UploadedBytes flags;
};

UnitSignals::UnitSignals(std::uint32_t units, const SignalSettings& settings) {
  const SignalMemory memory = empty_memory(units, settings);
  impl_ = std::make_unique<Impl>(units, settings);
  load(memory, nullptr);
  set_flags(std::vector<std::uint8_t>(units, gate_flag::kFree), nullptr);
  check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}
UnitSignals::UnitSignals(UnitSignals&&) noexcept = default;
UnitSignals& UnitSignals::operator=(UnitSignals&&) noexcept = default;
UnitSignals::~UnitSignals() = default;

void UnitSignals::set_flags(std::span<const std::uint8_t> flags, void* stream) {
  if (flags.size() != impl_->units) {
    throw Error("[signals] expected flags of " + std::to_string(impl_->units) + " units, got " +
                std::to_string(flags.size()));
  }
  if (flags.empty()) return;
  std::memcpy(impl_->flags.begin(flags.size()), flags.data(), flags.size());
  impl_->flags.send(stream_of(stream));
}

void UnitSignals::observe(const SignalInputs& inputs, HoldRule hold, const SignalOutputs& outputs, void* stream) {
  const Step step = impl_->step(inputs);
  const unsigned blocks = std::max(1u, blocks_for(impl_->units, kThreads));
  const cudaStream_t on = stream_of(stream);
  ratios<<<blocks, kThreads, 0, on>>>(step);
  check_launch("ratios");
  changes<<<blocks, kThreads, 0, on>>>(step, impl_->settings.alarm, hold, inputs.hold, outputs);
  check_launch("changes");
}

SignalMemory UnitSignals::save(void* stream) const {
  const Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  SignalMemory memory = empty_memory(self.units, self.settings);
  Totals totals{};
  copy(&totals, self.totals.data(), sizeof totals, on);
  check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  const UnitColumns columns = unit_columns(self.histories[totals.current].data(), self.units);
  copy(memory.doubles.data(), columns.mean_sum, memory.doubles.size() * sizeof(double), on);
  copy(memory.counts.data(), columns.samples, memory.counts.size() * sizeof(std::uint32_t), on);
  copy(memory.ratios.data(), self.ratios.data(), memory.ratios.size() * sizeof(double), on);
  copy(memory.inverses.data(), self.inverses.data(), memory.inverses.size() * sizeof(double), on);
  check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  return memory;
}

void UnitSignals::load(const SignalMemory& memory, void* stream) {
  const Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  const SignalMemory expected = empty_memory(self.units, self.settings);
  if (memory.doubles.size() != expected.doubles.size() || memory.counts.size() != expected.counts.size() ||
      memory.ratios.size() != expected.ratios.size() || memory.inverses.size() != expected.inverses.size()) {
    throw Error("[signals] expected a memory of " + std::to_string(self.units) + " units and a window of " +
                std::to_string(self.settings.window));
  }
  check_cuda(cudaMemsetAsync(self.totals.data(), 0, sizeof(Totals), on), "cudaMemsetAsync");
  const UnitColumns columns = unit_columns(self.histories[0].data(), self.units);
  copy(columns.mean_sum, memory.doubles.data(), memory.doubles.size() * sizeof(double), on);
  copy(columns.samples, memory.counts.data(), memory.counts.size() * sizeof(std::uint32_t), on);
  copy(self.ratios.data(), memory.ratios.data(), memory.ratios.size() * sizeof(double), on);
  copy(self.inverses.data(), memory.inverses.data(), memory.inverses.size() * sizeof(double), on);
  check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
}

}  // namespace gnmr::kernels
