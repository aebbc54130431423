// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_json.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using nlohmann::json;

class Collector final : public JsonSink {
 public:
  void scalar(std::string_view path, const JsonScalar& value) override {
    json found;
    switch (value.kind) {
      case JsonScalar::Kind::number:
        found = value.number;
        break;
      case JsonScalar::Kind::text:
        found = std::string(value.text);
        break;
      case JsonScalar::Kind::boolean:
        found = "a truth value";
        break;
      case JsonScalar::Kind::null:
        break;
    }
    fields.emplace_back(std::string(path), found);
  }
  void object_end(std::string_view path) override { ended.emplace_back(path); }

  std::vector<std::pair<std::string, json>> fields;
  std::vector<std::string> ended;
};

Collector scanned(std::string_view text) {
  Collector collector;
  scan_json(text, collector);
  return collector;
}

TEST(LogJson, PathsAndValues) {
  const Collector found =
      scanned(R"( {"a":1,"b":{"c":[true,{"d":null}],"e":"x\n\u00e9\ud83d\ude00\/"},"":[] , "f\"":-2.5e3} )");
  using Field = std::pair<std::string, json>;
  EXPECT_EQ(found.fields, (std::vector<Field>{{"a", 1.0},
                                              {"b.c.0", "a truth value"},
                                              {"b.c.1.d", nullptr},
                                              {"b.e", "x\n\xC3\xA9\xF0\x9F\x98\x80/"},
                                              {"f\"", -2500.0}}));
  EXPECT_EQ(found.ended, (std::vector<std::string>{"b.c.1", "b", ""}));
}

TEST(LogJson, WhatPythonWrites) {
  double value = 0;
  for (const auto& [text, expected] : std::map<std::string, double>{{"NaN", testing::kNan},
                                                                    {"Infinity", testing::kInf},
                                                                    {"-Infinity", -testing::kInf},
                                                                    {"1e999", testing::kInf}}) {
    const Collector found = scanned("{\"x\": " + text + "}");
    ASSERT_EQ(found.fields.size(), 1U);
    EXPECT_EQ(testing::Cell(found.fields[0].second.get<double>()), testing::Cell(expected));
  }
  EXPECT_TRUE((JsonScalar{.kind = JsonScalar::Kind::text, .text = "NaN"}).as_number(value));
  EXPECT_FALSE((JsonScalar{.kind = JsonScalar::Kind::text, .text = "l2"}).as_number(value));
  EXPECT_FALSE((JsonScalar{.kind = JsonScalar::Kind::null}).as_number(value));
}

TEST(LogJson, FaultsHaveAPlace) {
  struct Fault {
    const char* text;
    const char* message;
    std::size_t offset;
  };
  const Fault faults[] = {{"", "not JSON: the end is missing", 0},
                          {"{\"a\":1", "not JSON: the end is missing", 6},
                          {"{\"a\":1,}", "not JSON: a name in quotes is missing", 7},
                          {"{\"a\" 1}", "not JSON: a colon is missing", 5},
                          {"[1 2]", "not JSON: a comma is missing", 3},
                          {"[1]]", "not JSON: text after the end", 3},
                          {"[tru]", "not JSON: not a value", 1},
                          {"\"abc", "not JSON: the quote is never closed", 1},
                          {"\"a\\x\"", "not JSON: an unknown escape", 4},
                          {"\"\\u12g4\"", "not JSON: an unknown escape", 3}};
  for (const Fault& fault : faults) {
    try {
      scanned(fault.text);
      ADD_FAILURE() << fault.text;
    } catch (const JsonError& error) {
      EXPECT_STREQ(error.what(), fault.message) << fault.text;
      EXPECT_EQ(error.offset(), fault.offset) << fault.text;
    }
  }
  EXPECT_THROW(scanned(std::string(1000000, '[')), JsonError);
  EXPECT_THROW(scanned("{\"" + std::string(1000000, 'k') + "\":1}"), JsonError);
}

json random_json(std::mt19937& random, int depth) {
  switch (random() % (depth > 3 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return static_cast<double>(random()) / 7.0;
    case 2:
      return -static_cast<int>(random() % 1000);
    case 3:
      return random() % 2 == 0 ? "plain" : "esc\"\\\n\t\x01 \xE2\x82\xAC";
    case 4:
      return 1e-300 * static_cast<double>(random());
    case 5: {
      json array = json::array();
      for (std::size_t i = 0; i < random() % 4; ++i) array.push_back(random_json(random, depth + 1));
      return array;
    }
    default: {
      json object = json::object();
      for (std::size_t i = 0; i < random() % 4; ++i) {
        object["k" + std::to_string(i) + (random() % 2 == 0 ? "" : "\n\xC3\xA9")] = random_json(random, depth + 1);
      }
      return object;
    }
  }
}

void flatten(const json& value, const std::string& path, std::vector<std::pair<std::string, json>>& fields) {
  const auto inside = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) flatten(item, inside(key), fields);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) flatten(value[i], inside(std::to_string(i)), fields);
  } else {
    fields.emplace_back(path, value.is_number() ? json(value.get<double>()) : value);
  }
}

TEST(LogJson, AgreesWithAFullParser) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    const json value = random_json(random, 0);
    std::vector<std::pair<std::string, json>> expected;
    flatten(value, "", expected);
    EXPECT_EQ(scanned(value.dump(trial % 3 == 0 ? 2 : -1, ' ', trial % 2 == 0)).fields, expected);
  }
}

}  // namespace
}  // namespace gnmr::io
