// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777U;
}

TEST(WholeFile, ReadsWhatIsThere) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  const std::string content = std::string(200000, 'x') + '\0' + "end";
  put_file(path, content);
  EXPECT_EQ(read_whole_file(path), content);
  EXPECT_EQ(read_whole_file(path, content.size()), content);
  EXPECT_EQ(read_file_start(path, 7), "xxxxxxx");
  EXPECT_EQ(read_file_start(path, 1000000), content);
  EXPECT_EQ(read_file_start("/dev/zero", 100000), std::string(100000, '\0'));
}

TEST(WholeFile, RefusesWhatIsTooLargeOrNotThere) {
  const test::TemporaryFolder folder;
  put_file(folder.file("a"), "12345");
  EXPECT_NE(error_of<Error>([&] { read_whole_file(folder.file("a"), 4); }).find("larger than 4"), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { read_whole_file(folder.file("b")); }).find("/b: "), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { read_whole_file(folder.file("")); }), "");
}

TEST(WholeFile, ReplacesAndCreates) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  replace_file(path, "one");
  EXPECT_EQ(content_of(path), "one");
  replace_file(path, std::string("t\0wo", 4));
  EXPECT_EQ(content_of(path), std::string("t\0wo", 4));
  replace_file(path, "");
  EXPECT_EQ(content_of(path), "");
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(WholeFile, KeepsThePermissionsOfTheOldFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  put_file(path, "one");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  replace_file(path, "two");
  EXPECT_EQ(mode_of(path), 0640U);
}

TEST(WholeFile, ReplacesWhatALinkPointsTo) {
  const test::TemporaryFolder folder;
  put_file(folder.file("real"), "one");
  std::filesystem::create_symlink(folder.file("real"), folder.file("link"));
  replace_file(folder.file("link"), "two");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(content_of(folder.file("real")), "two");
}

TEST(WholeFile, AFullDiskLeavesTheOldFileAndNothingBeside) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  put_file(path, "old");
  {
    const test::FileSizeLimit limit(1000);
    const std::string error = error_of<Error>([&] { replace_file(path, std::string(5000, 'n')); });
    EXPECT_TRUE(error.starts_with(path)) << error;
    EXPECT_EQ(content_of(path), "old");
    EXPECT_EQ(folder.entries(), 1U);
  }
  replace_file(path, std::string(5000, 'n'));
  EXPECT_EQ(content_of(path).size(), 5000U);
}

TEST(WholeFile, AFolderThatIsNotThereOrTakesNoFilesIsAnError) {
  const test::TemporaryFolder folder;
  EXPECT_NE(error_of<Error>([&] { replace_file(folder.file("none/a"), "x"); }).find("beside"), std::string::npos);
  EXPECT_EQ(folder.entries(), 0U);
  // Not even root creates files there.
  EXPECT_NE(error_of<Error>([] { replace_file("/proc/a", "x"); }).find("beside"), std::string::npos);
}

TEST(WholeFile, LeavesDevicesAndFoldersAlone) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("sub"));
  EXPECT_NE(error_of<Error>([&] { replace_file(folder.file("sub"), "x"); }).find("regular"), std::string::npos);
  EXPECT_NE(error_of<Error>([] { replace_file("/dev/null", "x"); }).find("regular"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(folder.entries(), 1U);
}

}  // namespace
}  // namespace gnmr::io
