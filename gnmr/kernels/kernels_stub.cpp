// SPDX-License-Identifier: Apache-2.0
// The device part of this layer where it was built without CUDA: nothing is available, and every use says what to do.
#include "gnmr/core/error.h"
#include "gnmr/kernels/adamw.h"
#include "gnmr/kernels/add_square.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/clipped_norms.h"
#include "gnmr/kernels/delayed_scales.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/gated_step.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/read_floor.h"
#include "gnmr/kernels/rounding.h"
#include "gnmr/kernels/row_errors.h"
#include "gnmr/kernels/signals.h"
#include "gnmr/kernels/tile_product.h"
#include "gnmr/kernels/unit_gather.h"

namespace gnmr::kernels {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[kernels] built without CUDA: put nvcc (CUDA 12 or newer) on the PATH and configure with -DGNMR_CUDA=ON");
}

}  // namespace

struct UnitNorms::Impl {};
struct AdamW::Impl {};
struct UnitSignals::Impl {};
struct DelayedScales::Impl {};
struct UnitGather::Impl {};
struct GatedStep::Impl {};
struct ClippedNorms::Impl {};

bool available() { return false; }

int compute_capability() { return 0; }
void copy_on_device(const void*, void*, std::size_t, void*) { refuse(); }
void copy_to_host(const void*, void*, std::size_t, void*) { refuse(); }

UnitNorms::UnitNorms(std::uint32_t) { refuse(); }
UnitNorms::UnitNorms(UnitNorms&&) noexcept = default;
UnitNorms& UnitNorms::operator=(UnitNorms&&) noexcept = default;
UnitNorms::~UnitNorms() = default;
bool UnitNorms::sum_squares(std::span<const Slice>, double*, void*) { refuse(); }
bool UnitNorms::set_shapes(std::span<const Slice>, void*) { refuse(); }
void UnitNorms::sum_squares_at(const void* const*, double*, void*) { refuse(); }
void UnitNorms::scale_at(void* const*, const Gate*, void*) { refuse(); }
void UnitNorms::clip(const double*, double, const ClipOutputs&, void*) { refuse(); }

AdamW::AdamW() { refuse(); }
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;
AdamW::~AdamW() = default;
bool AdamW::step(std::span<const AdamWTensor>, const AdamWSettings&, const Gate*, void*) { refuse(); }
bool AdamW::set_tensors(std::span<const AdamWTensor>, void*) { refuse(); }
void AdamW::step_at(const void* const*, const AdamWSettings&, const Gate*, void*) { refuse(); }

UnitSignals::UnitSignals(std::uint32_t, const SignalSettings&) { refuse(); }
UnitSignals::UnitSignals(UnitSignals&&) noexcept = default;
UnitSignals& UnitSignals::operator=(UnitSignals&&) noexcept = default;
UnitSignals::~UnitSignals() = default;
void UnitSignals::set_flags(std::span<const std::uint8_t>, void*) { refuse(); }
void UnitSignals::observe(const SignalInputs&, HoldRule, const SignalOutputs&, void*) { refuse(); }
SignalMemory UnitSignals::save(void*) const { refuse(); }
void UnitSignals::load(const SignalMemory&, void*) { refuse(); }

void read_floor(const void*, std::size_t, ReadOrder, std::uint32_t*, void*) { refuse(); }

std::size_t cast_workspace_bytes(const CastTask&) { refuse(); }
void cast_to_fp8(const CastTask&, void*, void*) { refuse(); }
std::size_t rounding_workspace_bytes(const RoundingTask&) { refuse(); }
void round_on_device(const RoundingTask&, void*, void*) { refuse(); }

bool tile_product_available() { return false; }
void multiply_tiles(const TileProductTask&, void*) { refuse(); }

std::size_t add_square_workspace_bytes(std::uint64_t) { refuse(); }
void add_square(const RowsView&, double*, void*, void*) { refuse(); }

