// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/data.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::train {
namespace {

using gnmr::test::error_of;
using gnmr::test::put_file;
using gnmr::test::TemporaryFolder;

std::string tokens_text(std::int64_t first, std::int64_t count) {
  std::string bytes;
  for (std::int64_t token = first; token < first + count; ++token) {
    bytes += static_cast<char>(token & 0xFF);
    bytes += static_cast<char>(token >> 8 & 0xFF);
  }
  return bytes;
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

/// Files of tokens in which each token is its own position.
class DataOfPositions : public ::testing::Test {
 protected:
  DataOfPositions() {
    put_file(folder_.file("a.bin"), tokens_text(0, 20000));
    put_file(folder_.file("b.bin"), tokens_text(20000, 1));
    put_file(folder_.file("c.bin"), tokens_text(20001, 39999));
    settings_ = {.files = {folder_.file("a.bin"), folder_.file("b.bin"), folder_.file("c.bin")},
                 .held_out = 0.1,
                 .seed = 5,
                 .batch = 4,
                 .sequence = 100,
                 .accumulate = 2,
                 .vocabulary = 60000};
  }

  // The first position of each sequence of a batch, which must be a slice of the stream.
  static std::vector<std::int64_t> positions(const Batch& batch) {
    std::vector<std::int64_t> found;
    for (std::int64_t row = 0; row < batch.tokens.size(0); ++row) {
      const std::vector<std::int64_t> tokens = values(batch.tokens[row]);
      const std::vector<std::int64_t> targets = values(batch.targets[row]);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i], tokens[0] + static_cast<std::int64_t>(i));
        EXPECT_EQ(targets[i], tokens[i] + 1);
      }
      found.push_back(tokens[0]);
    }
    return found;
  }

  TemporaryFolder folder_;
  DataSettings settings_;
};

TEST_F(DataOfPositions, BatchesAreSlicesOfTheStream) {
  const Data data(settings_);
  const Batch batch = data.training_batch(1, 0);
  EXPECT_EQ(batch.tokens.sizes(), (std::vector<std::int64_t>{4, 100}));
  EXPECT_EQ(batch.targets.sizes(), (std::vector<std::int64_t>{4, 100}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(positions(batch).size(), 4U);
  EXPECT_EQ(data.description(), "3 files, 60000 tokens, 6000 of them held out");
}

TEST_F(DataOfPositions, AnEpochTakesEachSequenceOnceAndNothingHeldOut) {
  const Data data(settings_);
  const std::int64_t count = data.training_sequences();
  EXPECT_GT(count, 530);
  std::vector<std::vector<std::int64_t>> epochs(3);
  std::int64_t taken = 0;
  for (std::int64_t step = 1; taken < 3 * count; ++step) {
    for (std::int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (const std::int64_t position : positions(data.training_batch(step, micro_batch))) {
        if (taken < 3 * count) epochs[static_cast<std::size_t>(taken++ / count)].push_back(position);
      }
    }
  }
  for (const std::vector<std::int64_t>& epoch : epochs) {
    std::vector<int> seen(60000);
    for (const std::int64_t position : epoch) {
      for (std::int64_t i = position; i < position + 100; ++i) ++seen[static_cast<std::size_t>(i)];
      for (const Stretch& stretch : data.held_out_stretches()) {
        EXPECT_TRUE(position + 100 < stretch.begin || position >= stretch.end) << position;
      }
    }
    EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
    EXPECT_GT(std::count(seen.begin(), seen.end(), 1), 53700);
  }
  // Another order, cut elsewhere.
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[0][0] % 100, epochs[1][0] % 100);
  std::vector<std::int64_t> sorted = epochs[0];
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NE(sorted, epochs[0]);
}

TEST_F(DataOfPositions, ABatchIsAFunctionOfSeedStepAndMicroBatch) {
  const Data data(settings_);
  const Data again(settings_);
  data.training_batch(9, 1);
  EXPECT_EQ(positions(data.training_batch(7, 1)), positions(again.training_batch(7, 1)));
  EXPECT_NE(positions(data.training_batch(7, 0)), positions(data.training_batch(7, 1)));
  EXPECT_NE(positions(data.training_batch(7, 0)), positions(data.training_batch(8, 0)));
  DataSettings other = settings_;
  other.seed = 6;
  EXPECT_NE(positions(Data(other).training_batch(7, 1)), positions(data.training_batch(7, 1)));
}

TEST_F(DataOfPositions, RanksShareTheSequencesOfOneLargerBatch) {
  DataSettings whole = settings_;
  whole.batch = 12;
  const std::vector<std::int64_t> expected = positions(Data(whole).training_batch(3, 1));
  std::vector<std::int64_t> together;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    DataSettings part = settings_;
    part.world = 3;
    part.rank = rank;
    for (const std::int64_t position : positions(Data(part).training_batch(3, 1))) together.push_back(position);
  }
  EXPECT_EQ(together, expected);
}

