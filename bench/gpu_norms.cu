// SPDX-License-Identifier: Apache-2.0
// gnmr_gpu_bench [--json FILE]: norms, clipping, AdamW and signals on the GPU, each beside a floor of the same run.
//
// Times are medians between CUDA events. Before each timed run a gigabyte is written: caches hold nothing of what is
// read, and the host is ahead of the device.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/device_clock.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/adamw.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/read_floor.h"
#include "gnmr/kernels/signals.h"

namespace gnmr::bench {
namespace {

using namespace gnmr::kernels;

constexpr std::uint32_t kExperts = 44544;

__device__ float noise(std::size_t index) {
  std::uint64_t z = index * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
}

__global__ void fill_floats(float* data, std::size_t count, float scale, bool positive) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const float value = scale * noise(i);
    data[i] = positive ? fabsf(value) : value;
  }
}

__global__ void fill_bfloats(std::uint16_t* data, std::size_t count, float scale) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    data[i] = static_cast<std::uint16_t>(__float_as_uint(scale * noise(i)) >> 16);
  }
}

/// What was measured: a line of the table and of the JSON.
class Results {
 public:
  /// `floor_ms` 0: there is none.
  void add(const std::string& name, double milliseconds, double gigabytes, double floor_ms) {
    char ratio[32] = "";
    if (floor_ms > 0) std::snprintf(ratio, sizeof ratio, "%.3f", milliseconds / floor_ms);
    char rate[32] = "";
    if (gigabytes > 0) std::snprintf(rate, sizeof rate, "%.0f", gigabytes / milliseconds * 1e3);
    std::printf("| %s | %.4f | %s | %s |\n", name.c_str(), milliseconds, rate, ratio);
    std::fflush(stdout);
    json_ += (json_.empty() ? "" : ",\n") + ("  {\"name\": \"" + name + "\", \"ms\": " + std::to_string(milliseconds)) +
             ", \"gigabytes\": " + std::to_string(gigabytes) + ", \"floor_ms\": " + std::to_string(floor_ms) + "}";
  }

  void write(const std::string& path) const {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr) throw std::runtime_error("cannot write " + path);
    std::fprintf(file, "[\n%s\n]\n", json_.c_str());
    std::fclose(file);
  }

 private:
  std::string json_;
};

/// The elements of the linear weights of LLaMA-2 13B, `layers` of 40.
std::vector<std::uint64_t> llama_weights(int layers) {
  std::vector<std::uint64_t> counts;
  for (int layer = 0; layer < layers; ++layer) {
    counts.insert(counts.end(), 4, 5120ull * 5120);
    counts.insert(counts.end(), 3, 5120ull * 13824);
  }
  return counts;
}

std::uint64_t total(const std::vector<std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts) sum += count;
  return sum;
}

/// Floors and norms of bfloat16 gradients that lie side by side, one unit each.
void measure_norms(Clock& clock, Results& results, const Memory& gradients, const std::string& name,
                   const std::vector<std::uint64_t>& counts) {
  std::vector<Slice> slices;
  std::size_t bytes = 0;
  for (const std::uint64_t count : counts) {
    slices.push_back({.data = gradients.as(bytes),
                      .count = count,
                      .type = ElementType::bfloat16,
                      .unit = static_cast<std::uint32_t>(slices.size())});
    bytes += count * 2;
  }
  const auto units = static_cast<std::uint32_t>(slices.size());
  UnitNorms norms(units);
  const Memory sums(units * sizeof(double));
  const Memory roots(units * sizeof(double));
  const Memory gate(sizeof(Gate));
  const Memory sink(sizeof(std::uint32_t));
  const double build_us = microseconds_of([&] { norms.sum_squares(slices, sums.as<double>(), nullptr); });
  must(cudaDeviceSynchronize());
  const double enqueue_us = microseconds_of([&] { norms.sum_squares(slices, sums.as<double>(), nullptr); });
  must(cudaDeviceSynchronize());
  const auto sum = [&] { norms.sum_squares(slices, sums.as<double>(), nullptr); };
  const auto clip = [&] {
    norms.clip(sums.as<double>(), 1.0, {.norms = roots.as<double>(), .gate = gate.as<Gate>()}, nullptr);
  };
  const auto read = [&](ReadOrder order) {
    read_floor(gradients.as(), bytes, order, sink.as<std::uint32_t>(), nullptr);
  };
  const std::vector<double> ms =
      clock.medians_ms({[&] { read(ReadOrder::pieces); }, [&] { read(ReadOrder::strides); }, sum,
                        [&] {
                          sum();
                          clip();
                        },
                        clip});
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  const double floor = std::min(ms[0], ms[1]);
  results.add(name + ": plain read, pieces", ms[0], gigabytes, floor);
  results.add(name + ": plain read, strides", ms[1], gigabytes, floor);
  results.add(name + ": sums of squares", ms[2], gigabytes, floor);
  results.add(name + ": sums, norms and gate", ms[3], gigabytes, floor);
  results.add(name + ": norms and gate alone", ms[4], 0, 0);
  results.add(name + ": host, first table", build_us * 1e-3, 0, 0);
  results.add(name + ": host, same table", enqueue_us * 1e-3, 0, 0);
}

