// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/norms.h"

namespace gnmr::kernels {
namespace {

// Eight 16-byte loads a lane are in flight before the first is used: 4 KB a warp, 128 KB on an SM with its 32 warps,
// about three times what the latency of an H200's memory asks for.
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksAnSm = 4;
constexpr unsigned kBatch = 8;
static_assert(kBatch * kWarpLanes * sizeof(uint4) == kRoundBytes && kThreads / kWarpLanes == kSharing);

// A sum of a few squares in float is good between these: nothing in it has overflowed, and what may have vanished is
// below 2^-53 of it.
constexpr float kLeastFloatSum = 0x1p-60f;
constexpr float kMostFloatSum = 0x1p120f;

// How an element type is read: 16 bytes at a time, and one by one at the ends of a chunk that is not aligned.
struct Float32 {
  using Scalar = float;
  static __device__ double value(float scalar) { return scalar; }
  static __device__ double squares(const uint4& vector) {
    const double x = __uint_as_float(vector.x);
    const double y = __uint_as_float(vector.y);
    const double z = __uint_as_float(vector.z);
    const double w = __uint_as_float(vector.w);
    return fma(x, x, y * y) + fma(z, z, w * w);
  }
  static __device__ float scaled(float scalar, float factor) { return scalar * factor; }
  static __device__ unsigned scaled_word(unsigned word, float factor) {
    return __float_as_uint(__uint_as_float(word) * factor);
  }
};

__device__ double exact_squares(float2 pair, double sum) {
  const double x = pair.x;
  const double y = pair.y;
  return fma(x, x, fma(y, y, sum));
}

// Squares of 16-bit elements are exact in float, unless they overflow or vanish: then again in double, which is slow
// (conversions) but right, and says whether an element was not finite.
template <class Pairs>
__device__ double squares_of_halves(const uint4& vector) {
  const float2 a = Pairs::pair(vector.x);
  const float2 b = Pairs::pair(vector.y);
  const float2 c = Pairs::pair(vector.z);
  const float2 d = Pairs::pair(vector.w);
  const float low = fmaf(a.x, a.x, fmaf(b.x, b.x, fmaf(c.x, c.x, d.x * d.x)));
  const float high = fmaf(a.y, a.y, fmaf(b.y, b.y, fmaf(c.y, c.y, d.y * d.y)));
  const float sum = low + high;
  if (sum >= kLeastFloatSum && sum <= kMostFloatSum) return sum;
  return exact_squares(a, exact_squares(b, exact_squares(c, exact_squares(d, 0.0))));
}

/// Two 16-bit elements, each multiplied in float and rounded.
template <class Pairs>
__device__ unsigned scaled_halves(unsigned word, float factor) {
  const float2 pair = Pairs::pair(word);
  return Pairs::rounded(pair.x * factor) | static_cast<unsigned>(Pairs::rounded(pair.y * factor)) << 16;
}

struct BFloat16 {
  using Scalar = std::uint16_t;
  static __device__ double value(std::uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
  static __device__ float2 pair(unsigned word) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  }
  static __device__ double squares(const uint4& vector) { return squares_of_halves<BFloat16>(vector); }
  static __device__ std::uint16_t rounded(float number) { return __bfloat16_as_ushort(__float2bfloat16_rn(number)); }
  static __device__ std::uint16_t scaled(std::uint16_t bits, float factor) {
    return rounded(static_cast<float>(value(bits)) * factor);
  }
  static __device__ unsigned scaled_word(unsigned word, float factor) { return scaled_halves<BFloat16>(word, factor); }
};

struct Float16 {
  using Scalar = std::uint16_t;
  static __device__ double value(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ float2 pair(unsigned word) {
    return {__half2float(__ushort_as_half(static_cast<unsigned short>(word))),
            __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)))};
  }
  static __device__ double squares(const uint4& vector) { return squares_of_halves<Float16>(vector); }
  static __device__ std::uint16_t rounded(float number) { return __half_as_ushort(__float2half_rn(number)); }
  static __device__ std::uint16_t scaled(std::uint16_t bits, float factor) {
    return rounded(static_cast<float>(value(bits)) * factor);
  }
  static __device__ unsigned scaled_word(unsigned word, float factor) { return scaled_halves<Float16>(word, factor); }
};

