// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/harm.h"

#include "gnmr/io/json_text.h"
#include "gnmr/run/last_lines.h"

namespace gnmr::run {

void append_line(std::string& out, const HarmLine& line) {
  out += R"({"kind":"harm")";
  io::append_json_member(out, "step", line.step);
  io::append_json_member(out, "layer", line.layer);
  io::append_json_member(out, "distance", line.distance);
  out += "}\n";
}

std::vector<HarmLine> read_harm(const std::string& path) {
  return read_last_lines(path, "harm", &HarmLine::layer, [](const io::JsonObject& line) -> HarmLine {
    return {.step = line.whole("step"), .layer = line.text("layer"), .distance = line.number("distance")};
  });
}

}  // namespace gnmr::run
