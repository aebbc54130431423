// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/kill_switch.h"

#include "gnmr/core/error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/train/rank_agreement.h"

namespace gnmr::train {

KillSwitch::KillSwitch(const std::string& path, run::TrainObserver& observer, nn::Collective& ranks)
    : path_(path), file_(path), observer_(observer), ranks_(ranks) {}

std::optional<ModeRequest> KillSwitch::poll() {
  const std::optional<ModeRequest> here = ranks_.rank() == 0 ? look() : std::nullopt;
  const std::int64_t mode = largest_of_ranks(ranks_, here ? static_cast<std::int64_t>(here->mode) : -1);
  if (mode < 0) return {};
  return ModeRequest{.mode = static_cast<Mode>(mode), .why = here ? here->why : ""};
}

std::optional<ModeRequest> KillSwitch::look() {
  const std::optional<Mode> by_signal = observer_.mode_wanted();
  const run::ControlNews news = file_.poll().value_or(run::ControlNews{});
  if (!news.note.empty()) observer_.noted(news.note);
  if (by_signal) {
    keep(*by_signal);
    return ModeRequest{.mode = *by_signal, .why = "a signal"};
  }
  if (!news.mode) return {};
  return ModeRequest{.mode = *news.mode, .why = "the file " + path_};
}

/// A signal's mode goes to the control file, so that it holds after a crash too and an older one does not come back.
void KillSwitch::keep(Mode mode) {
  try {
    io::replace_file(path_, std::string(to_string(mode)) + "\n");
  } catch (const Error& error) {
    observer_.noted(error.what());
  }
}

}  // namespace gnmr::train