/// The square of element `lane` of a few that are no whole vector.
template <class Element>
__device__ double square_at_end(const typename Element::Scalar* data, unsigned count, unsigned lane) {
  if (lane >= count) return 0;
  const double value = Element::value(__ldg(data + lane));
  return value * value;
}

/// A chunk in three parts: elements up to the first 16-byte boundary, vectors, elements behind the last one.
template <class Scalar>
struct ChunkParts {
  __device__ ChunkParts(Scalar* slice, const Chunk& chunk)
      : data(slice + (static_cast<std::uint64_t>(chunk.high_first) << 32 | chunk.low_first)) {
    constexpr unsigned kPerVector = sizeof(uint4) / sizeof(Scalar);
    const unsigned to_boundary =
        static_cast<unsigned>(-reinterpret_cast<std::uintptr_t>(data) % sizeof(uint4)) / sizeof(Scalar);
    lead = min(to_boundary, chunk.span);
    vectors = (chunk.span - lead) / kPerVector;
    behind = lead + vectors * kPerVector;
  }
  Scalar* data;
  unsigned lead;
  unsigned vectors;
  unsigned behind;  // where the last part begins
};

/// A lane's share of a chunk.
template <class Element>
__device__ double lane_squares(const void* slice, const Chunk& chunk, unsigned lane) {
  using Scalar = const typename Element::Scalar;
  const ChunkParts<Scalar> parts(static_cast<Scalar*>(slice), chunk);
  const unsigned vectors = parts.vectors;
  const auto* const body = reinterpret_cast<const uint4*>(parts.data + parts.lead);

  double sum = 0;
  for (unsigned first = lane; first < vectors; first += chunk.stride) {
    uint4 batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * kWarpLanes < vectors) batch[i] = __ldg(body + first + i * kWarpLanes);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * kWarpLanes < vectors) sum += Element::squares(batch[i]);
    }
  }
  sum += square_at_end<Element>(parts.data, parts.lead, lane);
  return sum + square_at_end<Element>(parts.data + parts.behind, chunk.span - parts.behind, lane);
}

/// Multiplies a lane's share of a chunk.
template <class Element>
__device__ void scale_lane(void* slice, const Chunk& chunk, unsigned lane, float factor) {
  using Scalar = typename Element::Scalar;
  const ChunkParts<Scalar> parts(static_cast<Scalar*>(slice), chunk);
  auto* const body = reinterpret_cast<uint4*>(parts.data + parts.lead);
  for (unsigned first = lane; first < parts.vectors; first += chunk.stride) {
    uint4 batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * kWarpLanes < parts.vectors) batch[i] = __ldcs(body + first + i * kWarpLanes);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * kWarpLanes >= parts.vectors) continue;
      const uint4 scaled{Element::scaled_word(batch[i].x, factor), Element::scaled_word(batch[i].y, factor),
                         Element::scaled_word(batch[i].z, factor), Element::scaled_word(batch[i].w, factor)};
      __stcs(body + first + i * kWarpLanes, scaled);
    }
  }
  const unsigned last = chunk.span - parts.behind;
  if (lane < parts.lead) parts.data[lane] = Element::scaled(parts.data[lane], factor);
  if (lane < last) parts.data[parts.behind + lane] = Element::scaled(parts.data[parts.behind + lane], factor);
}

