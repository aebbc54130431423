// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <utility>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cast_patch.cuh"
#include "gnmr/kernels/cast_tally.cuh"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/fp8_codes.cuh"
#include "gnmr/kernels/turned_tile.cuh"

namespace gnmr::kernels {
namespace {

using formats::Statistics;

/// Where scales come from, for the compiler: `tensor` and `given` are alike here.
enum class Kind : std::uint8_t { one, row, tile, block };

/// Whether both directions have the same data.
__host__ __device__ constexpr bool is_one_cast(Kind kind) { return kind == Kind::one || kind == Kind::block; }

// Blocks on an SM: as many as registers allow.
template <class Element, Kind kKind, bool kCounts>
constexpr unsigned kBlocksAnSm = Element::kPerWord == 1           ? 2
                                 : is_one_cast(kKind) && !kCounts ? 4
                                                                  : 3;

/// All that the kernels know of a quantization.
struct Job {
  MatrixView matrix;
  unsigned tiles_across;
  const float* given_scale;  // null: from `tensor_amax`
  const unsigned* tensor_amax;
  unsigned* row_amax;     // bits; kind `row`
  unsigned* column_amax;  // likewise
  unsigned* amax;         // null: not wanted, or found before
  CastOutput by_rows;
  CastOutput by_columns;
  bool wide_rows;        // the data of a vector can be written at once
  bool wide_columns;     // 16 transposed bytes can
  BlockTally* partials;  // at most two per block
  unsigned* ticket;
};

/// Writes the first bytes of 16 one by one: at edges, and where nothing is aligned.
__device__ __forceinline__ void store_bytes(std::uint8_t* to, unsigned bytes, uint4 codes) {
  std::uint64_t low = codes.x | std::uint64_t{codes.y} << 32;
  std::uint64_t high = codes.z | std::uint64_t{codes.w} << 32;
#pragma unroll 1
  for (unsigned k = 0; k < bytes; ++k) {
    to[k] = static_cast<std::uint8_t>(low);
    low = low >> 8 | high << 56;
    high >>= 8;
  }
}

/// The FP8 data of one vector; `to` is where they belong.
template <class Element>
__device__ __forceinline__ void store_row(const Job& job, unsigned row, unsigned column, std::uint8_t* to,
                                          const unsigned (&codes)[Element::kPerVector / 4]) {
  if (row >= job.matrix.rows || column >= job.matrix.columns) return;
  if (!job.wide_rows) {
    const unsigned bytes = min(job.matrix.columns - column, Element::kPerVector);
    store_bytes(to, bytes, {codes[0], Element::kPerVector == 8 ? codes[Element::kPerVector / 4 - 1] : 0u, 0, 0});
  } else if constexpr (Element::kPerVector == 8) {
    *reinterpret_cast<uint2*>(to) = {codes[0], codes[1]};
  } else {
    *reinterpret_cast<unsigned*>(to) = codes[0];
  }
}

/// A vector of the patch; where elements are odd it is read again, in a loop: those rare paths need no registers.
template <class Element, bool kPlain>
__device__ __forceinline__ Vector vector_at(const Job& job, const Patch<Element>& patch, const Place<Element>& place,
                                            unsigned i, unsigned v) {
  if constexpr (kPlain) return patch.at[i][v];
  return load_vector<Element>(job.matrix, place.row() + i, place.column(v));
}

/// Rows of FP8 data; if the transposed data are the same, those too.
template <class Element, Format kFormat, bool kPlain, bool kTurn, class Tally>
__device__ __forceinline__ void cast_rows(const Job& job, const Patch<Element>& patch, const Place<Element>& place,
                                          const Divisor (&divisors)[kRowsPerLane], TurnedTile& turned, Tally& tally) {
  constexpr unsigned kWords = Element::kPerVector / 4;
  const unsigned columns = job.matrix.columns;
  std::uint8_t* const to = job.by_rows.codes + std::size_t{place.row()} * columns + place.column(0);
  constexpr unsigned kUnroll = kPlain ? kVectors<Element> : 1;
#pragma unroll kUnroll
  for (unsigned v = 0; v < kVectors<Element>; ++v) {
    unsigned codes[kRowsPerLane][kWords];
#pragma unroll
    for (unsigned i = 0; i < kRowsPerLane; ++i) {
      const Vector from = vector_at<Element, kPlain>(job, patch, place, i, v);
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        const float values[4] = {Element::value(from, 4 * w), Element::value(from, 4 * w + 1),
                                 Element::value(from, 4 * w + 2), Element::value(from, 4 * w + 3)};
        codes[i][w] = four_codes<kFormat, kPlain>(values, divisors[i], tally);
      }
      if (job.by_rows.codes == nullptr) continue;
      std::uint8_t* const at = to + i * columns + v * kLanesPerRow * Element::kPerVector;
      store_row<Element>(job, place.row() + i, place.column(v), at, codes[i]);
    }
    if constexpr (kTurn) {
      if (job.by_columns.codes == nullptr) continue;
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        unsigned words[4] = {codes[0][w], codes[1][w], codes[2][w], codes[3][w]};
        turn(words);
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
          turned.put<Element>(place.column_in_tile(v) + 4 * w + k, place.four, words[k]);
        }
      }
    }
  }
}

