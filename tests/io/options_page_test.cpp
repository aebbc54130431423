// SPDX-License-Identifier: Apache-2.0
// docs/options.md holds the table that the declaration gives.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gnmr/io/options_json.h"

namespace gnmr::io {
namespace {

TEST(OptionsPage, IsFresh) {
  std::ifstream page(std::string(GNMR_DOCS_DIR) + "/options.md");
  ASSERT_TRUE(page.is_open());
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_NE(text.str().find(options_markdown()), std::string::npos)
      << "docs/options.md is stale: replace its table by what `gnmr options --markdown` prints";
}

}  // namespace
}  // namespace gnmr::io
