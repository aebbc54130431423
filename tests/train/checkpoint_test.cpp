// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <map>

#include "gnmr/core/error.h"
#include "gnmr/models/sharded_files.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::train {
namespace {

using gnmr::test::content_of;
using gnmr::test::error_of;
using gnmr::test::put_file;
using gnmr::test::TemporaryFolder;

constexpr const char* kRun = "0123456789abcdef";

CheckpointParts parts_of(std::int64_t step, std::int64_t size = 10) {
  CheckpointParts parts;
  parts.info = {.step = step,
                .run = kRun,
                .program = "gnmr 1",
                .data = "9 bytes 0123",
                .extra = {{"tokens", "12"}, {"a\"b", ""}}};
  parts.info.settings.seed = 7;
  parts.optimizer = {{"w.exp_avg", at::full({size}, static_cast<double>(step))}, {"w.step", at::full({}, 3.0)}};
  parts.low_path = {{"w.forward.history", at::arange(4)}};
  parts.controller = std::string("state\0bytes", 11);
  parts.write_model = [step, size](const std::string& folder) {
    const models::NamedTensors tensors{{"w", at::full({size}, static_cast<double>(step))}};
    put_file(folder + "/config.json", "{}");
    io::FolderSums sums = models::write_model_files(folder, tensors, std::int64_t{1} << 30);
    sums["config.json"] = io::sums_of("{}");
    return sums;
  };
  return parts;
}

class Checkpoints : public ::testing::Test {
 protected:
  // Damages a file of a checkpoint and returns what loading it says.
  std::string load_error(std::int64_t step) const {
    return error_of<Error>([&] { store_.load(step); });
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  Checkpoints() { std::filesystem::create_directory(folder_.file("run")); }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("run/checkpoints");
  CheckpointStore store_{path_, 2, kRun};
};

TEST_F(Checkpoints, ReadBackAsSaved) {
  EXPECT_EQ(store_.find_latest(), 0);
  EXPECT_TRUE(store_.steps().empty());
  ASSERT_EQ(store_.save(parts_of(50)), "");
  EXPECT_EQ(store_.find_latest(), 50);
  EXPECT_EQ(store_.folder_of(50), path_ + "/step-00000050");
  const LoadedCheckpoint loaded = store_.load(50);
  EXPECT_EQ(loaded.folder, path_ + "/step-00000050");
  EXPECT_EQ(loaded.info.step, 50);
  EXPECT_EQ(loaded.info.run, kRun);
  EXPECT_EQ(loaded.info.settings, parts_of(50).info.settings);
  EXPECT_EQ(loaded.info.program, "gnmr 1");
  EXPECT_EQ(loaded.info.data, "9 bytes 0123");
  EXPECT_EQ(loaded.info.extra, parts_of(50).info.extra);
  EXPECT_FALSE(loaded.torch_version.empty());
  EXPECT_EQ(loaded.controller, std::string("state\0bytes", 11));
  ASSERT_EQ(loaded.optimizer.size(), 2U);
  for (const auto& [name, tensor] : loaded.optimizer) {
    const bool is_step = name == "w.step";
    EXPECT_TRUE(at::equal(tensor, parts_of(50).optimizer[is_step ? 1 : 0].second));
  }
  ASSERT_EQ(loaded.low_path.size(), 1U);
  EXPECT_TRUE(at::equal(loaded.low_path[0].second, at::arange(4)));
  EXPECT_EQ(content_of(loaded.folder + "/config.json"), "{}");
}

TEST_F(Checkpoints, PartsThatAreNotThereHaveNoFile) {
  CheckpointParts parts = parts_of(1);
  parts.low_path.clear();
  parts.controller.clear();
  ASSERT_EQ(store_.save(parts), "");
  EXPECT_FALSE(std::filesystem::exists(store_.folder_of(1) + "/controller.gnmr"));
  EXPECT_FALSE(std::filesystem::exists(store_.folder_of(1) + "/low_path.safetensors"));
  EXPECT_TRUE(store_.load(1).controller.empty());
}

TEST_F(Checkpoints, OldOnesGo) {
  for (const std::int64_t step : {10, 20, 30, 40}) ASSERT_EQ(store_.save(parts_of(step)), "");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000030", "step-00000040"}));
  const CheckpointStore all(path_, 0, kRun);
  for (const std::int64_t step : {50, 60}) ASSERT_EQ(all.save(parts_of(step)), "");
  EXPECT_EQ(all.steps(), (std::vector<std::int64_t>{30, 40, 50, 60}));
  const CheckpointStore one(path_, 1, kRun);
  ASSERT_EQ(one.save(parts_of(123456789)), "");
  EXPECT_EQ(one.steps(), std::vector<std::int64_t>{123456789});
  EXPECT_THROW(CheckpointStore(path_, -1), Error);
}

TEST_F(Checkpoints, ARunThatWentBackSupersedesLaterOnes) {
  for (const std::int64_t step : {10, 20}) ASSERT_EQ(store_.save(parts_of(step)), "");
  ASSERT_EQ(store_.save(parts_of(15)), "");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000010", "step-00000015"}));
  // The same step again takes the place of the old one.
  CheckpointParts again = parts_of(15);
  again.info.program = "gnmr 2";
  ASSERT_EQ(store_.save(again), "");
  EXPECT_EQ(store_.load(15).info.program, "gnmr 2");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000010", "step-00000015"}));
}

TEST_F(Checkpoints, OnlyThoseOfThisRunAreRemoved) {
  const CheckpointStore other(path_, 1, "another");
  CheckpointParts theirs = parts_of(15);
  theirs.info.run = "another";
  ASSERT_EQ(other.save(theirs), "");
  for (const std::int64_t step : {10, 12, 14}) ASSERT_EQ(store_.save(parts_of(step)), "");
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{12, 14, 15})) << "neither older nor superseded";
  EXPECT_EQ(store_.newest_text(), "step 14 (" + path_ + "/step-00000014)");
  // One that cannot be read may be anybody's.
  put_file(store_.folder_of(12) + "/trainer.json", "{");
  ASSERT_EQ(store_.save(parts_of(15)), "");
  EXPECT_EQ(names(),
            (std::vector<std::string>{"step-00000012", "step-00000014", "step-00000015", "step-00000015.kept-1"}));
  EXPECT_EQ(store_.load(15).info.run, kRun);
  EXPECT_EQ(CheckpointStore(path_, 0, "nobody").newest_text(), "");
}

