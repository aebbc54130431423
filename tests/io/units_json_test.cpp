// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/units_json.h"

#include <gtest/gtest.h>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::message_of;

const std::vector<std::string> kTrace{"a", "b", "c"};

std::vector<Unit> parsed_units(const std::string& text) { return parse_units(text, "units.json", kTrace); }

std::string error_of(const std::string& text) {
  return message_of([&] { parsed_units(text); });
}

TEST(UnitsFile, TheTraceDecidesTheOrder) {
  const auto units = parsed_units(
      R"({"units":[{"name":"c","cost":3.0,"group":"g"},{"group":null,"name":"a","cost":9007199254740992}]})");
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].name, "a");
  EXPECT_EQ(units[0].cost, 9007199254740992);
  EXPECT_EQ(units[0].group, "");
  EXPECT_EQ(units[1].name, "b");
  EXPECT_EQ(units[1].cost, 1);
  EXPECT_EQ(units[2].name, "c");
  EXPECT_EQ(units[2].cost, 3);
  EXPECT_EQ(units[2].group, "g");
  EXPECT_FALSE(units[2].forced);
  EXPECT_EQ(parsed_units(R"({"units":[]})").size(), 3U);
  EXPECT_EQ(parsed_units(R"({"units":[{"name":"a","group":""}]})")[0].group, "");
}

TEST(UnitsFile, Faults) {
  EXPECT_EQ(error_of(R"({})"), "units.json: has no \"units\"");
  EXPECT_EQ(error_of(R"([])"), "units.json: must be an object with the key \"units\"");
  EXPECT_EQ(error_of(R"({"units":{}})"), "units.json: \"units\" must be an array");
  EXPECT_EQ(error_of(R"({"units":[],"x":1})"), "units.json: unknown key \"x\"");
  EXPECT_EQ(error_of(R"({"units":[],"units":[]})"), "units.json: \"units\" is there twice");
  EXPECT_EQ(error_of(R"({"units":[{"name":"a","name":"b"}]})"), "units.json: \"name\" is there twice");
  EXPECT_EQ(error_of(R"({"units":[{"name":"a"},{"name":"a"}]})"),
            "units.json: units[1]: the unit \"a\" is there twice");
  EXPECT_EQ(error_of(R"({"units":[{"name":"x"}]})"), "units.json: units[0]: the trace has no unit \"x\"");
  EXPECT_EQ(error_of(R"({"units":[{"name":"a","price":1}]})"), "units.json: units[0]: unknown key \"price\"");
  EXPECT_EQ(error_of(R"({"units":[{"cost":1}]})"), "units.json: units[0]: has no name");
  EXPECT_EQ(error_of(R"({"units":[{"name":5}]})"), "units.json: units[0]: name must be a string");
  EXPECT_EQ(error_of(R"({"units":["a"]})"), "units.json: units[0]: must be an object");
  EXPECT_EQ(error_of(R"({"units":[{"name":"a","group":5}]})"), "units.json: units[0]: group must be a string or null");
  for (const std::string cost : {"0", "-1", "2.5", "1e300", "9007199254740993", "18446744073709551615"}) {
    EXPECT_EQ(error_of(R"({"units":[{"name":"a","cost":)" + cost + "}]}").substr(0, 68),
              "units.json: units[0]: cost must be a whole number from 1 to 2^53, no");
  }
  for (const std::string cost : {"\"3\"", "true", "null", "[1]"}) {
    EXPECT_EQ(error_of(R"({"units":[{"name":"a","cost":)" + cost + "}]}"),
              "units.json: units[0]: cost must be a number");
  }
  for (const std::string text :
       {"", "{", "{\"units\":[NaN]}", "{\"units\":[]} x", "{\"units\":[{\"name\":\"\xff\"}]}"}) {
    EXPECT_EQ(error_of(text).substr(0, 21), "units.json: not JSON:");
  }
  EXPECT_THROW(parsed_units(std::string(100000, '[')), Error);
  EXPECT_THROW(read_units("/no/such/file", kTrace), Error);
}

TEST(UnitsFile, GoldenFile) {
  const auto trace = open_trace(std::string(GNMR_GOLDEN_DIR) + "/mixed_01.csv");
  const auto units = read_units(std::string(GNMR_GOLDEN_DIR) + "/mixed_01.units.json", trace->units());
  ASSERT_EQ(units.size(), 8U);
  EXPECT_EQ(units[6].cost, 3);
  EXPECT_EQ(units[6].group, "a");
  EXPECT_EQ(units[3].group, "");
}

}  // namespace
}  // namespace gnmr::io
