// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/evidence.h"

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

constexpr io::RecordShape kEvidenceLines{};
constexpr std::size_t kEvidenceBytes = std::size_t{4} << 20U;
constexpr std::chrono::seconds kEvidenceWait{2};

void append_number(std::string& out, const char* name, double value) {
  out += ",\"";
  out += name;
  out += "\":";
  io::append_json_number(out, value);
}

EvidenceLine read_line(const Json& object) {
  EvidenceLine line;
  line.step = whole_of(field(object, "step"), "step");
  line.unit = text_of(field(object, "unit"), "unit");
  line.relative_error = number_of(field(object, "relative_error"), "relative_error");
  line.saturated = number_of(field(object, "saturated"), "saturated");
  line.flushed = number_of(field(object, "flushed"), "flushed");
  return line;
}

}  // namespace

EvidenceWriter::EvidenceWriter(const std::string& path, io::ExistingFile existing) {
  io::RecordFile file = io::open_record_file(path, existing, kEvidenceLines);
  sink_ = io::make_background_sink(std::move(file.file), {.shape = kEvidenceLines, .queue_bytes = kEvidenceBytes});
}

void EvidenceWriter::write(const EvidenceLine& line) {
  line_ = R"({"kind":"evidence","step":)";
  io::append_json_number(line_, line.step);
  line_ += R"(,"unit":)";
  io::append_json_string(line_, line.unit);
  append_number(line_, "relative_error", line.relative_error);
  append_number(line_, "saturated", line.saturated);
  append_number(line_, "flushed", line.flushed);
  line_ += "}\n";
  sink_->append(line_);
}

bool EvidenceWriter::close() { return sink_->close(kEvidenceWait); }

std::vector<EvidenceLine> read_evidence(const std::string& path) {
  const std::unique_ptr<io::ByteSource> source = io::open_byte_source(path);
  io::LineReader lines(*source);
  std::map<std::pair<std::int64_t, std::string>, std::size_t> places;
  std::vector<EvidenceLine> evidence;
  std::string_view text;
  while (lines.next(text)) {
    if (!lines.ending().ends_with('\n')) break;
    try {
      const Json object = parse_object(text);
      if (text_of(field(object, "kind"), "kind") != "evidence") continue;
      EvidenceLine line = read_line(object);
      const auto [place, added] = places.try_emplace({line.step, line.unit}, evidence.size());
      if (added) {
        evidence.push_back(std::move(line));
      } else {
        evidence[place->second] = std::move(line);
      }
    } catch (const Error& error) {
      throw io::error_at(io::at_line(path, lines.line_number()), error.what());
    }
  }
  return evidence;
}

}  // namespace gnmr::run