TEST_F(Checkpoints, AWriterThatFailsIsTriedAgain) {
  int left = 1;
  CheckpointParts parts = parts_of(10);
  const auto write_model = parts.write_model;
  parts.write_model = [&](const std::string& folder) {
    if (left-- > 0) throw OutputError("the disk is full");
    return write_model(folder);
  };
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  EXPECT_EQ(save_patiently(store_, parts, std::chrono::seconds(5), warn), "");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("the disk is full; next try in 1 s"), std::string::npos) << warnings[0];
  left = 1;
  EXPECT_NE(save_patiently(store_, parts, std::chrono::seconds(0), warn), "");
  EXPECT_EQ(warnings.size(), 1U) << "no time for another try";
}

// What a retry must not do is to make a folder that then looks like somebody else's.
TEST_F(Checkpoints, AFolderThatIsMovedDuringTheWriteIsNotMadeAgain) {
  CheckpointParts parts = parts_of(10);
  const auto write_model = parts.write_model;
  parts.write_model = [&](const std::string& folder) {
    io::FolderSums sums = write_model(folder);
    std::filesystem::rename(folder_.file("run"), folder_.file("moved"));
    return sums;
  };
  EXPECT_NE(store_.save(parts), "");
  EXPECT_NE(store_.save(parts_of(10)), "");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  int asked = 0;
  const auto obstacle = [&] { return std::string(asked++ == 0 ? "it is gone" : ""); };
  std::filesystem::create_directory(folder_.file("run"));
  EXPECT_EQ(save_patiently(
                store_, parts_of(10), std::chrono::seconds(3), [](const std::string&) {}, obstacle),
            "");
  EXPECT_EQ(asked, 2) << "asked before each try";
}

TEST_F(Checkpoints, DamagedOnesCanBeSetAside) {
  for (const std::int64_t step : {10, 20}) ASSERT_EQ(store_.save(parts_of(step)), "");
  put_file(store_.folder_of(20) + "/trainer.json", "{");
  EXPECT_EQ(store_.find_latest(), 20) << "damage is reported, not passed over";
  store_.set_damaged_aside(10);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000010", "step-00000020.kept-1"}));
}

TEST_F(Checkpoints, LeftoversGoAndOtherFilesStay) {
  ASSERT_EQ(store_.save(parts_of(10)), "");
  std::filesystem::create_directories(path_ + "/.unfinished-1-20");
  put_file(path_ + "/.unfinished-1-20/model.safetensors", "x");
  std::filesystem::create_directories(path_ + "/step-notes");
  put_file(path_ + "/step-00000099", "a file");
  EXPECT_EQ(store_.steps(), std::vector<std::int64_t>{10});
  store_.remove_leftovers();
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000010", "step-00000099", "step-notes"}));
  CheckpointStore(folder_.file("nowhere"), 1).remove_leftovers();
}

