// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/signals_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/run_step.h"
#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

constexpr std::size_t kRowBytes = 8 + 3 * 4;

Controller three_units() { return gnmr::testing::norms_controller({{.name = "a"}, {.name = "b"}, {.name = "c"}}); }

void write_rows(const SignalsSettings& settings) {
  Controller controller = three_units();
  SignalsWriter writer(settings);
  gnmr::testing::run_step(controller, {.step = 10, .norms = std::vector<double>{1, 2, 3}});
  writer.write(10, controller);
  const std::vector<std::uint8_t> sampled{1, 0, 1};
  gnmr::testing::run_step(
      controller,
      {.step = 20, .norms = std::vector<double>{2, 1, std::numeric_limits<double>::infinity()}, .sampled = sampled});
  writer.write(20, controller);
  EXPECT_TRUE(writer.close(std::chrono::seconds(20)));
  EXPECT_EQ(writer.dropped(), 0U);
}

std::vector<SignalsRow> read_rows(SignalsReader& reader) {
  std::vector<SignalsRow> rows;
  SignalsRow row;
  while (reader.next(row)) rows.push_back(row);
  return rows;
}

TEST(SignalsFile, RatiosAreWrittenAndRead) {
  const test::TemporaryFolder folder;
  for (const bool in_background : {true, false}) {
    const std::string path = folder.file(in_background ? "a" : "b");
    write_rows({.path = path, .unit_count = 3, .in_background = in_background});
    SignalsReader reader(path);
    EXPECT_EQ(reader.unit_count(), 3U);
    EXPECT_EQ(reader.row_count(), 2U);
    EXPECT_FALSE(reader.torn());
    const std::vector<SignalsRow> rows = read_rows(reader);
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].step, 10);
    EXPECT_EQ(rows[0].values, (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(rows[1].step, 20);
    EXPECT_FLOAT_EQ(rows[1].values[0], 2);
    EXPECT_TRUE(std::isnan(rows[1].values[1]));
    EXPECT_TRUE(std::isinf(rows[1].values[2]));
  }
}

TEST(SignalsFile, TheLayoutIsTheDocumentedOne) {
  const test::TemporaryFolder folder;
  write_rows({.path = folder.file("a"), .unit_count = 3});
  const std::string content = content_of(folder.file("a"));
  ASSERT_EQ(content.size(), 16 + 2 * kRowBytes);
  EXPECT_EQ(content.substr(0, 16), std::string("GNMRSIGS\x01\0\0\0\x03\0\0\0", 16));
  EXPECT_EQ(content.substr(16, 12), std::string("\x0A\0\0\0\0\0\0\0\0\0\x80\x3F", 12));
}

TEST(SignalsFile, ATornRowIsToldAndCutWhenResumed) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  write_rows({.path = path, .unit_count = 3});
  const std::string whole = content_of(path);
  for (std::size_t cut = 1; cut < kRowBytes; ++cut) {
    put_file(path, whole.substr(0, whole.size() - cut));
    SignalsReader reader(path);
    EXPECT_TRUE(reader.torn());
    EXPECT_EQ(read_rows(reader).size(), 1U);
  }
  put_file(path, whole + "torn");
  write_rows({.path = path, .unit_count = 3, .existing = ExistingFile::resume});
  EXPECT_EQ(content_of(path), whole + whole.substr(16));
}

TEST(SignalsFile, OtherFilesAreErrorsAndStayAsTheyAre) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  for (const std::string& content :
       {std::string(), std::string("GNMRSIGS"), std::string("step,a,b,c\n1,2,3,4\n"),
        std::string("GNMRSIGS\x02\0\0\0\x03\0\0\0", 16), std::string("GNMRSIGS\x03\0\0\0\x03\0\0\0", 16),
        std::string("GNMRSIGS\x02\0\0\0\x03\0\0\0\0\0\0\0", 20),
        std::string("GNMRSIGS\x02\0\0\0\x03\0\0\0\x11\0\0\0", 20)}) {
    put_file(path, content);
    EXPECT_TRUE(error_of<Error>([&] { SignalsReader{path}; }).starts_with(path));
  }
  put_file(path, "step,a,b,c\n1,2,3,4\n");
  EXPECT_THROW(SignalsWriter({.path = path, .unit_count = 3, .existing = ExistingFile::resume}), Error);
  EXPECT_THROW(SignalsWriter({.path = path, .unit_count = 3}), Error);
  EXPECT_EQ(content_of(path), "step,a,b,c\n1,2,3,4\n");
  write_rows({.path = path, .unit_count = 3, .existing = ExistingFile::replace});
  EXPECT_THROW(SignalsWriter({.path = path, .unit_count = 4, .existing = ExistingFile::resume}), Error);
}