/// AdamW with clipping over `layers` layers of LLaMA-2 13B; `has_master`: float32 copies of the parameters beside them.
void measure_adamw(Clock& clock, Results& results, const std::string& name, ElementType type, int layers,
                   bool has_master) {
  const std::vector<std::uint64_t> counts = llama_weights(layers);
  const std::uint64_t elements = total(counts);
  const std::size_t size = bytes_of(type);
  const Memory parameters(elements * size);
  const Memory gradients(elements * size);
  const Memory masters(has_master ? elements * sizeof(float) : sizeof(float));
  const Memory means(elements * sizeof(float));
  const Memory squares(elements * sizeof(float));
  const Memory steps(counts.size() * sizeof(float));
  const Memory sums(counts.size() * sizeof(double));
  const Memory gate(sizeof(Gate));
  for (const Memory* memory : {&parameters, &gradients}) {
    if (type == ElementType::float32) {
      fill_floats<<<4096, 256>>>(memory->as<float>(), elements, 1e-2f, false);
    } else {
      fill_bfloats<<<4096, 256>>>(memory->as<std::uint16_t>(), elements, 1e-2f);
    }
  }
  fill_floats<<<4096, 256>>>(masters.as<float>(), has_master ? elements : 1, 1e-2f, false);
  fill_floats<<<4096, 256>>>(means.as<float>(), elements, 1e-3f, false);
  fill_floats<<<4096, 256>>>(squares.as<float>(), elements, 1e-5f, true);
  must(cudaGetLastError());
  must(cudaMemset(steps.as(), 0, counts.size() * sizeof(float)));

  std::vector<Slice> slices;
  std::vector<AdamWTensor> tensors;
  std::uint64_t first = 0;
  for (const std::uint64_t count : counts) {
    tensors.push_back({.parameter = parameters.as(first * size),
                       .gradient = gradients.as(first * size),
                       .mean = means.as<float>() + first,
                       .square = squares.as<float>() + first,
                       .steps = steps.as<float>() + tensors.size(),
                       .master = has_master ? masters.as<float>() + first : nullptr,
                       .count = count,
                       .parameter_type = type,
                       .gradient_type = type,
                       .weight_decay = 0.1});
    slices.push_back({.data = gradients.as(first * size),
                      .count = count,
                      .type = type,
                      .unit = static_cast<std::uint32_t>(slices.size())});
    first += count;
  }
  UnitNorms norms(static_cast<std::uint32_t>(slices.size()));
  AdamW adamw;
  const auto clip = [&] {
    norms.sum_squares(slices, sums.as<double>(), nullptr);
    norms.clip(sums.as<double>(), 1.0, {.gate = gate.as<Gate>()}, nullptr);
  };
  const auto update = [&] { adamw.step(tensors, {.learning_rate = 1e-6}, gate.as<Gate>(), nullptr); };
  clip();
  const std::vector<double> ms = clock.medians_ms({update, [&] {
                                                     clip();
                                                     update();
                                                   }});
  must(cudaMemset(gate.as(), 0, sizeof(Gate)));
  const std::vector<double> held = clock.medians_ms({update});
  // Parameter and moments are read and written, the gradient is read; beside a master copy the parameter is written.
  const std::size_t bytes = has_master ? 2 * size + 24 : 3 * size + 16;
  const double gigabytes = static_cast<double>(elements) * static_cast<double>(bytes) * 1e-9;
  const double with_norms = gigabytes + static_cast<double>(elements * size) * 1e-9;
  results.add(name + ": AdamW", ms[0], gigabytes, 0);
  results.add(name + ": norms, gate and AdamW", ms[1], with_norms, 0);
  results.add(name + ": AdamW that is held", held[0], 0, 0);
}

