// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/sweep_page.h"

#include <gtest/gtest.h>

#include "report/sample_sweep.h"

namespace gnmr::report {
namespace {

TEST(SweepPage, HasItsPartsAndNoOtherScript) {
  const std::string html = sweep_html(test::sample_sweep());
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* const text :
       {"Sweep of options", "Why these options", "Risks", "noise_factor 12", "at most 0.5", "All replays", "&gt;*",
        "data-chart=\"sweep\" data-index=\"0\"", "risks / 1000 unit-steps over factor; noise_factor 4 from 2 to",
        "Written by gnmr 0.1.0", "default-src 'none'", "script-src 'sha256-", "\"level\":0.5"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(html.find("Nothing at all"), std::string::npos) << "a chart without a point";
  EXPECT_EQ(html.find("<b onmouseover"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::report
