// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/unit_gather.h"
#include "gnmr/kernels/unit_step.h"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = 128;

__global__ void gather_units(const std::uint32_t* first, const std::uint32_t* indices, std::uint32_t units,
                             const double* sums, std::uint32_t count, const double* more, double* norms,
                             std::uint8_t* sampled) {
  const std::uint32_t unit = blockIdx.x * kThreads + threadIdx.x;
  if (unit >= units) return;
  const std::uint32_t end = first[unit + 1];
  double square = 0;
  for (std::uint32_t at = first[unit]; at < end; ++at) {
    const std::uint32_t index = indices[at];
    square = __dadd_rn(square, index < count ? sums[index] : more[index - count]);
  }
  norms[unit] = sqrt(square);
  sampled[unit] = first[unit] < end ? 1 : 0;
}

/// The relative error; NaN where nothing was measured.
__device__ double error_of(const ErrorTotals& totals) {
  if (!(totals.measured > 0)) return __longlong_as_double(0x7ff8000000000000ll);
  if (totals.difference == 0) return 0;
  if (!(totals.reference > 0)) return __longlong_as_double(0x7ff0000000000000ll);
  return __dsqrt_rn(__ddiv_rn(totals.difference, totals.reference));
}

__global__ void judge_units(const std::uint32_t* first, const std::uint32_t* indices, std::uint32_t units,
                            JudgedErrors errors, std::uint8_t* patrol) {
  const std::uint32_t unit = blockIdx.x * kThreads + threadIdx.x;
  if (unit >= units) return;
  std::uint32_t flags = 0;
  for (std::uint32_t site = 0; site < errors.sites && *errors.wanted != 0; ++site) {
    const std::size_t place = std::size_t{unit} * errors.sites + site;
    const std::uint32_t end = first[place + 1];
    for (std::uint32_t at = first[place]; at < end; ++at) {
      flags |= patrol_of_error(error_of(errors.totals[indices[at]]), errors.limits[place]);
    }
  }
  patrol[unit] = static_cast<std::uint8_t>(flags);
}

}  // namespace

struct UnitGather::Impl {
  UnitLists lists;
  UploadedBytes uploaded;
};

UnitGather::UnitGather() : impl_(std::make_unique<Impl>()) {}
UnitGather::UnitGather(UnitGather&&) noexcept = default;
UnitGather& UnitGather::operator=(UnitGather&&) noexcept = default;
UnitGather::~UnitGather() = default;

bool UnitGather::set(const UnitLists& lists, void* stream) {
  if (lists == impl_->lists) return false;
  check_lists(lists);
  const std::size_t first_bytes = lists.first.size() * sizeof(std::uint32_t);
  const std::size_t index_bytes = lists.indices.size() * sizeof(std::uint32_t);
  std::byte* const to = impl_->uploaded.begin(first_bytes + index_bytes);
  std::memcpy(to, lists.first.data(), first_bytes);
  if (index_bytes > 0) std::memcpy(to + first_bytes, lists.indices.data(), index_bytes);
  impl_->uploaded.send(stream_of(stream));
  impl_->lists = lists;
  return true;
}

const void* UnitGather::place() const { return impl_->uploaded.device(); }

void UnitGather::run(const double* sums, std::uint32_t count, const double* more, double* norms, std::uint8_t* sampled,
                     void* stream) {
  if (impl_->lists.first.size() < 2) return;
  const auto units = static_cast<std::uint32_t>(impl_->lists.first.size() - 1);
  const auto* const first = reinterpret_cast<const std::uint32_t*>(impl_->uploaded.device());
  gather_units<<<blocks_for(units, kThreads), kThreads, 0, stream_of(stream)>>>(first, first + units + 1, units, sums,
                                                                                count, more, norms, sampled);
  check_launch("gather_units");
}

void UnitGather::judge(const JudgedErrors& errors, std::uint8_t* patrol, void* stream) {
  const std::size_t places = impl_->lists.first.empty() ? 0 : impl_->lists.first.size() - 1;
  if (places == 0 || errors.sites == 0) return;
  const auto units = static_cast<std::uint32_t>(places / errors.sites);
  const auto* const first = reinterpret_cast<const std::uint32_t*>(impl_->uploaded.device());
  judge_units<<<blocks_for(units, kThreads), kThreads, 0, stream_of(stream)>>>(first, first + places + 1, units, errors,
                                                                               patrol);
  check_launch("judge_units");
}

}  // namespace gnmr::kernels
