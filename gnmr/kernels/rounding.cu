// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gnmr/formats/group_scale.h"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/rounding.h"

namespace gnmr::kernels {
namespace {

using formats::Format;
using formats::Overflow;
using formats::Rounding;
using formats::ScaleKind;

constexpr unsigned kThreads = 256;       // neighbouring columns
constexpr unsigned kRowsPerThread = 16;  // of its column
constexpr std::uint64_t kMostRows = std::uint64_t{65535} * kRowsPerThread;
constexpr std::uint64_t kMostColumns = std::uint64_t{1} << 24;

/// What a group holds, as pass one finds it.
struct GroupContents {
  unsigned amax_bits;  // of its finite elements
  unsigned unusual;    // kNan, kInfinite
};
constexpr unsigned kNan = 1;
constexpr unsigned kInfinite = 2;

/// All that the kernels know of a task. The contents of the whole tensor stand behind those of the groups.
struct RoundingJob {
  const float* matrix;
  float* rounded;
  unsigned rows;
  unsigned columns;
  unsigned group_rows;
  unsigned group_columns;
  unsigned groups_across;
  GroupContents* groups;
  GroupContents* tensor;  // null: its amax is not wanted
  formats::ScaleRule rule;
  formats::OverflowTarget target;
  unsigned lost;        // what makes a whole group NaN
  bool reads_contents;  // scales depend on what groups hold

  __device__ unsigned group_of(unsigned row, unsigned column) const {
    return row / group_rows * groups_across + column / group_columns;
  }
};

/// Adds what a thread found. Lanes with the same group add theirs up first.
__device__ void add_contents(GroupContents* group, unsigned amax_bits, unsigned unusual) {
  const unsigned peers = __match_any_sync(__activemask(), reinterpret_cast<unsigned long long>(group));
  const unsigned largest = __reduce_max_sync(peers, amax_bits);
  const unsigned any = __reduce_or_sync(peers, unusual);
  if ((threadIdx.x & 31) != __ffs(static_cast<int>(peers)) - 1) return;
  if (largest > 0) atomicMax(&group->amax_bits, largest);
  if (any != 0) atomicOr(&group->unusual, any);
}

__global__ void __launch_bounds__(kThreads) find_contents(const __grid_constant__ RoundingJob job) {
  const unsigned column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= job.columns) return;
  const unsigned first = blockIdx.y * kRowsPerThread;
  const unsigned end = min(first + kRowsPerThread, job.rows);
  unsigned amax_bits = 0;
  unsigned unusual = 0;
  unsigned of_all = 0;
  for (unsigned row = first; row < end; ++row) {
    const unsigned bits = formats::as_bits(job.matrix[std::size_t{row} * job.columns + column]) & ~formats::kSignBit;
    if (bits < formats::kInfinityBits) {
      amax_bits = max(amax_bits, bits);
    } else {
      unusual |= bits == formats::kInfinityBits ? kInfinite : kNan;
    }
    if (row + 1 < end && (row + 1) % job.group_rows != 0) continue;
    add_contents(job.groups + job.group_of(row, column), amax_bits, unusual);
    of_all = max(of_all, amax_bits);
    amax_bits = unusual = 0;
  }
  if (job.tensor != nullptr) add_contents(job.tensor, of_all, 0);
}

__device__ float scale_of(const RoundingJob& job, unsigned group) {
  if (!job.reads_contents) return job.rule.base_scale;
  const GroupContents contents = job.groups[group];
  if ((contents.unusual & job.lost) != 0) return formats::as_float(formats::kNanBits);
  formats::ScaleRule rule = job.rule;
  if (job.tensor != nullptr) rule.base_scale = formats::tensor_scale_of_nvfp4(formats::as_float(job.tensor->amax_bits));
  return formats::group_scale(rule, formats::as_float(contents.amax_bits)).scale;
}

template <Format kFormat>
__global__ void __launch_bounds__(kThreads) round_groups(const __grid_constant__ RoundingJob job) {
  const unsigned column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= job.columns) return;
  const unsigned first = blockIdx.y * kRowsPerThread;
  const unsigned end = min(first + kRowsPerThread, job.rows);
  float scale = 0;
  for (unsigned row = first; row < end; ++row) {
    if (row == first || row % job.group_rows == 0) scale = scale_of(job, job.group_of(row, column));
    const std::size_t at = std::size_t{row} * job.columns + column;
    const formats::Element made =
        formats::to_format<kFormat, Rounding::nearest_even>(job.matrix[at] / scale, 0, job.target);
    job.rounded[at] = made.value * scale;
  }
}

