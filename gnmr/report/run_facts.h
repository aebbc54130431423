// SPDX-License-Identifier: Apache-2.0
// The words and headline numbers of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gnmr/report/run_view.h"
#include "gnmr/run/high_share.h"

namespace gnmr::report {

/// `nano, 1.23 M parameters · fp8-delayed · controller gnmr · seed 0`.
std::string run_subtitle(const RunFiles& run);

/// The headline numbers, as far as the files have them.
std::vector<Fact> run_facts(const RunFiles& run);

/// Modes, resumes and remarks, in words.
std::vector<std::string> run_notes(const RunFiles& run);

/// `Decisions are only written (watch): as configured`.
std::string mode_text(const io::JournalMode& mode);

/// Whether decisions were only written.
bool watched_only(const RunFiles& run);

/// Why units ran high; none where the files do not say, and where nothing was switched.
std::optional<run::HighShares> high_shares(const RunFiles& run);

/// The mean training loss of the last tenth of the steps that were run (at least one, at most 100); absent where there
/// is none.
std::optional<double> final_train_loss(const run::Metrics& metrics);

}  // namespace gnmr::report
