// SPDX-License-Identifier: Apache-2.0
// gnmr_gpu_casts: casts to FP8, sums of rows, thin products and comparisons on the GPU, each beside a plain copy of
// the same run.
//
// The floor of a kernel is what the copy needs for as many bytes: those that must be read and written once. Times are
// medians between CUDA events; before each timed run a gigabyte is written, so that caches hold nothing.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/device_clock.h"
#include "gnmr/kernels/add_square.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/row_errors.h"

namespace gnmr::bench {
namespace {

using namespace gnmr::kernels;

/// Numbers about as a gradient has them: signs and exponents mixed.
__global__ void fill(void* data, std::size_t count, bool is_short) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z ^= z >> 31;
    const float value = (static_cast<float>(z >> 40) * 0x1p-23f - 1.0f) * exp2f(-static_cast<float>(z & 7));
    if (is_short) {
      static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
    } else {
      static_cast<float*>(data)[i] = value;
    }
  }
}

/// The floor: reads `vectors` and writes the first `written` of them.
__global__ void __launch_bounds__(256)
    copy(const uint4* __restrict__ from, uint4* __restrict__ to, std::size_t vectors, std::size_t written) {
  constexpr unsigned kBatch = 4;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * 256 * kBatch + threadIdx.x;
  uint4 batch[kBatch];
  unsigned folded = 0;
#pragma unroll
  for (unsigned i = 0; i < kBatch; ++i) batch[i] = first + i * 256 < vectors ? __ldg(from + first + i * 256) : uint4{};
#pragma unroll
  for (unsigned i = 0; i < kBatch; ++i) {
    if (first + i * 256 < written) {
      to[first + i * 256] = batch[i];
    } else {
      folded |= batch[i].x & batch[i].y & batch[i].z & batch[i].w;
    }
  }
  if (folded == 0xffffffffu) to[0] = batch[0];  // never: the loads stay
}

/// Something to time: how often it reads the matrix, and how many bytes it writes for each element, scales aside.
struct Work {
  std::string name;
  double reads;
  double writes;
  std::function<void()> run;
};