TEST_F(Checkpoints, DamageIsNamedWithWhatToDo) {
  ASSERT_EQ(store_.save(parts_of(10)), "");
  const std::string go_on = "; the newest intact one is that of step 10 (" + path_ +
                            "/step-00000010): go on from it with --resume --resume-step 10";
  EXPECT_EQ(load_error(11), path_ + "/step-00000011: this checkpoint cannot be used: there is no such folder" + go_on);
  ASSERT_EQ(store_.save(parts_of(20)), "");
  const std::string folder = store_.folder_of(20);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "low_path.safetensors", "controller.gnmr",
                           "trainer.json", "config.json", "checksums.json"}) {
    const std::string file = folder + "/" + name;
    const std::string good = content_of(file);
    ASSERT_GT(good.size(), 1U) << name;
    for (const std::size_t length : {std::size_t{0}, good.size() / 2, good.size() - 2}) {
      put_file(file, good.substr(0, length));
      const std::string message = load_error(20);
      EXPECT_TRUE(message.starts_with(folder + ": this checkpoint cannot be used: ")) << message;
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_TRUE(message.ends_with(go_on)) << message;
    }
    std::filesystem::remove(file);
    EXPECT_NE(load_error(20).find(std::string(name) + " is missing"), std::string::npos) << load_error(20);
    put_file(file, good);
    EXPECT_NO_THROW(store_.load(20));
  }
  // Of the right size, but not what it was.
  put_file(folder + "/optimizer.safetensors", std::string(content_of(folder + "/optimizer.safetensors").size(), 'x'));
  EXPECT_NE(load_error(20).find("optimizer.safetensors"), std::string::npos);
  test::remove_tree(store_.folder_of(10));
  EXPECT_TRUE(load_error(20).ends_with("; no other checkpoint of this run is intact: begin anew with another --out"));
}

// One bit of every byte of a tensor, and of every 13th other byte of every file, chosen by its place.
TEST_F(Checkpoints, EveryFlippedBitIsNoticedAndNamed) {
  for (const std::int64_t step : {10, 20}) ASSERT_EQ(store_.save(parts_of(step)), "");
  const std::string folder = store_.folder_of(20);
  std::size_t tensors_named = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().string();
    const std::string name = entry.path().filename().string();
    const std::string good = content_of(file);
    // Where the data of each tensor begin; before the first is the header.
    std::map<std::size_t, std::string> tensor_at;
    if (name.ends_with(".safetensors")) {
      std::size_t end = good.size();
      const auto tensors = models::read_safetensors(file).tensors;
      for (auto one = tensors.rbegin(); one != tensors.rend(); ++one) {
        end -= static_cast<std::size_t>(models::stored_bytes(one->second));
        tensor_at[end] = one->first;
      }
    }
    const std::size_t data = tensor_at.empty() ? good.size() : tensor_at.begin()->first;
    for (std::size_t at = 0; at < good.size(); at = at < data ? std::min(at + 13, data) : at + 1) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << ((at * 7 + at / 8) % 8)));
      put_file(file, bad);
      const std::string message = load_error(20);
      EXPECT_NE(message.find(name + ":"), std::string::npos) << at << ": " << message;
      EXPECT_NE(message.find("the newest intact one is that of step 10 (" + path_ + "/step-00000010)"),
                std::string::npos)
          << message;
      const auto next = tensor_at.upper_bound(at);
      if (next == tensor_at.begin()) continue;
      EXPECT_NE(message.find(name + ": tensor \"" + std::prev(next)->second + "\": damaged"), std::string::npos)
          << message;
      ++tensors_named;
    }
    put_file(file, good);
  }
  EXPECT_EQ(tensors_named, 40U + 40U + 4U + 32U) << "each byte of all four tensors";
  EXPECT_TRUE(store_.load(20).verified);
}

