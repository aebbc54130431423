// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/little_endian.h"
#include "gnmr/io/state_errors.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kStateMagic = "GNMRSTAT";
constexpr std::size_t kChecksumAt = 24;
constexpr std::size_t kHeaderSize = 32;
constexpr std::size_t kLongestSectionName = 255;
constexpr auto kMostKept = static_cast<std::uint32_t>(option_ranges::kWindow.high);

constexpr std::string_view kOptions = "options";
constexpr std::string_view kProgress = "progress";
constexpr std::string_view kNames = "names";
constexpr std::string_view kHistory = "history";
constexpr std::string_view kRecovery = "recovery";
constexpr std::array kControllerSections{kOptions, kProgress, kNames, kHistory, kRecovery};
constexpr std::string_view kErrors = "errors";
constexpr std::string_view kReruns = "reruns";
constexpr std::string_view kLevels = "levels";
constexpr std::string_view kDoubt = "doubt";
constexpr std::string_view kHighBucket = "high_bucket";
constexpr std::array kJudgeSections{kErrors, kLevels, kReruns, kDoubt, kHighBucket};

// The fewest bytes that a unit takes in each section; a count of units is believed only if they are there.
constexpr std::size_t kNameSize = 4 + 1;
constexpr std::size_t kHistorySize = 4 + 4 + 3 * 8 + 4;
constexpr std::size_t kRecoverySize = 5 * 4 + 1 + 1;

enum RecoveryFlag : unsigned { kWasReleased = 1, kZeroMuted = 2, kInRecovery = 4, kSampledInRecovery = 8 };
constexpr unsigned kAllFlags = kWasReleased | kZeroMuted | kInRecovery | kSampledInRecovery;

