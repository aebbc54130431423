// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/record_sink.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::content_of;
using test::error_of;
using test::lines_of;
using test::put_file;

constexpr RecordShape kLines{};

std::string note_of(std::uint64_t dropped) { return "dropped " + std::to_string(dropped) + "\n"; }

std::unique_ptr<RecordSink> background(const std::string& path, std::size_t queue_bytes = 1 << 16) {
  return make_background_sink(open_record_file(path, ExistingFile::resume, kLines).file,
                              {.shape = kLines, .queue_bytes = queue_bytes, .drop_note = note_of});
}

// Ten bytes each.
std::string numbered_line(int number) {
  std::string text = std::to_string(number);
  text.insert(0, 9 - text.size(), '0');
  return text + "\n";
}

// The thread has its own pace.
void wait_for_size(const std::string& path, std::size_t size) {
  for (int i = 0; i < 2000 && content_of(path).size() != size; ++i) ::usleep(5000);
  ASSERT_EQ(content_of(path).size(), size);
}

// Every line is whole, the numbered ones ascend, and with those that the notes tell of they are `count`.
void expect_whole_lines(const std::string& content, int count, std::uint64_t expected_dropped) {
  EXPECT_TRUE(content.ends_with('\n'));
  int last = -1;
  int written = 0;
  std::uint64_t dropped = 0;
  for (const std::string& text : lines_of(content)) {
    if (text.starts_with("dropped ")) {
      dropped += std::stoull(text.substr(8));
      continue;
    }
    ASSERT_EQ(text.size(), 9U) << text;
    EXPECT_GT(std::stoi(text), last);
    last = std::stoi(text);
    ++written;
  }
  EXPECT_EQ(dropped, expected_dropped);
  EXPECT_EQ(static_cast<std::uint64_t>(written) + dropped, static_cast<std::uint64_t>(count));
}

TEST(RecordSink, ShapesKnowWhereRecordsEnd) {
  EXPECT_EQ(kLines.count("a\nbc\nd"), 2U);
  EXPECT_EQ(kLines.whole("a\nbc\nd"), 5U);
  EXPECT_EQ(kLines.whole("abc"), 0U);
  const RecordShape rows{.record_bytes = 4, .header_bytes = 16};
  EXPECT_EQ(rows.count("123456789"), 2U);
  EXPECT_EQ(rows.whole("123456789"), 8U);
}

TEST(RecordSink, WritesInTheBackgroundInOrder) {
  const test::TemporaryFolder folder;
  auto sink = background(folder.file("a"), 1 << 20);
  std::string expected;
  for (int i = 0; i < 2000; ++i) {
    sink->append(numbered_line(i));
    expected += numbered_line(i);
  }
  EXPECT_TRUE(sink->flush(seconds(20)));
  EXPECT_EQ(content_of(folder.file("a")), expected);
  sink->append("end\n");
  EXPECT_TRUE(sink->close(seconds(20)));
  EXPECT_EQ(content_of(folder.file("a")), expected + "end\n");
  EXPECT_EQ(sink->dropped(), 0U);
}

TEST(RecordSink, TheDestructorWritesWhatIsQueued) {
  const test::TemporaryFolder folder;
  background(folder.file("a"))->append("one\n");
  EXPECT_EQ(content_of(folder.file("a")), "one\n");
}

TEST(RecordSink, AStalledWriteDropsAndTellsLater) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const FileDescriptor reader(::open(path.c_str(), O_RDWR | O_NONBLOCK));
  std::size_t filled = 0;
  while (::write(reader.get(), "x", 1) == 1) ++filled;
  auto sink = background(path, 1000);
  constexpr int kCount = 500;
  for (int i = 0; i < kCount; ++i) sink->append(numbered_line(i));
  EXPECT_FALSE(sink->flush(milliseconds(50)));
  EXPECT_GT(sink->dropped(), 0U);
  std::string content;
  std::string buffer(4096, '\0');
  for (int quiet = 0; quiet < 2000; ++quiet) {
    const bool settled = sink->flush(milliseconds(5));
    const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
    if (got > 0) content.append(buffer.data(), static_cast<std::size_t>(got));
    if (got <= 0 && settled) break;
  }
  ASSERT_GT(content.size(), filled);
  expect_whole_lines(content.substr(filled), kCount, sink->dropped());
}

TEST(RecordSink, ClosingDoesNotWaitForAWriteThatNeverReturns) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  FileDescriptor reader(::open(path.c_str(), O_RDWR | O_NONBLOCK));
  auto sink = background(path, 1 << 20);
  sink->append(std::string(500000, 'x') + "\n");
  const auto start = std::chrono::steady_clock::now();
  sink->append("second\n");
  EXPECT_FALSE(sink->close(milliseconds(20)));
  EXPECT_EQ(sink->dropped(), 2U);  // what is stuck counts as lost
  sink.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  // Lets the forgotten thread end before the test does.
  reader.close();
  ::usleep(20000);
}

