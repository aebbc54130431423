// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/experiment/fault_kinds.h"

#include <gtest/gtest.h>

#include <set>

namespace gnmr::lab {
namespace {

TEST(FaultKinds, NamesReadBack) {
  std::set<std::string_view> names;
  for (const FaultKindSpec& spec : fault_kinds()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " is there twice";
    EXPECT_EQ(to_string(spec.kind), spec.name);
    EXPECT_EQ(site_of(spec.kind), spec.site);
    EXPECT_EQ(parse_fault(spec.name), (FaultChoice{spec.kind, false}));
    const std::optional<FaultChoice> once = parse_fault(std::string(spec.name) + ":once");
    EXPECT_EQ(once.has_value(), spec.site != FaultSite::run && !is_reenacted_bug(spec.kind)) << spec.name;
    if (once) {
      EXPECT_EQ(*once, (FaultChoice{spec.kind, true}));
    }
    EXPECT_NE(expected_fault().find(spec.name), std::string::npos);
    EXPECT_NE(std::string_view(GNMR_FAULT_NAMES).find(spec.name), std::string_view::npos);
  }
  EXPECT_EQ(names.size(), 16U);
}

TEST(FaultKinds, ThreeReenactBugs) {
  std::set<std::string_view> bugs;
  std::set<std::string_view> unmeasurable;
  for (const FaultKindSpec& spec : fault_kinds()) {
    if (is_reenacted_bug(spec.kind)) bugs.insert(spec.name);
    if (!has_measurable_harm(spec.kind)) unmeasurable.insert(spec.name);
  }
  EXPECT_EQ(bugs, (std::set<std::string_view>{"cached-weight", "missed-amax", "wrong-amax"}));
  EXPECT_EQ(unmeasurable, (std::set<std::string_view>{"missed-amax", "wrong-amax"}));
}

TEST(FaultKinds, OthersAreRefused) {
  for (const std::string_view text :
       {"", "melt", ":once", "saturate:", "saturate:twice", "Saturate", "saturate:once:once", " saturate", "saturat",
        "bad-batch:once", "cached-weight:once", "wrong-amax:once"}) {
    EXPECT_FALSE(parse_fault(text)) << text;
  }
}

TEST(FaultKinds, SitesHaveNames) {
  EXPECT_EQ(to_string(FaultSite::before_cast), "before-cast");
  EXPECT_EQ(to_string(FaultSite::cast), "cast");
  EXPECT_EQ(to_string(FaultSite::after_cast), "after-cast");
  EXPECT_EQ(to_string(FaultSite::run), "run");
}

}  // namespace
}  // namespace gnmr::lab
