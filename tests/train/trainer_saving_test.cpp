// SPDX-License-Identifier: Apache-2.0
// What a run does where its files cannot be written, are somebody else's, or are removed under it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "gnmr/core/error.h"
#include "gnmr/train/memory_need.h"
#include "io/file_size_limit.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::error_of;
using test::put_file;
using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::SmallRuns;

/// A run with a checkpoint every two steps that is tried once.
run::TrainSettings short_run(const SmallRuns& runs, const std::string& name, std::int64_t steps = 6) {
  run::TrainSettings settings = runs.settings(name);
  settings.steps = steps;
  settings.checkpoint_every = 2;
  settings.checkpoint_retry = 0;
  return settings;
}

/// No file can grow beyond some bytes from the end of step `from` to that of step `to` (0: to the end of the run): the
/// disk is full.
FinishedRun finish_with_full_disk(const run::TrainSettings& settings, std::int64_t from, std::int64_t to,
                                  std::int64_t stop_after = 0) {
  std::unique_ptr<test::FileSizeLimit> full;
  Recorder recorder;
  recorder.stop_after = stop_after;
  recorder.after_step = [&](const run::TrainLine& line) {
    if (line.step == from) full = std::make_unique<test::FileSizeLimit>(2000);
    if (line.step == to) full.reset();
  };
  FinishedRun done = finish(settings, std::move(recorder));
  done.recorder.after_step = nullptr;
  return done;
}