TEST(RecordSink, AFullDiskDropsAndTellsLater) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  auto sink = background(path, 300);
  constexpr int kCount = 200;
  {
    // Not a multiple of ten: a line is torn when the disk is full, and finished when it no longer is.
    const test::FileSizeLimit limit(505);
    for (int i = 0; i < kCount; ++i) {
      sink->append(numbered_line(i));
      const bool written = i > 45 || sink->flush(seconds(10));
      ASSERT_TRUE(written);
    }
    wait_for_size(path, 505);
    EXPECT_FALSE(sink->flush(milliseconds(30)));
    EXPECT_GT(sink->dropped(), 0U);
  }
  EXPECT_TRUE(sink->close(seconds(20)));
  expect_whole_lines(content_of(path), kCount, sink->dropped());
}

TEST(RecordSink, ClosingOnAFullDiskLeavesWholeLinesAndCountsTheRest) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  const test::FileSizeLimit limit(45);
  auto sink = background(path);
  for (int i = 0; i < 20; ++i) sink->append(numbered_line(i));
  wait_for_size(path, 45);
  EXPECT_FALSE(sink->close(milliseconds(30)));
  EXPECT_EQ(content_of(path), numbered_line(0) + numbered_line(1) + numbered_line(2) + numbered_line(3));
  EXPECT_EQ(sink->dropped(), 16U);
  sink->append(numbered_line(20));
  EXPECT_EQ(sink->dropped(), 17U);
}

TEST(RecordSink, RecordsLargerThanTheQueueAreDroppedAndTold) {
  const test::TemporaryFolder folder;
  auto sink = background(folder.file("a"), 10);
  sink->append("a\nb\nmore than ten bytes\n");
  EXPECT_TRUE(sink->close(seconds(20)));
  EXPECT_EQ(content_of(folder.file("a")), "dropped 3\n");
}

TEST(RecordSink, DirectWritingThrowsAndLeavesWholeLines) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  auto sink = make_direct_sink(open_record_file(path, ExistingFile::refuse, kLines).file, path, kLines);
  sink->append(numbered_line(0) + numbered_line(1));
  {
    const test::FileSizeLimit limit(15);
    EXPECT_TRUE(error_of<Error>([&] { sink->flush({}); }).starts_with(path));
  }
  EXPECT_EQ(content_of(path), numbered_line(0));
  EXPECT_EQ(sink->dropped(), 1U);
  sink->append(numbered_line(2));
  EXPECT_TRUE(sink->close({}));
  EXPECT_EQ(content_of(path), numbered_line(0) + numbered_line(2));
}

TEST(RecordSink, DirectWritingToAFullDeviceIsAnError) {
  auto sink = make_direct_sink(open_record_file("/dev/full", ExistingFile::replace, kLines).file, "/dev/full", kLines);
  EXPECT_THROW(
      {
        for (int i = 0; i < 100000; ++i) sink->append(numbered_line(i));
        sink->close({});
      },
      Error);
}

TEST(RecordSink, OpeningKnowsWhatToDoWithWhatIsThere) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  put_file(path, "one\ntwo\nto");
  EXPECT_NE(error_of<Error>([&] { open_record_file(path, ExistingFile::refuse, kLines); }).find("already"),
            std::string::npos);
  EXPECT_EQ(content_of(path), "one\ntwo\nto");
  EXPECT_TRUE(open_record_file(path, ExistingFile::resume, kLines).had_records);
  EXPECT_EQ(content_of(path), "one\ntwo\n");
  EXPECT_FALSE(open_record_file(path, ExistingFile::replace, kLines).had_records);
  EXPECT_EQ(content_of(path), "");
  EXPECT_FALSE(open_record_file(path, ExistingFile::refuse, kLines).had_records);
  put_file(path, "x\n" + std::string(200000, 'y'));
  EXPECT_TRUE(open_record_file(path, ExistingFile::resume, kLines).had_records);
  EXPECT_EQ(content_of(path), "x\n");
  put_file(path, "torn");
  EXPECT_FALSE(open_record_file(path, ExistingFile::resume, kLines).had_records);
  EXPECT_EQ(content_of(path), "");
  EXPECT_THROW(open_record_file(folder.file("none/a"), ExistingFile::replace, kLines), Error);
}

TEST(RecordSink, OpeningCutsTornRows) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  const RecordShape rows{.record_bytes = 4, .header_bytes = 3};
  for (const auto& [content, kept] : std::vector<std::pair<std::string, std::string>>{
           {"hdr11112222", "hdr11112222"}, {"hdr111122", "hdr1111"}, {"hdr", "hdr"}, {"hd", ""}}) {
    put_file(path, content);
    open_record_file(path, ExistingFile::resume, rows);
    EXPECT_EQ(content_of(path), kept);
  }
}

}  // namespace
}  // namespace gnmr::io
