// SPDX-License-Identifier: Apache-2.0
// Norms of units from sums against the reference, bit for bit.
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/unit_gather.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {

void check_unit_gather(Checks& checks) {
  gnmr::testing::Random random(11);
  UnitGather gather;
  for (const std::uint32_t units : {1u, 127u, 3000u}) {
    std::vector<double> sums(units + 3);
    std::vector<double> more(units);
    for (double& sum : sums) sum = std::ldexp(random.uniform(), static_cast<int>(random.below(200)) - 100);
    for (double& sum : more) sum = random.uniform();
    sums[0] = std::numeric_limits<double>::infinity();
    UnitLists lists{.first = {0}, .indices = {}};
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      for (std::uint64_t left = random.below(5); left > 0; --left) {
        lists.indices.push_back(static_cast<std::uint32_t>(random.below(sums.size() + more.size())));
      }
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
    }
    std::vector<double> expected(units);
    std::vector<std::uint8_t> expected_sampled(units);
    const auto count = static_cast<std::uint32_t>(sums.size());
    reference_gather(lists, sums.data(), count, more.data(), expected.data(), expected_sampled.data());
    OnDevice<double> device_sums(sums);
    OnDevice<double> device_more(more);
    OnDevice<double> norms(units);
    OnDevice<std::uint8_t> sampled(units);
    const bool sent = gather.set(lists, nullptr);
    gather.run(device_sums.data(), count, device_more.data(), norms.data(), sampled.data(), nullptr);
    must(cudaDeviceSynchronize());
    const bool good = same_bits(norms.get(), expected) && same_bits(sampled.get(), expected_sampled);
    checks.expect("norms of " + std::to_string(units) + " units from sums",
                  good && sent && !gather.set(lists, nullptr));
  }
}

}  // namespace gnmr::kernels::testing
