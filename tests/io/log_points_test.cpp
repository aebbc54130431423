// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::kNone;
using testing::message_of;
using testing::read_all;
using testing::Row;

TEST(PointLog, UnitsWrittenOneAfterTheOtherMeetInRows) {
  PointLog log(false);
  EXPECT_TRUE(log.empty());
  for (const std::int64_t step : {1, 2, 3}) log.add("a", step, 1, "here");
  for (const std::int64_t step : {2, 4}) log.add("b", step, 2, "here");
  const auto trace = read_all(*log.finish(5));
  EXPECT_EQ(trace.units, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(trace.rows, (std::vector<Row>{{1, {1, kNone}}, {2, {1, 2}}, {3, {1, kNone}}, {4, {kNone, 2}}}));
}

TEST(PointLog, Faults) {
  PointLog log(false);
  EXPECT_EQ(message_of([&] { log.add("a", 1, -1, "here"); }), "here: the norm -1 is negative");
  EXPECT_EQ(message_of([&] { log.add("", 1, 1, "here"); }), "here: a unit without a name");
  EXPECT_EQ(message_of([&] { log.add("\xff", 1, 1, "here"); }), "here: the name \"\xEF\xBF\xBD\" is not UTF-8");
  log.add("a", 1, 1, "here");
  EXPECT_EQ(message_of([&] { log.add("a", 1, 1, "here"); }).substr(0, 48),
            "here: step 1 of \"a\" does not come after step 1 (");
}

struct Point {
  std::size_t unit;
  std::int64_t step;
  double norm;
};

// The rule word for word: a unit's step that does not increase drops all earlier points from that step on.
std::vector<Row> naive(const std::vector<Point>& added, std::size_t units) {
  std::vector<Point> kept;
  for (const Point& point : added) {
    const bool goes_back = std::any_of(kept.begin(), kept.end(), [&](const Point& earlier) {
      return earlier.unit == point.unit && earlier.step >= point.step;
    });
    if (goes_back) std::erase_if(kept, [&](const Point& earlier) { return earlier.step >= point.step; });
    kept.push_back(point);
  }
  std::map<std::int64_t, Row> rows;
  for (const Point& point : kept) {
    Row& row = rows[point.step];
    row.step = point.step;
    row.cells.resize(units);
    row.cells[point.unit] = point.norm;
  }
  std::vector<Row> result;
  for (const auto& [step, row] : rows) result.push_back(row);
  return result;
}

TEST(PointLog, RandomRestartsAgreeWithTheRule) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t units = 1 + random() % 4;
    std::vector<Point> points;
    PointLog log(true);
    std::int64_t step = 0;
    for (std::size_t unit = 0; unit < units; ++unit) points.push_back({unit, -1, static_cast<double>(unit)});
    for (std::size_t i = 0; i < random() % 60; ++i) {
      step += random() % 8 == 0 ? -static_cast<std::int64_t>(random() % 9) : static_cast<std::int64_t>(random() % 2);
      points.push_back({random() % units, step, static_cast<double>(i)});
    }
    for (const Point& point : points) log.add("u" + std::to_string(point.unit), point.step, point.norm, "here");
    EXPECT_EQ(read_all(*log.finish(0)).rows, naive(points, units));
  }
}

}  // namespace
}  // namespace gnmr::io
