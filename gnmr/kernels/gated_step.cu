// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gnmr/kernels/gated_step.h"
#include "gnmr/kernels/host_mail.cuh"
#include "gnmr/kernels/launch_graph.cuh"

namespace gnmr::kernels {
namespace {

/// What the host sends the device for a step. Addresses of gradients follow, those of the optimizer's, limits of errors
/// and flags.
struct Sent {
  double learning_rate;
  const double* loss;
  HoldRule hold;
  std::uint8_t judges_errors;
};
static_assert(sizeof(Sent) % alignof(void*) == 0);

/// What the device sends the host. The sums of all parameters follow, and the bytes that the host wants with them.
struct Results {
  Gate gate;
  double loss;
  StepAlarm alarm;
};
static_assert(sizeof(Results) % alignof(double) == 0);

/// Takes over what the host sent, and the loss, which may not be there any more when the step is over.
__global__ void __launch_bounds__(kCopyThreads) fetch(const Sent* sent, Word* to, std::size_t count, Results* results) {
  copy_words(reinterpret_cast<const Word*>(sent), to, count);
  if (blockIdx.x == 0 && threadIdx.x == 0) results->loss = *sent->loss;
}

/// Sends the host the results and, behind them, what else it wants.
__global__ void __launch_bounds__(kCopyThreads)
    send(const Results* results, std::size_t result_words, const Word* more, std::size_t more_words, Word* to) {
  copy_words(reinterpret_cast<const Word*>(results), to, result_words);
  copy_words(more, to + result_words, more_words);
}

/// What errors are judged with; without sites none are.
struct ErrorJudge {
  UnitGather lists;
  std::uint32_t sites = 0;
  DeviceArray<std::uint8_t> patrol;  // one patrol_flag per unit
};

/// What a recording holds beside addresses of this object's own memory.
struct Recorded {
  std::uint64_t shapes = 0;  // a number that changes with them
  const void* lists = nullptr;
  const double* more_squares = nullptr;
  const ErrorTotals* totals = nullptr;
  DeviceBytes more = {};
  double beta1 = 0, beta2 = 0, epsilon = 0;