/// A warp sums one chunk. Blocks are handed out by the device, so that a slow SM takes fewer.
__global__ void __launch_bounds__(kThreads, kBlocksAnSm)
    chunk_squares(const Chunk* __restrict__ chunks, unsigned count, const void* const* __restrict__ addresses,
                  double* __restrict__ partials) {
  const unsigned index = blockIdx.x * (kThreads / kWarpLanes) + threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  if (index >= count) return;
  const Chunk chunk = chunks[index];
  const void* const slice = addresses[chunk.slice];
  double sum = 0;
  if (slice != nullptr) {
    switch (chunk.type) {
      case ElementType::float32:
        sum = lane_squares<Float32>(slice, chunk, lane);
        break;
      case ElementType::bfloat16:
        sum = lane_squares<BFloat16>(slice, chunk, lane);
        break;
      case ElementType::float16:
        sum = lane_squares<Float16>(slice, chunk, lane);
        break;
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) partials[index] = sum;
}

/// A warp multiplies one chunk, unless there is nothing to multiply with.
__global__ void __launch_bounds__(kThreads)
    scale_chunks(const Chunk* __restrict__ chunks, unsigned count, void* const* __restrict__ addresses,
                 const Gate* __restrict__ gate) {
  const float factor = isnan(gate->total_norm) ? NAN : gate->coefficient;
  if (factor == 1.0f) return;
  const unsigned index = blockIdx.x * (kThreads / kWarpLanes) + threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  if (index >= count) return;
  const Chunk chunk = chunks[index];
  void* const slice = addresses[chunk.slice];
  if (slice == nullptr) return;
  switch (chunk.type) {
    case ElementType::float32:
      scale_lane<Float32>(slice, chunk, lane, factor);
      break;
    case ElementType::bfloat16:
      scale_lane<BFloat16>(slice, chunk, lane, factor);
      break;
    case ElementType::float16:
      scale_lane<Float16>(slice, chunk, lane, factor);
      break;
  }
}

/// The chunks of each unit in a fixed order; `kTeam` threads share a unit.
template <unsigned kTeam>
__global__ void __launch_bounds__(kThreads)
    unit_squares(const double* __restrict__ partials, const std::uint32_t* __restrict__ first_chunk, unsigned units,
                 double* __restrict__ sums) {
  static_assert(kTeam == kWarpLanes || kTeam == kThreads);
  const unsigned unit = blockIdx.x * (kThreads / kTeam) + threadIdx.x / kTeam;
  if (unit >= units) return;  // all threads of a team
  const unsigned last = first_chunk[unit + 1];
  double sum = 0;
  for (unsigned first = first_chunk[unit] + threadIdx.x % kTeam; first < last; first += kBatch * kTeam) {
    double batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      batch[i] = first + i * kTeam < last ? __ldg(partials + first + i * kTeam) : 0.0;
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) sum += batch[i];
  }
  sum = kTeam == kWarpLanes ? warp_sum(sum) : block_sum<kThreads>(sum);
  if (threadIdx.x % kTeam == 0) sums[unit] = sum;
}

/// Norms, and by the block that comes last the gate, from the blocks' sums in their order.
__global__ void __launch_bounds__(kThreads)
    norms_and_gate(const double* __restrict__ sums, unsigned units, double max_norm, double* block_sums,
                   unsigned* tickets, ClipOutputs outputs) {
  const unsigned unit = blockIdx.x * kThreads + threadIdx.x;
  double mine = 0;
  if (unit < units) {
    mine = sums[unit];
    if (outputs.norms != nullptr) outputs.norms[unit] = sqrt(mine);
    if (outputs.non_finite != nullptr) outputs.non_finite[unit] = isfinite(mine) ? 0 : 1;
  }
  const double of_block = block_sum<kThreads>(mine);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = of_block;
  if (!is_last_block(tickets)) return;

  double part = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) part += __ldcg(block_sums + block);
  const double total = block_sum<kThreads>(part);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(total);
  const bool finite = isfinite(norm);
  outputs.gate->total_norm = norm;
  outputs.gate->coefficient = finite ? static_cast<float>(fmin(max_norm / (norm + 1e-6), 1.0)) : 0.0f;
  outputs.gate->apply = finite && norm * outputs.gate->coefficient < kLargestNorm ? 1 : 0;
}

// With more chunks per unit than this a whole block sums them: one warp would take longer than a microsecond per
// thousand.
constexpr std::uint32_t kMostChunksOfAWarp = 512;

}  // namespace

struct UnitNorms::Impl {
  explicit Impl(std::uint32_t unit_count)
      : units(unit_count), block_sums(blocks_for(unit_count, kThreads) + 1), tickets(1) {
    check_cuda(cudaMemset(tickets.data(), 0, sizeof(unsigned)), "cudaMemset");
  }

  void upload(cudaStream_t stream) {
    const std::size_t chunk_bytes = table.chunks.size() * sizeof(Chunk);
    const std::size_t first_bytes = table.first_chunk.size() * sizeof(std::uint32_t);
    std::byte* const staging = uploaded.begin(chunk_bytes + first_bytes);
    if (chunk_bytes > 0) std::memcpy(staging, table.chunks.data(), chunk_bytes);
    std::memcpy(staging + chunk_bytes, table.first_chunk.data(), first_bytes);
    partials.reserve(table.chunks.size() + 1);
    uploaded.send(stream);
    chunks = static_cast<unsigned>(table.chunks.size());
    most_chunks = most_chunks_of_a_unit(table);
  }