bool is_own_section(std::string_view name) {
  const auto holds = [name](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return holds(kControllerSections) || holds(kJudgeSections);
}

[[noreturn]] void refuse(const std::string& message) { throw Error("[state] " + message); }

// ---- writing ----

void append_section(std::string& out, std::string_view name, std::string_view payload) {
  append_text(out, name);
  append_little_endian(out, static_cast<std::uint64_t>(payload.size()));
  out += payload;
}

std::string encode_options(const Options& options) {
  std::string out;
  append_little_endian(out, static_cast<std::uint32_t>(kOptionCount));
  for (const OptionSpec& spec : option_specs()) {
    append_text(out, spec.name);
    append_little_endian(out, spec.get(options));
  }
  return out;
}

std::string encode_progress(const ControllerState& state) {
  std::string out;
  append_little_endian(out, state.decisions);
  append_little_endian(out, state.last_step);
  return out;
}

std::string encode_names(const std::vector<UnitState>& units) {
  std::string out;
  std::unordered_set<std::string_view> seen;
  append_little_endian(out, static_cast<std::uint32_t>(units.size()));
  for (const UnitState& unit : units) {
    if (unit.name.empty() || !is_utf8(unit.name)) refuse("cannot save a unit named " + in_quotes(unit.name));
    if (!seen.insert(unit.name).second) refuse("cannot save two units named " + in_quotes(unit.name));
    append_text(out, unit.name);
  }
  return out;
}

std::string encode_history(const std::vector<UnitState>& units) {
  std::string out;
  for (const UnitState& unit : units) {
    if (unit.ratios.size() != unit.inverses.size() || unit.ratios.size() > kMostKept) {
      refuse(fmt::format("cannot save unit {}: {} kept ratios and {} kept inverses", in_quotes(unit.name),
                         unit.ratios.size(), unit.inverses.size()));
    }
    append_little_endian(out, unit.samples);
    append_little_endian(out, unit.changes);
    append_little_endian(out, unit.mean_sum);
    append_little_endian(out, unit.rise_change_sum);
    append_little_endian(out, unit.fall_change_sum);
    append_little_endian(out, static_cast<std::uint32_t>(unit.ratios.size()));
    for (const double ratio : unit.ratios) append_little_endian(out, ratio);
    for (const double inverse : unit.inverses) append_little_endian(out, inverse);
  }
  return out;
}

std::string encode_recovery(const std::vector<UnitState>& units) {
  std::string out;
  out.reserve(units.size() * kRecoverySize);
  for (const UnitState& unit : units) {
    const unsigned flags = (unit.was_released ? kWasReleased : 0U) | (unit.zero_muted ? kZeroMuted : 0U) |
                           (unit.in_recovery ? kInRecovery : 0U) | (unit.sampled_in_recovery ? kSampledInRecovery : 0U);
    append_little_endian(out, unit.last_lock_steps);
    append_little_endian(out, unit.samples_since_release);
    append_little_endian(out, unit.wait_steps);
    append_little_endian(out, unit.steps_left);
    append_little_endian(out, unit.steps_in_recovery);
    append_little_endian(out, static_cast<std::uint8_t>(flags));
    append_little_endian(out, static_cast<std::uint8_t>(unit.admitted_for));
  }
  return out;
}

// The checksum covers every byte but itself.
std::uint64_t checksum_of(std::string_view file) {
  return crc64(file.substr(kHeaderSize), crc64(file.substr(0, kChecksumAt)));
}

std::string header(std::uint32_t section_count, std::uint64_t file_size, std::uint64_t checksum) {
  std::string out(kStateMagic);
  append_little_endian(out, kStateVersion);
  append_little_endian(out, section_count);
  append_little_endian(out, file_size);
  append_little_endian(out, checksum);
  return out;
}

// ---- reading ----

struct Section {
  std::string_view payload;
  std::size_t offset = 0;  // in the file
};
using Sections = std::map<std::string_view, Section>;

struct Header {
  std::uint32_t section_count;
  std::uint64_t file_size;
  std::uint64_t checksum;
};

// What can be judged before the rest of the file is read.
Header check_header(std::string_view start) {
  if (start.substr(0, kStateMagic.size()) != kStateMagic) refuse("byte 0: this is not a state file");
  LittleEndianReader reader(start, "[state] header,");
  reader.take_bytes(kStateMagic.size());
  const auto version = reader.take<std::uint32_t>();
  if (version < 1 || version > kStateVersion) {
    refuse(fmt::format("byte 8: version {}, this program reads 1 to {}", version, kStateVersion));
  }
  Header found{};
  found.section_count = reader.take<std::uint32_t>();
  found.file_size = reader.take<std::uint64_t>();
  found.checksum = reader.take<std::uint64_t>();
  return found;
}

Sections find_sections(std::string_view file, std::uint32_t count) {
  LittleEndianReader reader(file, "[state]");
  reader.take_bytes(kHeaderSize);
  Sections sections;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view name = reader.take_text();
    if (name.empty() || name.size() > kLongestSectionName || !is_utf8(name)) {
      reader.fail("a section cannot be named " + in_quotes(name));
    }
    const auto size = reader.take<std::uint64_t>();
    const std::size_t offset = reader.offset();
    if (!sections.emplace(name, Section{reader.take_bytes(size), offset}).second) {
      reader.fail(fmt::format("section {} is there twice", in_quotes(name)));
    }
  }
  if (reader.left() != 0) reader.fail(fmt::format("{} bytes after the last section", reader.left()));
  return sections;
}

LittleEndianReader open_section(const Sections& sections, std::string_view name) {
  const auto found = sections.find(name);
  if (found == sections.end()) refuse(fmt::format("section {} is missing", in_quotes(name)));
  return {found->second.payload, fmt::format("[state] section {},", in_quotes(name)), found->second.offset};
}

void expect_end(const LittleEndianReader& reader) {
  if (reader.left() != 0) reader.fail(fmt::format("{} bytes too many", reader.left()));
}

// Options are looked up by name: a file may hold one that has gone since, or lack one that came since.
Options decode_options(LittleEndianReader reader) {
  Options options;
  std::unordered_set<std::string_view> seen;
  const auto count = reader.take<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view name = reader.take_text();
    const double value = reader.take_double();
    if (!seen.insert(name).second) reader.fail(fmt::format("option {} is there twice", in_quotes(name)));
    for (const OptionSpec& spec : option_specs()) {
      if (spec.name != name) continue;
      if (!spec.range.contains(value)) {
        reader.fail(fmt::format("option {} is {}, expected {}", in_quotes(name), value, spec.range.description()));
      }
      set_option(options, name, value);
    }
  }
  expect_end(reader);
  try {
    validate(options);
  } catch (const Error& error) {
    reader.fail(error.what());
  }
  return options;
}