/// Transposed FP8 data with a scale per column.
template <class Element, Format kFormat, bool kPlain, class Tally>
__device__ __forceinline__ void cast_columns(const Job& job, const Patch<Element>& patch, const Place<Element>& place,
                                             const Divisor* divisors, TurnedTile& turned, Tally& tally) {
  constexpr unsigned kUnroll = kPlain ? kVectors<Element> : 1;
#pragma unroll kUnroll
  for (unsigned v = 0; v < kVectors<Element>; ++v) {
    const Vector from[kRowsPerLane] = {
        vector_at<Element, kPlain>(job, patch, place, 0, v), vector_at<Element, kPlain>(job, patch, place, 1, v),
        vector_at<Element, kPlain>(job, patch, place, 2, v), vector_at<Element, kPlain>(job, patch, place, 3, v)};
#pragma unroll
    for (unsigned k = 0; k < Element::kPerVector; ++k) {
      const unsigned column = place.column_in_tile(v) + k;
      const float values[4] = {Element::value(from[0], k), Element::value(from[1], k), Element::value(from[2], k),
                               Element::value(from[3], k)};
      turned.put<Element>(column, place.four, four_codes<kFormat, kPlain>(values, divisors[column], tally));
    }
  }
}

/// The transposed FP8 data of a tile to memory; all threads have come from a barrier.
template <class Element>
__device__ __forceinline__ void store_turned(const Job& job, const Place<Element>& place, const TurnedTile& turned) {
  constexpr unsigned kSixteens = kTile / 16;
#pragma unroll
  for (unsigned i = 0; i < kTile * kSixteens / kThreads; ++i) {
    const unsigned index = i * kThreads + threadIdx.x;
    const unsigned in_tile = index / kSixteens;
    const unsigned column = place.tile_column * kTile + in_tile;
    const unsigned row = place.tile_row * kTile + index % kSixteens * 16;
    if (row >= job.matrix.rows || column >= job.matrix.columns) continue;
    const uint4 codes = turned.sixteen_rows<Element>(in_tile, index % kSixteens);
    std::uint8_t* const to = job.by_columns.codes + std::size_t{column} * job.matrix.rows + row;
    if (job.wide_columns) {
      *reinterpret_cast<uint4*>(to) = codes;
    } else {
      store_bytes(to, min(job.matrix.rows - row, 16u), codes);
    }
  }
}