  bool operator==(const Recorded&) const = default;
};

/// One of the two steps that may be under way.
struct Slot : MailSlot {
  LaunchGraph graph;
  Recorded recorded;
  std::size_t more_bytes = 0;
};

}  // namespace

struct GatedStep::Impl {
  explicit Impl(const GatedStepSettings& given)
      : settings(given),
        norms(given.parameters),
        signals(given.units, given.signals),
        unit_norms(given.units + 1),
        sampled(given.units + 1),
        results(result_bytes(0)) {
    errors.patrol.reserve(given.units + 1);
    // Padding travels too.
    check_cuda(cudaMemset(results.data(), 0, result_bytes(0)), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  std::size_t result_bytes(std::size_t more) const {
    return sizeof(Results) + settings.parameters * sizeof(double) + more;
  }
  static constexpr std::size_t kGradientsAt = sizeof(Sent);
  std::size_t optimized_at() const { return kGradientsAt + gradient_count * sizeof(const void*); }
  std::size_t limits_at() const { return optimized_at() + gradient_of_tensor.size() * sizeof(const void*); }
  std::size_t limit_count() const { return std::size_t{settings.units} * errors.sites; }
  std::size_t flags_at() const { return limits_at() + limit_count() * sizeof(float); }
  std::size_t input_words() const { return words_for(flags_at() + settings.units); }

  /// What has to be on the device before the launches; they are recorded anew where it changed.
  void prepare(const GatedStepInputs& inputs, void* stream) {
    if (norms.set_shapes(inputs.gradients, stream)) ++shapes;
    gather.set(inputs.lists, stream);
    gradient_count = inputs.gradients.size();
    if (reserved_words == input_words()) return;
    reserved_words = input_words();
    sent.reserve(reserved_words);
    ++shapes;
  }

  void write_sent(const GatedStepInputs& inputs, std::byte* to) const {
    const Sent first{.learning_rate = inputs.optimizer.learning_rate,
                     .loss = inputs.loss,
                     .hold = inputs.hold,
                     .judges_errors = inputs.limits.empty() ? std::uint8_t{0} : std::uint8_t{1}};
    std::memcpy(to, &first, sizeof first);
    auto* const gradients = reinterpret_cast<const void**>(to + kGradientsAt);
    for (std::size_t i = 0; i < inputs.gradients.size(); ++i) gradients[i] = inputs.gradients[i].data;
    auto* const optimized = reinterpret_cast<const void**>(to + optimized_at());
    for (std::size_t i = 0; i < gradient_of_tensor.size(); ++i) {
      optimized[i] = inputs.gradients[gradient_of_tensor[i]].data;
    }
    if (!inputs.limits.empty()) std::memcpy(to + limits_at(), inputs.limits.data(), inputs.limits.size_bytes());
    std::copy(inputs.flags.begin(), inputs.flags.end(), reinterpret_cast<std::uint8_t*>(to + flags_at()));
  }

  /// All launches of a step.
  void queue(const GatedStepInputs& inputs, const Slot& slot, cudaStream_t stream) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(sent.data());
    const auto* const first = reinterpret_cast<const Sent*>(bytes);
    auto* const found = reinterpret_cast<Results*>(results.data());
    auto* const sums = reinterpret_cast<double*>(found + 1);
    fetch<<<blocks_to_copy(reserved_words), kCopyThreads, 0, stream>>>(
        reinterpret_cast<const Sent*>(slot.inputs.data()), sent.data(), reserved_words, found);
    check_launch("fetch");
    norms.sum_squares_at(reinterpret_cast<const void* const*>(bytes + kGradientsAt), sums, stream);
    norms.clip(sums, settings.max_norm, {.gate = &found->gate}, stream);
    gather.run(sums, settings.parameters, inputs.more_squares, unit_norms.data(), sampled.data(), stream);
    const bool has_errors = errors.sites > 0 && inputs.totals != nullptr;
    if (has_errors) {
      errors.lists.judge({.totals = inputs.totals,
                          .limits = reinterpret_cast<const float*>(bytes + limits_at()),
                          .wanted = &first->judges_errors,
                          .sites = errors.sites},
                         errors.patrol.data(), stream);
    }
    signals.observe({.norms = unit_norms.data(),
                     .sampled = sampled.data(),
                     .patrol = has_errors ? errors.patrol.data() : nullptr,
                     .flags = reinterpret_cast<const std::uint8_t*>(bytes + flags_at()),
                     .hold = &first->hold},
                    HoldRule::never, {.gate = &found->gate, .alarm = &found->alarm}, stream);
    AdamWSettings optimizer = inputs.optimizer;
    optimizer.device_learning_rate = &first->learning_rate;
    adamw.step_at(reinterpret_cast<const void* const*>(bytes + optimized_at()), optimizer, &found->gate, stream);
    const std::size_t result_words = words_for(result_bytes(0));
    const std::size_t more_words = words_for(inputs.more.count);
    send<<<blocks_to_copy(result_words + more_words), kCopyThreads, 0, stream>>>(
        found, result_words, static_cast<const Word*>(inputs.more.data), more_words,
        reinterpret_cast<Word*>(slot.results.data()));
    check_launch("send");
  }

  GatedStepSettings settings;
  UnitNorms norms;
  UnitGather gather;
  ErrorJudge errors;
  UnitSignals signals;
  AdamW adamw;
  std::vector<std::uint32_t> gradient_of_tensor;
  std::size_t least_gradients = 0;  // that these need
  std::size_t gradient_count = 0;
  std::size_t reserved_words = 0;
  std::uint64_t shapes = 0;
  std::uint64_t steps = 0;
  std::uint64_t recordings = 0;
  DeviceArray<double> unit_norms;
  DeviceArray<std::uint8_t> sampled;
  DeviceArray<Word> sent;
  DeviceArray<std::byte> results;
  RecordingStream recording;
  std::array<Slot, 2> slots;  // after what they read and write: they wait for it
};

GatedStep::GatedStep(const GatedStepSettings& settings) : impl_(std::make_unique<Impl>(settings)) {}
GatedStep::GatedStep(GatedStep&&) noexcept = default;
GatedStep& GatedStep::operator=(GatedStep&&) noexcept = default;
GatedStep::~GatedStep() = default;

void GatedStep::set_tensors(std::span<const AdamWTensor> tensors, std::span<const std::uint32_t> gradient_of_tensor,
                            void* stream) {
  if (tensors.size() != gradient_of_tensor.size()) {
    throw Error("[gated step] expected gradients of " + std::to_string(tensors.size()) + " tensors, got " +
                std::to_string(gradient_of_tensor.size()));
  }
  if (impl_->adamw.set_tensors(tensors, stream)) ++impl_->shapes;
  impl_->gradient_of_tensor.assign(gradient_of_tensor.begin(), gradient_of_tensor.end());
  impl_->least_gradients = 0;
  for (const std::uint32_t index : gradient_of_tensor) {
    impl_->least_gradients = std::max(impl_->least_gradients, std::size_t{index} + 1);
  }
}

void GatedStep::set_errors(const UnitLists& lists, std::uint32_t sites, void* stream) {
  const std::size_t expected = std::size_t{impl_->settings.units} * sites + 1;
  if (lists.first.size() != expected) {
    throw Error("[gated step] expected lists of " + std::to_string(expected - 1) + " sites, got " +
                std::to_string(lists.first.size()) + " - 1");
  }
  if (!impl_->errors.lists.set(lists, stream) && impl_->errors.sites == sites) return;
  impl_->errors.sites = sites;
  ++impl_->shapes;
}

UnitSignals& GatedStep::signals() { return impl_->signals; }

StepTicket GatedStep::run(const GatedStepInputs& inputs, void* stream) {
  Impl& self = *impl_;
  if (inputs.flags.size() != self.settings.units || inputs.lists.first.size() != std::size_t{self.settings.units} + 1) {
    throw Error("[gated step] expected flags and lists of " + std::to_string(self.settings.units) + " units, got " +
                std::to_string(inputs.flags.size()) + " and " + std::to_string(inputs.lists.first.size()) + " - 1");
  }
  if (!inputs.limits.empty() && (inputs.limits.size() != self.limit_count() || inputs.totals == nullptr)) {
    throw Error("[gated step] expected errors with " + std::to_string(self.limit_count()) + " limits or none, got " +
                std::to_string(inputs.limits.size()));
  }
  if (inputs.gradients.size() < self.least_gradients) {
    throw Error("[gated step] expected at least " + std::to_string(self.least_gradients) + " gradients, got " +
                std::to_string(inputs.gradients.size()));
  }
  if (inputs.more.count % sizeof(Word) != 0 || reinterpret_cast<std::uintptr_t>(inputs.more.data) % sizeof(Word) != 0) {
    throw Error("[gated step] expected whole words of 4 bytes, got " + std::to_string(inputs.more.count) + " bytes");
  }
  self.prepare(inputs, stream);
  const std::uint64_t number = self.steps + 1;
  Slot& slot = self.slots[number % self.slots.size()];
  slot.wait();  // only where nobody has read the numbers of two steps ago: the host would be too far ahead
  const Recorded now{.shapes = self.shapes,
                     .lists = self.gather.place(),
                     .more_squares = inputs.more_squares,
                     .totals = inputs.totals,
                     .more = inputs.more,
                     .beta1 = inputs.optimizer.beta1,
                     .beta2 = inputs.optimizer.beta2,
                     .epsilon = inputs.optimizer.epsilon};
  slot.number = 0;  // until it is queued
  if (slot.recorded != now) {
    slot.recorded = {};
    slot.inputs.reserve(self.reserved_words * sizeof(Word));
    slot.results.reserve(self.result_bytes(inputs.more.count));
    slot.more_bytes = inputs.more.count;
    slot.graph.record(self.recording, [&](cudaStream_t on) { self.queue(inputs, slot, on); });
    slot.recorded = now;
    ++self.recordings;
  }
  self.write_sent(inputs, slot.inputs.data());
  slot.graph.launch(stream_of(stream));
  slot.sent(number, stream_of(stream));
  self.steps = number;
  return {number};
}

StepNumbers GatedStep::read(StepTicket ticket) const {
  const Impl& self = *impl_;
  Slot& slot = slot_of(impl_->slots, ticket.number);
  slot.wait();
  Results found;
  std::memcpy(&found, slot.results.data(), sizeof found);
  return {.gate = found.gate,
          .loss = found.loss,
          .alarm = found.alarm,
          .sums = {reinterpret_cast<const double*>(slot.results.data() + sizeof found), self.settings.parameters},
          .more = {slot.results.data() + self.result_bytes(0), slot.more_bytes}};
}

std::uint64_t GatedStep::recordings() const { return impl_->recordings; }

}  // namespace gnmr::kernels
