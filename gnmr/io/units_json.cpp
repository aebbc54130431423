// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/units_json.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::io {
namespace {

constexpr std::array<std::string_view, 1> kFileKeys{"units"};
constexpr std::array<std::string_view, 3> kEntryKeys{"name", "cost", "group"};
constexpr std::uint64_t kMaxCost = std::uint64_t{1} << 53;  // the most that all costs together may be

std::int64_t read_cost(const Json& cost, const std::string& place) {
  if (!cost.is_number()) throw Error(place + ": cost must be a number");
  // Two ways, because a whole number just above the limit would round to it as a double.
  if (cost.is_number_unsigned() && cost.get<std::uint64_t>() >= 1 && cost.get<std::uint64_t>() <= kMaxCost) {
    return cost.get<std::int64_t>();
  }
  const double value = cost.is_number_float() ? cost.get<double>() : 0.0;
  if (!(value >= 1) || value > static_cast<double>(kMaxCost) || std::trunc(value) != value) {
    throw Error(place + ": cost must be a whole number from 1 to 2^53, not " + cost.dump());
  }
  return static_cast<std::int64_t>(value);
}

std::string read_group(const Json& group, const std::string& place) {
  if (group.is_null()) return {};
  if (!group.is_string()) throw Error(place + ": group must be a string or null");
  return group.get<std::string>();
}

// Only what the entry says; the unit's place comes from the trace.
Unit read_entry(const Json& entry, const std::string& place) {
  if (!entry.is_object()) throw Error(place + ": must be an object");
  Unit unit;
  for (const auto& [key, value] : entry.items()) {
    if (key == "name") {
      if (!value.is_string()) throw Error(place + ": name must be a string");
      unit.name = value.get<std::string>();
    } else if (key == "cost") {
      unit.cost = read_cost(value, place);
    } else if (key == "group") {
      unit.group = read_group(value, place);
    } else {
      throw Error(place + ": unknown key " + in_quotes(key) + did_you_mean(key, kEntryKeys));
    }
  }
  if (!entry.contains("name")) throw Error(place + ": has no name");
  return unit;
}

const Json& units_of(const Json& document, const std::string& file) {
  if (!document.is_object()) throw Error(file + ": must be an object with the key \"units\"");
  for (const auto& [key, value] : document.items()) {
    if (key != "units") throw Error(file + ": unknown key " + in_quotes(key) + did_you_mean(key, kFileKeys));
  }
  const auto units = document.find("units");
  if (units == document.end()) throw Error(file + ": has no \"units\"");
  if (!units->is_array()) throw Error(file + ": \"units\" must be an array");
  return *units;
}

}  // namespace

std::vector<Unit> parse_units(std::string_view text, const std::string& file,
                              const std::vector<std::string>& trace_units) {
  const Json document = [&] {
    try {
      return parse_json(text);
    } catch (const Error& error) {
      throw error_at(file, error.what());
    }
  }();
  const Json& entries = units_of(document, file);
  std::vector<Unit> units(trace_units.size());
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i].name = trace_units[i];
    index.emplace(trace_units[i], i);
  }
  std::vector<bool> named(units.size(), false);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string place = file + ": units[" + std::to_string(i) + "]";
    Unit unit = read_entry(entries[i], place);
    const auto found = index.find(unit.name);
    if (found == index.end()) {
      throw Error(place + ": the trace has no unit " + in_quotes(unit.name) + did_you_mean(unit.name, trace_units));
    }
    if (named[found->second]) throw Error(place + ": the unit " + in_quotes(unit.name) + " is there twice");
    named[found->second] = true;
    units[found->second] = std::move(unit);
  }
  return units;
}

std::vector<Unit> read_units(const std::string& path, const std::vector<std::string>& trace_units) {
  return parse_units(read_whole_file(path, kMaxLineBytes), path, trace_units);
}

}  // namespace gnmr::io