TEST_F(DataOfPositions, EvaluationIsFixedAndHeldOut) {
  const Data data(settings_);
  EXPECT_EQ(data.evaluation_sequences(), 59);
  std::set<std::int64_t> seen;
  for (std::int64_t index = 0; index < 15; ++index) {
    for (const std::int64_t position : positions(data.evaluation_batch(index))) {
      seen.insert(position);
      const bool inside = std::any_of(
          data.held_out_stretches().begin(), data.held_out_stretches().end(),
          [&](const Stretch& stretch) { return position >= stretch.begin && position + 100 < stretch.end; });
      EXPECT_TRUE(inside) << position;
    }
  }
  EXPECT_EQ(seen.size(), 59U);
  DataSettings other = settings_;
  other.seed = 99;
  other.world = 2;
  other.rank = 1;
  EXPECT_EQ(positions(Data(other).evaluation_batch(3)), positions(data.evaluation_batch(3)));
}

TEST_F(DataOfPositions, TheSplitDependsOnTheDataAlone) {
  DataSettings other = settings_;
  other.seed = 99;
  other.sequence = 33;
  other.batch = 1;
  const auto ends = [](const std::vector<Stretch>& stretches) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const Stretch& stretch : stretches) all.emplace_back(stretch.begin, stretch.end);
    return all;
  };
  EXPECT_EQ(ends(Data(other).held_out_stretches()), ends(Data(settings_).held_out_stretches()));
}

TEST_F(DataOfPositions, LongDataIsHeldOutInManyPlaces) {
  const TemporaryFolder folder;
  put_file(folder.file("long.txt"), std::string(std::size_t{10} << 20, 'x'));
  const Data data({.files = {folder.file("long.txt")}, .held_out = 0.05, .sequence = 128});
  EXPECT_EQ(data.held_out_stretches().size(), 8U);
  std::int64_t held_out = 0;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(data.training_stretches()[i].begin, before);
    EXPECT_EQ(data.training_stretches()[i].end, data.held_out_stretches()[i].begin);
    before = data.held_out_stretches()[i].end;
    held_out += before - data.held_out_stretches()[i].begin;
  }
  EXPECT_EQ(before, std::int64_t{10} << 20);
  EXPECT_NEAR(static_cast<double>(held_out), 0.05 * static_cast<double>(before), 8);
}

TEST_F(DataOfPositions, FingerprintsFollowTheContent) {
  const std::string fingerprint = Data(settings_).fingerprint();
  EXPECT_TRUE(fingerprint.starts_with("60000 tokens ")) << fingerprint;
  const TemporaryFolder moved;
  DataSettings there = settings_;
  there.files.clear();
  for (const std::string& path : settings_.files) {
    const std::string target = moved.file(path.substr(path.rfind('/') + 1));
    std::filesystem::copy_file(path, target);
    there.files.push_back(target);
  }
  EXPECT_EQ(Data(there).fingerprint(), fingerprint);
  std::string changed = gnmr::test::content_of(there.files[2]);
  changed[12345 * 2] = static_cast<char>(changed[12345 * 2] ^ 1);
  put_file(there.files[2], changed);
  EXPECT_NE(Data(there).fingerprint(), fingerprint);
}

TEST(Data, TextFilesAreBytesWithALineEndBetween) {
  const TemporaryFolder folder;
  put_file(folder.file("a"), "ab\xFF");
  put_file(folder.file("b"), "c");
  put_file(folder.file("c"), "def\n");
  const TokenStream stream({folder.file("a"), folder.file("b"), folder.file("c")});
  const std::string expected = "ab\xFF\nc\ndef\n";
  ASSERT_EQ(stream.size(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t from = 0; from < expected.size(); ++from) {
    for (std::size_t count = 0; from + count <= expected.size(); ++count) {
      std::vector<std::int64_t> tokens(count);
      stream.read(static_cast<std::int64_t>(from), tokens);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(tokens[i], static_cast<unsigned char>(expected[from + i]));
      }
    }
  }
  EXPECT_EQ(stream.place(6), folder.file("c") + ": token 0");
  std::vector<std::int64_t> beyond(2);
  EXPECT_THROW(stream.read(stream.size() - 1, beyond), Error);
  EXPECT_THROW(stream.read(-1, beyond), Error);
}

