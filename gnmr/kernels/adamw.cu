// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gnmr/kernels/adamw.h"
#include "gnmr/kernels/cuda_memory.h"

namespace gnmr::kernels {
namespace {

// A block takes a chunk of one tensor; a thread four neighbouring elements at a time, twice at once: in float32 that is
// 128 bytes per thread in flight, 128 KB on an SM with the four blocks that its registers hold.
constexpr unsigned kThreads = 256;
constexpr unsigned kPerThread = 4;
constexpr unsigned kBatch = 2;
constexpr unsigned kChunkElements = kThreads * kPerThread * kBatch * 4;

using BFloat16 = std::uint16_t;

struct Tensor {
  void* value;        // what is updated: the parameter, or its master copy
  BFloat16* rounded;  // the parameter beside a master copy; null: none
  float* mean;
  float* square;
  float* steps;
  std::uint64_t count;
  double weight_decay;
  ElementType value_type;
  ElementType gradient_type;
  bool is_aligned;  // all but the gradient, for four elements at a time
};

struct TensorChunk {
  std::uint32_t tensor;
  std::uint32_t index;  // of the chunk in its tensor
};

/// What a step number makes of the settings, one per tensor.
struct StepFactors {
  float step_size;
  float inverse_root_correction;
  float decay;  // learning rate times weight decay
};

/// What is the same for all elements of a step.
struct Moments {
  double beta1;
  double one_minus_beta1;
  double beta2;
  double one_minus_beta2;
  float epsilon;
};

/// Counts the step of each tensor, if there is one, and makes its factors.
__global__ void begin_step(const Tensor* __restrict__ tensors, const void* const* __restrict__ gradients,
                           unsigned count, AdamWSettings settings, const Gate* gate, StepFactors* factors) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count || gate->apply == 0 || gradients[index] == nullptr || tensors[index].count == 0) return;
  const Tensor& tensor = tensors[index];
  const double learning_rate =
      settings.device_learning_rate != nullptr ? *settings.device_learning_rate : settings.learning_rate;
  const float steps = *tensor.steps + 1.0f;
  *tensor.steps = steps;
  factors[index] = {
      .step_size = static_cast<float>(learning_rate / (1.0 - pow(settings.beta1, static_cast<double>(steps)))),
      .inverse_root_correction = static_cast<float>(1.0 / sqrt(1.0 - pow(settings.beta2, static_cast<double>(steps)))),
      .decay = static_cast<float>(learning_rate * tensor.weight_decay),
  };
}

// Addresses come out of a table: the intrinsics say that they are global ones. L1 has no use for what is read once.
struct Floats {
  float at[kPerThread];
};

__device__ float widened(std::uint32_t bits) { return __uint_as_float(bits << 16); }
__device__ BFloat16 rounded(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }

__device__ Floats load_four(const float* data) {
  const float4 four = __ldcg(reinterpret_cast<const float4*>(data));
  return {four.x, four.y, four.z, four.w};
}
__device__ Floats load_four(const BFloat16* data) {
  const uint2 four = __ldcg(reinterpret_cast<const uint2*>(data));
  return {widened(four.x), __uint_as_float(four.x & 0xffff0000u), widened(four.y),
          __uint_as_float(four.y & 0xffff0000u)};
}
__device__ void store_four(float* data, const Floats& four) {
  __stcg(reinterpret_cast<float4*>(data), float4{four.at[0], four.at[1], four.at[2], four.at[3]});
}
__device__ void store_four(BFloat16* data, const Floats& four) {
  const auto pair = [](float low, float high) {
    return rounded(low) | static_cast<std::uint32_t>(rounded(high)) << 16;
  };
  __stcg(reinterpret_cast<uint2*>(data), uint2{pair(four.at[0], four.at[1]), pair(four.at[2], four.at[3])});
}
__device__ float load_one(const float* data) { return __ldcg(data); }
__device__ float load_one(const BFloat16* data) { return widened(__ldcg(data)); }
__device__ void store_one(float* data, float value) { __stcg(data, value); }
__device__ void store_one(BFloat16* data, float value) { __stcg(data, rounded(value)); }

/// One element. Moments are made in double, as torch does: in float a beta near 1 would be off by its own rounding.
__device__ void update(float& value, float gradient, float& mean, float& square, const StepFactors& factors,
                       const Moments& moments) {
  const double wide = gradient;
  mean = static_cast<float>(moments.beta1 * mean + moments.one_minus_beta1 * wide);
  square = static_cast<float>(moments.beta2 * square + moments.one_minus_beta2 * wide * wide);
  const float decayed = fmaf(-factors.decay, value, value);
  const float root = fmaf(sqrtf(square), factors.inverse_root_correction, moments.epsilon);
  value = decayed - factors.step_size * mean / root;
}

template <class Value, class Gradient>
struct Pointers {
  Value* value;
  BFloat16* rounded;
  const Gradient* gradient;
  float* mean;
  float* square;
};

