// SPDX-License-Identifier: Apache-2.0
// What signals ask of a process while it trains: SIGUSR1 only watch, SIGUSR2 all high; SIGINT, SIGTERM and SIGHUP stop
// after this step with a checkpoint. A second one of these ends the process at once. SIGHUP stays ignored where it was
// (nohup).
//
// Goals: handlers that only set a flag. Non-goals: installing anything by itself: a program makes a `ControlSignals`
// where it wants them; threads that block signals do not matter.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gnmr/io/journal.h"

namespace gnmr::run {

/// Which signals are taken.
enum class TakenSignals : std::uint8_t {
  all,
  modes,  // SIGUSR1 and SIGUSR2: how the process ends is somebody else's business
};

/// While it lives these signals set flags; afterwards they do what they did before. One at a time in a process.
class ControlSignals {
 public:
  /// Installs the handlers; an `Error` where another object has.
  explicit ControlSignals(TakenSignals taken = TakenSignals::all);
  ~ControlSignals();
  ControlSignals(const ControlSignals&) = delete;
  ControlSignals& operator=(const ControlSignals&) = delete;

  /// The mode that a signal has asked for since the last call, if one has; of several the last.
  std::optional<Mode> take_mode();

  /// Whether the run is to stop after this step.
  bool stop_requested() const;

 private:
  std::size_t taken_;
  std::array<struct sigaction, 5> before_{};
};

}  // namespace gnmr::run
