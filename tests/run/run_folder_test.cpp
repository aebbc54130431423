// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using gnmr::test::content_of;
using gnmr::test::error_of;
using gnmr::test::put_file;
using gnmr::test::TemporaryFolder;

RunInfo some_info() {
  RunInfo info{.id = "0123456789abcdef",
               .label = "a \"run\"",
               .program = "gnmr 1.2",
               .model = "nano",
               .parameters = 123456789012,
               .recipe = "fp8",
               .controller = "gnmr",
               .preset = "paper",
               .batch_tokens = 2048,
               .units = 28,
               .budget = 1,
               .data = "0123abcd",
               .faults = "saturate",
               .started = "2026-01-31T12:34:56Z",
               .steps = 77,
               .seed = -5};
  info.settings.steps = 77;
  info.settings.granularity = "block";
  info.settings.seed = -5;
  return info;
}

TEST(RunFolder, KnowsItsFiles) {
  const RunFolder folder("runs/x//");
  EXPECT_EQ(folder.path(), "runs/x");
  EXPECT_EQ(folder.metrics(), "runs/x/metrics.jsonl");
  EXPECT_EQ(folder.checkpoints(), "runs/x/checkpoints");
  EXPECT_EQ(RunFolder("/").path(), "/");
}

TEST(RunFolder, IsMadeAndLocked) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file("a/b"));
  std::optional<RunLock> lock(std::in_place, folder, false);
  EXPECT_FALSE(folder.holds_run());
  const std::string message = error_of<Error>([&] { RunLock(folder, false); });
  EXPECT_EQ(message,
            folder.path() + ": another process is writing this run (process " + std::to_string(::getpid()) + ")");
  lock.reset();
  EXPECT_NO_THROW(RunLock(folder, false));
}

TEST(RunFolder, ALockGoesWithAKilledProcess) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file("run"));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(folder, false);
    put_file(scratch.file("ready"), "x");
    for (;;) ::pause();
  }
  while (content_of(scratch.file("ready")).empty()) ::usleep(1000);
  EXPECT_NE(error_of<Error>([&] { RunLock(folder, false); }).find("process " + std::to_string(child)),
            std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(RunLock(folder, false));
}

TEST(RunFolder, NeverOverwritesARun) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file("run"));
  EXPECT_FALSE(RunLock(folder, true).found_run()) << "one command serves the first start and every later one";
  {
    const RunLock lock(folder, false);
    save_run_info(folder, some_info());
  }
  EXPECT_TRUE(folder.holds_run());
  EXPECT_EQ(error_of<Error>([&] { RunLock(folder, false); }),
            folder.path() + ": it holds a run already; --resume continues it, another --out starts a new one");
  EXPECT_TRUE(RunLock(folder, true).found_run());
}

TEST(RunFolder, FilesOfSomebodyElseAreLeftAlone) {
  for (const char* const name : {"metrics.jsonl", "journal.jsonl", "signals.bin", "errors.bin", "norms.csv",
                                 "faults.csv", "checkpoints/step-00000005/model.safetensors", "checkpoints"}) {
    const TemporaryFolder scratch;
    const RunFolder folder(scratch.file("run"));
    std::filesystem::create_directories(std::filesystem::path(scratch.file(std::string("run/") + name)).parent_path());
    put_file(scratch.file(std::string("run/") + name), "mine");
    for (const bool resume : {false, true}) {
      const std::string message = error_of<Error>([&] { RunLock(folder, resume); });
      EXPECT_NE(message.find("another --out"), std::string::npos) << name << ": " << message;
    }
    EXPECT_EQ(content_of(scratch.file(std::string("run/") + name)), "mine");
  }
  // What no run writes is no obstacle, nor is what was emptied or is the user's to write.
  const TemporaryFolder scratch;
  for (const char* const name : {"notes.txt", "control"}) put_file(scratch.file(name), "mine");
  put_file(scratch.file("metrics.jsonl"), "");
  std::filesystem::create_directories(scratch.file("checkpoints"));
  EXPECT_NO_THROW(RunLock(RunFolder(scratch.file("")), false));
}