/// Whole groups of four, all of them aligned.
template <class Value, class Gradient>
__device__ void update_groups(const Pointers<Value, Gradient>& to, unsigned groups, float coefficient,
                              const StepFactors& factors, const Moments& moments) {
  for (unsigned first = threadIdx.x; first < groups; first += kBatch * kThreads) {
    Floats value[kBatch], gradient[kBatch], mean[kBatch], square[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned at = (first + i * kThreads) * kPerThread;
      if (first + i * kThreads >= groups) continue;
      value[i] = load_four(to.value + at);
      gradient[i] = load_four(to.gradient + at);
      mean[i] = load_four(to.mean + at);
      square[i] = load_four(to.square + at);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned at = (first + i * kThreads) * kPerThread;
      if (first + i * kThreads >= groups) continue;
#pragma unroll
      for (unsigned k = 0; k < kPerThread; ++k) {
        update(value[i].at[k], gradient[i].at[k] * coefficient, mean[i].at[k], square[i].at[k], factors, moments);
      }
      store_four(to.value + at, value[i]);
      if (to.rounded != nullptr) store_four(to.rounded + at, value[i]);
      store_four(to.mean + at, mean[i]);
      store_four(to.square + at, square[i]);
    }
  }
}

__device__ bool is_aligned_for_four(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % (kPerThread * bytes) == 0;
}

template <class Value, class Gradient>
__device__ void update_chunk(const Tensor& tensor, const void* gradient, std::uint64_t first, float coefficient,
                             const StepFactors& factors, const Moments& moments) {
  const auto count = static_cast<unsigned>(min(tensor.count - first, static_cast<std::uint64_t>(kChunkElements)));
  const Pointers<Value, Gradient> to{.value = static_cast<Value*>(tensor.value) + first,
                                     .rounded = tensor.rounded != nullptr ? tensor.rounded + first : nullptr,
                                     .gradient = static_cast<const Gradient*>(gradient) + first,
                                     .mean = tensor.mean + first,
                                     .square = tensor.square + first};
  const bool in_groups = tensor.is_aligned && is_aligned_for_four(gradient, sizeof(Gradient));
  const unsigned groups = in_groups ? count / kPerThread : 0;
  update_groups(to, groups, coefficient, factors, moments);
  for (unsigned i = groups * kPerThread + threadIdx.x; i < count; i += kThreads) {
    float value = load_one(to.value + i);
    float mean = load_one(to.mean + i);
    float square = load_one(to.square + i);
    update(value, load_one(to.gradient + i) * coefficient, mean, square, factors, moments);
    store_one(to.value + i, value);
    if (to.rounded != nullptr) store_one(to.rounded + i, value);
    store_one(to.mean + i, mean);
    store_one(to.square + i, square);
  }
}

__global__ void __launch_bounds__(kThreads)
    update_tensors(const Tensor* __restrict__ tensors, const TensorChunk* __restrict__ chunks,
                   const void* const* __restrict__ gradients, const StepFactors* __restrict__ factors, Moments moments,
                   const Gate* __restrict__ gate) {
  if (gate->apply == 0) return;
  const TensorChunk chunk = chunks[blockIdx.x];
  const void* const gradient = gradients[chunk.tensor];
  if (gradient == nullptr) return;
  const Tensor tensor = tensors[chunk.tensor];
  const StepFactors mine = factors[chunk.tensor];
  const std::uint64_t first = static_cast<std::uint64_t>(chunk.index) * kChunkElements;
  const float coefficient = gate->coefficient;
  const bool short_value = tensor.value_type == ElementType::bfloat16;
  const bool short_gradient = tensor.gradient_type == ElementType::bfloat16;
  if (short_value && short_gradient) {
    update_chunk<BFloat16, BFloat16>(tensor, gradient, first, coefficient, mine, moments);
  } else if (short_value) {
    update_chunk<BFloat16, float>(tensor, gradient, first, coefficient, mine, moments);
  } else if (short_gradient) {
    update_chunk<float, BFloat16>(tensor, gradient, first, coefficient, mine, moments);
  } else {
    update_chunk<float, float>(tensor, gradient, first, coefficient, mine, moments);
  }
}

bool is_aligned_for_four(const void* data, ElementType type) {
  return reinterpret_cast<std::uintptr_t>(data) % (kPerThread * bytes_of(type)) == 0;
}

Tensor on_device(const AdamWTensor& tensor) {
  const bool has_master = tensor.master != nullptr;
  return {
      .value = has_master ? tensor.master : tensor.parameter,
      .rounded = has_master ? static_cast<BFloat16*>(tensor.parameter) : nullptr,
      .mean = tensor.mean,
      .square = tensor.square,
      .steps = tensor.steps,
      .count = tensor.count,
      .weight_decay = tensor.weight_decay,
      .value_type = has_master ? ElementType::float32 : tensor.parameter_type,
      .gradient_type = tensor.gradient_type,
      .is_aligned = is_aligned_for_four(tensor.parameter, tensor.parameter_type) &&
                    is_aligned_for_four(tensor.mean, ElementType::float32) &&
                    is_aligned_for_four(tensor.square, ElementType::float32) &&
                    is_aligned_for_four(tensor.master, ElementType::float32),
  };
}