void measure_signals(Clock& clock, Results& results, std::uint32_t units) {
  const Options options;
  UnitSignals signals(units, {.rules = signal_rules(options),
                              .window = static_cast<std::uint32_t>(options.window),
                              .alarm = {.common_share = options.common_share, .selector = Selector::trial}});
  const Memory norms(units * sizeof(double));
  const Memory gate(sizeof(Gate));
  const Memory alarm(sizeof(StepAlarm));
  std::vector<double> values(units);
  const auto observe = [&] {
    signals.observe({.norms = norms.as<double>()}, HoldRule::for_trial,
                    {.gate = gate.as<Gate>(), .alarm = alarm.as<kernels::StepAlarm>()}, nullptr);
  };
  must(cudaMemset(gate.as(), 0, sizeof(Gate)));
  for (std::uint32_t step = 0; step < 30; ++step) {
    for (std::uint32_t unit = 0; unit < units; ++unit)
      values[unit] = 1.0 + 0.001 * ((unit * 7919 + step * 104729) % 101);
    must(cudaMemcpy(norms.as(), values.data(), units * sizeof(double), cudaMemcpyHostToDevice));
    observe();
  }
  const double ms = clock.medians_ms({observe}, 100)[0];
  results.add("signals and alarm of " + std::to_string(units) + " units", ms, 0, 0);
}

void run(const std::string& json) {
  Clock clock;
  Results results;
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d multiprocessors; medians of %d runs\n\n", properties.name, properties.multiProcessorCount, kRuns);
  std::printf("| what | ms | GB/s | against the floor |\n|---|---|---|---|\n");
  {
    const std::vector<std::uint64_t> weights = llama_weights(40);
    const Memory gradients(total(weights) * 2);
    fill_bfloats<<<4096, 256>>>(gradients.as<std::uint16_t>(), total(weights), 1e-2f);
    must(cudaGetLastError());
    measure_norms(clock, results, gradients, "280 weights of LLaMA-2 13B", weights);
    measure_norms(clock, results, gradients, "44,544 experts of 256 Ki",
                  std::vector<std::uint64_t>(kExperts, 256 * 1024));
    measure_norms(clock, results, gradients, "44,544 experts of 4 Ki", std::vector<std::uint64_t>(kExperts, 4 * 1024));
  }
  measure_adamw(clock, results, "6 layers, float32", ElementType::float32, 6, false);
  measure_adamw(clock, results, "6 layers, bfloat16", ElementType::bfloat16, 6, false);
  measure_adamw(clock, results, "6 layers, bfloat16 with a master copy", ElementType::bfloat16, 6, true);
  measure_signals(clock, results, 280);
  measure_signals(clock, results, kExperts);
  if (!json.empty()) results.write(json);
}

}  // namespace
}  // namespace gnmr::bench

int main(int count, char** arguments) {
  std::string json;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--json") == 0 && i + 1 < count) {
      json = arguments[++i];
    } else {
      std::fprintf(stderr, "usage: gnmr_gpu_bench [--json FILE]\n");
      return 2;
    }
  }
  if (!gnmr::kernels::available()) {
    std::printf("no GPU\n");
    return 77;
  }
  try {
    gnmr::bench::run(json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
