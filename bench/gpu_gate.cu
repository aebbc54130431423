// SPDX-License-Identifier: Apache-2.0
// How long the host is busy with everything between gradients and weights of a step (norms, clipping, signals, alarm,
// gate, AdamW, numbers to the host) while the device is busy with something long: in one call (gated_step.h) beside its
// parts one by one. Gradients lie elsewhere in each step, as torch has it. Prints Markdown. bench/gpu.sh time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/gpu/device_clock.h"
#include "gnmr/core/options.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/gated_step.h"

namespace gnmr::bench {
namespace {

using namespace gnmr::kernels;

constexpr std::uint64_t kElements = 4096;  // of each tensor: the host does not care
constexpr int kSteps = 41;
constexpr int kWarmUp = 5;

/// Keeps one multiprocessor busy for so many nanoseconds.
__global__ void stay(unsigned long long nanoseconds) {
  unsigned long long start;
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

/// A model of equal tensors, one per unit, with gradients at two places in turn.
class Model {
 public:
  explicit Model(std::uint32_t units)
      : units_(units),
        gradients_(2 * bytes(2)),
        parameters_(bytes(2)),
        masters_(bytes(4)),
        means_(bytes(4)),
        squares_(bytes(4)),
        steps_(units * sizeof(float)),
        loss_(sizeof(double)) {
    for (const Memory* memory : {&parameters_, &masters_, &means_, &squares_})
      must(cudaMemset(memory->as(), 0, bytes(2)));
    must(cudaMemset(gradients_.as(), 0, 2 * bytes(2)));
    must(cudaMemset(steps_.as(), 0, units * sizeof(float)));
    must(cudaMemset(loss_.as(), 0, sizeof(double)));
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      lists.first.push_back(unit);
      lists.indices.push_back(unit);
      places.push_back(unit);
    }
    lists.first.push_back(units);
    tensors.resize(units);
    slices.resize(units);
    move_gradients(0);
  }

  void move_gradients(int step) {
    const std::size_t place = step % 2 == 0 ? 0 : bytes(2);
    for (std::uint32_t unit = 0; unit < units_; ++unit) {
      const std::uint64_t first = unit * kElements;
      const void* const gradient = gradients_.as(place + first * 2);
      slices[unit] = {.data = gradient, .count = kElements, .type = ElementType::bfloat16, .unit = unit};
      tensors[unit] = {.parameter = parameters_.as(first * 2),
                       .gradient = gradient,
                       .mean = means_.as<float>() + first,
                       .square = squares_.as<float>() + first,
                       .steps = steps_.as<float>() + unit,
                       .master = masters_.as<float>() + first,
                       .count = kElements,
                       .parameter_type = ElementType::bfloat16,
                       .gradient_type = ElementType::bfloat16,
                       .weight_decay = 0.1};
    }
  }

  const double* loss() const { return loss_.as<double>(); }

  std::vector<Slice> slices;
  std::vector<AdamWTensor> tensors;
  std::vector<std::uint32_t> places;
  UnitLists lists;

 private:
  std::size_t bytes(std::size_t size) const { return units_ * kElements * size; }

  std::uint32_t units_;
  Memory gradients_, parameters_, masters_, means_, squares_, steps_, loss_;
};

struct HostTimes {
  double median_us;
  double worst_us;
  int still_busy;  // steps in which the device was not through with what keeps it busy
};

/// Host time of a call a step, while the device is busy.
template <class Step>
HostTimes times_of(Model& model, Step step) {
  std::vector<double> times;
  int still_busy = 0;
  cudaEvent_t passed = nullptr;
  must(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
  for (int index = 0; index < kSteps + kWarmUp; ++index) {
    model.move_gradients(index);
    must(cudaDeviceSynchronize());
    stay<<<1, 1>>>(20'000'000ull);
    must(cudaGetLastError());
    must(cudaEventRecord(passed, nullptr));
    const double time = microseconds_of([&] { step(index); });
    if (index < kWarmUp) continue;
    times.push_back(time);
    still_busy += cudaEventQuery(passed) == cudaErrorNotReady ? 1 : 0;
  }
  must(cudaDeviceSynchronize());
  must(cudaEventDestroy(passed));
  return {median(times), *std::max_element(times.begin(), times.end()), still_busy};
}

void print_units(std::uint32_t units) {
  const Options options;
  const SignalSettings settings{.rules = signal_rules(options),
                                .window = static_cast<std::uint32_t>(options.window),
                                .alarm = {.common_share = options.common_share, .selector = Selector::trial}};
  Model model(units);
  const std::vector<std::uint8_t> flags(units, gate_flag::kFree);
  GatedStep gated({.parameters = units, .units = units, .signals = settings, .max_norm = 1.0});
  gated.set_tensors(model.tensors, model.places, nullptr);
  constexpr std::uint32_t kSites = 3;
  UnitLists sites{.first = {0}, .indices = {}};
  for (std::uint32_t site = 0; site < units * kSites; ++site) {
    sites.indices.push_back(site);
    sites.first.push_back(site + 1);
  }
  gated.set_errors(sites, kSites, nullptr);
  const std::size_t total_bytes = std::size_t{units} * kSites * sizeof(ErrorTotals);
  const Memory totals(total_bytes);
  must(cudaMemset(totals.as(), 0, total_bytes));  // nothing was measured
  const std::vector<float> limits(std::size_t{units} * kSites, 0.2f);
  const HostTimes whole = times_of(model, [&](int) {
    gated.run({.gradients = model.slices,
               .lists = model.lists,
               .loss = model.loss(),
               .flags = flags,
               .totals = totals.as<ErrorTotals>(),
               .limits = limits,
               .hold = HoldRule::for_trial,
               .optimizer = {.learning_rate = 1e-6}},
              nullptr);
  });

  UnitNorms norms(units);
  UnitGather gather;
  UnitSignals signals(units, settings);
  AdamW adamw;
  const Memory sums(units * sizeof(double)), roots(units * sizeof(double)), sampled(units), gate(sizeof(Gate)),
      alarm(sizeof(StepAlarm));
  void* results = nullptr;
  must(cudaMallocHost(&results, units * sizeof(double)));
  const HostTimes parts = times_of(model, [&](int) {
    norms.sum_squares(model.slices, sums.as<double>(), nullptr);
    norms.clip(sums.as<double>(), 1.0, {.gate = gate.as<Gate>()}, nullptr);
    gather.set(model.lists, nullptr);
    gather.run(sums.as<double>(), units, nullptr, roots.as<double>(), sampled.as<std::uint8_t>(), nullptr);
    signals.observe({.norms = roots.as<double>(), .sampled = sampled.as<std::uint8_t>()}, HoldRule::for_trial,
                    {.gate = gate.as<Gate>(), .alarm = alarm.as<StepAlarm>()}, nullptr);
    adamw.step(model.tensors, {.learning_rate = 1e-6}, gate.as<Gate>(), nullptr);
    must(cudaMemcpyAsync(results, sums.as(), units * sizeof(double), cudaMemcpyDeviceToHost, nullptr));
  });
  must(cudaFreeHost(results));
  std::printf("| %u | %.1f | %.1f | %d of %d | %.1f | %.2f |\n", units, whole.median_us, whole.worst_us,
              whole.still_busy, kSteps, parts.median_us, whole.median_us / parts.median_us);
  std::fflush(stdout);
}

void run() {
  std::printf(
      "\n| units | one call, host, microseconds | worst | device still busy | parts one by one | ratio |\n"
      "|---|---|---|---|---|---|\n");
  for (const std::uint32_t units : {280u, 44544u}) print_units(units);
}

}  // namespace
}  // namespace gnmr::bench

int main() {
  try {
    gnmr::bench::run();
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gnmr_gpu_gate: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