/// Whether two are the same, wherever their gradients are.
bool has_table_of(const AdamWTensor& tensor, AdamWTensor other) {
  other.gradient = tensor.gradient;
  return tensor == other;
}

}  // namespace

struct AdamW::Impl {
  /// The tensors and their chunks, to the device.
  void upload(cudaStream_t stream) {
    std::vector<Tensor> tensors;
    std::vector<TensorChunk> table;
    for (const AdamWTensor& tensor : given) {
      const auto index = static_cast<std::uint32_t>(tensors.size());
      tensors.push_back(on_device(tensor));
      const std::uint64_t pieces = (tensor.count + kChunkElements - 1) / kChunkElements;
      for (std::uint32_t piece = 0; piece < pieces; ++piece) table.push_back({.tensor = index, .index = piece});
    }
    const std::size_t tensor_bytes = tensors.size() * sizeof(Tensor);
    const std::size_t chunk_bytes = table.size() * sizeof(TensorChunk);
    std::byte* const staging = uploaded.begin(std::max<std::size_t>(1, tensor_bytes + chunk_bytes));
    if (!tensors.empty()) std::memcpy(staging, tensors.data(), tensor_bytes);
    if (!table.empty()) std::memcpy(staging + tensor_bytes, table.data(), chunk_bytes);
    factors.reserve(tensors.size() + 1);
    uploaded.send(stream);
    chunk_count = static_cast<unsigned>(table.size());
  }

  /// Sends the gradients' addresses, where they are not there.
  void send_gradients(std::span<const AdamWTensor> tensors, cudaStream_t stream) {
    const auto is_at = [](const AdamWTensor& tensor, const void* address) { return tensor.gradient == address; };
    if (std::equal(tensors.begin(), tensors.end(), sent.begin(), sent.end(), is_at)) return;
    sent.clear();  // until they are on the device
    auto* const staging = reinterpret_cast<const void**>(gradients.begin(tensors.size() * sizeof(const void*)));
    for (std::size_t i = 0; i < tensors.size(); ++i) staging[i] = tensors[i].gradient;
    gradients.send(stream);
    for (const AdamWTensor& tensor : tensors) sent.push_back(tensor.gradient);
  }

  std::vector<AdamWTensor> given;  // that the table was made of
  bool has_table = false;
  unsigned chunk_count = 0;
  UploadedBytes uploaded;
  UploadedBytes gradients;
  std::vector<const void*> sent;
  DeviceArray<StepFactors> factors;  // one per tensor
};

AdamW::AdamW() : impl_(std::make_unique<Impl>()) {}
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;
AdamW::~AdamW() = default;

bool AdamW::step(std::span<const AdamWTensor> tensors, const AdamWSettings& settings, const Gate* gate, void* stream) {
  check_tensors(tensors);
  const bool anew = set_tensors(tensors, stream);
  impl_->send_gradients(tensors, stream_of(stream));
  step_at(reinterpret_cast<const void* const*>(impl_->gradients.device()), settings, gate, stream);
  return anew;
}

bool AdamW::set_tensors(std::span<const AdamWTensor> tensors, void* stream) {
  Impl& self = *impl_;
  if (self.has_table &&
      std::equal(tensors.begin(), tensors.end(), self.given.begin(), self.given.end(), has_table_of)) {
    return false;
  }
  check_tensors(tensors);
  self.has_table = false;  // until it is on the device
  self.given.assign(tensors.begin(), tensors.end());
  self.upload(stream_of(stream));
  self.has_table = true;
  return true;
}

void AdamW::step_at(const void* const* gradients, const AdamWSettings& settings, const Gate* gate, void* stream) {
  Impl& self = *impl_;
  const cudaStream_t on = stream_of(stream);
  if (self.chunk_count == 0) return;
  const auto* const table = reinterpret_cast<const Tensor*>(self.uploaded.device());
  const auto count = static_cast<unsigned>(self.given.size());
  begin_step<<<blocks_for(count, kThreads), kThreads, 0, on>>>(table, gradients, count, settings, gate,
                                                               self.factors.data());
  check_launch("begin_step");
  const Moments moments{.beta1 = settings.beta1,
                        .one_minus_beta1 = 1.0 - settings.beta1,
                        .beta2 = settings.beta2,
                        .one_minus_beta2 = 1.0 - settings.beta2,
                        .epsilon = static_cast<float>(settings.epsilon)};
  update_tensors<<<self.chunk_count, kThreads, 0, on>>>(table, reinterpret_cast<const TensorChunk*>(table + count),
                                                        gradients, self.factors.data(), moments, gate);
  check_launch("update_tensors");
}

}  // namespace gnmr::kernels
