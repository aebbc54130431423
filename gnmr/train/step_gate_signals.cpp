// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/step_gate_signals.h"

#include "gnmr/core/signal_rules.h"

namespace gnmr::train {

kernels::Hold kernel_hold(HoldRule rule) {
  switch (rule) {
    case HoldRule::never:
      break;
    case HoldRule::for_trial:
      return kernels::Hold::for_trial;
    case HoldRule::for_guard:
      return kernels::Hold::for_guard;
  }
  return kernels::Hold::never;
}

kernels::SignalSettings signal_settings(const Options& options, Selector selector) {
  // No patrol is heard here, so no other selector has anything to say.
  const bool trial = selector == Selector::trial;
  return {
      .rules = signal_rules(options),
      .window = static_cast<std::uint32_t>(options.window),
      .alarm = {.common_share = options.common_share, .basis = trial ? kernels::Basis::trial : kernels::Basis::norms}};
}

kernels::SignalMemory signal_memory(const ControllerState& state, const kernels::SignalSettings& settings) {
  const auto units = static_cast<std::uint32_t>(state.units.size());
  kernels::SignalMemory memory = kernels::empty_memory(units, settings);
  for (std::uint32_t unit = 0; unit < units; ++unit) {
    const UnitState& from = state.units[unit];
    kernels::remember(memory, settings, unit,
                      {.samples = from.samples,
                       .changes = from.changes,
                       .mean_sum = from.mean_sum,
                       .rise_change_sum = from.rise_change_sum,
                       .fall_change_sum = from.fall_change_sum,
                       .ratios = from.ratios,
                       .inverses = from.inverses});
  }
  return memory;
}

}  // namespace gnmr::train
