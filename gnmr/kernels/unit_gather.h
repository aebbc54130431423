// SPDX-License-Identifier: Apache-2.0
// Norms and errors of units from sums of squares that are on the device: a unit may have several tensors, and a tensor
// several units.
//
//   UnitGather gather;
//   each step: gather.set(lists, stream);                       // sent to the device where they changed
//              gather.run(sums, count, others, norms, sampled, stream);
//   or, with a list for each site of each unit:
//              gather.judge({.totals = totals, .limits = limits, .wanted = wanted, .sites = 3}, patrol, stream);
//
// Goals: a unit's sums are added in the order of its list, each operation rounded by itself, so the host gets the same
// bits; one launch, nothing waits. Non-goals: the sums themselves (norms.h, row_errors.h).
//
// An object belongs to one thread and one stream at a time. Pointers are to device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {

/// Which sums each unit has: those at indices[first[unit]] up to, not including, indices[first[unit + 1]].
struct UnitLists {
  std::vector<std::uint32_t> first;  // one per unit, and the end
  std::vector<std::uint32_t> indices;

  bool operator==(const UnitLists&) const = default;
};

/// The errors of a step and what they must not exceed, in device memory.
struct JudgedErrors {
  const ErrorTotals* totals = nullptr;
  const float* limits = nullptr;         // units x sites
  const std::uint8_t* wanted = nullptr;  // one, 0: no error counts as measured, and limits are not read
  std::uint32_t sites = 0;               // per unit
};

/// The lists, on the device.
class UnitGather {
 public:
  UnitGather();
  UnitGather(UnitGather&&) noexcept;
  UnitGather& operator=(UnitGather&&) noexcept;
  ~UnitGather();

  /// Takes over lists; returns whether they differ from the last ones. An `Error`, with nothing done, where they are no
  /// lists.
  bool set(const UnitLists& lists, void* stream);

  /// Where the lists are on the device: launches that were recorded are good as long as it stays.
  const void* place() const;

  /// norms[unit] becomes the root of its sums; sampled[unit] 0 where it has none, else 1. An index below `count` is one
  /// of `sums`, others go on in `more`.
  void run(const double* sums, std::uint32_t count, const double* more, double* norms, std::uint8_t* sampled,
           void* stream);

  /// patrol[unit] becomes its patrol_flag: at each site the errors of all its totals are judged by the site's limit.
  /// The lists are those of sites, units x sites.
  void judge(const JudgedErrors& errors, std::uint8_t* patrol, void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws `Error` where these are no lists: no end, or ends that fall.
void check_lists(const UnitLists& lists);

/// The same on the host.
void reference_gather(const UnitLists& lists, const double* sums, std::uint32_t count, const double* more,
                      double* norms, std::uint8_t* sampled);
void reference_judge(const UnitLists& lists, const JudgedErrors& errors, std::uint8_t* patrol);

}  // namespace gnmr::kernels
