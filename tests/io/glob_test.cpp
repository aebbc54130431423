// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/glob.h"

#include <gtest/gtest.h>

#include <random>

namespace gnmr::io {
namespace {

// The definition, with every way tried.
bool naive_match(std::string_view glob, std::string_view name) {
  if (glob.empty()) return name.empty();
  if (glob[0] == '*') {
    for (std::size_t taken = 0; taken <= name.size(); ++taken) {
      if (naive_match(glob.substr(1), name.substr(taken))) return true;
    }
    return false;
  }
  return !name.empty() && (glob[0] == '?' || glob[0] == name[0]) && naive_match(glob.substr(1), name.substr(1));
}

TEST(Glob, FitsWholeNames) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("layers.*.up", "layers.12.up"));
  EXPECT_FALSE(glob_matches("layers.*.up", "layers.12.up.bias"));
  EXPECT_TRUE(glob_matches("HEAD", "head"));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("?", ""));
}

TEST(Glob, AgreesWithTheDefinition) {
  std::mt19937 random(1);
  const auto text = [&](std::string_view letters, std::size_t longest) {
    std::string made(random() % (longest + 1), ' ');
    for (char& c : made) c = letters[random() % letters.size()];
    return made;
  };
  int fits = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string glob = text("ab*?", 6);
    const std::string name = text("ab", 7);
    ASSERT_EQ(glob_matches(glob, name), naive_match(glob, name)) << glob << " and " << name;
    fits += glob_matches(glob, name) ? 1 : 0;
  }
  EXPECT_GT(fits, 1000);
}

}  // namespace
}  // namespace gnmr::io
