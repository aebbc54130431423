// SPDX-License-Identifier: Apache-2.0
// The kill switch of a run that is going on: a file in its folder whose first word says what recovery may
// do: `armed` (decisions are carried out), `watch` (they are only written) or `high` (every unit runs high).
//
//   echo high > runs/nano-fp8-delayed-gnmr-seed0/control
//
// Goals: so cheap that every step can look; a word holds until another one is written, also where the file is removed
// or emptied in between. Non-goals: sending the run anything else.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <optional>
#include <string>
#include <utility>

#include "gnmr/io/journal.h"

namespace gnmr::run {

/// What a look at the file found.
struct ControlNews {
  std::optional<Mode> mode = {};  // none: nothing that is known was asked for
  std::string note = {};          // what is wrong and what is allowed; empty: nothing is
};

/// Looks at the file each step.
class ControlFile {
 public:
  explicit ControlFile(std::string path) : path_(std::move(path)) {}

  /// What the file says, where it was written since the last look; nothing where it is not there. A file that cannot be
  /// used gives a note, once.
  std::optional<ControlNews> poll();

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t file = 0;
    off_t size = 0;
    timespec modified{};
  };

  std::optional<ControlNews> read(bool same_file);

  std::string path_;
  std::optional<Stamp> seen_;        // of the file that was read last
  bool settled_ = false;             // whether a later change must show in the stamp
  std::optional<std::string> last_;  // the word, or what was wrong
};

}  // namespace gnmr::run
