// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/state_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "gnmr/io/json_text.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kErrorSize = 4 + 8;
constexpr std::size_t kKeySize = 8;
constexpr std::size_t kLevelSize = 4 + 4 + 8;

}  // namespace

std::string encode_errors(const ControllerState& state) {
  const std::size_t count = state.units.size() * state.sites;
  if (state.sites < 1 || state.sites > kMostSites || state.errors.size() != count) {
    throw Error(fmt::format("[state] cannot save {} errors of {} units with {} sites", state.errors.size(),
                            state.units.size(), state.sites));
  }
  std::string out;
  out.reserve(4 + count * kErrorSize);
  append_little_endian(out, state.sites);
  for (const ErrorState& error : state.errors) {
    append_little_endian(out, error.samples);
    append_little_endian(out, error.mean_sum);
  }
  return out;
}

bool has_levels(const ControllerState& state) {
  const auto has_key = [](const UnitState& unit) { return unit.standing_key != 0; };
  return !state.levels.empty() || std::any_of(state.units.begin(), state.units.end(), has_key);
}

std::string encode_levels(const ControllerState& state) {
  const std::size_t count = state.units.size() * state.sites;
  if (!state.levels.empty() && state.levels.size() != count) {
    throw Error(fmt::format("[state] cannot save {} levels of {} units with {} sites", state.levels.size(),
                            state.units.size(), state.sites));
  }
  std::string out;
  out.reserve(state.units.size() * kKeySize + count * kLevelSize);
  for (const UnitState& unit : state.units) append_little_endian(out, unit.standing_key);
  for (std::size_t i = 0; i < count; ++i) {
    const LevelState level = state.levels.empty() ? LevelState{} : state.levels[i];
    append_little_endian(out, level.samples);
    append_little_endian(out, level.age);
    append_little_endian(out, level.sum);
  }
  return out;
}

std::string encode_reruns(const ControllerState& state) {
  if (state.reruns_ago.size() > kRerunMemory) {
    throw Error(
        fmt::format("[state] cannot save {} reruns, there are at most {}", state.reruns_ago.size(), kRerunMemory));
  }
  std::string out;
  append_little_endian(out, static_cast<std::uint32_t>(state.reruns_ago.size()));
  for (const std::uint32_t ago : state.reruns_ago) append_little_endian(out, ago);
  return out;
}

std::string encode_doubt(const Doubt& doubt) {
  std::string out;
  append_little_endian(out, doubt.value);
  append_little_endian(out, doubt.decisions_left);
  return out;
}

std::string encode_high_bucket(const HighBucketState& bucket) {
  std::string out;
  append_little_endian(out, bucket.size);
  append_little_endian(out, bucket.level);
  return out;
}

void decode_errors(LittleEndianReader reader, ControllerState& state) {
  const auto sites = reader.take<std::uint32_t>();
  if (sites < 1 || sites > kMostSites) {
    reader.fail(fmt::format("{} sites, expected 1 to {}", sites, kMostSites));
  }
  const std::size_t count = state.units.size() * sites;
  if (reader.left() != count * kErrorSize) {
    reader.fail(fmt::format("{} bytes for {} units with {} sites, expected {}", reader.left(), state.units.size(),
                            sites, count * kErrorSize));
  }
  state.sites = sites;
  state.errors.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    state.errors[i].samples = reader.take<std::uint32_t>();
    const double mean = reader.take_double();
    if (std::isnan(mean) || std::signbit(mean)) {
      reader.fail(fmt::format("unit {}: a usual error is {}, expected a number that is not negative",
                              in_quotes(state.units[i / sites].name), mean));
    }
    state.errors[i].mean_sum = mean;
  }
}

void decode_levels(LittleEndianReader reader, ControllerState& state) {
  const std::size_t count = state.units.size() * state.sites;
  const std::size_t expected = state.units.size() * kKeySize + count * kLevelSize;
  if (reader.left() != expected) {
    reader.fail(fmt::format("{} bytes for {} units with {} sites, expected {}", reader.left(), state.units.size(),
                            state.sites, expected));
  }
  for (UnitState& unit : state.units) {
    unit.standing_key = reader.take_double();
    if (!std::isfinite(unit.standing_key) || std::signbit(unit.standing_key)) {
      reader.fail(fmt::format("unit {}: a key is {}, expected a number that is not negative", in_quotes(unit.name),
                              unit.standing_key));
    }
  }
  state.levels.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    LevelState& level = state.levels[i];
    level.samples = reader.take<std::uint32_t>();
    level.age = reader.take<std::uint32_t>();
    level.sum = reader.take_double();
    if (!std::isfinite(level.sum) || level.age > kLongestLevelGap) {
      reader.fail(fmt::format("unit {}: a level of {}, {} decisions old, expected a number, at most {} decisions old",
                              in_quotes(state.units[i / state.sites].name), level.sum, level.age, kLongestLevelGap));
    }
  }
}

void decode_reruns(LittleEndianReader reader, ControllerState& state) {
  const auto count = reader.take<std::uint32_t>();
  if (count > kRerunMemory || reader.left() != count * sizeof(std::uint32_t)) {
    reader.fail(fmt::format("{} reruns in {} bytes, expected at most {} and four bytes for each", count, reader.left(),
                            kRerunMemory));
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto ago = reader.take<std::uint32_t>();
    if (ago >= kRerunMemory || (i > 0 && ago <= state.reruns_ago.back())) {
      reader.fail(fmt::format("a rerun {} decisions ago, expected ascending numbers below {}", ago, kRerunMemory));
    }
    state.reruns_ago.push_back(ago);
  }
}

void decode_doubt(LittleEndianReader reader, ControllerState& state) {
  const auto value = reader.take<std::uint32_t>();
  const auto left = reader.take<std::uint32_t>();
  const bool is_doubt = value >= 2 && value <= kMostDoubt && std::has_single_bit(value);
  if (!is_doubt || left < 1 || left > kDoubtDecisions || reader.left() != 0) {
    reader.fail(fmt::format("a doubt of {} for {} decisions and {} bytes more, expected 2, 4 or 8 for 1 to {}", value,
                            left, reader.left(), kDoubtDecisions));
  }
  state.doubt = {.value = value, .decisions_left = left};
}

void decode_high_bucket(LittleEndianReader reader, ControllerState& state) {
  const std::int64_t size = reader.take_signed();
  const std::int64_t level = reader.take_signed();
  if (size < 1 || size > kMostHighBucket || level < 0 || level > size || reader.left() != 0) {
    reader.fail(fmt::format("{} of {} left and {} bytes more, expected at most the second, and that above 0", level,
                            size, reader.left()));
  }
  state.high_bucket = {.size = size, .level = level};
}

}  // namespace gnmr::io
