// SPDX-License-Identifier: Apache-2.0
// The state of a controller in a file (docs/files.md has the layout byte by byte).
//
// Goals: a damaged or hostile file is an `Error` that says what is wrong and where, never a wrong state, never more
// memory than the file's size justifies; a save that fails leaves the old file; a file of version 1 is read for ever.
// Non-goals: judging whether the values fit together or fit a controller (`restore` does that), compression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "gnmr/core/state.h"

namespace gnmr::io {

/// The version that is written; every version from 1 to this one is read.
inline constexpr std::uint32_t kStateVersion = 1;

/// Sections that the controller does not know, by name: other parts of a program may keep theirs in the same file.
using ExtraSections = std::map<std::string, std::string>;

/// A state as it was found, with the sections that the controller does not know.
struct LoadedState {
  ControllerState state;  // without errors and reruns where the controller knew norms only
  ExtraSections extra_sections;
};

/// The bytes of a state file. An `Error` for names that no reader would take: empty, twice, not UTF-8, or, for a
/// section, one of the controller's own.
std::string encode_state(const ControllerState& state, const ExtraSections& extra_sections = {});

/// The state in the bytes of a state file.
LoadedState decode_state(std::span<const std::byte> bytes);

/// Writes a state file in place of the one at `path`, if there is one: all of it or nothing.
void save_state(const std::string& path, const ControllerState& state, const ExtraSections& extra_sections = {});

/// Reads a state file; the `Error` begins with the path.
LoadedState load_state(const std::string& path);

}  // namespace gnmr::io
