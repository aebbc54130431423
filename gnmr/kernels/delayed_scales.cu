// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/delayed_rings.h"
#include "gnmr/kernels/delayed_scales.h"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr float kSmallestScale = 0x1p-126f;
constexpr float kLargestScale = std::numeric_limits<float>::max();

/// All tensors on the device.
struct Tensors {
  const RingRule* rules;
  RingState* states;
  float* slots;
  float* scales;  // for quantization
  unsigned count;
};

/// formats::float32_scale.
__device__ __forceinline__ float scale_of(const RingRule& rule, float amax) {
  return amax > 0 ? fmaxf(__fdiv_rn(amax, rule.largest), kSmallestScale) : 1.0f;
}

/// The largest or newest of a history that takes in this amax, in every lane; 0 where it is empty.
__device__ __forceinline__ float chosen_amax(const RingRule& rule, const RingState& state, const float* ring,
                                             float amax, unsigned lane) {
  const bool enters = isfinite(amax);
  if (rule.takes_newest && enters) return amax;
  if (rule.takes_newest) return state.size == 0 ? 0.0f : ring[state.next == 0 ? rule.length - 1 : state.next - 1];
  // Magnitudes as bits are ordered as numbers; there may be a -0.
  unsigned largest = enters ? __float_as_uint(amax) & 0x7fffffffu : 0u;
  for (unsigned slot = lane; slot < state.size; slot += kWarpLanes) {
    const bool leaves = enters && slot == state.next;  // of a full ring, the oldest
    if (!leaves) largest = max(largest, __float_as_uint(ring[slot]) & 0x7fffffffu);
  }
  return __uint_as_float(__reduce_max_sync(0xffffffffu, largest));
}

/// What an observation does to the scale.
struct Renewal {
  float scale;     // the new one; 0: the scale stays
  bool is_answer;  // the old one does not fit, and may be renewed for that
  bool is_due;     // it is anyway
};

/// The same in every lane; nothing is written.
__device__ __forceinline__ Renewal renewal(const RingRule& rule, const RingState& state, const float* ring, float amax,
                                           const formats::Refresh& refresh, unsigned lane) {
  const bool is_due = state.observations % rule.interval == 0;
  const std::uint32_t debt = state.debt > 0 ? state.debt - 1 : 0;
  const bool may_refresh =
      refresh.factor > 0 && state.observations > 0 && debt + refresh.gap <= refresh.burst * refresh.gap;
  if (!is_due && !may_refresh) return {0, false, false};
  const float chosen = chosen_amax(rule, state, ring, amax, lane);
  if (!(chosen > 0)) return {0, false, is_due};
  const float fresh = fminf(fmaxf(ldexpf(scale_of(rule, chosen), rule.margin), kSmallestScale), kLargestScale);
  const bool misfits = fresh > __fmul_rn(refresh.factor, state.scale) || fresh < __fmul_rn(0.5f, state.scale);
  return {is_due || misfits ? fresh : 0.0f, may_refresh && misfits, is_due};
}

/// A warp a tensor.
__global__ void __launch_bounds__(kThreads)
    observe_amaxes(Tensors tensors, const float* __restrict__ amaxes, formats::Refresh refresh) {
  const unsigned tensor = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  if (tensor >= tensors.count) return;
  const RingRule rule = tensors.rules[tensor];
  const float amax = amaxes[rule.amax];
  if (amax < 0) return;
  RingState state = tensors.states[tensor];
  float* const ring = tensors.slots + rule.first;
  const Renewal now = renewal(rule, state, ring, amax, refresh, lane);
  __syncwarp();  // every lane has read the state and its ring
  if (lane != 0) return;
  if (isfinite(amax)) {
    ring[state.next] = amax;
    state.next = state.next + 1 == rule.length ? 0 : state.next + 1;
    state.size = min(state.size + 1, rule.length);
  }
  if (state.debt > 0) --state.debt;
  if (now.is_answer) {
    state.debt += refresh.gap;
    if (!now.is_due) ++state.refreshes;
  }
  ++state.observations;
  if (now.scale > 0) state.scale = now.scale;
  tensors.states[tensor] = state;
  tensors.scales[tensor] = state.scale;
}

/// A warp a tensor; several may have the same totals.
__global__ void __launch_bounds__(kThreads)
    leave_out(Tensors tensors, const float* __restrict__ amaxes, formats::Refresh refresh, ErrorTotals* totals) {
  const unsigned tensor = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  if (tensor >= tensors.count) return;
  const RingRule rule = tensors.rules[tensor];
  const float amax = amaxes[rule.amax];
  if (!(amax >= 0)) return;
  const Renewal next = renewal(rule, tensors.states[tensor], tensors.slots + rule.first, amax, refresh, lane);
  if (lane == 0 && next.is_answer) totals[rule.totals] = {0, 0, 0};
}