void decode_progress(LittleEndianReader reader, ControllerState& state) {
  state.decisions = reader.take<std::uint64_t>();
  state.last_step = reader.take_signed();
  expect_end(reader);
}

// Memory for units is taken only here, after each section has been seen to be large enough for that many.
void decode_names(LittleEndianReader reader, const Sections& sections, ControllerState& state) {
  const auto count = reader.take<std::uint32_t>();
  const auto holds = [&](std::size_t bytes, std::size_t unit_size) { return count <= bytes / unit_size; };
  if (!holds(reader.left(), kNameSize) || !holds(open_section(sections, kHistory).left(), kHistorySize) ||
      !holds(open_section(sections, kRecovery).left(), kRecoverySize)) {
    reader.fail(fmt::format("{} units do not fit into the file", count));
  }
  std::unordered_set<std::string_view> seen;
  seen.reserve(count);
  state.units.resize(count);
  for (UnitState& unit : state.units) {
    const std::string_view name = reader.take_text();
    if (name.empty() || !is_utf8(name)) reader.fail("a unit cannot be named " + in_quotes(name));
    if (!seen.insert(name).second) reader.fail(fmt::format("unit {} is there twice", in_quotes(name)));
    unit.name = name;
  }
  expect_end(reader);
}

double take_amount(LittleEndianReader& reader, std::string_view what, const UnitState& unit) {
  const double value = reader.take_double();
  // Infinity passes here: a mean may round to it where norms are near the largest double. Ranges are the core's to
  // check.
  if (std::isnan(value) || std::signbit(value)) {
    reader.fail(
        fmt::format("unit {}: {} is {}, expected a number that is not negative", in_quotes(unit.name), what, value));
  }
  return value;
}

void decode_history(LittleEndianReader reader, std::vector<UnitState>& units) {
  for (UnitState& unit : units) {
    unit.samples = reader.take<std::uint32_t>();
    unit.changes = reader.take<std::uint32_t>();
    unit.mean_sum = take_amount(reader, "mean", unit);
    unit.rise_change_sum = take_amount(reader, "usual change of the ratio", unit);
    unit.fall_change_sum = take_amount(reader, "usual change of the inverse", unit);
    const auto kept = reader.take<std::uint32_t>();
    if (kept > kMostKept || kept > reader.left() / (2 * sizeof(double))) {
      reader.fail(fmt::format("unit {}: {} kept ratios are too many", in_quotes(unit.name), kept));
    }
    unit.ratios.resize(kept);
    unit.inverses.resize(kept);
    for (double& ratio : unit.ratios) ratio = take_amount(reader, "a kept ratio", unit);
    for (double& inverse : unit.inverses) inverse = take_amount(reader, "a kept inverse", unit);
  }
  expect_end(reader);
}

void decode_recovery(LittleEndianReader reader, std::vector<UnitState>& units) {
  for (UnitState& unit : units) {
    unit.last_lock_steps = reader.take<std::uint32_t>();
    unit.samples_since_release = reader.take<std::uint32_t>();
    unit.wait_steps = reader.take<std::uint32_t>();
    unit.steps_left = reader.take<std::uint32_t>();
    unit.steps_in_recovery = reader.take<std::uint32_t>();
    const unsigned flags = reader.take<std::uint8_t>();
    const unsigned kind = reader.take<std::uint8_t>();
    if ((flags & ~kAllFlags) != 0) reader.fail(fmt::format("unit {}: flags {:#x}", in_quotes(unit.name), flags));
    if (kind > static_cast<unsigned>(RiskKind::fill)) {
      reader.fail(fmt::format("unit {}: {} is no kind of risk", in_quotes(unit.name), kind));
    }
    unit.was_released = (flags & kWasReleased) != 0;
    unit.zero_muted = (flags & kZeroMuted) != 0;
    unit.in_recovery = (flags & kInRecovery) != 0;
    unit.sampled_in_recovery = (flags & kSampledInRecovery) != 0;
    unit.admitted_for = static_cast<RiskKind>(kind);
  }
  expect_end(reader);
}

