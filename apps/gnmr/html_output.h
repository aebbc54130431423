// SPDX-License-Identifier: Apache-2.0
// Pages that the program writes.
#pragma once

#include <string>

#include "gnmr/exit_codes.h"
#include "gnmr/report/report.h"

namespace gnmr::app {

/// A slip such as `--out run/run.json` must not cost a run. Throws `CommandError`.
inline void refuse_to_replace_other_files(const std::string& path) {
  if (!with_exit_code(kOutputError, [&] { return report::may_replace(path); })) {
    throw CommandError(kUsageError, path + ": is there and is no report: name another file for --out");
  }
}

}  // namespace gnmr::app