void write_errors(const SignalsSettings& settings) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  SignalsWriter writer(settings);
  writer.write(5, std::vector<double>{0.25, 0.5, 1, kNone, kNone, kNone});
  writer.write(6, std::vector<double>{kNone, 2, std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(writer.close(std::chrono::seconds(20)));
}

TEST(SignalsFile, SitesOfUnitsStandSideBySide) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("errors.bin");
  write_errors({.path = path, .unit_count = 2, .sites = 3});
  const std::string content = content_of(path);
  ASSERT_EQ(content.size(), 20U + 2 * (8 + 6 * 4));
  EXPECT_EQ(content.substr(0, 20), std::string("GNMRSIGS\x02\0\0\0\x02\0\0\0\x03\0\0\0", 20));
  EXPECT_EQ(content.substr(20, 16), std::string("\x05\0\0\0\0\0\0\0\0\0\x80\x3E\0\0\0\x3F", 16));
  SignalsReader reader(path);
  EXPECT_EQ(reader.unit_count(), 2U);
  EXPECT_EQ(reader.sites(), 3U);
  EXPECT_EQ(reader.row_count(), 2U);
  EXPECT_FALSE(reader.torn());
  const std::vector<SignalsRow> rows = read_rows(reader);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].step, 5);
  ASSERT_EQ(rows[0].values.size(), 6U);
  EXPECT_EQ(rows[0].values[2], 1.0F);
  EXPECT_TRUE(std::isnan(rows[0].values[3]));
  EXPECT_TRUE(std::isinf(rows[1].values[2]));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(rows[1].values[i])) << "what was not given";
}

TEST(SignalsFile, AFileWithSitesIsContinuedOnlyAsSuch) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("errors.bin");
  write_errors({.path = path, .unit_count = 2, .sites = 3});
  const std::string whole = content_of(path);
  for (std::size_t cut = 1; cut < 32; ++cut) {
    put_file(path, whole.substr(0, whole.size() - cut));
    SignalsReader reader(path);
    EXPECT_TRUE(reader.torn());
    EXPECT_EQ(read_rows(reader).size(), 1U);
  }
  put_file(path, whole + "torn");
  write_errors({.path = path, .unit_count = 2, .sites = 3, .existing = ExistingFile::resume});
  EXPECT_EQ(content_of(path), whole + whole.substr(20));
  for (const std::uint32_t sites : {0U, 2U, 4U}) {
    EXPECT_THROW(SignalsWriter({.path = path, .unit_count = 2, .sites = sites, .existing = ExistingFile::resume}),
                 Error);
  }
  EXPECT_THROW(SignalsWriter({.path = folder.file("new"), .unit_count = 2, .sites = 17}), Error);
  EXPECT_EQ(content_of(path), whole + whole.substr(20));
}

TEST(SignalsFile, AHugeCountOfUnitsTakesNoMemory) {
  const test::TemporaryFolder folder;
  for (const std::string& content : {std::string("GNMRSIGS\x01\0\0\0\xFF\xFF\xFF\xFF rest", 21),
                                     std::string("GNMRSIGS\x02\0\0\0\xFF\xFF\xFF\xFF\x10\0\0\0 rest", 25)}) {
    put_file(folder.file("a"), content);
    SignalsReader reader(folder.file("a"));
    SignalsRow row;
    EXPECT_FALSE(reader.next(row)) << content.size();
    EXPECT_TRUE(reader.torn());
    EXPECT_EQ(row.values.capacity(), 0U);
  }
}

}  // namespace
}  // namespace gnmr::io
