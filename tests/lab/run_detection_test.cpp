// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/run_detection.h"

#include <gtest/gtest.h>

#include <string>

#include "gnmr/lab/fault_harm.h"
#include "gnmr/run/metrics.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

/// Twelve steps with lag 1. Batches 3 and 4 are held in steps 3 and 4 and come again in steps 5 and 6, so that steps 7
/// to 12 run batches 5 to 10. Faults: a in batches 3 and 4, b in 7 and 8, a in 11 and 12, which the run never reaches.
/// Admitted: a in the trial of batch 3; b in batch 5, where nothing is, until batch 6; b in batch 8.
class HeldRun : public ::testing::Test {
 protected:
  HeldRun() {
    std::string truth = "step,a,b\n";
    for (int batch = 1; batch <= 12; ++batch) {
      const bool of_a = batch == 3 || batch == 4 || batch >= 11;
      const bool of_b = batch == 7 || batch == 8;
      truth += std::to_string(batch) + (of_a ? ",1" : ",0") + (of_b ? ",1\n" : ",0\n");
    }
    test::put_file(truth_path_, truth);
    std::string journal =
        "{\"kind\":\"header\",\"version\":1,\"options\":{\"selector\":\"trial\",\"lag\":1},"
        "\"units\":[{\"name\":\"a\",\"cost\":1},{\"name\":\"b\",\"cost\":1}]}\n";
    std::string metrics;
    for (int step = 1; step <= 12; ++step) {
      const int batch = step < 5 ? step : step - 2;
      if (step == 5 || step == 6) journal += trial(step, step == 5 ? "numeric" : "unlocated");
      journal += "{\"kind\":\"step\",\"step\":" + std::to_string(step) +
                 ",\"sampled\":2,\"risks\":0,\"common\":false,\"recovered\":0,\"cost_share\":0" +
                 (step == 3 || step == 4 ? ",\"alarm\":\"held\"}\n" : "}\n");
      if (step == 5) journal += event(step, "a", "admitted");
      if (step == 7) journal += event(step, "b", "admitted");
      if (step == 8) journal += event(step, "b", "released");
      if (step == 9) journal += event(step, "a", "released");
      if (step == 10) journal += event(step, "b", "admitted");
      metrics += "{\"kind\":\"train\",\"step\":" + std::to_string(step) + ",\"loss\":1" +
                 (batch == step ? "" : ",\"batch\":" + std::to_string(batch)) + "}\n";
    }
    test::put_file(folder_.file("journal.jsonl"), journal);
    test::put_file(folder_.file("metrics.jsonl"), metrics);
  }

  static std::string trial(int step, const std::string& verdict) {
    return "{\"kind\":\"trial\",\"step\":" + std::to_string(step) + ",\"verdict\":\"" + verdict +
           "\",\"units\":[],\"errors\":[],\"losses\":[],\"seconds\":0}\n";
  }

  static std::string event(int step, const std::string& unit, const std::string& kind) {
    return "{\"kind\":\"event\",\"step\":" + std::to_string(step) + ",\"unit\":\"" + unit + "\",\"event\":\"" + kind +
           "\",\"left\":0}\n";
  }

  io::Journal journal() { return io::read_journal(folder_.file("journal.jsonl")); }
  run::RunBatches batches() { return run::RunBatches(run::read_metrics(folder_.file("metrics.jsonl")).train); }

  test::TemporaryFolder folder_;
  std::string truth_path_ = folder_.file("faults.csv");
};

TEST_F(HeldRun, IsScoredInBatches) {
  const std::optional<Detection> score = detection_in(journal(), batches(), truth_path_);
  ASSERT_TRUE(score);
  EXPECT_EQ(score->faults, 2U) << "one fault of a, though its batches ran twice; none of batches that never ran";
  EXPECT_DOUBLE_EQ(score->recall, 1);
  EXPECT_DOUBLE_EQ(score->precision, 2.0 / 3);
  EXPECT_EQ(score->outside, 1U);
  EXPECT_DOUBLE_EQ(score->delay, 0.5) << "a in batch 3 of 3, b in batch 8 of 7";
  EXPECT_EQ(score->largest_delay, 1);
}

TEST_F(HeldRun, WouldScoreOtherwiseIfStepsWereBatches) {
  std::vector<run::TrainLine> lines = run::read_metrics(folder_.file("metrics.jsonl")).train;
  for (run::TrainLine& line : lines) line.batch.reset();
  const std::optional<Detection> score = detection_in(journal(), run::RunBatches(lines), truth_path_);
  ASSERT_TRUE(score);
  // Only b's admission in step 7 is in a fault: the first of three.
  EXPECT_EQ(score->faults, 3U);
  EXPECT_DOUBLE_EQ(score->recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(score->precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(score->delay, 0);
  EXPECT_EQ(score->outside, 2U);
}

TEST_F(HeldRun, ItsFaultsAreMetInTheBatchesThatTheyAreOf) {
  const std::vector<ListedFault> faults{{.fault = "saturate", .layer = "a", .first = 3, .last = 4},
                                        {.fault = "saturate", .layer = "b", .first = 4, .last = 4, .transient = true},
                                        {.fault = "saturate", .layer = "b", .first = 7, .last = 8},
                                        {.fault = "saturate", .layer = "a", .first = 11, .last = 12}};
  const std::vector<run::HarmLine> harm{{3, "a", 0.5}, {4, "a", 0.5}, {4, "b", 0.4}, {7, "b", 0.3}, {8, "b", 0.2}};
  const io::Journal recorded = journal();
  const FaultHarm found = fault_harm(faults, harm, batches(), &recorded);
  EXPECT_EQ(found.faults, 3U);
  EXPECT_EQ(found.harmful, 3U);
  EXPECT_EQ(found.met, 3U);
  EXPECT_EQ(found.covered, 0U);
}

TEST_F(HeldRun, ALostLineOfTheJournalDecidesNothing) {
  io::Journal lost = journal();
  std::erase_if(lost.steps, [](const io::JournalStepEntry& entry) { return entry.number >= 10; });
  const std::optional<Detection> score = detection_in(lost, batches(), truth_path_);
  ASSERT_TRUE(score);
  EXPECT_EQ(score->faults, 2U) << "b's batch 8 ran, whatever was recorded";
  EXPECT_DOUBLE_EQ(score->recall, 0.5);
}

}  // namespace
}  // namespace gnmr::lab
