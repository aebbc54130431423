// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/harm.h"

#include <chrono>
#include <map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/text_error.h"
#include "gnmr/run/json_fields.h"

namespace gnmr::run {
namespace {

constexpr io::RecordShape kHarmLines{};
constexpr std::size_t kHarmBytes = std::size_t{4} << 20U;
constexpr std::chrono::seconds kHarmWait{2};

}  // namespace

HarmWriter::HarmWriter(const std::string& path, io::ExistingFile existing) {
  io::RecordFile file = io::open_record_file(path, existing, kHarmLines);
  sink_ = io::make_background_sink(std::move(file.file), {.shape = kHarmLines, .queue_bytes = kHarmBytes});
}

void HarmWriter::write(const HarmLine& line) {
  line_ = R"({"kind":"harm","step":)";
  io::append_json_number(line_, line.step);
  line_ += R"(,"layer":)";
  io::append_json_string(line_, line.layer);
  line_ += R"(,"distance":)";
  io::append_json_number(line_, line.distance);
  line_ += "}\n";
  sink_->append(line_);
}

bool HarmWriter::close() { return sink_->close(kHarmWait); }

std::vector<HarmLine> read_harm(const std::string& path) {
  const std::unique_ptr<io::ByteSource> source = io::open_byte_source(path);
  io::LineReader lines(*source);
  std::map<std::pair<std::int64_t, std::string>, std::size_t> places;
  std::vector<HarmLine> harm;
  std::string_view text;
  while (lines.next(text)) {
    if (!lines.ending().ends_with('\n')) break;
    try {
      const Json object = parse_object(text);
      if (text_of(field(object, "kind"), "kind") != "harm") continue;
      HarmLine line{.step = whole_of(field(object, "step"), "step"),
                    .layer = text_of(field(object, "layer"), "layer"),
                    .distance = number_of(field(object, "distance"), "distance")};
      const auto [place, added] = places.try_emplace({line.step, line.layer}, harm.size());
      if (added) {
        harm.push_back(std::move(line));
      } else {
        harm[place->second] = std::move(line);
      }
    } catch (const Error& error) {
      throw io::error_at(io::at_line(path, lines.line_number()), error.what());
    }
  }
  return harm;
}

}  // namespace gnmr::run
