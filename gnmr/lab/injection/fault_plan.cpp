// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_plan.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::lab {
namespace {

std::int64_t duration_of(const FaultChoice& choice, std::int64_t steps) {
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
  if (choice.transient || site_of(choice.kind) == FaultSite::run) return 1;
  if (is_reenacted_bug(choice.kind)) return kLongest;
  if (choice.kind != FaultKind::drift) return steps;
  return steps > kLongest / kDriftFactor ? kLongest : steps * kDriftFactor;
}

PlannedFault with_layer(PlannedFault fault, std::uint32_t layer) {
  fault.layer = layer;
  return fault;
}

/// So many of the free layers, `first` among them; what is drawn here comes behind what one layer needs.
std::vector<std::uint32_t> faulty_from(std::vector<std::uint32_t> free_layers, std::uint32_t first, std::int64_t count,
                                       run::RandomStream& random) {
  std::vector<std::uint32_t> faulty{first};
  std::erase(free_layers, first);
  while (!free_layers.empty() && static_cast<std::int64_t>(faulty.size()) < count) {
    const auto drawn = free_layers.begin() + static_cast<std::ptrdiff_t>(random.below(free_layers.size()));
    faulty.push_back(*drawn);
    free_layers.erase(drawn);
  }
  std::sort(faulty.begin(), faulty.end());
  return faulty;
}

}  // namespace

std::vector<PlannedFault> plan_faults(const FaultSettings& settings) {
  if (settings.every < 1 || settings.steps < 1 || settings.layers < 1 || settings.from < 1) {
    throw Error("[faults] expected every, steps, layers and from to be at least 1");
  }
  std::vector<PlannedFault> faults;
  if (settings.kinds.empty()) return faults;
  std::vector<std::int64_t> free_from(settings.layer_count, 1);  // first step in which a layer may have a fault
  std::int64_t run_free_from = 1;
  std::vector<std::uint32_t> free_layers;
  std::set<FaultKind> bugs;  // that have begun
  for (std::int64_t step = settings.from; step <= settings.run_steps; ++step) {
    // A stream a step: what is drawn in one step has no part in the next.
    run::RandomStream random(run::RandomPurpose::faults, {settings.seed, step});
    if (random.below(static_cast<std::uint64_t>(settings.every)) != 0) continue;
    free_layers.clear();
    for (std::uint32_t layer = 0; layer < settings.layer_count; ++layer) {
      if (free_from[layer] <= step) free_layers.push_back(layer);
    }
    const std::uint32_t layer = free_layers.empty() ? kNoLayer : free_layers[random.below(free_layers.size())];
    const FaultChoice choice = settings.kinds[random.below(settings.kinds.size())];
    const bool of_run = site_of(choice.kind) == FaultSite::run;
    if (of_run ? run_free_from > step : layer == kNoLayer) continue;
    if (is_reenacted_bug(choice.kind) && !bugs.insert(choice.kind).second) continue;
    const std::int64_t steps = duration_of(choice, settings.steps);
    // Compared this way round because the sum may not fit.
    const std::int64_t last = steps - 1 > settings.run_steps - step ? settings.run_steps : step + steps - 1;
    const PlannedFault fault{
        .step_first = step, .step_last = last, .steps = steps, .kind = choice.kind, .transient = choice.transient};
    if (of_run) {
      run_free_from = last + 2;
      faults.push_back(with_layer(fault, kNoLayer));
      continue;
    }
    for (const std::uint32_t one : faulty_from(free_layers, layer, settings.layers, random)) {
      free_from[one] = last + 2;
      faults.push_back(with_layer(fault, one));
    }
  }
  return faults;
}

}  // namespace gnmr::lab
