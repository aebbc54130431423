// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/payload.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace gnmr::report {
namespace {

TEST(Payload, Base64) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xFF\x00\xFE", 3)), "/wD+");
}

TEST(Payload, RatiosAsBytes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ratio_byte(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(ratio_byte(kInfinity), 255);
  EXPECT_EQ(ratio_byte(0.0F), 1);
  EXPECT_EQ(ratio_byte(1e-30F), 1);
  EXPECT_EQ(ratio_byte(1.0F / 64), 1);
  EXPECT_EQ(ratio_byte(64.0F), 254);
  EXPECT_EQ(ratio_byte(1e30F), 254);
  EXPECT_EQ(ratio_byte(2.0F) - ratio_byte(1.0F), 21);
}

TEST(Payload, ErrorsAsBytes) {
  EXPECT_EQ(error_byte(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(error_byte(std::numeric_limits<float>::infinity()), 255);
  EXPECT_EQ(error_byte(-1.0F), 255);
  EXPECT_EQ(error_byte(0.0F), 1);
  EXPECT_EQ(error_byte(1.0F / 4096), 1);
  EXPECT_EQ(error_byte(1.0F), 254);
  EXPECT_EQ(error_byte(100.0F), 254);
  EXPECT_EQ(error_byte(0.5F) - error_byte(0.25F), 21);
}

TEST(Payload, IsJsonThatCannotEndItsElement) {
  RunView run;
  run.losses.train.add(1, 5.5);
  run.losses.train.add(2, std::numeric_limits<double>::infinity());
  run.journal.emplace().timeline = Timeline{.units = {"</script><!--\"\\\n", "caf\xC3\xA9", "\xFF"},
                                            .bars = {{0, 3, 7, RecoveryEnd::futile}},
                                            .denials = {{1, 4}}};
  const std::string text = run_payload(run);
  EXPECT_EQ(text.find('<'), std::string::npos);
  const nlohmann::json data = nlohmann::json::parse(text);
  const nlohmann::json& first = data["runs"][0];
  EXPECT_EQ(first["timeline"]["units"][0], "</script><!--\"\\\n");
  EXPECT_EQ(first["timeline"]["units"][1], "caf\xC3\xA9");
  EXPECT_EQ(first["timeline"]["bars"], nlohmann::json::parse("[[0,3,7,1]]"));
  EXPECT_EQ(first["timeline"]["denials"], nlohmann::json::parse("[[1,4]]"));
  EXPECT_EQ(first["train"]["y"], nlohmann::json::parse("[5.5]"));
  EXPECT_EQ(first["train"]["bad"], nlohmann::json::parse("[2]"));
  EXPECT_TRUE(first["budget"].is_null());
  EXPECT_FALSE(first.contains("heat"));
}

}  // namespace
}  // namespace gnmr::report