std::size_t add_error_workspace_bytes(std::uint64_t) { refuse(); }
void add_error(const RowsView&, const RowsView&, const TotalsPlace&, void*, void*) { refuse(); }
std::size_t multiply_signs_workspace_bytes(const RowsView&, std::uint64_t) { refuse(); }
void multiply_signs(const RowsView&, const SignProducts&, void*, void*) { refuse(); }
void add_sampled_rows(const SampledRows&, const SamplePlace&, void*) { refuse(); }
std::size_t sampled_outputs_workspace_bytes(std::uint64_t) { refuse(); }
void add_sampled_outputs(const SampledOutputs&, const SamplePlace&, void*, void*) { refuse(); }
void judge_samples(SampleSlot*, std::uint64_t, void*) { refuse(); }

UnitGather::UnitGather() { refuse(); }
UnitGather::UnitGather(UnitGather&&) noexcept = default;
UnitGather& UnitGather::operator=(UnitGather&&) noexcept = default;
UnitGather::~UnitGather() = default;
bool UnitGather::set(const UnitLists&, void*) { refuse(); }
const void* UnitGather::place() const { refuse(); }
void UnitGather::run(const double*, std::uint32_t, const double*, double*, std::uint8_t*, void*) { refuse(); }
void UnitGather::judge(const JudgedErrors&, std::uint8_t*, void*) { refuse(); }

GatedStep::GatedStep(const GatedStepSettings&) { refuse(); }
GatedStep::GatedStep(GatedStep&&) noexcept = default;
GatedStep& GatedStep::operator=(GatedStep&&) noexcept = default;
GatedStep::~GatedStep() = default;
void GatedStep::set_tensors(std::span<const AdamWTensor>, std::span<const std::uint32_t>, void*) { refuse(); }
void GatedStep::set_errors(const UnitLists&, std::uint32_t, void*) { refuse(); }
UnitSignals& GatedStep::signals() { refuse(); }
StepTicket GatedStep::run(const GatedStepInputs&, void*) { refuse(); }
StepNumbers GatedStep::read(StepTicket) const { refuse(); }
std::uint64_t GatedStep::recordings() const { refuse(); }

ClippedNorms::ClippedNorms(std::uint32_t) { refuse(); }
ClippedNorms::ClippedNorms(ClippedNorms&&) noexcept = default;
ClippedNorms& ClippedNorms::operator=(ClippedNorms&&) noexcept = default;
ClippedNorms::~ClippedNorms() = default;
void ClippedNorms::sum(std::span<const Slice>, void*) { refuse(); }
double* ClippedNorms::sums() const { refuse(); }
const Gate* ClippedNorms::gate() const { refuse(); }
NormsTicket ClippedNorms::finish(double, void*) { refuse(); }
void ClippedNorms::scale(double, void*) { refuse(); }
bool ClippedNorms::is_there(NormsTicket) const { refuse(); }
StepNorms ClippedNorms::read(NormsTicket) const { refuse(); }

void clear_amaxes(float*, std::uint64_t, void*) { refuse(); }
void keep_larger(const float*, float*, std::uint64_t, void*) { refuse(); }
DelayedScales::DelayedScales(std::span<const DelayedTensor>) { refuse(); }
DelayedScales::DelayedScales(DelayedScales&&) noexcept = default;
DelayedScales& DelayedScales::operator=(DelayedScales&&) noexcept = default;
DelayedScales::~DelayedScales() = default;
const float* DelayedScales::scales() const { refuse(); }
void DelayedScales::first_scales(const float*, void*) { refuse(); }
void DelayedScales::first_scale(std::uint32_t, const float*, void*) { refuse(); }
void DelayedScales::observe(const float*, void*, const formats::Refresh&) { refuse(); }
void DelayedScales::leave_out_answered(const float*, const formats::Refresh&, ErrorTotals*, void*) const { refuse(); }
std::vector<formats::DelayedState> DelayedScales::save(void*) const { refuse(); }
void DelayedScales::load(std::span<const formats::DelayedState>, void*) { refuse(); }

}  // namespace gnmr::kernels