/// The scale of a lane's rows, and into the output what has not been written by another lane.
template <class Element, Format kFormat, Kind kKind>
__device__ __forceinline__ void scale_rows(const Job& job, const Place<Element>& place, RowLargest largest,
                                           unsigned of_block, Divisor (&divisors)[kRowsPerLane]) {
  if constexpr (kKind == Kind::one) {
    const float scale = job.given_scale != nullptr ? __ldg(job.given_scale) : scale_of<kFormat>(__ldg(job.tensor_amax));
    const Divisor divisor = Divisor::of(scale);
#pragma unroll
    for (Divisor& one : divisors) one = divisor;
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    if (job.by_rows.scales != nullptr) *job.by_rows.scales = scale;
    if (job.by_columns.scales != nullptr) *job.by_columns.scales = scale;
  } else if constexpr (kKind == Kind::block) {
    const float scale = scale_of<kFormat>(of_block);
    const Divisor divisor = Divisor::of(scale);
#pragma unroll
    for (Divisor& one : divisors) one = divisor;
    if (threadIdx.x != 0) return;
    const CastOutput& rows = job.by_rows;
    const CastOutput& columns = job.by_columns;
    if (rows.scales != nullptr) rows.scales[place.tile_row * rows.scale_stride + place.tile_column] = scale;
    if (columns.scales != nullptr) columns.scales[place.tile_column * columns.scale_stride + place.tile_row] = scale;
  } else {
    if constexpr (kKind == Kind::tile) share_rows(largest.bits);
    const bool writes =
        job.by_rows.scales != nullptr && place.group == 0 && (kKind == Kind::tile || place.tile_column == 0);
    // Tiles of all rows lie together.
    const std::size_t first = kKind == Kind::tile ? std::size_t{place.tile_column} * job.matrix.rows : 0;
#pragma unroll
    for (unsigned i = 0; i < kRowsPerLane; ++i) {
      const unsigned row = place.row() + i;
      const bool is_inside = row < job.matrix.rows;
      if (kKind == Kind::row) largest.bits[i] = is_inside ? __ldg(job.row_amax + row) : 0u;
      divisors[i] = Divisor::of(scale_of<kFormat>(largest.bits[i]));
      if (writes && is_inside) job.by_rows.scales[first + row] = divisors[i].scale;
    }
  }
}

/// The scales of the tile's columns; whether all of them are plain. All threads call it.
template <class Element, Format kFormat, Kind kKind>
__device__ __forceinline__ bool scale_columns(const Job& job, const Patch<Element>& patch, bool is_finite,
                                              const Place<Element>& place, Divisor* divisors) {
  unsigned amax = 0;
  const unsigned column = place.tile_column * kTile + threadIdx.x;
  const bool is_inside = threadIdx.x < kTile && column < job.matrix.columns;
  if constexpr (kKind == Kind::tile) {
    amax = largest_of_column(patch, is_finite, place);
  } else {
    if (is_inside) amax = __ldg(job.column_amax + column);
  }
  bool is_plain = true;
  if (threadIdx.x < kTile) {
    const Divisor divisor = Divisor::of(scale_of<kFormat>(amax));
    divisors[threadIdx.x] = divisor;
    is_plain = divisor.is_plain();
    const bool writes = job.by_columns.scales != nullptr && (kKind == Kind::tile || place.tile_row == 0);
    const std::size_t first = kKind == Kind::tile ? std::size_t{place.tile_row} * job.matrix.columns : 0;
    if (writes && is_inside) job.by_columns.scales[first + column] = divisor.scale;
  }
  return __syncthreads_and(is_plain) != 0;
}

