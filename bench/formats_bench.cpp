// SPDX-License-Identifier: Apache-2.0
// What casts cost, beside a memcpy of the same float32 values, timed in turn with them.
//
// Counters are medians: cast_us, memcpy_us and ratio = cast / memcpy. `values` says where they lie: 256 Ki (1 MiB) come
// from a near cache, 16 Mi (64 MiB) from memory. A tensor's scale needs the values twice: its floor is above 1.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "gnmr/formats/scaling.h"

namespace {

using namespace gnmr::formats;

constexpr std::size_t kCols = 4096;

struct Buffers {
  std::vector<float> input, output, copy;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<std::uint8_t> scale_codes;

  explicit Buffers(std::size_t count)
      : input(count), output(count), copy(count), codes(count), scales(count / 16), scale_codes(count / 16) {
    std::uint64_t state = 42;
    for (float& value : input) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double uniform = static_cast<double>(state >> 11) * 0x1p-53;
      value = static_cast<float>(std::log(uniform / (1 - uniform) + 1e-12));  // bell-shaped, with a tail
    }
  }
};

using gnmr::bench::median;
using gnmr::bench::microseconds_of;
using Work = std::function<void(Buffers&)>;

void compare_with_memcpy(benchmark::State& bench, const Work& work) {
  Buffers buffers(static_cast<std::size_t>(bench.range(0)));
  std::vector<double> cast_us, memcpy_us;
  work(buffers);
  for (auto _ : bench) {
    cast_us.push_back(microseconds_of([&] {
      work(buffers);
      benchmark::ClobberMemory();
    }));
    bench.SetIterationTime(cast_us.back() * 1e-6);
    memcpy_us.push_back(microseconds_of([&] {
      std::memcpy(buffers.copy.data(), buffers.input.data(), buffers.input.size() * sizeof(float));
      benchmark::ClobberMemory();
    }));
  }
  bench.counters["cast_us"] = median(cast_us);
  bench.counters["memcpy_us"] = median(memcpy_us);
  bench.counters["ratio"] = median(cast_us) / median(memcpy_us);
}

void add(const std::string& name, Work work) {
  for (const std::int64_t values : {std::int64_t{1} << 18, std::int64_t{1} << 24}) {
    benchmark::RegisterBenchmark(name.c_str(), compare_with_memcpy, work)
        ->ArgName("values")
        ->Arg(values)
        ->Iterations(values < 1000000 ? 400 : 12)
        ->UseManualTime();
  }
}

Work fake_quantise_work(Cast cast, Scaling scaling, bool counted) {
  return [=](Buffers& buffers) {
    const std::size_t rows = buffers.input.size() / kCols;
    Statistics statistics;
    fake_quantise(cast, scaling, {buffers.input.data(), rows, kCols, kCols},
                  {buffers.output.data(), rows, kCols, kCols}, counted ? &statistics : nullptr);
  };
}

Work quantise_work(Cast cast, Scaling scaling) {
  return [=](Buffers& buffers) {
    const std::size_t rows = buffers.input.size() / kCols;
    Quantised quantised{buffers.codes.data(), kCols, buffers.scales.data(), buffers.scale_codes.data()};
    quantise(cast, scaling, {buffers.input.data(), rows, kCols, kCols}, quantised);
  };
}

void register_casts() {
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e2m1, Format::int8}) {
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
      const Cast cast{.format = format, .rounding = rounding, .seed = 1};
      const std::string end =
          std::string(format_name(format)) + (rounding == Rounding::stochastic ? "/stochastic" : "/nearest");
      add("encode/" + end, [=](Buffers& buffers) { encode(cast, buffers.input, buffers.codes); });
      add("round/" + end, [=](Buffers& buffers) { round_values(cast, buffers.input, buffers.output); });
    }
    add("decode/" + std::string(format_name(format)),
        [=](Buffers& buffers) { decode(format, buffers.codes, buffers.output); });
  }
  add("round/bfloat16/nearest",
      [](Buffers& buffers) { round_values({.format = Format::bfloat16}, buffers.input, buffers.output); });
}

void register_scaled_casts() {
  const struct {
    const char* name;
    Format format;
    Scaling scaling;
  } cases[] = {{"tensor/e4m3", Format::e4m3, kTensorScaling}, {"given/e4m3", Format::e4m3, given_scale(0.01f)},
               {"row/e4m3", Format::e4m3, kRowScaling},       {"column/e4m3", Format::e4m3, kColumnScaling},
               {"tile/e4m3", Format::e4m3, kTileScaling},     {"block/e4m3", Format::e4m3, kBlockScaling},
               {"mx/e4m3", Format::e4m3, kMxFloorScaling},    {"mx-up/e2m1", Format::e2m1, kMxRoundUpScaling},
               {"nvfp4/e2m1", Format::e2m1, kNvfp4Scaling},   {"row/int8", Format::int8, kRowScaling}};
  for (const auto& entry : cases) {
    add("quantise/" + std::string(entry.name), quantise_work({.format = entry.format}, entry.scaling));
    add("fake/" + std::string(entry.name), fake_quantise_work({.format = entry.format}, entry.scaling, false));
  }
  add("fake/nvfp4/e2m1/stochastic",
      fake_quantise_work({.format = Format::e2m1, .rounding = Rounding::stochastic}, kNvfp4Scaling, false));
  add("fake/tile/e4m3/statistics", fake_quantise_work({.format = Format::e4m3}, kTileScaling, true));
}

}  // namespace

int main(int argument_count, char** arguments) {
  benchmark::Initialize(&argument_count, arguments);
  if (benchmark::ReportUnrecognizedArguments(argument_count, arguments)) return 2;
  register_casts();
  register_scaled_casts();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
