// SPDX-License-Identifier: Apache-2.0
// One damage to one file: what disks, copies and editors do to it, and what a hostile length field does to a reader.
//
// Goals: small changes and gross ones, in text and in binary files; the same dice give the same damage.
// Non-goals: files that are made to mislead (a checksum that was computed again).
#pragma once

#include <string>

#include "abuse/dice.h"

namespace gnmr::abuse {

/// What was done, for people.
struct Damage {
  std::string kind;     // a word or two, for tables
  std::string details;  // where and how
};

/// Damages the file at `path`.
Damage damage_file(const std::string& path, Dice& dice);

}  // namespace gnmr::abuse
