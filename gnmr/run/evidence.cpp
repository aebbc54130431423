// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/evidence.h"

#include "gnmr/io/json_text.h"
#include "gnmr/run/last_lines.h"

namespace gnmr::run {

void append_line(std::string& out, const EvidenceLine& line) {
  out += R"({"kind":"evidence")";
  io::append_json_member(out, "step", line.step);
  io::append_json_member(out, "unit", line.unit);
  io::append_json_member(out, "relative_error", line.relative_error);
  io::append_json_member(out, "saturated", line.saturated);
  io::append_json_member(out, "flushed", line.flushed);
  out += "}\n";
}

std::vector<EvidenceLine> read_evidence(const std::string& path) {
  return read_last_lines(path, "evidence", &EvidenceLine::unit, [](const io::JsonObject& line) -> EvidenceLine {
    return {.step = line.whole("step"),
            .unit = line.text("unit"),
            .relative_error = line.number("relative_error"),
            .saturated = line.number("saturated"),
            .flushed = line.number("flushed")};
  });
}

}  // namespace gnmr::run
