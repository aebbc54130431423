// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/matrix_vectors.cuh"
#include "gnmr/kernels/random_bits.cuh"
#include "gnmr/kernels/thin_rows.h"

namespace gnmr::kernels {
namespace {

// Eight vectors of 16 bytes per lane are in flight before the first is used, as for the norms.
constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kBatch = 8;

/// Columns that a warp has side by side: 512 bytes of a row.
template <class Element>
constexpr unsigned kStrip = kWarpLanes* Element::kPerVector;

template <class Element>
__host__ __device__ constexpr unsigned strips_in(unsigned columns) {
  return (columns + kStrip<Element> - 1) / kStrip<Element>;
}

/// Rows that are added up by a block for a multiplication, before parts are added.
constexpr unsigned kPartRows = 256;
constexpr unsigned parts_in(std::uint64_t rows) { return static_cast<unsigned>((rows + kPartRows - 1) / kPartRows); }

/// What rows are multiplied with: signs.
struct Signs {
  static constexpr unsigned kCount = 1;
  std::uint64_t seed;
  std::uint64_t words[2] = {};
  unsigned index = 0;

  /// The next factors are those of rows from `first` on, less than 64 of them.
  __device__ void begin(unsigned first) {
    index = first / 64;
    words[0] = signs_of_64(seed, index);
    words[1] = signs_of_64(seed, index + 1);
  }
  __device__ float factor(unsigned row, unsigned) const {
    const std::uint64_t word = row / 64 == index ? words[0] : words[1];
    return (word >> (row % 64) & 1u) != 0 ? 1.0f : -1.0f;
  }
};

/// What rows are multiplied with: elements of vectors.
template <unsigned kVectors>
struct Factors {
  static constexpr unsigned kCount = kVectors;
  const float* vectors;
  unsigned rows;

  __device__ void begin(unsigned) {}
  __device__ float factor(unsigned row, unsigned k) const { return __ldg(vectors + std::size_t{k} * rows + row); }
};

// A sum of a few squares in float is good between these, as in the norms.
constexpr float kLeastFloatSum = 0x1p-60f;
constexpr float kMostFloatSum = 0x1p120f;

template <class Element>
__device__ __forceinline__ double squares_of(const Vector& vector) {
  if constexpr (Element::kPerWord == 2) {
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < Element::kPerVector; ++i) {
      sum = fmaf(Element::value(vector, i), Element::value(vector, i), sum);
    }
    if (sum >= kLeastFloatSum && sum <= kMostFloatSum) return sum;
  }
  double sum = 0;
#pragma unroll
  for (unsigned i = 0; i < Element::kPerVector; ++i) {
    const double value = Element::value(vector, i);
    sum = fma(value, value, sum);
  }
  return sum;
}

/// The same vector of rows `step` apart; 0 outside.
template <class Element>
__device__ __forceinline__ void load_rows(const MatrixView& matrix, unsigned first, unsigned step, unsigned last,
                                          unsigned column, Vector (&batch)[kBatch]) {
  if (matrix.is_aligned) {
    // Vectors then lie inside or outside as a whole; loads that wait for no branch are in flight together.
    const bool is_inside = column < matrix.columns;
    const auto* const from = address_of<Element>(matrix, first, column);
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      batch[i] = is_inside && first + i * step < last
                     ? load_whole<Element>(from + std::size_t{i} * step * matrix.columns)
                     : Vector{};
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned row = first + i * step;
      batch[i] = row < last ? load_vector<Element>(matrix, row, column) : Vector{};
    }
  }
}

/// Adds rows of one strip, each times its factors, over all warps of the block: to[k * columns + column]. Returns the
/// sum of this lane's squares.
template <class Element, bool kSquares, class Weights>
__device__ __forceinline__ double add_rows(const MatrixView& matrix, unsigned strip, unsigned first, unsigned last,
                                           Weights weights, float* to) {
  __shared__ float of_warps[kWarps][Weights::kCount][kStrip<Element>];
  const unsigned warp = threadIdx.x / kWarpLanes;
  const unsigned in_strip = threadIdx.x % kWarpLanes * Element::kPerVector;
  const unsigned column = strip * kStrip<Element> + in_strip;
  float sums[Weights::kCount][Element::kPerVector] = {};
  double squares = 0;
  for (unsigned begin = first; begin < last; begin += kBatch * kWarps) {
    Vector batch[kBatch];
    load_rows<Element>(matrix, begin + warp, kWarps, last, column, batch);
    weights.begin(begin);
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned row = begin + i * kWarps + warp;
      if (row >= last) continue;
#pragma unroll
      for (unsigned k = 0; k < Weights::kCount; ++k) {
        const float factor = weights.factor(row, k);
#pragma unroll
        for (unsigned e = 0; e < Element::kPerVector; ++e) {
          sums[k][e] = fmaf(factor, Element::value(batch[i], e), sums[k][e]);
        }
      }
      if (kSquares) squares += squares_of<Element>(batch[i]);
    }
  }
