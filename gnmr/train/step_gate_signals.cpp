// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/step_gate_signals.h"

#include "gnmr/core/signal_rules.h"

namespace gnmr::train {

kernels::SignalSettings signal_settings(const Options& options, Selector selector) {
  // There are no errors of a patrol here, so no other selector has anything to say.
  if (selector != Selector::trial) selector = Selector::norms;
  return {.rules = signal_rules(options),
          .window = static_cast<std::uint32_t>(options.window),
          .alarm = {.common_share = options.common_share, .selector = selector}};
}

}  // namespace gnmr::train