/// All casts of one matrix that a linear layer needs, and what a patrol does with it.
void measure(Clock& clock, std::uint64_t rows, std::uint64_t columns, ElementType type) {
  const std::size_t elements = rows * columns;
  const std::size_t size = bytes_of(type);
  const Memory matrix(elements * size);
  const Memory codes(elements);
  const Memory turned(elements);
  const Memory copied(elements * size);
  const Memory scales((rows + columns) * sizeof(float) * (1 + std::max(rows, columns) / 128));
  const Memory turned_scales((rows + columns) * sizeof(float) * (1 + std::max(rows, columns) / 128));
  const Memory numbers(sizeof(formats::Statistics) * 2 + 64);
  const Memory totals(sizeof(ErrorTotals) + 2 * sizeof(double));  // a sum and a ticket follow
  const Memory workspace(std::size_t{64} << 20);
  const Memory results((rows + columns) * kOutputSignVectors * sizeof(float));
  fill<<<4096, 256>>>(matrix.as(), elements, type == ElementType::bfloat16);
  fill<<<4096, 256>>>(copied.as(), elements, type == ElementType::bfloat16);
  must(cudaMemset(totals.as(), 0, sizeof(ErrorTotals) + 2 * sizeof(double)));
  must(cudaGetLastError());
  const float one = 1e-2f;
  must(cudaMemcpy(numbers.as(), &one, sizeof one, cudaMemcpyHostToDevice));

  const auto cast = [&](CastGroups groups, bool both, bool counted) {
    CastTask task{.matrix = matrix.as(), .type = type, .rows = rows, .columns = columns, .groups = groups};
    auto* const statistics = reinterpret_cast<formats::Statistics*>(numbers.as() + 64);
    task.given_scale = numbers.as<float>();
    task.by_rows = {.codes = codes.as<std::uint8_t>(), .scales = scales.as<float>()};
    if (counted) task.by_rows.statistics = statistics;
    if (both) task.by_columns = {.codes = turned.as<std::uint8_t>(), .scales = turned_scales.as<float>()};
    if (both && counted) task.by_columns.statistics = statistics + 1;
    task.amax = groups == CastGroups::given ? numbers.as<float>() + 1 : nullptr;
    if (cast_workspace_bytes(task) > (std::size_t{64} << 20)) throw std::runtime_error("the workspace is too small");
    return [=, &workspace] { cast_to_fp8(task, workspace.as(), nullptr); };
  };
  float* const of_columns = results.as<float>() + kSignVectors * rows;
  auto* const ticket = totals.as<std::uint32_t>(sizeof(ErrorTotals) + sizeof(double));
  const RowsView wide{matrix.as(), type, rows, columns};
  const RowsView high{copied.as(), type, rows, columns};
  const RowsView tall{copied.as(), type, columns, rows};  // a gradient of as many outputs as the matrix has rows
  const double sampled_reads = 2.0 * kSampledRows / static_cast<double>(rows);
  const Memory slot(sizeof(SampleSlot));
  must(cudaMemset(slot.as(), 0, sizeof(SampleSlot)));
  const SamplePlace sample{slot.as<SampleSlot>(), totals.as<ErrorTotals>()};
  const std::vector<Work> works{
      {"copy", 1, static_cast<double>(size), {}},
      {"delayed, both ways, with amax", 1, 2, cast(CastGroups::given, true, false)},
      {"delayed, rows only, with amax", 1, 1, cast(CastGroups::given, false, false)},
      {"delayed, both ways, counted", 1, 2, cast(CastGroups::given, true, true)},
      {"tensor, both ways", 2, 2, cast(CastGroups::tensor, true, false)},
      {"row, both ways", 2, 2, cast(CastGroups::row, true, false)},
      {"tile, both ways", 1, 2, cast(CastGroups::tile, true, false)},
      {"tile, rows only", 1, 1, cast(CastGroups::tile, false, false)},
      {"tile, both ways, counted", 1, 2, cast(CastGroups::tile, true, true)},
      {"block, both ways", 1, 2, cast(CastGroups::block, true, false)},
      {"block, both ways, counted", 1, 2, cast(CastGroups::block, true, true)},
      {"products with signs of rows and columns", 1, 0,
       [&] {
         multiply_signs(wide, {kSignVectors, 1, results.as<float>(), 2, of_columns}, workspace.as(), nullptr);
       }},
      {"products of rows with four vectors of signs", 1, 0,
       [&] {
         multiply_signs(wide, {kOutputSignVectors, 1, results.as<float>(), 0, nullptr}, workspace.as(), nullptr);
       }},
      {"sample of rows", sampled_reads, 0,
       [&] {
         add_sampled_rows({wide, high, results.as<float>(), 1, 2}, sample, nullptr);
       }},
      {"sample of rows of a weight's gradient", sampled_reads, 0,
       [&] {
         add_sampled_outputs({wide, tall, results.as<float>(), 1, 2}, sample, workspace.as(), nullptr);
       }},
      {"error of a low result", 2, 0,
       [&] {
         add_error(wide, high, {totals.as<ErrorTotals>(), ticket}, workspace.as(), nullptr);
       }},
      {"squared norm", 1, 0,
       [&] { add_square(wide, totals.as<double>(sizeof(ErrorTotals)), workspace.as(), nullptr); }},
  };
  // Each with a copy that reads and writes as many bytes beside it.
  const auto read_bytes = elements * size;
  std::vector<std::function<void()>> runs;
  for (const Work& work : works) {
    const auto total = static_cast<std::size_t>(static_cast<double>(read_bytes) * work.reads +
                                                static_cast<double>(elements) * work.writes);
    const auto written = std::min(static_cast<std::size_t>(static_cast<double>(elements) * work.writes), read_bytes);
    const std::size_t once = std::min(read_bytes, total - written);
    runs.push_back([=, &matrix, &copied] {
      std::size_t left = total - written;
      std::size_t to_write = written;
      while (left > 0) {
        const std::size_t now = std::min(left, once);
        const std::size_t vectors = now / sizeof(uint4);
        const auto blocks = static_cast<unsigned>((vectors + 1023) / 1024);
        copy<<<blocks, 256>>>(matrix.as<uint4>(), copied.as<uint4>(), vectors, to_write / sizeof(uint4));
        to_write = 0;
        left -= now;
      }
    });
    if (work.run) runs.push_back(work.run);
  }
  const std::vector<double> ms = clock.medians_ms(runs);
  must(cudaGetLastError());
  std::size_t at = 0;
  const std::string shape = std::to_string(rows) + " x " + std::to_string(columns) +
                            (type == ElementType::bfloat16 ? " bfloat16: " : " float32: ");
  for (const Work& work : works) {
    const double bytes = static_cast<double>(read_bytes) * work.reads + static_cast<double>(elements) * work.writes;
    const double floor_ms = ms[at++];
    const double own_ms = work.run ? ms[at++] : floor_ms;
    std::printf("| %s%s | %.4f | %.0f | %.0f%% |\n", shape.c_str(), work.name.c_str(), own_ms, bytes / own_ms * 1e-6,
                100 * floor_ms / own_ms);
    std::fflush(stdout);
  }
}

void run() {
  Clock clock;
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0));
  std::printf("\n%s: casts to FP8, the patrol's products, comparisons; medians of %d runs\n\n", properties.name, kRuns);
  std::printf("| what | ms | GB/s | share of the copy's speed |\n|---|---|---|---|\n");
  measure(clock, 8192, 5120, ElementType::bfloat16);
  measure(clock, 8192, 13824, ElementType::bfloat16);
  measure(clock, 5120, 13824, ElementType::bfloat16);
  measure(clock, 8192, 5120, ElementType::float32);
}

}  // namespace
}  // namespace gnmr::bench

int main() {
  if (!gnmr::kernels::available()) {
    std::printf("no GPU\n");
    return 77;
  }
  try {
    gnmr::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