TEST_F(Checkpoints, TheNewestIntactOneIsLookedFor) {
  const CheckpointStore all(path_, 0);
  for (const std::int64_t step : {10, 20, 30}) ASSERT_EQ(all.save(parts_of(step)), "");
  for (const std::int64_t step : {20, 30}) {
    std::string content = content_of(all.folder_of(step) + "/model.safetensors");
    content.back() = static_cast<char>(content.back() ^ 4);
    put_file(all.folder_of(step) + "/model.safetensors", content);
  }
  EXPECT_NE(load_error(30).find("the newest intact one is that of step 10 ("), std::string::npos);
  EXPECT_NE(load_error(20).find("--resume --resume-step 10"), std::string::npos);
  EXPECT_TRUE(
      error_of<Error>([&] {
        read_initial_model(all.folder_of(30) + "/");
      }).ends_with("; the newest intact checkpoint beside it is that of step 10 (" + path_ + "/step-00000010)"));
  EXPECT_EQ(read_initial_model(all.folder_of(10)).tensors.size(), 1U);
  const std::string restored =
      error_of<Error>([&] { store_.restoring(30, kControllerFile, [] { throw std::runtime_error("not a state"); }); });
  EXPECT_NE(restored.find("step-00000030: this checkpoint cannot be used: controller.gnmr: not a state; the newest"),
            std::string::npos)
      << restored;
}

// As programs before the manifest wrote them.
TEST_F(Checkpoints, OlderOnesHaveNoChecksums) {
  for (const std::int64_t step : {10, 20}) {
    ASSERT_EQ(store_.save(parts_of(step)), "");
    const std::string folder = store_.folder_of(step);
    std::filesystem::remove(folder + "/checksums.json");
    std::string trainer = content_of(folder + "/trainer.json");
    const std::string line = "  \"checksums\": \"checksums.json\",\n";
    ASSERT_NE(trainer.find(line), std::string::npos);
    trainer.erase(trainer.find(line), line.size());
    put_file(folder + "/trainer.json", trainer);
  }
  const LoadedCheckpoint loaded = store_.load(20);
  EXPECT_FALSE(loaded.verified);
  EXPECT_EQ(loaded.model.tensors.size(), 1U);
  std::filesystem::remove(loaded.folder + "/controller.gnmr");
  EXPECT_NE(load_error(20).find("controller.gnmr is missing; the newest intact one is that of step 10 (" + path_ +
                                "/step-00000010), as far as can be seen without checksums: go on"),
            std::string::npos)
      << load_error(20);
}

TEST_F(Checkpoints, AFolderOfAnotherStepIsRefused) {
  ASSERT_EQ(store_.save(parts_of(10)), "");
  std::filesystem::rename(store_.folder_of(10), store_.folder_of(30));
  EXPECT_NE(load_error(30).find("trainer.json is that of step 10"), std::string::npos);
}

TEST_F(Checkpoints, AFullDiskIsToldAndTheOldOneStays) {
  ASSERT_EQ(store_.save(parts_of(10)), "");
  {
    const test::FileSizeLimit full(3000);
    const std::string warning = store_.save(parts_of(20, 10000));
    EXPECT_TRUE(warning.starts_with(path_ + "/step-00000020: this checkpoint could not be written: ")) << warning;
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000010"});
  EXPECT_NO_THROW(store_.load(10));
  EXPECT_EQ(store_.save(parts_of(20, 10000)), "");
}

TEST_F(Checkpoints, WhateverGoesWrongIsAWarning) {
  put_file(folder_.file("file"), "x");
  EXPECT_NE(CheckpointStore(folder_.file("file/checkpoints"), 1).save(parts_of(1)), "");
  CheckpointParts parts = parts_of(1);
  parts.write_model = [](const std::string&) -> io::FolderSums { throw std::runtime_error("out of luck"); };
  EXPECT_NE(store_.save(parts).find("out of luck"), std::string::npos);
  EXPECT_NE(store_.save(parts_of(0)), "");
  EXPECT_TRUE(names().empty());
}

// Killed at any moment, a run leaves checkpoints that load, and at most the one that it was writing is lost.
TEST_F(Checkpoints, AKilledWriterLeavesWholeOnes) {
  std::int64_t newest = 0;
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t step = newest + 1;; ++step) store_.save(parts_of(step, 2000));
    }
    while (store_.find_latest() < newest + 2) ::usleep(200);
    ::usleep(static_cast<useconds_t>(round * 700));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    store_.remove_leftovers();
    for (const std::string& name : names()) EXPECT_TRUE(name.starts_with("step-")) << name;
    ASSERT_GT(store_.find_latest(), newest);
    newest = store_.find_latest();
    for (const std::int64_t step : store_.steps()) {
      const LoadedCheckpoint loaded = store_.load(step);
      EXPECT_EQ(loaded.optimizer.size(), 2U);
    }
  }
}

}  // namespace
}  // namespace gnmr::train
