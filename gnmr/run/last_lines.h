// SPDX-License-Identifier: Apache-2.0
// Files with a line per step and name, of which a resumed run repeats some. Only for sources that link gnmr_json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gnmr/io/json.h"

namespace gnmr::run {

/// The lines of a kind, in their order; of those with the same step and name only the last. A torn last line is
/// skipped, any other damage is an `Error` with file and line.
template <typename Line, typename Read>
std::vector<Line> read_last_lines(const std::string& path, std::string_view kind, std::string Line::*name, Read read) {
  std::vector<Line> lines;
  std::map<std::pair<std::int64_t, std::string>, std::size_t> places;
  io::read_json_lines(path, io::OpenEnd::torn, [&](const io::JsonObject& object) {
    if (object.text("kind") != kind) return;
    Line line = read(object);
    const auto [place, added] = places.try_emplace({line.step, line.*name}, lines.size());
    if (added) lines.emplace_back();
    lines[place->second] = std::move(line);
  });
  return lines;
}

}  // namespace gnmr::run
