// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/tensorboard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gnmr/io/tensorboard_records.h"
#include "io/temporary_folder.h"
#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using nlohmann::json;
using testing::Cell;
using testing::error_in;
using testing::read_path;
using testing::read_text;
using testing::Row;
using testing::Trace;
using Names = std::vector<std::string>;

const std::string kAssets = std::string(GNMR_TEST_ASSETS_DIR) + "/tensorboard";
const std::string kFile = "/events.out.tfevents.0000000001.host";

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Cell expected_cell(const json& steps, std::int64_t step) {
  const auto found = steps.find(std::to_string(step));
  if (found == steps.end()) return {};
  if (found->is_number()) return found->get<double>();
  return *found == "nan" ? testing::kNan : testing::kInf;
}

// expected.json holds what TensorBoard's own reader found in the same files.
void expect_as_tensorboard_reads(const std::string& name, const Names& units) {
  const Trace trace = read_path(kAssets + "/" + name);
  EXPECT_EQ(trace.units, units);
  EXPECT_EQ(trace.rows.size(), 8U);
  EXPECT_TRUE(trace.notes.empty());
  std::ifstream file(kAssets + "/expected.json");
  const json expected = json::parse(file).at(name);
  for (const Row& row : trace.rows) {
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      EXPECT_EQ(row.cells[unit], expected_cell(expected.at(units[unit]), row.step)) << units[unit] << " " << row.step;
    }
  }
}

const Names kUnits{"grad_norm/layers.0.q", "grad_norm/layers.0.k", "grad_norm/layers.1.q"};

TEST(TensorBoard, ScalarsAsTensorBoardReadsThem) { expect_as_tensorboard_reads("simple", kUnits); }

TEST(TensorBoard, TensorsAsTensorBoardReadsThem) {
  Names units = kUnits;
  units.push_back("grad_norm/double");
  expect_as_tensorboard_reads("tensor", units);
}

TEST(TensorBoard, OneFileAndPattern) {
  const Trace trace = read_path(kAssets + "/simple" + kFile, {.field_pattern = "loss"});
  EXPECT_EQ(trace.units, (Names{"loss"}));
  EXPECT_EQ(trace.rows.front(), (Row{0, {9}}));
  EXPECT_EQ(testing::message_of([&] { read_path(kAssets + "/simple", {.field_pattern = "none*"}); }),
            kAssets +
                "/simple: no number in these TensorBoard events fits the field pattern \"none*\"; it has: loss, "
                "grad-norm vs samples, weights, grad_norm/layers.0.q, grad_norm/layers.0.k, grad_norm/layers.1.q");
}

TEST(TensorBoard, FilesOfAResumedRun) {
  const std::string message = testing::message_of([&] { read_path(kAssets + "/run"); });
  EXPECT_NE(message.find("step 4 of \"grad_norm/layers.0.q\" does not come after step 5"), std::string::npos)
      << message;
  const Trace trace = read_path(kAssets + "/run", {.allow_restart = true});
  ASSERT_EQ(trace.rows.size(), 9U);
  for (std::size_t i = 0; i < trace.rows.size(); ++i) EXPECT_EQ(trace.rows[i].step, static_cast<std::int64_t>(i));
  EXPECT_EQ(trace.notes, (Names{"5 values dropped: the run was resumed from an earlier step"}));
}

TEST(TensorBoard, SeveralRunsAreNotOne) {
  EXPECT_EQ(testing::message_of([&] { read_path(kAssets); }),
            kAssets + ": has event files of 3 runs, name one with --run: run, simple, tensor");
  EXPECT_EQ(runs_of_trace(kAssets), (Names{"run", "simple", "tensor"}));
  EXPECT_EQ(read_path(kAssets, {.run = "simple"}).units, kUnits);
  EXPECT_EQ(testing::message_of([&] { read_path(kAssets, {.run = "simpel"}); }),
            kAssets + ": no run \"simpel\"; there are: run, simple, tensor; did you mean 'simple'?");
}

// `SummaryWriter.add_hparams` writes an event file into a folder of its own, named by the time.
TEST(TensorBoard, FoldersOfHyperparametersBelongToTheRun) {
  const test::TemporaryFolder folder;
  const std::string events = file_bytes(kAssets + "/simple" + kFile);
  std::filesystem::create_directories(folder.file("exp/1700000000.123"));
  test::put_file(folder.file("exp") + kFile, events);
  test::put_file(folder.file("exp/1700000000.123") + kFile, events);
  EXPECT_EQ(read_path(folder.file("exp")).units, kUnits);
  EXPECT_EQ(runs_of_trace(folder.file("exp")), Names());
  EXPECT_EQ(read_path(folder.file("")).units, kUnits);
  EXPECT_EQ(read_path(folder.file("exp"), {.run = "1700000000.123"}).units, kUnits);
}

TEST(TensorBoard, ALargeTreeIsNotSearched) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("a/b/c/d/e/f/g"));
  test::put_file(folder.file("a/b/c/d/e/f/g") + kFile, file_bytes(kAssets + "/simple" + kFile));
  for (int i = 0; i < 50; ++i) std::filesystem::create_directories(folder.file("a/many/" + std::to_string(i)));
  const EventFolders deep = find_event_folders(folder.file(""));
  EXPECT_TRUE(deep.runs.empty());
  EXPECT_FALSE(deep.gave_up);
  EXPECT_EQ(deep.looked_at, 1U + 2U + 51U + 1U + 1U);  // a; b, many; c and those of many; d; e
  const EventFolders short_search = find_event_folders(folder.file(""), {.depth = 4, .entries = 20});
  EXPECT_TRUE(short_search.gave_up);
  EXPECT_EQ(short_search.looked_at, 20U);
  EXPECT_EQ(find_event_folders(folder.file("a/b/c")).runs, (Names{"d/e/f/g"}));
  EXPECT_EQ(testing::message_of([&] { read_path(folder.file("a")); }),
            folder.file("a") +
                ": neither this folder nor one below it has TensorBoard event files (56 entries looked at, 4 folders "
                "deep); name the folder of the run");
}

TEST(TensorBoard, EveryTornEndIsAStopAndEveryFlippedBitAnError) {
  const std::string whole = file_bytes(kAssets + "/simple" + kFile);
  const std::size_t rows = read_text(whole).rows.size();
  for (std::size_t size = whole.size() - 60; size < whole.size(); ++size) {
    const Trace trace = read_text(whole.substr(0, size));
    EXPECT_LE(trace.rows.size(), rows);
    EXPECT_LE(trace.notes.size(), 1U);
  }
  EXPECT_NE(read_text(whole.substr(0, whole.size() - 1)).notes.at(0).find("is cut short and left out"),
            std::string::npos);
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 37) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(error_in(flipped, {.format = TraceFormat::tensorboard}).find("damaged"), std::string::npos);
  }
}

TEST(TensorBoard, BytesThatAreNoEvent) {
  Event event;
  for (const std::string& bytes :
       {std::string("\x0a"), std::string("\x2a\x05\x01"), std::string(11, '\xff'), std::string("\x0b")}) {
    EXPECT_THROW(read_event(bytes, event), Error);
  }
  read_event("", event);
  EXPECT_TRUE(event.values.empty());
}

}  // namespace
}  // namespace gnmr::io