  const Chunk* device_chunks() const { return reinterpret_cast<const Chunk*>(uploaded.device()); }
  const std::uint32_t* device_first_chunk() const {
    return reinterpret_cast<const std::uint32_t*>(device_chunks() + chunks);
  }

  bool fits(std::span<const Slice> given) const {
    return has_table && std::equal(given.begin(), given.end(), slices.begin(), slices.end(), has_shape_of);
  }

  /// Sends the slices' addresses, where they are not there.
  void send_addresses(std::span<const Slice> given, cudaStream_t stream) {
    const auto is_at = [](const Slice& slice, const void* address) { return slice.data == address; };
    if (std::equal(given.begin(), given.end(), sent.begin(), sent.end(), is_at)) return;
    sent.clear();  // until they are on the device
    auto* const staging = reinterpret_cast<const void**>(addresses.begin(given.size_bytes()));
    for (std::size_t i = 0; i < given.size(); ++i) staging[i] = given[i].data;
    addresses.send(stream);
    for (const Slice& slice : given) sent.push_back(slice.data);
  }

  std::uint32_t units;
  std::vector<Slice> slices;  // that the table was made of
  bool has_table = false;
  UploadedBytes addresses;
  std::vector<const void*> sent;
  ChunkTable table;
  unsigned chunks = 0;
  std::uint32_t most_chunks = 0;
  UploadedBytes uploaded;
  DeviceArray<double> partials;    // one per chunk
  DeviceArray<double> block_sums;  // one per block of `norms_and_gate`
  DeviceArray<unsigned> tickets;   // 0 between launches
};

UnitNorms::UnitNorms(std::uint32_t units) : impl_(std::make_unique<Impl>(units)) {}
UnitNorms::UnitNorms(UnitNorms&&) noexcept = default;
UnitNorms& UnitNorms::operator=(UnitNorms&&) noexcept = default;
UnitNorms::~UnitNorms() = default;

bool UnitNorms::sum_squares(std::span<const Slice> slices, double* sums, void* stream) {
  const bool anew = set_shapes(slices, stream);
  impl_->send_addresses(slices, stream_of(stream));
  sum_squares_at(reinterpret_cast<const void* const*>(impl_->addresses.device()), sums, stream);
  return anew;
}

bool UnitNorms::set_shapes(std::span<const Slice> slices, void* stream) {
  Impl& self = *impl_;
  if (self.fits(slices)) return false;
  build_chunks(slices, self.units, self.table);
  self.has_table = false;  // until it is on the device
  self.slices.assign(slices.begin(), slices.end());
  self.upload(stream_of(stream));
  self.has_table = true;
  return true;
}

void UnitNorms::sum_squares_at(const void* const* addresses, double* sums, void* stream) {
  Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  if (self.units == 0) return;
  if (self.chunks > 0) {
    chunk_squares<<<blocks_for(self.chunks, kThreads / kWarpLanes), kThreads, 0, on>>>(
        self.device_chunks(), self.chunks, addresses, self.partials.data());
    check_launch("chunk_squares");
  }
  if (self.most_chunks <= kMostChunksOfAWarp) {
    unit_squares<kWarpLanes><<<blocks_for(self.units, kThreads / kWarpLanes), kThreads, 0, on>>>(
        self.partials.data(), self.device_first_chunk(), self.units, sums);
  } else {
    unit_squares<kThreads>
        <<<self.units, kThreads, 0, on>>>(self.partials.data(), self.device_first_chunk(), self.units, sums);
  }
  check_launch("unit_squares");
}

void UnitNorms::scale_at(void* const* addresses, const Gate* gate, void* stream) {
  Impl& self = *impl_;
  if (self.chunks == 0) return;
  scale_chunks<<<blocks_for(self.chunks, kThreads / kWarpLanes), kThreads, 0, stream_of(stream)>>>(
      self.device_chunks(), self.chunks, addresses, gate);
  check_launch("scale_chunks");
}

void UnitNorms::clip(const double* sums, double max_norm, const ClipOutputs& outputs, void* stream) {
  Impl& self = *impl_;
  norms_and_gate<<<std::max(1u, blocks_for(self.units, kThreads)), kThreads, 0, stream_of(stream)>>>(
      sums, self.units, max_norm, self.block_sums.data(), self.tickets.data(), outputs);
  check_launch("norms_and_gate");
}

}  // namespace gnmr::kernels
