// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

/// Three seeds of an arm, whose losses lie beside the seed's own level.
void add(std::vector<FaultCell>& cells, const std::string& fault, const std::string& arm, double loss,
         double share = 0) {
  for (std::int64_t seed = 0; seed < 3; ++seed) {
    const double apart = seed == 1 ? 0.01 : 0;
    CellResult result{.arm = arm,
                      .seed = seed,
                      .steps = 300,
                      .loss = loss + apart + static_cast<double>(seed),
                      .share_mean = share,
                      .share_peak = 0.25,
                      .high = {.mean = share},
                      .step_ms = arm == "trial" ? 12.0 : 10.0,
                      .units = 28};
    if (fault != "none") result.harm = FaultHarm{.faults = 10, .harmful = 8};
    if (arm == "oracle") result.harm = FaultHarm{.faults = 10, .covered = 10};
    if (arm == "trial") {
      if (fault != "none") result.harm = FaultHarm{.faults = 10, .harmful = 8, .met = 7, .covered = 2};
      result.admissions = 12;
      result.reruns = Reruns{.numeric = 8, .common = 1, .unlocated = 1, .time_share = 0.2};
      result.detection = Detection{.faults = 10,
                                   .recall = 0.9,
                                   .precision = 0.75,
                                   .delay = 0.5,
                                   .largest_delay = static_cast<double>(seed),
                                   .outside = 3};
    }
    cells.push_back({.fault = fault, .settings = {{"steps", "300"}}, .result = std::move(result)});
  }
}

std::vector<FaultTable> sample() {
  std::vector<FaultCell> cells;
  for (const char* fault : {"saturate", "wrong-rows"}) {
    add(cells, fault, "high", 1.0);
    add(cells, fault, "none", 2.0);
    add(cells, fault, "trial", 1.25, 0.06);
    add(cells, fault, "zclip", 1.9);
    add(cells, fault, "oracle", 1.2, 0.04);
  }
  add(cells, "none", "none", 1.0);
  add(cells, "none", "trial", 1.01, 0.001);
  return fault_tables(merge_cells(cells));
}

const SummaryRow& row_of(const Summary& summary, const std::string& arm) {
  return *std::find_if(summary.rows.begin(), summary.rows.end(), [&](const SummaryRow& row) { return row.arm == arm; });
}

TEST(FaultTables, ARowSaysWhatWasWonFoundAndPaid) {
  const std::vector<FaultTable> tables = sample();
  ASSERT_EQ(tables.size(), 3U);
  EXPECT_EQ(tables[0].subject.name, "saturate");
  EXPECT_EQ(tables[0].conditions, (Texts{"steps=300", "seeds 0 1 2"}));
  const SummaryRow& trial = row_of(tables[0].summary, "trial");
  EXPECT_EQ(trial.cells.at("gap_closed").text, "75% [75, 75]");
  EXPECT_NEAR(*trial.cells.at("of_oracle").value, 0.75 / 0.8, 1e-9);
  EXPECT_EQ(trial.cells.at("share_mean").text, "6.0");
  EXPECT_EQ(trial.cells.at("oracle_use").text, "1.50");
  EXPECT_EQ(trial.cells.at("harmful").text, "24 + 6");
  EXPECT_EQ(trial.cells.at("harmful_recall").text, "27 of 30 [73, 98]");
  EXPECT_EQ(trial.cells.at("precision").text, "27 of 36 [58, 88]");
  EXPECT_EQ(trial.cells.at("outside").text, "3.0");
  // Nine in three runs of 300 steps with 28 units.
  EXPECT_NEAR(*trial.cells.at("false_alarms").value, 1e6 * 9 / (3 * 300 * 28), 1e-9);
  EXPECT_EQ(trial.cells.at("high_change").text, "+0.2500 [+0.2500, +0.2500]");
  EXPECT_EQ(trial.cells.at("equivalent").text, "no");
  EXPECT_EQ(trial.cells.at("verdicts").text, "8.0/1.0/1.0");
  EXPECT_EQ(trial.cells.at("delay").text, "0.5");
  EXPECT_EQ(trial.cells.at("largest_delay").text, "2");
  EXPECT_EQ(trial.cells.at("trials").text, "10.0");
  EXPECT_EQ(trial.cells.at("trials_per_harmful").text, "1.0");
  EXPECT_EQ(trial.cells.at("rerun_time").text, "20.0");
  EXPECT_EQ(trial.cells.at("step_ratio").text, "1.50");
  const SummaryRow& oracle = row_of(tables[0].summary, "oracle");
  EXPECT_EQ(oracle.cells.at("gap_closed").text, "80% [80, 80]");
  EXPECT_EQ(oracle.cells.at("harmful_recall").text, "30 of 30 [88, 100]");
  EXPECT_FALSE(oracle.cells.contains("of_oracle"));
  // What sends nobody to recovery meets nothing, and what is 0 everywhere takes no room.
  EXPECT_FALSE(row_of(tables[0].summary, "zclip").cells.contains("harmful_recall"));
  for (const SummaryColumn& column : tables[0].summary.columns) {
    EXPECT_NE(column.key, "replays");
    EXPECT_EQ(column.help.find("{low}"), std::string::npos) << column.key;
  }
}

