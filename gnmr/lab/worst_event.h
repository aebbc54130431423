// SPDX-License-Identifier: Apache-2.0
// The recovery with the best reason in a run: the unit whose trial moved the gradient most, or, in a run without
// trials, the most severe event for which a unit was admitted.
//
// Goals: one event a person can look up, with the evidence of quantization if it was measured. Non-goals: ranking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/io/journal.h"
#include "gnmr/run/evidence.h"

namespace gnmr::lab {

/// An admission and what is known of it besides.
struct WorstEvent {
  io::JournalEvent event;
  std::optional<io::JournalTrial> trial = {};           // that found the unit
  std::optional<run::EvidenceLine> evidence = {};       // of the same unit and step; none if that was not measured
  std::optional<std::vector<std::string>> faulty = {};  // units with an injected fault; none where none are known
};

/// The worst admission of a run, the first of equals; none where nothing was admitted.
std::optional<WorstEvent> worst_event(const std::string& run_folder);

/// It in one line, as `step 212, layers.2.gate: gradient norm 5.1 times its usual; ...` or, with a trial, `step 142,
/// layers.3.o: its forward GEMM was off by 5925%; loss 4.95, 2.22 in the trial; ...`.
std::string worst_event_text(const WorstEvent& worst);

}  // namespace gnmr::lab
