// SPDX-License-Identifier: Apache-2.0
#include "gnmr/heat_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace gnmr::app {
namespace {

std::vector<std::string> map_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Picture {
  std::vector<std::string> lines;
  std::size_t expected_lines;
};

Picture draw(std::size_t units, int steps, const HeatMapStyle& style) {
  std::vector<Unit> list;
  for (std::size_t i = 0; i < units; ++i) list.push_back({.name = "unit" + std::to_string(i)});
  Options options;
  options.max_o = 2;
  Controller controller(list, options, norms_only());
  HeatMap map(controller, style);
  std::vector<double> norms(units, 1.0);
  for (int step = 0; step < steps; ++step) {
    norms.assign(units, 1.0);
    if (step == 30) norms[1] = 6;
    if (step == 45) norms[2] = std::numeric_limits<double>::quiet_NaN();
    controller.begin(step);
    map.add(controller, controller.report({.step = step, .norms = norms}).decision);
  }
  return {map_lines(map.draw()), map.line_count()};
}

TEST(HeatMap, ShowsARiseARecoveryAndANan) {
  const Picture picture = draw(4, 60, {.columns = 100, .unit_rows = 10, .color = false});
  ASSERT_EQ(picture.lines.size(), picture.expected_lines);
  constexpr std::size_t kLabel = 23;
  EXPECT_EQ(picture.lines[1].substr(0, 5), "unit1");
  EXPECT_EQ(picture.lines[1][kLabel + 30], '#');
  EXPECT_EQ(picture.lines[1].substr(kLabel + 31, 10), "oooooooooo");  // the lock
  EXPECT_NE(picture.lines[1][kLabel + 41], 'o');
  EXPECT_EQ(picture.lines[2][kLabel + 45], '!');
  EXPECT_EQ(picture.lines[0].substr(kLabel).find_first_not_of(' '), std::string::npos);
}

TEST(HeatMap, ALongRunStillFits) {
  const Picture picture = draw(4, 1000, {.columns = 80, .unit_rows = 10, .color = false});
  for (std::size_t row = 0; row < 4; ++row) EXPECT_LE(picture.lines[row].size(), 80u);
  EXPECT_NE(picture.lines[2].find('!'), std::string::npos);  // merged columns keep what is worst
}

TEST(HeatMap, NoLineIsWiderThanItMayBe) {
  for (const std::size_t columns : {64U, 80U, 120U}) {
    const Picture picture = draw(4, 1000, {.columns = columns, .unit_rows = 10, .color = false});
    ASSERT_EQ(picture.lines.size(), picture.expected_lines);
    for (const std::string& line : picture.lines) {
      const auto characters = std::count_if(line.begin(), line.end(), [](char character) {
        return (static_cast<unsigned char>(character) & 0xC0U) != 0x80U;
      });
      EXPECT_LE(characters, static_cast<std::ptrdiff_t>(columns)) << line;
    }
  }
}

TEST(HeatMap, ManyUnitsShareRows) {
  const Picture picture = draw(1000, 60, {.columns = 80, .unit_rows = 20, .color = false});
  ASSERT_EQ(picture.lines.size(), picture.expected_lines);
  EXPECT_NE(picture.lines[0].find("+49"), std::string::npos);
  EXPECT_NE(picture.lines[0].find('!'), std::string::npos);
}

TEST(HeatMap, ColourIsOnlyUsedWhereItMayBe) {
  const Picture picture = draw(4, 60, {.columns = 80, .unit_rows = 10, .color = true});
  EXPECT_NE(picture.lines[0].find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace gnmr::app