/// A tile, both ways.
template <class Element, Format kFormat, Kind kKind, class Tally>
__global__ void __launch_bounds__(kThreads, kBlocksAnSm<Element, kKind, !std::is_same_v<Tally, NoTally>>)
    cast_tiles(const __grid_constant__ Job job) {
  constexpr bool kOneCast = is_one_cast(kKind);
  alignas(16) __shared__ TurnedTile turned;
  const Place<Element> place(job.tiles_across);
  const Patch<Element> patch = load_patch<Element>(job.matrix, place);
  const RowLargest largest = largest_of_rows(patch);
  unsigned of_block = 0;
  if (kKind == Kind::block || job.amax != nullptr) {
    of_block = block_largest(largest.all());
    if (threadIdx.x == 0 && job.amax != nullptr) atomicMax(job.amax, of_block);
  }
  constexpr bool kCounts = !std::is_same_v<Tally, NoTally>;
  Tally tallies[kOneCast ? 1 : 2];
  PlainValues values;
  if constexpr (kCounts) values = plain_values(patch);
  const bool is_usual = largest.is_finite && Tally::is_plain_for(largest.all());
  if (kOneCast || job.by_rows.codes != nullptr) {
    Divisor divisors[kRowsPerLane];
    scale_rows<Element, kFormat, kKind>(job, place, largest, of_block, divisors);
    bool is_plain = is_usual;
#pragma unroll
    for (unsigned i = 0; i < kRowsPerLane; ++i) is_plain = is_plain && divisors[i].is_plain_for(largest.bits[i]);
    if (is_plain) {
      cast_rows<Element, kFormat, true, kOneCast>(job, patch, place, divisors, turned, tallies[0]);
      if constexpr (kCounts) tallies[0].finish(values);
    } else {
      cast_rows<Element, kFormat, false, kOneCast>(job, patch, place, divisors, turned, tallies[0]);
    }
  }
  if (job.by_columns.codes != nullptr) {
    if constexpr (!kOneCast) {
      __shared__ Divisor divisors[kTile];
      Tally& tally = tallies[1];
      const bool all_plain = scale_columns<Element, kFormat, kKind>(job, patch, largest.is_finite, place, divisors);
      if (all_plain && is_usual) {
        cast_columns<Element, kFormat, true>(job, patch, place, divisors, turned, tally);
        if constexpr (kCounts) tally.finish(values);
      } else {
        cast_columns<Element, kFormat, false>(job, patch, place, divisors, turned, tally);
      }
    }
    __syncthreads();
    store_turned(job, place, turned);
  }
  if constexpr (kCounts) {
    add_up(tallies, {.partials = job.partials,
                     .ticket = job.ticket,
                     .elements = std::uint64_t{job.matrix.rows} * job.matrix.columns,
                     .by_rows = job.by_rows.statistics,
                     .by_columns = job.by_columns.statistics});
  }
}

/// The largest finite magnitude of a matrix without regard to rows. `job.amax` is 0 before.
template <class Element>
__global__ void __launch_bounds__(kThreads) find_amax(const __grid_constant__ Job job) {
  constexpr unsigned kBatch = 8;
  const auto* const data = static_cast<const typename Element::Scalar*>(job.matrix.data);
  const std::uint64_t count = std::uint64_t{job.matrix.rows} * job.matrix.columns;
  const std::uint64_t whole = is_multiple(data, sizeof(uint4)) ? count / Element::kPerVector : 0;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * kThreads;
  unsigned largest = 0;
  const std::uint64_t thread = blockIdx.x * kThreads + threadIdx.x;
  for (std::uint64_t first = thread; first < whole; first += kBatch * threads) {
    Vector batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const std::uint64_t at = first + i * threads;
      batch[i] = at < whole ? load_whole<Element>(data + at * Element::kPerVector) : Vector{};
    }
    unsigned found = 0;
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) found = Element::larger(found, Element::magnitudes(batch[i].words[w]));
    }
    if (Element::largest(found) >= kInfiniteBits) {
      found = 0;
#pragma unroll
      for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
        for (unsigned w = 0; w < 4; ++w) found = Element::larger(found, Element::finite_magnitudes(batch[i].words[w]));
      }
    }
    largest = max(largest, Element::largest(found));
  }
  for (std::uint64_t at = whole * Element::kPerVector + thread; at < count; at += threads) {
    largest = max(largest, Element::largest(Element::finite_magnitudes(data[at])));
  }
  largest = block_largest(largest);
  if (threadIdx.x == 0) atomicMax(job.amax, largest);
}

