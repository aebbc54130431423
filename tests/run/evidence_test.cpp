// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/evidence.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using test::content_of;
using test::put_file;

const std::vector<EvidenceLine> kLines{
    {.step = 57, .unit = "layers.2.up", .relative_error = 0.61, .saturated = 0.18, .flushed = 0.002},
    {.step = 57, .unit = "a \"quoted\" unit", .relative_error = 1e-9},
    {.step = 58, .unit = "layers.2.up", .relative_error = std::numeric_limits<double>::infinity()}};

TEST(Evidence, ReadsBackAsWritten) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("evidence.jsonl");
  EvidenceWriter writer(path, io::ExistingFile::refuse);
  for (const EvidenceLine& line : kLines) writer.write(line);
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(read_evidence(path), kLines);
  EXPECT_TRUE(writer.close());
  EXPECT_EQ(writer.dropped(), 0u);
  const auto first = nlohmann::json::parse(test::lines_of(content_of(path))[0]);
  EXPECT_EQ(first, nlohmann::json::parse(R"({"kind":"evidence","step":57,"unit":"layers.2.up","relative_error":0.61,
                                             "saturated":0.18,"flushed":0.002})"));
  EXPECT_THROW(EvidenceWriter(path, io::ExistingFile::refuse), Error);
}

TEST(Evidence, AResumedRunTellsStepsAgainAndTheLastOneCounts) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("evidence.jsonl");
  EvidenceWriter(path, io::ExistingFile::refuse).write(kLines[0]);
  put_file(path, content_of(path) + R"({"kind":"other"})" + "\n" + R"({"kind":"evidence","ste)");
  EXPECT_EQ(read_evidence(path).size(), 1u) << "a torn last line and other kinds are passed over";
  EvidenceLine again = kLines[0];
  again.saturated = 0.5;
  EvidenceWriter(path, io::ExistingFile::resume).write(again);
  EXPECT_EQ(read_evidence(path), std::vector<EvidenceLine>{again});
}

TEST(Evidence, DamageIsNamedByLine) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("evidence.jsonl");
  for (const char* const damage : {"{}", "[]", "nonsense", R"({"kind":"evidence","step":1.5,"unit":"a"})",
                                   R"({"kind":"evidence","step":1,"unit":"a","relative_error":"big"})"}) {
    put_file(path, std::string(R"({"kind":"other"})") + "\n" + damage + "\n");
    const std::string message = test::error_of<Error>([&] { read_evidence(path); });
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find('2'), std::string::npos) << message;
  }
  EXPECT_THROW(read_evidence(folder.file("none")), Error);
}

TEST(Evidence, AFullDiskIsCounted) {
  const test::TemporaryFolder folder;
  EvidenceWriter writer(folder.file("evidence.jsonl"), io::ExistingFile::refuse);
  const test::FileSizeLimit limit(1000);
  for (int index = 0; index < 50; ++index) writer.write(kLines[0]);
  EXPECT_FALSE(writer.close());
  EXPECT_GT(writer.dropped(), 30u);
  EXPECT_FALSE(read_evidence(folder.file("evidence.jsonl")).empty());
}

}  // namespace
}  // namespace gnmr::run
