// SPDX-License-Identifier: Apache-2.0
// gnmr_gpu_products [rows columns depth]: products of E4M3 matrices under scales of 128 on the GPU, in every shape of
// tile.
//
// Operands are normal numbers, cast as a training step casts them: what the tensor cores draw depends on the data.
// "alone" is the median between CUDA events, each run after a gigabyte was written, so that caches hold nothing; "in a
// row" is the mean over a fifth of a second without anything between the runs, after as long a time that is not
// counted: what a step that multiplies all the time gets once the power limit has brought the clocks down. "GHz" is
// what the multiprocessors' clocks came to in that time.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/device_clock.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/tile_product_shapes.h"

namespace gnmr::bench {
namespace {

using namespace gnmr::kernels;

constexpr double kRowMs = 200;
constexpr unsigned kMostMultiprocessors = 256;

/// Normal numbers, as bfloat16.
__global__ void fill_normal(std::uint16_t* data, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    std::uint64_t z = (i + 1 + seed * 0x1234567u) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    const float u = (static_cast<float>(z >> 40) + 1.0f) * 0x1p-24f;
    const float v = static_cast<float>(z & 0xffffffu) * 0x1p-24f;
    const float value = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
    data[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
  }
}

/// A matrix of [rows, depth] as codes and scales.
struct Operand {
  Operand(std::uint64_t rows, std::uint64_t depth, CastGroups groups, std::uint64_t seed)
      : codes(rows * depth), scales(rows * ((depth + 127) / 128) * sizeof(float)) {
    const Memory matrix(rows * depth * 2);
    const Memory workspace(std::size_t{64} << 20);
    fill_normal<<<2048, 256>>>(matrix.as<std::uint16_t>(), rows * depth, seed);
    must(cudaGetLastError());
    CastTask task{.matrix = matrix.as(), .rows = rows, .columns = depth, .groups = groups};
    task.by_rows = {.codes = codes.as<std::uint8_t>(), .scales = scales.as<float>()};
    cast_to_fp8(task, workspace.as(), nullptr);
    must(cudaDeviceSynchronize());
  }
  Memory codes;
  Memory scales;
};

/// The cycle counter of every multiprocessor that gets a block.
__global__ void read_cycles(long long* cycles) {
  unsigned multiprocessor = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  if (multiprocessor < kMostMultiprocessors) cycles[multiprocessor] = clock64();
}

/// Times many runs that follow each other.
class Row {
 public:
  struct Result {
    double each_ms;
    double gigahertz;
  };

  Row() : cycles_(2 * kMostMultiprocessors * sizeof(long long)) {
    must(cudaEventCreate(&start_));
    must(cudaEventCreate(&end_));
  }
  ~Row() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }

  Result measure(const std::function<void()>& work, double expected_ms) {
    const int runs = std::max(5, static_cast<int>(kRowMs / expected_ms));
    must(cudaMemset(cycles_.as(), 0, 2 * kMostMultiprocessors * sizeof(long long)));
    for (int i = 0; i < runs; ++i) work();
    read_cycles<<<1024, 1>>>(cycles_.as<long long>());
    must(cudaEventRecord(start_, nullptr));
    for (int i = 0; i < runs; ++i) work();
    must(cudaEventRecord(end_, nullptr));
    read_cycles<<<1024, 1>>>(cycles_.as<long long>() + kMostMultiprocessors);
    must(cudaEventSynchronize(end_));
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, start_, end_));
    return {static_cast<double>(milliseconds) / runs, cycles_counted() / static_cast<double>(milliseconds) * 1e-6};
  }

 private:
  /// The median of the multiprocessors.
  double cycles_counted() const {
    std::vector<long long> cycles(2 * kMostMultiprocessors);
    must(cudaMemcpy(cycles.data(), cycles_.as(), cycles.size() * sizeof(long long), cudaMemcpyDeviceToHost));
    std::vector<double> counted;
    for (unsigned i = 0; i < kMostMultiprocessors; ++i) {
      if (cycles[i] == 0 || cycles[i + kMostMultiprocessors] == 0) continue;
      counted.push_back(static_cast<double>(cycles[i + kMostMultiprocessors] - cycles[i]));
    }
    return counted.empty() ? 0 : median(counted);
  }

  Memory cycles_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

void measure(Clock& clock, std::uint64_t rows, std::uint64_t columns, std::uint64_t depth, CastGroups b_groups) {
  const Operand a(rows, depth, CastGroups::tile, 1);
  const Operand b(columns, depth, b_groups, 2);
  const Memory product(rows * columns * sizeof(float));
  TileProductTask task{.a = a.codes.as<std::uint8_t>(),
                       .a_scales = a.scales.as<float>(),
                       .b = b.codes.as<std::uint8_t>(),
                       .b_scales = b.scales.as<float>(),
                       .b_groups = b_groups,
                       .rows = rows,
                       .columns = columns,
                       .depth = depth,
                       .product = product.as()};
  std::vector<std::string> names;
  std::vector<std::function<void()>> works;
  for (std::size_t shape = 0; shape < tile_shape_count(b_groups); ++shape) {
    names.push_back(tile_shape_name(b_groups, shape));
    works.push_back([shape, task] { multiply_tiles_with(shape, task, nullptr); });
  }
  const std::size_t best = best_tile_shape(task);
  names[best] += " (chosen)";
  TileProductTask wide = task;
  wide.type = ElementType::float32;
  names.push_back("as chosen, to float32");
  works.push_back([wide] { multiply_tiles(wide, nullptr); });
  const std::vector<double> alone = clock.medians_ms(works);
  const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
  Row row;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Row::Result in_a_row = row.measure(works[i], alone[i]);
    std::printf("| %llu x %llu over %llu, 1x128 by %s | %s | %.3f | %.0f | %.3f | %.0f | %.2f |\n",
                static_cast<unsigned long long>(rows), static_cast<unsigned long long>(columns),
                static_cast<unsigned long long>(depth), b_groups == CastGroups::tile ? "1x128" : "128x128",
                names[i].c_str(), alone[i], operations / alone[i] * 1e-9, in_a_row.each_ms,
                operations / in_a_row.each_ms * 1e-9, in_a_row.gigahertz);
    std::fflush(stdout);
  }
}

void run(const std::vector<std::uint64_t>& sizes) {
  Clock clock;
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0));
  std::printf("\n%s: products of E4M3 matrices to bfloat16; medians of %d runs\n\n", properties.name, kRuns);
  std::printf(
      "| product | tile | alone, ms | TFLOP/s | in a row, ms | TFLOP/s | GHz |\n|---|---|---|---|---|---|---|\n");
  for (const CastGroups groups : {CastGroups::tile, CastGroups::block}) {
    if (!sizes.empty()) {
      measure(clock, sizes[0], sizes[1], sizes[2], groups);
      continue;
    }
    measure(clock, 13824, 5120, 8192, groups);
    measure(clock, 5120, 5120, 8192, groups);
  }
  if (sizes.empty()) measure(clock, 5120, 13824, 8192, CastGroups::tile);
}

}  // namespace
}  // namespace gnmr::bench

int main(int count, char** arguments) {
  if (!gnmr::kernels::tile_product_available()) {
    std::printf("no GPU of compute capability 9.0\n");
    return 77;
  }
  if (count != 1 && count != 4) {
    std::fprintf(stderr, "expected no arguments, or rows, columns and depth\n");
    return 2;
  }
  try {
    std::vector<std::uint64_t> sizes;
    for (int i = 1; i < count; ++i) sizes.push_back(std::strtoull(arguments[i], nullptr, 10));
    gnmr::bench::run(sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
