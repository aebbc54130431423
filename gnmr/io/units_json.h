// SPDX-License-Identifier: Apache-2.0
// Costs and groups of a trace's units: {"units":[{"name":"a","cost":3,"group":"block0"}]}.
//
// Goals: the trace decides which units there are and their order; anything odd in the file is an error that names it.
// Non-goals: writing, budgets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/types.h"

namespace gnmr::io {

/// Reads a units file for a trace with these units; those that the file does not name have cost 1 and no group.
std::vector<Unit> read_units(const std::string& path, const std::vector<std::string>& trace_units);

/// The same from a text; `file` is for messages.
std::vector<Unit> parse_units(std::string_view text, const std::string& file,
                              const std::vector<std::string>& trace_units);

}  // namespace gnmr::io