void append_extra_sections(std::string& out, const ExtraSections& extra_sections) {
  for (const auto& [name, payload] : extra_sections) {
    if (name.empty() || name.size() > kLongestSectionName || !is_utf8(name) || is_own_section(name)) {
      refuse("cannot save a section named " + in_quotes(name));
    }
    append_section(out, name, payload);
  }
}

// The file but for its header.
std::string encode_controller(const ControllerState& state) {
  std::string out = header(0, 0, 0);
  append_section(out, kOptions, encode_options(state.options));
  append_section(out, kProgress, encode_progress(state));
  append_section(out, kNames, encode_names(state.units));
  append_section(out, kHistory, encode_history(state.units));
  append_section(out, kRecovery, encode_recovery(state.units));
  return out;
}

std::string sealed(std::string out, std::size_t sections) {
  const auto count = static_cast<std::uint32_t>(sections);
  out.replace(0, kHeaderSize, header(count, out.size(), 0));
  out.replace(0, kHeaderSize, header(count, out.size(), checksum_of(out)));
  return out;
}

}  // namespace

std::string encode_state(const ControllerState& state, const ExtraSections& extra_sections) {
  // A controller that knows norms only has neither.
  const bool has_errors = state.sites != 0 || !state.errors.empty();
  const bool has_reruns = !state.reruns_ago.empty();
  const bool has_doubt = state.doubt != Doubt{};
  const bool has_cap = state.high_bucket.size != 0;
  std::string out = encode_controller(state);
  if (has_errors) append_section(out, kErrors, encode_errors(state));
  if (has_levels(state)) append_section(out, kLevels, encode_levels(state));
  if (has_reruns) append_section(out, kReruns, encode_reruns(state));
  if (has_doubt) append_section(out, kDoubt, encode_doubt(state.doubt));
  if (has_cap) append_section(out, kHighBucket, encode_high_bucket(state.high_bucket));
  append_extra_sections(out, extra_sections);
  const std::size_t own = kControllerSections.size() + (has_errors ? 1 : 0) + (has_levels(state) ? 1 : 0) +
                          (has_reruns ? 1 : 0) + (has_doubt ? 1 : 0) + (has_cap ? 1 : 0);
  return sealed(std::move(out), own + extra_sections.size());
}

LoadedState decode_state(std::span<const std::byte> bytes) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Header found = check_header(file);
  if (found.file_size != file.size()) {
    refuse(fmt::format("byte 16: {} bytes were written, there are {}", found.file_size, file.size()));
  }
  if (found.checksum != checksum_of(file)) refuse("byte 24: the checksum is wrong, the file is damaged");
  const Sections sections = find_sections(file, found.section_count);
  LoadedState loaded;
  ControllerState& controller = loaded.state;
  controller.options = decode_options(open_section(sections, kOptions));
  decode_progress(open_section(sections, kProgress), controller);
  decode_names(open_section(sections, kNames), sections, controller);
  decode_history(open_section(sections, kHistory), controller.units);
  decode_recovery(open_section(sections, kRecovery), controller.units);
  if (sections.contains(kErrors)) decode_errors(open_section(sections, kErrors), loaded.state);
  if (sections.contains(kLevels)) decode_levels(open_section(sections, kLevels), loaded.state);
  if (sections.contains(kReruns)) decode_reruns(open_section(sections, kReruns), loaded.state);
  if (sections.contains(kDoubt)) decode_doubt(open_section(sections, kDoubt), loaded.state);
  if (sections.contains(kHighBucket)) decode_high_bucket(open_section(sections, kHighBucket), loaded.state);
  for (const auto& [name, section] : sections) {
    if (!is_own_section(name)) loaded.extra_sections.emplace(name, section.payload);
  }
  return loaded;
}

void save_state(const std::string& path, const ControllerState& state, const ExtraSections& extra_sections) {
  replace_file(path, encode_state(state, extra_sections));
}

LoadedState load_state(const std::string& path) {
  try {
    // A file that is something else is not read to its end.
    check_header(read_file_start(path, kHeaderSize));
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with("[state]")) throw Error(fmt::format("{}: {}", path, text));
    throw;
  }
  const std::string file = read_whole_file(path);
  try {
    return decode_state(std::as_bytes(std::span(file)));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace gnmr::io