/// The largest finite magnitudes of all rows and columns; they are 0 before.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocksAnSm<Element, Kind::row, false>)
    find_row_amax(const __grid_constant__ Job job) {
  const Place<Element> place(job.tiles_across);
  const Patch<Element> patch = load_patch<Element>(job.matrix, place);
  RowLargest largest = largest_of_rows(patch);
  if (job.amax != nullptr) {
    const unsigned of_block = block_largest(largest.all());
    if (threadIdx.x == 0) atomicMax(job.amax, of_block);
  }
  share_rows(largest.bits);
  // A lane for each row.
#pragma unroll
  for (unsigned i = 0; i < kRowsPerLane; ++i) {
    const unsigned row = place.row() + i;
    if (place.group == i && row < job.matrix.rows) atomicMax(job.row_amax + row, largest.bits[i]);
  }
  if (job.by_columns.codes == nullptr) return;
  const unsigned of_column = largest_of_column(patch, largest.is_finite, place);
  const unsigned column = place.tile_column * kTile + threadIdx.x;
  if (threadIdx.x < kTile && column < job.matrix.columns) atomicMax(job.column_amax + column, of_column);
}

std::uint64_t tiles_in(std::uint64_t length) { return (length + kTile - 1) / kTile; }

/// How a workspace is divided: partial sums, then words that are 0 at the start.
struct Workspace {
  explicit Workspace(const CastTask& task)
      : partials(is_counted(task) ? 2 * tiles_in(task.rows) * tiles_in(task.columns) : 0),
        words(kFixedWords + (task.groups == CastGroups::row ? task.rows + task.columns : 0)) {}

  static bool is_counted(const CastTask& task) {
    return (task.by_rows.codes != nullptr && task.by_rows.statistics != nullptr) ||
           (task.by_columns.codes != nullptr && task.by_columns.statistics != nullptr);
  }
  /// Whether the words must be 0 for this task.
  static bool is_cleared(const CastTask& task) {
    return is_counted(task) || task.groups == CastGroups::row ||
           (task.groups == CastGroups::tensor && task.amax == nullptr);
  }
  std::size_t bytes() const { return partials * sizeof(BlockTally) + words * sizeof(unsigned); }

  static constexpr std::uint64_t kFixedWords = 2;  // the ticket, the tensor's amax
  std::uint64_t partials;
  std::uint64_t words;
};

/// The task as the kernels see it; what must be 0 before them is set to 0 on the stream.
Job prepared(const CastTask& task, void* memory, cudaStream_t stream) {
  const Workspace workspace(task);
  auto* const partials = static_cast<BlockTally*>(memory);
  auto* const words = reinterpret_cast<unsigned*>(partials + workspace.partials);
  if (Workspace::is_cleared(task)) {
    check_cuda(cudaMemsetAsync(words, 0, workspace.words * sizeof(unsigned), stream), "cudaMemsetAsync");
  }
  if (task.amax != nullptr) check_cuda(cudaMemsetAsync(task.amax, 0, sizeof(float), stream), "cudaMemsetAsync");
  const std::size_t codes_per_vector = sizeof(uint4) / bytes_of(task.type);
  Job job{.matrix = view_of(task.matrix, task.type, task.rows, task.columns),
          .tiles_across = static_cast<unsigned>(tiles_in(task.columns)),
          .given_scale = task.groups == CastGroups::given ? task.given_scale : nullptr,
          .tensor_amax = nullptr,
          .row_amax = words + Workspace::kFixedWords,
          .column_amax = words + Workspace::kFixedWords + task.rows,
          .amax = reinterpret_cast<unsigned*>(task.amax),
          .by_rows = task.by_rows,
          .by_columns = task.by_columns,
          .wide_rows = is_multiple(task.by_rows.codes, codes_per_vector) && task.columns % codes_per_vector == 0,
          .wide_columns = is_multiple(task.by_columns.codes, sizeof(uint4)) && task.rows % sizeof(uint4) == 0,
          .partials = partials,
          .ticket = words};
  if (task.by_rows.codes == nullptr) job.by_rows = {};
  if (task.by_columns.codes == nullptr) job.by_columns = {};
  if (job.by_rows.scale_stride == 0) job.by_rows.scale_stride = tiles_in(task.columns);
  if (job.by_columns.scale_stride == 0) job.by_columns.scale_stride = tiles_in(task.rows);
  if (task.groups == CastGroups::tensor && job.amax == nullptr) job.amax = words + 1;
  return job;
}