TEST(FaultTables, AHealthyRunIsComparedWithTheUnwatchedOne) {
  const FaultTable table = sample()[2];
  EXPECT_EQ(table.subject.name, "none");
  const SummaryRow& trial = row_of(table.summary, "trial");
  EXPECT_EQ(trial.cells.at("loss_change").text, "+0.0100 [+0.0100, +0.0100]");
  EXPECT_EQ(trial.cells.at("trials").text, "10.0");
  for (const SummaryColumn& column : table.summary.columns) EXPECT_NE(column.key, "gap_closed");
}

TEST(FaultTables, WhereTheOracleWinsNothingThereIsNoShareOfIt) {
  std::vector<FaultCell> cells;
  add(cells, "saturate", "none", 1.0);
  add(cells, "saturate", "trial", 0.9, 0.1);
  add(cells, "saturate", "oracle", 1.0, 0.1);
  const std::vector<FaultTable> tables = fault_tables(merge_cells(cells));
  EXPECT_EQ(row_of(tables[0].summary, "trial").cells.at("of_oracle").text, "no gain");
}

TEST(FaultTables, TheOverviewHasAColumnAFault) {
  const Summary summary = overview(sample());
  ASSERT_EQ(summary.columns.size(), 3U);
  EXPECT_EQ(summary.columns[1].title, "wrong-rows (after-cast)");
  EXPECT_EQ(summary.columns[2].title, "loss - none");
  EXPECT_EQ(row_of(summary, "trial").cells.at("saturate").text, "75% [75, 75]");
  EXPECT_EQ(row_of(summary, "zclip").cells.size(), 2U);
  EXPECT_EQ(summary.rows.size(), 3U);  // neither `none` nor `high` closes a gap
}

TEST(FaultTables, ASweepHasARowPerStrengthAndNumberOfLayers) {
  std::vector<FaultCell> cells;
  for (const char* fault :
       {"saturate,strength=16,layers=1", "saturate,strength=4,layers=1", "saturate,strength=4,layers=all"}) {
    add(cells, fault, "high", 1.0);
    add(cells, fault, "none", 2.0);
    add(cells, fault, "trial", 1.25);
  }
  const std::vector<FaultTable> tables = fault_tables(merge_cells(cells));
  const Summary gaps = sweep(tables, "gap_closed");
  ASSERT_EQ(gaps.rows.size(), 3U);
  EXPECT_EQ(gaps.rows[0].label, "saturate, strength 4, 1 layer (cast)");
  EXPECT_EQ(gaps.rows[1].label, "saturate, strength 16, 1 layer (cast)");
  EXPECT_EQ(gaps.rows[2].label, "saturate, strength 4, all layers (cast)");
  EXPECT_EQ(gaps.rows[2].cells.at("trial").text, "75% [75, 75]");
  const Summary differences = sweep(tables, "high_change");
  ASSERT_EQ(differences.columns.size(), 2U);
  EXPECT_EQ(differences.rows[0].cells.at("none").text, "+1.0000 [+1.0000, +1.0000]");
  EXPECT_TRUE(sweep(sample(), "gap_closed").rows.empty());
}

TEST(FaultTables, MarkdownHasTheOverviewAndATableAFault) {
  const std::string text = fault_tables_markdown(sample());
  for (const char* part :
       {"| | saturate (cast) | wrong-rows (after-cast) | loss - none |",
        "| trial | 75% [75, 75] | 75% [75, 75] | +0.0100 [+0.0100, +0.0100] |",
        "\n## wrong-rows (after-cast)\n\nsteps=300, seeds 0 1 2\n\n| | loss |", "- *gap closed*: Mean of none - arm"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text, fault_tables_markdown(sample()));
}

}  // namespace
}  // namespace gnmr::lab