/// `amax` null: that of the tensor among `amaxes`.
__global__ void __launch_bounds__(kThreads)
    make_first_scales(Tensors tensors, unsigned first, unsigned last, const float* amaxes, const float* amax) {
  const unsigned tensor = first + blockIdx.x * kThreads + threadIdx.x;
  if (tensor >= last || tensors.states[tensor].observations > 0) return;
  const RingRule& rule = tensors.rules[tensor];
  const float mine = amax != nullptr ? *amax : amaxes[rule.amax];
  if (!(mine < 0)) tensors.scales[tensor] = scale_of(rule, mine);
}

__global__ void __launch_bounds__(kThreads) fill(float* numbers, std::uint64_t count, float value) {
  const std::uint64_t index = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < count) numbers[index] = value;
}

__global__ void __launch_bounds__(kThreads) take_larger(const float* found, float* amaxes, std::uint64_t count) {
  const std::uint64_t index = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < count && found[index] > amaxes[index]) amaxes[index] = found[index];
}

template <class Item>
void copy(Item* to, const Item* from, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, count * sizeof(Item), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

}  // namespace

struct DelayedScales::Impl {
  explicit Impl(std::span<const DelayedTensor> tensors)
      : rules(ring_rules(tensors)), device_rules(rules.size()), states(rules.size()), scales(rules.size()) {
    slots.reserve(rules.empty() ? 0 : rules.back().first + rules.back().length);
  }

  unsigned count() const { return static_cast<unsigned>(rules.size()); }
  Tensors tensors() const { return {device_rules.data(), states.data(), slots.data(), scales.data(), count()}; }

  std::vector<RingRule> rules;
  DeviceArray<RingRule> device_rules;
  DeviceArray<RingState> states;
  DeviceArray<float> slots;
  DeviceArray<float> scales;
};

DelayedScales::DelayedScales(std::span<const DelayedTensor> tensors) : impl_(std::make_unique<Impl>(tensors)) {
  copy(impl_->device_rules.data(), impl_->rules.data(), impl_->rules.size(), nullptr);
  load(std::vector<formats::DelayedState>(tensors.size()), nullptr);
}
DelayedScales::DelayedScales(DelayedScales&&) noexcept = default;
DelayedScales& DelayedScales::operator=(DelayedScales&&) noexcept = default;
DelayedScales::~DelayedScales() = default;

const float* DelayedScales::scales() const { return impl_->scales.data(); }

void DelayedScales::first_scales(const float* amaxes, void* stream) {
  const unsigned count = impl_->count();
  if (count == 0) return;
  make_first_scales<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(impl_->tensors(), 0, count, amaxes,
                                                                                     nullptr);
  check_launch("make_first_scales");
}

void DelayedScales::first_scale(std::uint32_t tensor, const float* amax, void* stream) {
  if (tensor >= impl_->count()) {
    throw Error("[delayed scales] expected a tensor below " + std::to_string(impl_->count()) + ", got " +
                std::to_string(tensor));
  }
  make_first_scales<<<1, kThreads, 0, stream_of(stream)>>>(impl_->tensors(), tensor, tensor + 1, nullptr, amax);
  check_launch("make_first_scales");
}

void DelayedScales::observe(const float* amaxes, void* stream, const formats::Refresh& refresh) {
  if (impl_->count() == 0) return;
  observe_amaxes<<<blocks_for(impl_->count(), kWarps), kThreads, 0, stream_of(stream)>>>(impl_->tensors(), amaxes,
                                                                                         refresh);
  check_launch("observe_amaxes");
}

void DelayedScales::leave_out_answered(const float* amaxes, const formats::Refresh& refresh, ErrorTotals* totals,
                                       void* stream) const {
  if (impl_->count() == 0 || !(refresh.factor > 0)) return;
  leave_out<<<blocks_for(impl_->count(), kWarps), kThreads, 0, stream_of(stream)>>>(impl_->tensors(), amaxes, refresh,
                                                                                    totals);
  check_launch("leave_out");
}

std::vector<formats::DelayedState> DelayedScales::save(void* stream) const {
  const Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  Rings rings = rings_of(self.rules, std::vector<formats::DelayedState>(self.rules.size()));
  copy(rings.states.data(), self.states.data(), rings.states.size(), on);
  copy(rings.slots.data(), self.slots.data(), rings.slots.size(), on);
  check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  return states_of(self.rules, rings);
}

void DelayedScales::load(std::span<const formats::DelayedState> states, void* stream) {
  const Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  const Rings rings = rings_of(self.rules, states);
  std::vector<float> scales;
  for (const RingState& state : rings.states) scales.push_back(state.scale);
  copy(self.states.data(), rings.states.data(), rings.states.size(), on);
  copy(self.slots.data(), rings.slots.data(), rings.slots.size(), on);
  copy(self.scales.data(), scales.data(), scales.size(), on);
  check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
}

void clear_amaxes(float* amaxes, std::uint64_t count, void* stream) {
  if (count == 0) return;
  fill<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(amaxes, count, -1.0f);
  check_launch("fill");
}

void keep_larger(const float* found, float* amaxes, std::uint64_t count, void* stream) {
  if (count == 0) return;
  take_larger<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(found, amaxes, count);
  check_launch("take_larger");
}

}  // namespace gnmr::kernels
