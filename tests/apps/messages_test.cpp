// SPDX-License-Identifier: Apache-2.0
// What the program prints about files that hold anything.
#include <gtest/gtest.h>

#include "apps/program_run.h"

namespace gnmr::testing {
namespace {

TEST(Messages, HaveNoControlCharacters) {
  const Scratch scratch;
  const ProgramRun run = run_gnmr("replay " + scratch.write("norms.csv", "step,a\n1,2\x7F\x1B[31m\n"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("norms.csv"), std::string::npos) << run.err;
  for (const char character : run.err) EXPECT_TRUE(character == '\n' || (character >= ' ' && character != '\x7F'));
}

TEST(Messages, AreBoundedAndKeepTheirEnd) {
  const Scratch scratch;
  const std::string recipe = "{\"name\": \"x\", \"" + std::string(100'000, 'k') + "\": 1}";
  const ProgramRun run = run_gnmr("recipes " + scratch.write("recipe.json", recipe));
  EXPECT_EQ(run.status, 3);
  EXPECT_LT(run.err.size(), 3000U);
  EXPECT_NE(run.err.find("recipe.json"), std::string::npos);
  EXPECT_NE(run.err.find("unknown key (known: name, about"), std::string::npos) << run.err.substr(0, 3000);
}

}  // namespace
}  // namespace gnmr::testing
