// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

class SummaryTest : public ::testing::Test {
 protected:
  Suite open(const Texts& arms, std::vector<std::int64_t> seeds) {
    return Suite::open(
        {.folder = folder_.file("suite"), .title = "t", .seeds = std::move(seeds), .arms = choose_arms(arms)});
  }

  /// A result for every cell, from losses by arm and seed.
  static std::vector<std::optional<CellResult>> results(const Suite& suite,
                                                        const std::vector<std::vector<double>>& losses) {
    std::vector<std::optional<CellResult>> all;
    for (const PlannedCell& cell : suite.cells()) {
      const auto seed = static_cast<std::size_t>(cell.seed);
      all.push_back(CellResult{.arm = suite.arms()[cell.arm].arm.name,
                               .seed = cell.seed,
                               .loss = losses[cell.arm][seed],
                               .losses = {.low = losses[cell.arm][seed]},
                               .share_mean = 0.05,
                               .step_ms = 10.0 * static_cast<double>(cell.arm + 1),
                               .units = 4});
    }
    return all;
  }

  test::TemporaryFolder folder_;
};

TEST_F(SummaryTest, ARowSaysMeanSpreadGapAndTimes) {
  const Suite suite = open({"high", "low", "gnmr"}, {0, 1, 2});
  const Summary summary = summarise(suite, results(suite, {{1.0, 2.0, 3.0}, {1.2, 2.2, 3.2}, {1.1, 2.05, 3.1}}));
  ASSERT_EQ(summary.rows.size(), 3U);
  const SummaryRow& gnmr = summary.rows[2];
  EXPECT_EQ(gnmr.cells.at("loss").text, "2.0833 ± 1.0004");
  EXPECT_EQ(gnmr.cells.at("gap_closed").text, "58% [22, 94]");
  EXPECT_NEAR(*gnmr.cells.at("gap_closed").value, 1.75 / 3, 1e-12);
  EXPECT_EQ(gnmr.cells.at("seeds").text, "3");
  EXPECT_EQ(gnmr.cells.at("share_mean").text, "5.0 ± 0.0");
  EXPECT_EQ(gnmr.cells.at("step_ms").text, "30");
  EXPECT_EQ(gnmr.cells.at("step_ratio").text, "1.50");
  EXPECT_FALSE(summary.rows[0].cells.contains("gap_closed"));
  EXPECT_FALSE(gnmr.cells.contains("recall"));
}

TEST_F(SummaryTest, NoiseIsNoGap) {
  const Suite suite = open({"high", "low", "gnmr"}, {0, 1, 2});
  const Summary summary = summarise(suite, results(suite, {{1.0, 1.0, 1.0}, {1.1, 0.95, 1.0}, {0.9, 0.9, 0.9}}));
  EXPECT_EQ(summary.rows[2].cells.at("gap_closed").text, "no gap");
  EXPECT_FALSE(summary.rows[2].cells.at("gap_closed").value.has_value());
}

TEST_F(SummaryTest, OneSeedIsToldToBeOne) {
  const Suite suite = open({"high", "low", "gnmr"}, {0});
  const Summary summary = summarise(suite, results(suite, {{1.0}, {2.0}, {1.25}}));
  EXPECT_EQ(summary.rows[2].cells.at("gap_closed").text, "75% (1 seed)");
  EXPECT_EQ(summary.rows[2].cells.at("loss").text, "1.2500");
}

TEST_F(SummaryTest, WhatDivergedIsNotAveragedAway) {
  const Suite suite = open({"high", "low", "gnmr", "paper"}, {0, 1});
  Summary summary =
      summarise(suite, results(suite, {{1.0, 1.0}, {std::nan(""), 2.0}, {1.5, 1.5}, {1.5, std::nan("")}}));
  EXPECT_EQ(summary.rows[1].cells.at("loss").text, "diverged (1 of 2)");
  EXPECT_TRUE(std::isnan(*summary.rows[1].cells.at("loss").value));
  EXPECT_EQ(summary.rows[2].cells.at("gap_closed").text, "low diverged");
  EXPECT_EQ(summary.rows[3].cells.at("gap_closed").text, "diverged");
  const auto file = nlohmann::json::parse(write_summary(summary));
  EXPECT_EQ(file["rows"][1]["cells"]["loss"]["value"], "nan");
}

TEST_F(SummaryTest, MissingCellsAreTold) {
  const Suite suite = open({"high", "low"}, {0, 1});
  std::vector<std::optional<CellResult>> some = results(suite, {{1.0, 1.0}, {2.0, 2.0}});
  some[0].reset();
  some[1].reset();
  some[3].reset();
  const Summary summary = summarise(suite, some);
  EXPECT_EQ(summary.rows[0].cells.at("seeds").text, "1 of 2");
  EXPECT_EQ(summary.rows[1].cells.at("seeds").text, "0 of 2");
}

TEST_F(SummaryTest, TheFileHasTheFormThatReportsRead) {
  const Suite suite = open({"high", "low", "gnmr"}, {0, 1});
  std::vector<std::optional<CellResult>> cells = results(suite, {{1.0, 1.1}, {2.0, 2.1}, {1.5, 1.6}});
  cells[2]->detection = Detection{.faults = 4, .recall = 0.5, .precision = 0.25, .delay = 1};
  cells[2]->note = "something";
  const Summary summary = summarise(suite, cells);
  EXPECT_EQ(summary.notes, Texts{"gnmr-seed0: something"});
  const auto file = nlohmann::json::parse(write_summary(summary));
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["columns"][0]["key"], "loss");
  EXPECT_EQ(file["rows"][2]["arm"], "gnmr");
  EXPECT_EQ(file["rows"][2]["cells"]["recall"]["text"], "2 of 4 [7, 93]");
  EXPECT_TRUE(file["rows"][2]["cells"]["gap_closed"]["low"].is_number());
}

}  // namespace
}  // namespace gnmr::lab