bool has_note(const FinishedRun& run, const std::string& part) {
  return std::any_of(run.recorder.notes.begin(), run.recorder.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TrainerSaving, AMissedCheckpointIsMadeUpForByTheNext) {
  const SmallRuns runs;
  const run::TrainSettings settings = short_run(runs, "run", 8);
  const FinishedRun done = finish_with_full_disk(settings, 4, 6);
  EXPECT_EQ(done.outcome.unsaved, "");
  EXPECT_TRUE(done.outcome.finished);
  EXPECT_TRUE(has_note(done, "step-00000004: this checkpoint could not be written"));
  EXPECT_TRUE(has_note(done, "the newest good checkpoint is that of step 2 ("));
  EXPECT_TRUE(fs::exists(settings.out + "/checkpoints/step-00000008"));
}

TEST(TrainerSaving, ALastCheckpointThatCannotBeWrittenIsPartOfTheOutcome) {
  const SmallRuns runs;
  run::TrainSettings settings = short_run(runs, "run");
  const FinishedRun lost = finish_with_full_disk(settings, 5, 0);
  const std::string newest = "the newest good checkpoint is that of step 4 (" + settings.out + "/checkpoints/step-";
  EXPECT_TRUE(contains(lost.outcome.unsaved, "step-00000006: this checkpoint")) << lost.outcome.unsaved;
  EXPECT_TRUE(contains(lost.outcome.unsaved, newest)) << lost.outcome.unsaved;
  settings.resume = true;
  const FinishedRun again = finish(settings);
  EXPECT_EQ(again.recorder.start.first_step, 5);
  EXPECT_EQ(again.outcome.unsaved, "");

  const run::TrainSettings none = short_run(runs, "none", 2);
  const FinishedRun nothing = finish_with_full_disk(none, 1, 0);
  EXPECT_TRUE(contains(nothing.outcome.unsaved, "no step of this run is saved")) << nothing.outcome.unsaved;
  // So it is where a run was asked to stop.
  const FinishedRun stopped = finish_with_full_disk(short_run(runs, "stopped"), 3, 0, 3);
  EXPECT_TRUE(contains(stopped.outcome.unsaved, "step-00000003")) << stopped.outcome.unsaved;
}

TEST(TrainerSaving, ARemovedFolderIsReportedAndMadeAgain) {
  const SmallRuns runs;
  run::TrainSettings settings = short_run(runs, "run");
  Recorder recorder;
  recorder.after_step = [&](const run::TrainLine& line) {
    if (line.step == 3) test::remove_tree(settings.out);
  };
  const FinishedRun done = finish(settings, recorder);
  EXPECT_TRUE(has_note(done, settings.out + " was removed"));
  EXPECT_TRUE(contains(done.outcome.unsaved, "was removed")) << done.outcome.unsaved;
  EXPECT_TRUE(contains(done.outcome.unsaved, "noticed at step 3")) << done.outcome.unsaved;
  EXPECT_TRUE(contains(done.outcome.unsaved, "--resume continues from step 6")) << done.outcome.unsaved;
  // The weights are not lost: what was made again can be continued.
  settings.resume = true;
  EXPECT_EQ(finish(settings).recorder.start.first_step, 7);
}

TEST(TrainerSaving, AFolderThatIsReplacedByAnotherRunIsLeftAlone) {
  const SmallRuns runs;
  const run::TrainSettings settings = short_run(runs, "run");
  Recorder recorder;
  recorder.after_step = [&](const run::TrainLine& line) {
    if (line.step != 3) return;
    fs::rename(settings.out, runs.file("moved"));
    fs::create_directories(settings.out);
    put_file(settings.out + "/run.json", "another one's");
  };
  const FinishedRun done = finish(settings, recorder);
  EXPECT_TRUE(contains(done.outcome.unsaved, "is no longer this run's")) << done.outcome.unsaved;
  EXPECT_TRUE(contains(done.outcome.unsaved, "no step of this run is saved")) << done.outcome.unsaved;
  EXPECT_TRUE(contains(done.outcome.unsaved, "noticed at step 3")) << done.outcome.unsaved;
  EXPECT_EQ(content_of(settings.out + "/run.json"), "another one's");
  EXPECT_FALSE(fs::exists(settings.out + "/checkpoints"));
}

TEST(TrainerSaving, ARefusedStartCanBeTriedAgain) {
  const SmallRuns runs;
  run::TrainSettings settings = short_run(runs, "run", 2);
  {
    const test::FileSizeLimit full(0);
    EXPECT_TRUE(contains(error_of<OutputError>([&] { finish(settings); }), "run.json"));
  }
  // Found out after run.json was written: a guard that does not go with the other settings.
  run::TrainSettings wrong = settings;
  wrong.norms = true;
  fs::create_directories(settings.out + "/norms.csv");
  EXPECT_THROW(finish(wrong), Error);
  fs::remove(settings.out + "/norms.csv");
  EXPECT_TRUE(finish(settings).outcome.finished);
}

TEST(TrainerSaving, AResumeWithNothingToResumeStartsTheRun) {
  const SmallRuns runs;
  run::TrainSettings settings = short_run(runs, "run", 4);
  settings.resume = true;
  Recorder stopping;
  stopping.stop_after = 2;
  const FinishedRun first = finish(settings, stopping);
  EXPECT_TRUE(has_note(first, "there is no run to resume"));
  EXPECT_EQ(first.recorder.start.first_step, 1);
  const FinishedRun second = finish(settings);
  EXPECT_FALSE(has_note(second, "there is no run to resume"));
  EXPECT_EQ(second.recorder.start.first_step, 3);
}

TEST(TrainerSaving, ACheckpointOfAnotherRunIsNotResumed) {
  const SmallRuns runs;
  run::TrainSettings settings = short_run(runs, "run", 4);
  Recorder stopping;
  stopping.stop_after = 2;
  finish(settings, stopping);
  run::TrainSettings other = short_run(runs, "other", 4);
  other.seed = 5;
  finish(other);
  fs::rename(other.out + "/checkpoints/step-00000004", settings.out + "/checkpoints/step-00000004");
  settings.resume = true;
  EXPECT_EQ(finish(settings).recorder.start.first_step, 3) << "as if it were not there";
  EXPECT_TRUE(fs::exists(settings.out + "/checkpoints/step-00000004.kept-1"));
  other.out = settings.out;
  settings.resume_step = 7;
  EXPECT_TRUE(contains(error_of<Error>([&] { finish(settings); }), "step-00000007"));
  settings.out = runs.file("nothing");
  EXPECT_TRUE(contains(error_of<Error>([&] { finish(settings); }), "there is no run to resume, and so no step 7"));
}

TEST(TrainerSaving, ANewRunDeletesNothingOfOthers) {
  const SmallRuns runs;
  const run::TrainSettings settings = short_run(runs, "run", 2);
  const std::string theirs = settings.out + "/checkpoints/step-00000900/model.safetensors";
  fs::create_directories(fs::path(theirs).parent_path());
  put_file(theirs, "days of work");
  EXPECT_TRUE(contains(error_of<Error>([&] { finish(settings); }), "another --out"));
  EXPECT_EQ(content_of(theirs), "days of work");
  // Nor does one that finds them there later.
  const run::TrainSettings late = short_run(runs, "late", 6);
  Recorder recorder;
  recorder.after_step = [&](const run::TrainLine& line) {
    if (line.step == 3)
      fs::rename(settings.out + "/checkpoints/step-00000900", late.out + "/checkpoints/step-00000900");
  };
  finish(late, recorder);
  EXPECT_EQ(content_of(late.out + "/checkpoints/step-00000900/model.safetensors"), "days of work");
}

TEST(MemoryNeed, ALargeModelIsRefusedWithItsSize) {
  const MemoryNeed need = memory_need(models::preset_config("llama2-13b"), 8 * 128);
  EXPECT_EQ(need.parameters, 13'015'864'320.0);
  EXPECT_EQ(need.state_bytes, 16 * 13'015'864'320.0);
  EXPECT_TRUE(need.text().starts_with("194.2 GiB (16 bytes for each of 13.02 billion parameters")) << need.text();
  EXPECT_GT(free_host_bytes(), 0);
  EXPECT_LT(free_host_bytes(), std::int64_t{1} << 50);
  const MemoryNeed too_much{.parameters = 1e12, .state_bytes = 1e18, .logits_bytes = 0};
  const std::string message = error_of<Error>([&] { check_memory("huge", too_much, at::kCPU); });
  EXPECT_TRUE(contains(message, "--model huge does not fit in memory: it needs at least 931322574.6 GiB")) << message;
  EXPECT_NO_THROW(check_memory("nano", memory_need(models::preset_config("nano"), 1024), at::kCPU));
}

}  // namespace
}  // namespace gnmr::train
