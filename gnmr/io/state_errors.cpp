// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/state_errors.h"

#include <fmt/format.h>

#include <cmath>

#include "gnmr/io/json_text.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kErrorSize = 4 + 8;

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

}  // namespace gnmr::io
