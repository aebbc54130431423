// SPDX-License-Identifier: Apache-2.0
// What is known of errors and reruns, as five sections of a state file: `errors`, `levels`, `reruns`,
// `doubt` and `high_bucket`.
//
// Private to state_file.cpp. Goals and non-goals are those of state_file.h.
#pragma once

#include <string>

#include "gnmr/core/state.h"
#include "gnmr/io/little_endian.h"

namespace gnmr::io {

/// The content of the section `errors`; an `Error` where there is not one error for each site of each unit.
std::string encode_errors(const ControllerState& state);

/// Whether there is anything for the section `levels`.
bool has_levels(const ControllerState& state);

/// The content of the section `levels`: of each unit its key in standing recovery, and the levels of its sites.
std::string encode_levels(const ControllerState& state);

/// The content of the section `reruns`; an `Error` for more of them than can be.
std::string encode_reruns(const ControllerState& state);

/// The content of the section `doubt`.
std::string encode_doubt(const Doubt& doubt);

/// The content of the section `high_bucket`.
std::string encode_high_bucket(const HighBucketState& bucket);

/// Takes `sites` and `errors` from the section; the units are there already.
void decode_errors(LittleEndianReader reader, ControllerState& state);

/// Takes `levels` and the keys; units and errors are there already.
void decode_levels(LittleEndianReader reader, ControllerState& state);

/// Takes `reruns_ago` from the section.
void decode_reruns(LittleEndianReader reader, ControllerState& state);

/// Takes `doubt` from the section.
void decode_doubt(LittleEndianReader reader, ControllerState& state);

/// Takes `high_bucket` from the section.
void decode_high_bucket(LittleEndianReader reader, ControllerState& state);

}  // namespace gnmr::io
