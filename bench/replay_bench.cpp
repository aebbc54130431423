// SPDX-License-Identifier: Apache-2.0
// How fast a CSV trace is replayed: reading, deciding, nothing written. The floor is counting the lines of the same
// bytes with memchr, in turn with it.
//
// Counters: replay_mb_s, read_mb_s (reading alone), floor_mb_s, and ratio = replay time / floor time.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bench/timing.h"
#include "gnmr/core/controller.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace {

using gnmr::bench::median;
using gnmr::bench::microseconds_of;

constexpr std::size_t kUnits = 280;
constexpr std::size_t kBytes = std::size_t{32} << 20U;

std::string make_trace(int digits) {
  std::string text = "step";
  for (std::size_t unit = 0; unit < kUnits; ++unit) text += ",layers." + std::to_string(unit);
  text += '\n';
  std::uint64_t state = 1;
  for (int step = 0; text.size() < kBytes; ++step) {
    text += std::to_string(step);
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      char cell[40];
      const double norm = 0.0123 * (0.9 + 0.2 * static_cast<double>(state >> 11U) * 0x1p-53);
      std::snprintf(cell, sizeof cell, ",%.*g", digits, norm);
      text += cell;
    }
    text += '\n';
  }
  return text;
}

void count_lines(const std::string& text) {
  std::size_t lines = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++lines) {
    const void* const found = std::memchr(at, '\n', static_cast<std::size_t>(end - at));
    at = found == nullptr ? end : static_cast<const char*>(found) + 1;
  }
  benchmark::DoNotOptimize(lines);
}

void read_only(const std::string& text) {
  const auto reader = gnmr::io::open_trace(gnmr::io::memory_byte_source("bench", std::string(text)));
  gnmr::io::TraceRow row;
  while (reader->next(row)) {
    const double* norms = row.norms.data();
    benchmark::DoNotOptimize(norms);
  }
}

void replay(const std::string& text) {
  const auto reader = gnmr::io::open_trace(gnmr::io::memory_byte_source("bench", std::string(text)));
  std::vector<gnmr::Unit> units;
  for (const std::string& name : reader->units()) units.push_back({.name = name});
  gnmr::Controller controller(units, {}, gnmr::norms_only());
  gnmr::io::TraceRow row;
  while (reader->next(row)) {
    controller.begin(row.step);
    const gnmr::Outcome* outcome = &controller.report({.step = row.step, .norms = row.norms, .sampled = row.sampled});
    benchmark::DoNotOptimize(outcome);
  }
}

void csv_replay(benchmark::State& bench) {
  const std::string text = make_trace(static_cast<int>(bench.range(0)));
  std::vector<double> replayed, read, counted;
  for (auto _ : bench) {
    replayed.push_back(microseconds_of([&] { replay(text); }));
    read.push_back(microseconds_of([&] { read_only(text); }));
    counted.push_back(microseconds_of([&] { count_lines(text); }));
    bench.SetIterationTime(replayed.back() * 1e-6);
  }
  const auto bytes = static_cast<double>(text.size());  // bytes a microsecond are MB/s
  bench.counters["replay_mb_s"] = bytes / median(replayed);
  bench.counters["read_mb_s"] = bytes / median(read);
  bench.counters["floor_mb_s"] = bytes / median(counted);
  bench.counters["ratio"] = median(replayed) / median(counted);
}

BENCHMARK(csv_replay)
    ->ArgName("digits")
    ->Arg(17)
    ->Arg(5)
    ->Iterations(9)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
