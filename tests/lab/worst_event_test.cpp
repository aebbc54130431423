// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/worst_event.h"

#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "lab/fake_run.h"

namespace gnmr::lab {
namespace {

TEST(WorstEvent, ItIsFoundWithItsEvidenceAndFault) {
  const test::TemporaryFolder folder;
  test::FakeRun run;
  run.settings.out = folder.file("run");
  run.settings.steps = 40;
  run.steps_done = 40;
  run.burst_step = 30;
  run.fault_last = 32;
  test::write_fake_run(run);
  run::EvidenceWriter evidence(folder.file("run/evidence.jsonl"), io::ExistingFile::refuse);
  evidence.write({.step = 29, .unit = "layers.0.q", .relative_error = 9});
  evidence.write({.step = 30, .unit = "layers.0.q", .relative_error = 0.5, .saturated = 0.25, .flushed = 0.01});
  evidence.close();
  const std::optional<WorstEvent> worst = worst_event(folder.file("run"));
  ASSERT_TRUE(worst.has_value());
  EXPECT_EQ(worst->event.step, 30);
  EXPECT_EQ(
      worst_event_text(*worst),
      "step 30, layers.0.q: gradient norm 20.00 times its usual; its quantization: 25.0% saturated, 1.0% flushed to 0, "
      "relative error 0.50 (a fault was injected there)");
}

TEST(WorstEvent, WithoutAdmissionsThereIsNone) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(worst_event(folder.file("nothing")).has_value());
  test::FakeRun run;
  run.settings.out = folder.file("run");
  run.settings.steps = 40;
  run.steps_done = 40;
  test::write_fake_run(run);
  EXPECT_FALSE(worst_event(folder.file("run")).has_value());
}

TEST(WorstEvent, WhatIsNotKnownIsLeftOut) {
  EXPECT_EQ(worst_event_text({.event = {.step = 3, .unit = "a"}}), "step 3, a: its gradient is gone");
  const io::JournalEvent event{.step = 3, .unit = "a", .ratio = 0.25};
  EXPECT_EQ(worst_event_text({.event = event, .faulty = std::vector<std::string>{}}),
            "step 3, a: gradient norm 0.25 times its usual (no fault was injected in that step)");
  EXPECT_EQ(worst_event_text({.event = event, .faulty = std::vector<std::string>{"b", "c"}}),
            "step 3, a: gradient norm 0.25 times its usual (a fault was injected in b, c)");
}

}  // namespace
}  // namespace gnmr::lab