using Launch = void (*)(RoundingJob);

Launch rounding_of(Format format) {
  switch (format) {
    case Format::e4m3:
      return round_groups<Format::e4m3>;
    case Format::e5m2:
      return round_groups<Format::e5m2>;
    case Format::e3m2:
      return round_groups<Format::e3m2>;
    case Format::e2m3:
      return round_groups<Format::e2m3>;
    case Format::e2m1:
      return round_groups<Format::e2m1>;
    case Format::bfloat16:
      return round_groups<Format::bfloat16>;
    case Format::int8:
      return round_groups<Format::int8>;
    case Format::int4:
      return round_groups<Format::int4>;
    case Format::int3:
      return round_groups<Format::int3>;
    case Format::e8m0:
      break;
  }
  throw Error("[round_on_device] expected a format with a sign, got e8m0, which is for scales");
}

/// How many groups lie beside and below each other.
struct GroupGrid {
  std::uint64_t rows;     // of a group
  std::uint64_t columns;  // likewise
  std::uint64_t across;
  std::uint64_t count;
};

GroupGrid grid_of(const RoundingTask& task) {
  const auto size_of = [](std::size_t wanted, std::uint64_t all) {
    return wanted == 0 ? std::max<std::uint64_t>(all, 1)
                       : std::min<std::uint64_t>(wanted, std::max<std::uint64_t>(all, 1));
  };
  const std::uint64_t rows = size_of(task.scaling.group_rows, task.rows);
  const std::uint64_t columns = size_of(task.scaling.group_cols, task.columns);
  const std::uint64_t across = (task.columns + columns - 1) / columns;
  return {rows, columns, across, across * ((task.rows + rows - 1) / rows)};
}

}  // namespace

std::size_t rounding_workspace_bytes(const RoundingTask& task) {
  return (grid_of(task).count + 1) * sizeof(GroupContents);
}

void round_on_device(const RoundingTask& task, void* workspace, void* stream) {
  const Launch round = rounding_of(task.format);
  if (task.rows > kMostRows || task.columns > kMostColumns) {
    throw Error("[round_on_device] expected at most 1,048,560 rows and 2^24 columns");
  }
  const formats::Scaling& scaling = task.scaling;
  if (scaling.kind == ScaleKind::given && !(scaling.scale > 0)) {
    throw Error("[round_on_device] expected a given scale above 0");
  }
  if (task.rows == 0 || task.columns == 0) return;
  const GroupGrid grid = grid_of(task);
  const bool has_nan = formats::layout_of(task.format).has_nan();
  auto* const groups = static_cast<GroupContents*>(workspace);
  const RoundingJob job{
      .matrix = task.matrix,
      .rounded = task.rounded,
      .rows = static_cast<unsigned>(task.rows),
      .columns = static_cast<unsigned>(task.columns),
      .group_rows = static_cast<unsigned>(grid.rows),
      .group_columns = static_cast<unsigned>(grid.columns),
      .groups_across = static_cast<unsigned>(grid.across),
      .groups = groups,
      .tensor = scaling.kind == ScaleKind::nvfp4 && scaling.scale == 0 ? groups + grid.count : nullptr,
      .rule = {scaling.kind, formats::layout_of(task.format), scaling.scale},
      .target = formats::overflow_target(task.format, task.overflow),
      .lost = has_nan ? 0u : kNan | (task.overflow == Overflow::non_finite ? kInfinite : 0u),
      .reads_contents = scaling.kind != ScaleKind::given || !has_nan};
  const dim3 blocks(blocks_for(task.columns, kThreads), blocks_for(task.rows, kRowsPerThread));
  cudaStream_t const on = stream_of(stream);
  if (job.reads_contents) {
    check_cuda(cudaMemsetAsync(workspace, 0, rounding_workspace_bytes(task), on), "cudaMemsetAsync");
    find_contents<<<blocks, kThreads, 0, on>>>(job);
    check_launch("find_contents");
  }
  round<<<blocks, kThreads, 0, on>>>(job);
  check_launch("round_groups");
}

}  // namespace gnmr::kernels
