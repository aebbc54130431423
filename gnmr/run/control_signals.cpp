// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/control_signals.h"

#include <atomic>

#include "gnmr/core/error.h"

namespace gnmr::run {
namespace {

constexpr std::array<int, 5> kSignals{SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP};
constexpr std::size_t kModeSignals = 2;  // the first ones
constexpr int kNoMode = -1;

std::atomic<bool> installed{false};
std::atomic<int> asked_mode{kNoMode};
std::atomic<bool> asked_to_stop{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_control_signal(int signal) {
  if (signal == SIGUSR1) {
    asked_mode = static_cast<int>(Mode::watch);
  } else if (signal == SIGUSR2) {
    asked_mode = static_cast<int>(Mode::high);
  } else {
    asked_to_stop = true;
  }
}

}  // namespace

ControlSignals::ControlSignals(TakenSignals taken)
    : taken_(taken == TakenSignals::all ? kSignals.size() : kModeSignals) {
  if (installed.exchange(true)) throw Error("the process's signals are taken already");
  asked_mode = kNoMode;
  asked_to_stop = false;
  for (std::size_t i = 0; i < taken_; ++i) {
    struct sigaction action {};
    action.sa_handler = on_control_signal;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    // Reset: whoever cannot wait for the end of the step asks twice.
    if (i >= kModeSignals) action.sa_flags |= static_cast<int>(SA_RESETHAND);
    ::sigaction(kSignals[i], &action, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) ::sigaction(SIGHUP, &before_[i], nullptr);
  }
}

ControlSignals::~ControlSignals() {
  for (std::size_t i = 0; i < taken_; ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  installed = false;
}

std::optional<Mode> ControlSignals::take_mode() {
  const int mode = asked_mode.exchange(kNoMode);
  if (mode == kNoMode) return std::nullopt;
  return static_cast<Mode>(mode);
}

bool ControlSignals::stop_requested() const { return asked_to_stop; }

}  // namespace gnmr::run