template <class Element, Format kFormat, Kind kKind>
void launch_cast(const Job& job, unsigned tiles, bool is_counted, cudaStream_t stream) {
  using Counted = Tally<kKind == Kind::one>;
  if (is_counted) {
    cast_tiles<Element, kFormat, kKind, Counted><<<tiles, kThreads, 0, stream>>>(job);
  } else {
    cast_tiles<Element, kFormat, kKind, NoTally><<<tiles, kThreads, 0, stream>>>(job);
  }
  check_launch("cast_tiles");
}

template <class Element, Format kFormat>
void launch_kind(const Job& job, CastGroups groups, unsigned tiles, bool is_counted, cudaStream_t stream) {
  switch (groups) {
    case CastGroups::tensor:
    case CastGroups::given:
      return launch_cast<Element, kFormat, Kind::one>(job, tiles, is_counted, stream);
    case CastGroups::row:
      return launch_cast<Element, kFormat, Kind::row>(job, tiles, is_counted, stream);
    case CastGroups::tile:
      return launch_cast<Element, kFormat, Kind::tile>(job, tiles, is_counted, stream);
    case CastGroups::block:
      return launch_cast<Element, kFormat, Kind::block>(job, tiles, is_counted, stream);
  }
}

unsigned blocks_that_fill_the_device() {
  constexpr unsigned kBlocksAnSmForAmax = 4;
  int device = 0;
  int sms = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return static_cast<unsigned>(sms) * kBlocksAnSmForAmax;
}

template <class Element>
void launch(const CastTask& task, Job job, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(tiles_in(task.rows) * tiles_in(task.columns));
  const bool is_cast = job.by_rows.codes != nullptr || job.by_columns.codes != nullptr;
  if (task.groups == CastGroups::tensor || (!is_cast && job.amax != nullptr)) {
    find_amax<Element><<<std::min(tiles, blocks_that_fill_the_device()), kThreads, 0, stream>>>(job);
    check_launch("find_amax");
    job.tensor_amax = std::exchange(job.amax, nullptr);
  } else if (task.groups == CastGroups::row && is_cast) {
    find_row_amax<Element><<<tiles, kThreads, 0, stream>>>(job);
    check_launch("find_row_amax");
    job.amax = nullptr;
  }
  if (!is_cast) return;
  const bool is_counted = Workspace::is_counted(task);
  if (task.format == Format::e4m3) {
    launch_kind<Element, Format::e4m3>(job, task.groups, tiles, is_counted, stream);
  } else {
    launch_kind<Element, Format::e5m2>(job, task.groups, tiles, is_counted, stream);
  }
}

}  // namespace

std::size_t cast_workspace_bytes(const CastTask& task) { return Workspace(task).bytes(); }

void cast_to_fp8(const CastTask& task, void* workspace, void* stream) {
  check_cast(task);
  const cudaStream_t on = stream_of(stream);
  const Job job = prepared(task, workspace, on);
  if (task.rows * task.columns == 0) {
    for (const CastOutput* output : {&job.by_rows, &job.by_columns}) {
      if (output->statistics == nullptr) continue;
      check_cuda(cudaMemsetAsync(output->statistics, 0, sizeof(Statistics), on), "cudaMemsetAsync");
    }
  } else if (task.type == ElementType::bfloat16) {
    launch<BFloat16>(task, job, on);
  } else {
    launch<Float32>(task, job, on);
  }
}

}  // namespace gnmr::kernels
