// SPDX-License-Identifier: Apache-2.0
// Norms of units from sums of squares that are on the device: a unit may have several tensors, and a tensor several
// units.
//
//   UnitGather gather;
//   each step: gather.set(lists, stream);                       // sent to the device where they changed
//              gather.run(sums, count, others, norms, sampled, stream);
//
// Goals: a unit's sums are added in the order of its list, each addition rounded by itself, so the host gets the same
// bits; one launch, nothing waits. Non-goals: the sums themselves (norms.h, compare.h).
//
// An object belongs to one thread and one stream at a time. Pointers are to device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace gnmr::kernels {

/// Which sums each unit has: those at indices[first[unit]] up to, not including, indices[first[unit + 1]].
struct UnitLists {
  std::vector<std::uint32_t> first;  // one per unit, and the end
  std::vector<std::uint32_t> indices;

  bool operator==(const UnitLists&) const = default;
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

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws `Error` where these are no lists: no end, or ends that fall.
void check_lists(const UnitLists& lists);

/// The same on the host.
void reference_gather(const UnitLists& lists, const double* sums, std::uint32_t count, const double* more,
                      double* norms, std::uint8_t* sampled);

}  // namespace gnmr::kernels
