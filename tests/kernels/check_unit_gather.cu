// SPDX-License-Identifier: Apache-2.0
// Norms of units from sums against the reference, bit for bit.
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/unit_gather.h"
#include "gnmr/kernels/unit_step.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {

namespace {

/// Totals of all sorts: unmeasured ones, equal results, infinities, and errors about 0.1.
ErrorTotals random_totals(gnmr::testing::Random& random) {
  if (random.chance(0.2)) return {0, 0, 0};
  const double odd = random.pick({0.0, std::numeric_limits<double>::infinity(), 5e-324, 1e300});
  const double reference = random.chance(0.03) ? odd : random.uniform(1, 100);
  const double difference = random.chance(0.03) ? odd : reference * 0.01 * random.uniform(0.2, 2);
  return {difference, reference, 1.0 + static_cast<double>(random.below(3))};
}

void check_errors(Checks& checks) {
  constexpr std::uint32_t kSites = 3;
  gnmr::testing::Random random(12);
  UnitGather gather;
  for (const std::uint32_t units : {1u, 127u, 3000u}) {
    std::vector<ErrorTotals> totals(4 * units);
    for (ErrorTotals& one : totals) one = random_totals(random);
    UnitLists lists{.first = {0}, .indices = {}};
    std::vector<float> limits;
    for (std::uint32_t place = 0; place < units * kSites; ++place) {
      for (std::uint64_t left = random.below(4); left > 0; --left) {
        lists.indices.push_back(static_cast<std::uint32_t>(random.below(totals.size())));
      }
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
      limits.push_back(random.chance(0.2) ? std::numeric_limits<float>::infinity()
                                          : static_cast<float>(random.uniform(0.1, 0.2)));
    }
    const OnDevice<ErrorTotals> device_totals(totals);
    const OnDevice<float> device_limits(limits);
    for (const std::uint8_t wanted : {std::uint8_t{1}, std::uint8_t{0}}) {
      std::vector<std::uint8_t> expected(units);
      reference_judge(lists, {totals.data(), limits.data(), &wanted, kSites}, expected.data());
      const OnDevice<std::uint8_t> device_wanted(std::vector<std::uint8_t>{wanted});
      const OnDevice<std::uint8_t> patrol(units);
      gather.set(lists, nullptr);
      gather.judge({device_totals.data(), device_limits.data(), device_wanted.data(), kSites}, patrol.data(), nullptr);
      must(cudaDeviceSynchronize());
      checks.expect("errors of " + std::to_string(units) + (wanted != 0 ? " units judged" : " units not judged"),
                    same_bits(patrol.get(), expected));
    }
  }
}

}  // namespace

void check_unit_gather(Checks& checks) {
  check_errors(checks);
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
