// SPDX-License-Identifier: Apache-2.0
// What holds for the memory of every rule.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gnmr/core/error.h"

namespace gnmr::lab {

/// Bytes cut short, with more behind them, of another rule or another version are refused, and the rule that was asked
/// to take them is as before.
template <class Rule>
void expect_foreign_memory_is_refused(Rule& rule) {
  const std::string own = rule.save();
  for (std::size_t length = 0; length < own.size(); ++length) {
    EXPECT_THROW(rule.restore(own.substr(0, length)), Error) << length << " of " << own.size() << " bytes";
  }
  EXPECT_THROW(rule.restore(own + '\0'), Error);
  std::string other_rule = own;
  other_rule[4] = 'x';  // the name stands behind its length
  EXPECT_THROW(rule.restore(other_rule), Error);
  std::string other_version = own;
  const auto name_length = static_cast<std::size_t>(own[0]);
  other_version[4 + name_length] = 2;
  EXPECT_THROW(rule.restore(other_version), Error);
  std::string not_a_number = own;
  for (std::size_t byte = own.size() - 8; byte < own.size(); ++byte) not_a_number[byte] = '\xff';
  EXPECT_THROW(rule.restore(not_a_number), Error);
  EXPECT_EQ(rule.save(), own);
}

}  // namespace gnmr::lab