TEST(Data, ErrorsSayWhatIsWrong) {
  const TemporaryFolder folder;
  put_file(folder.file("empty.txt"), "");
  put_file(folder.file("short.txt"), std::string(100, 'x'));
  put_file(folder.file("odd.bin"), "abc");
  put_file(folder.file("tokens.bin"), tokens_text(0, 1000));
  const auto message = [&](const std::vector<std::string>& names, double held_out, std::int64_t sequence,
                           std::int64_t vocabulary) {
    DataSettings settings{.held_out = held_out, .sequence = sequence, .vocabulary = vocabulary};
    for (const std::string& name : names) settings.files.push_back(folder.file(name));
    return error_of<Error>([&] { Data data(settings); });
  };
  EXPECT_EQ(message({"short.txt", "empty.txt"}, 0.1, 8, 256), folder.file("empty.txt") + ": it is empty");
  EXPECT_EQ(message({"none.txt"}, 0.1, 8, 256),
            folder.file("none.txt") + ": cannot open it: No such file or directory");
  EXPECT_EQ(message({""}, 0.1, 8, 256), folder.file("") + ": not a regular file");
  EXPECT_EQ(message({"odd.bin"}, 0.1, 8, 65536),
            folder.file("odd.bin") + ": 3 bytes are no whole number of 16-bit tokens");
  EXPECT_EQ(message({"short.txt", "tokens.bin"}, 0.1, 8, 65536),
            folder.file("tokens.bin") + ": text and .bin files cannot be mixed");
  EXPECT_EQ(message({"short.txt"}, 0.1, 100, 256), "[data] a sequence of 100 needs 101 tokens, the data has 100");
  EXPECT_EQ(message({"short.txt"}, 0.1, 10, 256),
            "[data] too little is held out: 10 of 100 tokens, a sequence needs 11: give more data or a shorter "
            "sequence, or hold out more");
  EXPECT_EQ(message({"short.txt"}, 0.9, 10, 256),
            "[data] too little is left to train on: 10 of 100 tokens, a sequence needs 11: give more data or a shorter "
            "sequence, or hold out less");
  EXPECT_EQ(message({"tokens.bin"}, 0.1, 8, 999),
            folder.file("tokens.bin") + ": token 999: its value 999 is not in the model's vocabulary of 999");
  EXPECT_EQ(message({"short.txt"}, 0.1, 8, 100),
            folder.file("short.txt") + ": token 0: its value 120 is not in the model's vocabulary of 100");
  EXPECT_NE(message({"short.txt"}, 1, 8, 256), "");
  EXPECT_NE(message({"short.txt"}, 0.1, 0, 256), "");
}

TEST(Data, TheSmallestDataWorks) {
  const TemporaryFolder folder;
  put_file(folder.file("t"), "abcdefgh");
  const Data data({.files = {folder.file("t")}, .held_out = 0.5, .batch = 2, .sequence = 3});
  EXPECT_EQ(data.training_sequences(), 1);
  EXPECT_EQ(data.evaluation_sequences(), 1);
  EXPECT_EQ(values(data.training_batch(5, 0).tokens), (std::vector<std::int64_t>{'a', 'b', 'c', 'a', 'b', 'c'}));
  EXPECT_EQ(values(data.evaluation_batch(0).targets), (std::vector<std::int64_t>{'f', 'g', 'h', 'f', 'g', 'h'}));
  EXPECT_THROW(data.training_batch(0, 0), Error);
  EXPECT_THROW(data.training_batch(1, 1), Error);
  EXPECT_THROW(data.evaluation_batch(-1), Error);
}

TEST(Data, StandardTextIsSortedAndWithoutTests) {
  const TemporaryFolder folder;
  for (const char* name : {"b.py", "a/c.py", "a/test/x.py", "site-packages/p/y.py", "notes.txt", "__pycache__/b.py"}) {
    std::filesystem::create_directories(std::filesystem::path(folder.file(name)).parent_path());
    put_file(folder.file(name), "x = 1\n");
  }
  put_file(folder.file("empty.py"), "");
  const StandardText text = standard_text_in(folder.file("."));
  EXPECT_EQ(text.files, (std::vector<std::string>{folder.file("./a/c.py"), folder.file("./b.py")}));
  EXPECT_TRUE(standard_text_in(folder.file("missing")).files.empty());
}

TEST(Data, WithoutFilesTheStandardTextIsRead) {
  StandardText text;
  try {
    text = find_standard_text();
  } catch (const Error&) {
    GTEST_SKIP() << "this machine has no Python standard library";
  }
  const Data data({.held_out = 0.05, .batch = 2, .sequence = 64});
  EXPECT_NE(data.description().find("the Python standard library in " + text.folder), std::string::npos);
  EXPECT_EQ(data.training_batch(1, 0).tokens.size(1), 64);
}

}  // namespace
}  // namespace gnmr::train