#pragma unroll
  for (unsigned k = 0; k < Weights::kCount; ++k) {
#pragma unroll
    for (unsigned e = 0; e < Element::kPerVector; ++e) of_warps[warp][k][in_strip + e] = sums[k][e];
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < Weights::kCount * kStrip<Element>; i += kThreads) {
    const unsigned k = i / kStrip<Element>;
    const unsigned at = strip * kStrip<Element> + i % kStrip<Element>;
    if (at >= matrix.columns) continue;
    float sum = of_warps[0][k][i % kStrip<Element>];
#pragma unroll
    for (unsigned other = 1; other < kWarps; ++other) sum += of_warps[other][k][i % kStrip<Element>];
    to[std::size_t{k} * matrix.columns + at] = sum;
  }
  return squares;
}

/// A group and a strip a block; the last block adds the squares.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    sum_groups(MatrixView matrix, unsigned groups, std::uint64_t seed, float* sums, double* squared_norm,
               double* partials, unsigned* ticket) {
  const unsigned strips = strips_in<Element>(matrix.columns);
  const unsigned group = blockIdx.x / strips;
  const auto first_of = [&](unsigned index) {
    return static_cast<unsigned>(std::uint64_t{index} * matrix.rows / groups);
  };
  const double squares = add_rows<Element, true>(matrix, blockIdx.x % strips, first_of(group), first_of(group + 1),
                                                 Signs{seed}, sums + std::size_t{group} * matrix.columns);
  if (squared_norm == nullptr) return;
  const double of_block = block_sum<kThreads>(squares);
  if (threadIdx.x == 0) partials[blockIdx.x] = of_block;
  if (!is_last_block(ticket)) return;
  double part = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) part += __ldcg(partials + block);
  part = block_sum<kThreads>(part);
  if (threadIdx.x == 0) *squared_norm = part;
}

/// A part of the rows and a strip a block.
template <class Element, unsigned kVectors>
__global__ void __launch_bounds__(kThreads)
    sum_parts(MatrixView matrix, const float* __restrict__ vectors, float* __restrict__ partials) {
  const unsigned strips = strips_in<Element>(matrix.columns);
  const unsigned part = blockIdx.x / strips;
  const unsigned first = part * kPartRows;
  add_rows<Element, false>(matrix, blockIdx.x % strips, first, min(first + kPartRows, matrix.rows),
                           Factors<kVectors>{vectors, matrix.rows},
                           partials + std::size_t{part} * kVectors * matrix.columns);
}

__global__ void __launch_bounds__(kThreads)
    add_parts(const float* __restrict__ partials, unsigned parts, unsigned count, float* __restrict__ results) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  float sum = 0;
  for (unsigned part = 0; part < parts; ++part) sum += __ldg(partials + std::size_t{part} * count + index);
  results[index] = sum;
}

/// Elements of a vector that stand beside a vector of the matrix; 0 outside.
template <class Element>
__device__ __forceinline__ void load_factors(const float* vector, unsigned column, unsigned columns, bool is_wide,
                                             float (&factors)[Element::kPerVector]) {
#pragma unroll
  for (unsigned e = 0; e < Element::kPerVector; e += 4) {
    if (is_wide && column + e + 4 <= columns) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(vector + column + e));
      factors[e] = four.x;
      factors[e + 1] = four.y;
      factors[e + 2] = four.z;
      factors[e + 3] = four.w;
    } else {
#pragma unroll
      for (unsigned i = e; i < e + 4; ++i) factors[i] = column + i < columns ? __ldg(vector + column + i) : 0.0f;
    }
  }
}

/// Eight rows per block, whose columns its threads share.
template <class Element, unsigned kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    multiply_rows(MatrixView matrix, const float* __restrict__ vectors, bool is_wide, float* __restrict__ results) {
  __shared__ float of_warps[kWarps][kBatch * kVectors];
  const unsigned first = blockIdx.x * kBatch;
  float sums[kBatch][kVectors] = {};
  for (unsigned column = threadIdx.x * Element::kPerVector; column < matrix.columns;
       column += kThreads * Element::kPerVector) {
    Vector batch[kBatch];
    load_rows<Element>(matrix, first, 1, matrix.rows, column, batch);
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
      float factors[Element::kPerVector];
      load_factors<Element>(vectors + std::size_t{k} * matrix.columns, column, matrix.columns, is_wide, factors);
#pragma unroll
      for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
        for (unsigned e = 0; e < Element::kPerVector; ++e) {
          sums[i][k] = fmaf(Element::value(batch[i], e), factors[e], sums[i][k]);
        }
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
      const float sum = warp_sum(sums[i][k]);
      if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes][k * kBatch + i] = sum;
    }
  }
  __syncthreads();
  const unsigned row = first + threadIdx.x % kBatch;
  if (threadIdx.x >= kBatch * kVectors || row >= matrix.rows) return;
  float sum = of_warps[0][threadIdx.x];
#pragma unroll
  for (unsigned warp = 1; warp < kWarps; ++warp) sum += of_warps[warp][threadIdx.x];
  results[std::size_t{threadIdx.x / kBatch} * matrix.rows + row] = sum;
}