TEST(RunFolder, AStartThatCameToNothingLeavesNoRun) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file("run"));
  const RunLock lock(folder, false);
  put_file(scratch.file("run/notes.txt"), "mine");
  save_run_info(folder, some_info());
  put_file(folder.metrics(), "{}");
  folder.remove_start();
  EXPECT_FALSE(folder.holds_run());
  EXPECT_EQ(folder.find_foreign_file(), "");
  EXPECT_EQ(content_of(scratch.file("run/notes.txt")), "mine");
}

TEST(RunFolder, ARemovedFolderIsNoticed) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file("run"));
  const RunLock lock(folder, false);
  EXPECT_FALSE(lock.is_gone());
  std::filesystem::rename(folder.path(), scratch.file("moved"));
  EXPECT_TRUE(lock.is_gone());
  std::filesystem::create_directories(folder.path());
  EXPECT_TRUE(lock.is_gone());
  const RunLock another(folder, false);
  EXPECT_TRUE(lock.is_gone()) << "another folder is in its place";
  EXPECT_FALSE(another.is_gone());
}

TEST(RunFolder, AFolderThatCannotBeIsAnError) {
  const TemporaryFolder scratch;
  put_file(scratch.file("file"), "x");
  EXPECT_NE(error_of<OutputError>([&] {
              RunLock(RunFolder(scratch.file("file/run")), false);
            }).find("cannot make the folder"),
            std::string::npos);
  EXPECT_NE(error_of<Error>([&] { RunLock(RunFolder(""), false); }), "");
}

TEST(RunInfo, JsonIsAsDocumentedAndReadsBack) {
  const auto document = nlohmann::json::parse(write_run_info(some_info()));
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["model"]["name"], "nano");
  EXPECT_EQ(document["model"]["parameters"], 123456789012);
  EXPECT_EQ(document["granularity"], "block");
  EXPECT_EQ(document["steps"], 77);
  EXPECT_EQ(document["seed"], -5);
  EXPECT_EQ(document["settings"]["granularity"], "block");
  EXPECT_EQ(parse_run_info(write_run_info(some_info()), "x"), some_info());
  RunInfo plain = some_info();
  plain.preset.clear();
  EXPECT_FALSE(nlohmann::json::parse(write_run_info(plain)).contains("preset"));
  EXPECT_EQ(parse_run_info(write_run_info(plain), "x"), plain);
}

TEST(RunInfo, DamageIsToldWithTheFile) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file(""));
  save_run_info(folder, some_info());
  EXPECT_EQ(load_run_info(folder), some_info());
  const std::string good = content_of(folder.run_json());
  for (std::size_t length = 0; length + 2 < good.size(); length += 7) {
    put_file(folder.run_json(), good.substr(0, length));
    EXPECT_TRUE(error_of<Error>([&] { load_run_info(folder); }).starts_with(folder.run_json() + ": "));
  }
  const auto message = [](const char* text) { return error_of<Error>([&] { parse_run_info(text, "run.json"); }); };
  EXPECT_EQ(message(R"({"version":2})"), "run.json: version 2, this program reads 1");
  EXPECT_EQ(message(R"({"version":1,"model":"nano"})"), "run.json: `model`: expected an object, got string");
  EXPECT_EQ(message(R"({"version":1,"model":{},"settings":{"stepz":1}})"),
            "run.json: [settings] unknown setting \"stepz\"; did you mean 'steps'?");
}

TEST(RunInfo, AFullDiskLeavesTheOldOne) {
  const TemporaryFolder scratch;
  const RunFolder folder(scratch.file(""));
  save_run_info(folder, some_info());
  RunInfo other = some_info();
  other.label = std::string(5000, 'x');
  {
    const test::FileSizeLimit full(100);
    EXPECT_NE(error_of<OutputError>([&] { save_run_info(folder, other); }), "");
  }
  EXPECT_EQ(load_run_info(folder), some_info());
  EXPECT_EQ(scratch.entries(), 1U);
}

}  // namespace
}  // namespace gnmr::run
