// SPDX-License-Identifier: Apache-2.0
// A run that is killed again and again, at any moment, ends as one that was left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "apps/train/train_program.h"

namespace gnmr::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int kSteps = 300;
constexpr int kKills = 18;

TEST(KilledRun, GoesOnBitForBit) {
  const TrainFolder folder;
  const std::vector<std::string> settings{"--checkpoint-every", "4", "--eval-every", "9"};
  ASSERT_EQ(folder.run(with(folder.flags("whole", kSteps), settings)).status, 0) << folder.log();
  const std::string whole = folder.file("whole");
  const std::string parts = folder.file("parts");
  const std::string metrics = parts + "/metrics.jsonl";

  std::mt19937 random(20240611);
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  int kills = 0;
  int before_training = 0;
  bool done = false;
  for (int attempt = 0; attempt < 200 && !done; ++attempt) {
    std::vector<std::string> flags = with(folder.flags("parts", kSteps), settings);
    if (fs::exists(parts + "/run.json")) flags.emplace_back("--resume");
    const std::size_t told = lines_in(metrics);
    TrainProgram program(flags, folder.file("log"));
    if (kills < kKills) {
      // A third of the kills come while the run is still being set up, the others some steps into it.
      const bool early = kills % 3 == 0;
      if (early) {
        program.wait_until(
            [&, existed = fs::exists(parts + "/.lock")] { return existed || fs::exists(parts + "/.lock"); });
        // On a fast machine training may have begun by then: it must not be over.
        const auto moment = std::chrono::steady_clock::now() + microseconds(below(400'000));
        program.wait_until([&] { return std::chrono::steady_clock::now() >= moment || lines_in(metrics) >= told + 3; });
      } else {
        const auto more = static_cast<std::size_t>(1 + below(12));
        program.wait_until([&] { return lines_in(metrics) >= told + more; });
        std::this_thread::sleep_for(microseconds(below(6'000)));
      }
      program.send(SIGKILL);
      before_training += lines_in(metrics) == told ? 1 : 0;
    }
    const Ended ended = program.wait();
    if (ended.signal == SIGKILL) {
      ++kills;
      continue;
    }
    ASSERT_EQ(ended.status, 0) << "after " << kills << " kills: " << folder.log();
    done = true;
  }
  ASSERT_TRUE(done);
  EXPECT_GE(kills, 15);
  EXPECT_LT(before_training, kills);

  const std::string last = "/checkpoints/step-00000" + std::to_string(kSteps);
  for (const char* const name :
       {"/model.safetensors", "/optimizer.safetensors", "/low_path.safetensors", "/controller.gnmr", "/config.json"}) {
    const std::string expected = test::content_of(whole + last + name);
    EXPECT_FALSE(expected.empty()) << name;
    EXPECT_TRUE(expected == test::content_of(parts + last + name)) << name;
  }
  const run::Metrics expected = metrics_of(whole);
  const run::Metrics found = metrics_of(parts);
  EXPECT_EQ(expected.train.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(found.train, expected.train);
  EXPECT_EQ(found.evals, expected.evals);
  EXPECT_GE(found.resumes.size(), 10u);
  const std::vector<std::string> decisions = decisions_of(whole);
  EXPECT_GT(std::count_if(decisions.begin(), decisions.end(),
                          [](const std::string& line) { return line.find(" admitted ") != std::string::npos; }),
            5);
  EXPECT_EQ(decisions_of(parts), decisions);
  EXPECT_EQ(test::content_of(whole + "/faults.csv"), test::content_of(parts + "/faults.csv"));
  for (const auto& entry : fs::directory_iterator(parts + "/checkpoints")) {
    EXPECT_EQ(entry.path().filename().string().find("step-"), 0u) << "nothing unfinished is left: " << entry.path();
  }
}

}  // namespace
}  // namespace gnmr::testing
