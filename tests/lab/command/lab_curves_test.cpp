// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/lab_table.h"
#include "io/temporary_folder.h"

namespace gnmr::app {
namespace {

std::vector<CurvePoint> line(double first, double last, std::int64_t steps) {
  std::vector<CurvePoint> curve;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double part = static_cast<double>(step - 1) / static_cast<double>(steps - 1);
    curve.emplace_back(step, first + (last - first) * part);
  }
  return curve;
}

TEST(LabCurves, AStraightLineGoesFromCornerToCorner) {
  const std::string text =
      draw_panels({{.title = "one", .curves = {line(2, 1, 100)}}}, {.columns = 25, .rows = 2, .last_step = 100});
  const std::vector<std::string> lines = test::lines_of(text);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].substr(0, 8), "     one");
  EXPECT_EQ(lines[1].substr(0, 4), "1.90");  // the first tenth has no part in the scale
  EXPECT_EQ(lines[2].substr(0, 4), "1.00");
  EXPECT_NE(lines[2].find("⣀"), std::string::npos);
  for (const std::string& shown : lines) EXPECT_LE(shown_width(shown), 25U);
}

TEST(LabCurves, PanelsStandSideBySideAndThenBelow) {
  const std::vector<CurvePanel> panels(5, {.title = "arm", .curves = {line(2, 1, 50)}});
  EXPECT_EQ(test::lines_of(draw_panels(panels, {.columns = 120, .rows = 4, .last_step = 50})).size(), 5U);
  const std::vector<std::string> narrow =
      test::lines_of(draw_panels(panels, {.columns = 60, .rows = 4, .last_step = 50}));
  EXPECT_EQ(narrow.size(), 10U);
  for (const std::string& shown : narrow) EXPECT_LE(shown_width(shown), 60U);
}

TEST(LabCurves, NothingAndWhatIsNotFiniteCanBeDrawn) {
  EXPECT_EQ(draw_panels({}, {}), "");
  EXPECT_EQ(test::lines_of(draw_panels({{.title = "empty"}}, {.rows = 3})).size(), 4U);
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(test::lines_of(draw_panels({{.title = "bad", .curves = {{{1, nan}, {2, infinity}, {3, 1.0}, {4, 1.0}}}}},
                                       {.rows = 3, .last_step = 4}))
                .size(),
            4U);
}

TEST(LabCurves, SmoothingKeepsALevelAndGaps) {
  const std::vector<CurvePoint> flat = smoothed({{1, 3.0}, {2, 3.0}, {3, std::nan("")}, {4, 3.0}});
  EXPECT_NEAR(flat[0].second, 3, 1e-12);
  EXPECT_TRUE(std::isnan(flat[2].second));
  EXPECT_NEAR(flat[3].second, 3, 1e-12);
}

}  // namespace
}  // namespace gnmr::app
