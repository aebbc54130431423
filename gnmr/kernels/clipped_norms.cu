// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "gnmr/kernels/clipped_norms.h"
#include "gnmr/kernels/host_mail.cuh"
#include "gnmr/kernels/launch_graph.cuh"

namespace gnmr::kernels {
namespace {

__global__ void __launch_bounds__(kCopyThreads) fetch_words(const Word* from, Word* to, std::size_t count) {
  copy_words(from, to, count);
}

__global__ void __launch_bounds__(kCopyThreads)
    send_numbers(const Gate* gate, const double* sums, std::size_t sum_words, Word* to) {
  constexpr std::size_t kGateWords = sizeof(Gate) / sizeof(Word);
  copy_words(reinterpret_cast<const Word*>(gate), to, kGateWords);
  copy_words(reinterpret_cast<const Word*>(sums), to + kGateWords, sum_words);
}

__global__ void set_factor(Gate* gate, float factor) { *gate = {.total_norm = 0, .coefficient = factor, .apply = 1}; }

/// One of the two steps that may be under way.
struct Slot : MailSlot {
  LaunchGraph sums;
  LaunchGraph rest;
  std::uint64_t sums_of = 0;  // shapes that they were recorded with; 0: none
  std::uint64_t rest_of = 0;
  double max_norm = -1;  // likewise
};

}  // namespace

struct ClippedNorms::Impl {
  explicit Impl(std::uint32_t unit_count)
      : units(unit_count), norms(unit_count), sums(unit_count + 1), gate(1), factor(1) {
    check_cuda(cudaMemset(gate.data(), 0, sizeof(Gate)), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  std::uint64_t number() const { return steps + 1; }
  Slot& slot() { return slots[number() % slots.size()]; }

  void queue_sums(const Slot& from, cudaStream_t stream) {
    fetch_words<<<blocks_to_copy(address_words), kCopyThreads, 0, stream>>>(
        reinterpret_cast<const Word*>(from.inputs.data()), reinterpret_cast<Word*>(addresses.data()), address_words);
    check_launch("fetch_words");
    norms.sum_squares_at(const_cast<const void* const*>(addresses.data()), sums.data(), stream);
  }

  void queue_rest(double max_norm, const Slot& to, cudaStream_t stream) {
    norms.clip(sums.data(), max_norm, {.gate = gate.data()}, stream);
    if (std::isfinite(max_norm)) norms.scale_at(addresses.data(), gate.data(), stream);
    const std::size_t sum_words = words_for(units * sizeof(double));
    send_numbers<<<blocks_to_copy(sum_words), kCopyThreads, 0, stream>>>(gate.data(), sums.data(), sum_words,
                                                                         reinterpret_cast<Word*>(to.results.data()));
    check_launch("send_numbers");
  }

  std::uint32_t units;
  UnitNorms norms;
  std::size_t address_words = 0;
  std::uint64_t shapes = 0;  // a number that changes with them
  std::uint64_t steps = 0;
  bool has_sums = false;  // of a step that is not finished
  DeviceArray<double> sums;
  DeviceArray<Gate> gate;
  DeviceArray<Gate> factor;  // of `scale`
  DeviceArray<void*> addresses;
  RecordingStream recording;
  std::array<Slot, 2> slots;  // after what they read and write: they wait for it
};

ClippedNorms::ClippedNorms(std::uint32_t units) : impl_(std::make_unique<Impl>(units)) {}
ClippedNorms::ClippedNorms(ClippedNorms&&) noexcept = default;
ClippedNorms& ClippedNorms::operator=(ClippedNorms&&) noexcept = default;
ClippedNorms::~ClippedNorms() = default;

void ClippedNorms::sum(std::span<const Slice> slices, void* stream) {
  Impl& self = *impl_;
  if (self.norms.set_shapes(slices, stream)) {
    self.addresses.reserve(slices.size() + 1);
    self.address_words = words_for(slices.size() * sizeof(void*));
    ++self.shapes;
  }
  Slot& slot = self.slot();
  slot.wait();  // only where nobody has read the numbers of two steps ago: the host would be too far ahead
  slot.number = 0;
  if (slot.sums_of != self.shapes) {
    slot.sums_of = 0;
    slot.inputs.reserve(slices.size() * sizeof(void*) + 1);
    slot.sums.record(self.recording, [&](cudaStream_t on) { self.queue_sums(slot, on); });
    slot.sums_of = self.shapes;
  }
  auto* const sent = reinterpret_cast<const void**>(slot.inputs.data());
  for (std::size_t i = 0; i < slices.size(); ++i) sent[i] = slices[i].data;
  slot.sums.launch(stream_of(stream));
  self.has_sums = true;
}

double* ClippedNorms::sums() const { return impl_->sums.data(); }
const Gate* ClippedNorms::gate() const { return impl_->gate.data(); }

NormsTicket ClippedNorms::finish(double max_norm, void* stream) {
  Impl& self = *impl_;
  if (!self.has_sums) throw Error("[clipped norms] expected `sum` before `finish`");
  Slot& slot = self.slot();
  if (slot.rest_of != self.shapes || slot.max_norm != max_norm) {
    slot.rest_of = 0;
    slot.results.reserve(sizeof(Gate) + self.units * sizeof(double));
    slot.rest.record(self.recording, [&](cudaStream_t on) { self.queue_rest(max_norm, slot, on); });
    slot.rest_of = self.shapes;
    slot.max_norm = max_norm;
  }
  slot.rest.launch(stream_of(stream));
  slot.sent(self.number(), stream_of(stream));
  self.has_sums = false;
  return {++self.steps};
}

void ClippedNorms::scale(double factor, void* stream) {
  Impl& self = *impl_;
  if (self.steps == 0 && !self.has_sums) throw Error("[clipped norms] expected `sum` before `scale`");
  set_factor<<<1, 1, 0, stream_of(stream)>>>(self.factor.data(), static_cast<float>(factor));
  check_launch("set_factor");
  self.norms.scale_at(self.addresses.data(), self.factor.data(), stream);
}

bool ClippedNorms::is_there(NormsTicket ticket) const {
  Slot& slot = slot_of(impl_->slots, ticket.number);
  if (slot.has_passed) return true;
  const cudaError_t status = cudaEventQuery(slot.there);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, "cudaEventQuery");
  slot.has_passed = true;
  return true;
}

StepNorms ClippedNorms::read(NormsTicket ticket) const {
  Slot& slot = slot_of(impl_->slots, ticket.number);
  slot.wait();
  StepNorms numbers;
  std::memcpy(&numbers.gate, slot.results.data(), sizeof(Gate));
  numbers.sums = {reinterpret_cast<const double*>(slot.results.data() + sizeof(Gate)), impl_->units};
  return numbers;
}

}  // namespace gnmr::kernels