MatrixView view_of(const ThinMatrix& matrix) { return view_of(matrix.data, matrix.type, matrix.rows, matrix.columns); }

unsigned strips_in(const ThinMatrix& matrix) {
  const auto columns = static_cast<unsigned>(matrix.columns);
  return matrix.type == ElementType::bfloat16 ? strips_in<BFloat16>(columns) : strips_in<Float32>(columns);
}

void clear(void* data, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
}

template <unsigned kVectors>
void launch_rows(const ThinMatrix& matrix, const float* vectors, float* results, cudaStream_t stream) {
  const bool is_wide = is_multiple(vectors, sizeof(float4)) && matrix.columns % 4 == 0;
  const unsigned blocks = blocks_for(matrix.rows, kBatch);
  if (matrix.type == ElementType::bfloat16) {
    multiply_rows<BFloat16, kVectors><<<blocks, kThreads, 0, stream>>>(view_of(matrix), vectors, is_wide, results);
  } else {
    multiply_rows<Float32, kVectors><<<blocks, kThreads, 0, stream>>>(view_of(matrix), vectors, is_wide, results);
  }
  check_launch("multiply_rows");
}

template <unsigned kVectors>
void launch_parts(const ThinMatrix& matrix, const float* vectors, float* partials, cudaStream_t stream) {
  const unsigned blocks = parts_in(matrix.rows) * strips_in(matrix);
  if (matrix.type == ElementType::bfloat16) {
    sum_parts<BFloat16, kVectors><<<blocks, kThreads, 0, stream>>>(view_of(matrix), vectors, partials);
  } else {
    sum_parts<Float32, kVectors><<<blocks, kThreads, 0, stream>>>(view_of(matrix), vectors, partials);
  }
  check_launch("sum_parts");
}

}  // namespace

std::size_t group_rows_workspace_bytes(const ThinMatrix& matrix) {
  return row_groups(matrix.rows) * strips_in(matrix) * sizeof(double) + sizeof(unsigned);
}

std::size_t multiply_transposed_workspace_bytes(const ThinMatrix& matrix, std::uint32_t vectors) {
  return std::size_t{parts_in(matrix.rows)} * vectors * matrix.columns * sizeof(float);
}

void group_rows(const ThinMatrix& matrix, std::uint64_t seed, float* sums, double* squared_norm, void* workspace,
                void* stream) {
  check_thin(matrix, 1);
  const cudaStream_t on = stream_of(stream);
  const auto groups = static_cast<unsigned>(row_groups(matrix.rows));
  const unsigned blocks = groups * strips_in(matrix);
  if (blocks == 0) return squared_norm != nullptr ? clear(squared_norm, sizeof(double), on) : void();
  auto* const partials = static_cast<double*>(workspace);
  auto* const ticket = reinterpret_cast<unsigned*>(partials + blocks);
  if (squared_norm != nullptr) clear(ticket, sizeof(unsigned), on);
  if (matrix.type == ElementType::bfloat16) {
    sum_groups<BFloat16>
        <<<blocks, kThreads, 0, on>>>(view_of(matrix), groups, seed, sums, squared_norm, partials, ticket);
  } else {
    sum_groups<Float32>
        <<<blocks, kThreads, 0, on>>>(view_of(matrix), groups, seed, sums, squared_norm, partials, ticket);
  }
  check_launch("sum_groups");
}

void multiply_thin(const ThinMatrix& matrix, const float* vectors, std::uint32_t count, float* results, void* stream) {
  check_thin(matrix, count);
  const cudaStream_t on = stream_of(stream);
  if (matrix.rows == 0) return;
  switch (count) {
    case 1:
      return launch_rows<1>(matrix, vectors, results, on);
    case 2:
      return launch_rows<2>(matrix, vectors, results, on);
    case 3:
      return launch_rows<3>(matrix, vectors, results, on);
    default:
      return launch_rows<4>(matrix, vectors, results, on);
  }
}

void multiply_transposed(const ThinMatrix& matrix, const float* vectors, std::uint32_t count, float* results,
                         void* workspace, void* stream) {
  check_thin(matrix, count);
  const cudaStream_t on = stream_of(stream);
  if (matrix.columns == 0) return;
  const auto numbers = static_cast<unsigned>(count * matrix.columns);
  if (matrix.rows == 0) return clear(results, numbers * sizeof(float), on);
  auto* const partials = static_cast<float*>(workspace);
  switch (count) {
    case 1:
      launch_parts<1>(matrix, vectors, partials, on);
      break;
    case 2:
      launch_parts<2>(matrix, vectors, partials, on);
      break;
    case 3:
      launch_parts<3>(matrix, vectors, partials, on);
      break;
    default:
      launch_parts<4>(matrix, vectors, partials, on);
      break;
  }
  add_parts<<<blocks_for(numbers, kThreads), kThreads, 0, on>>>(partials, parts_in(matrix.rows), numbers, results);
  check_launch("add_parts");
}

}  // namespace gnmr::kernels
