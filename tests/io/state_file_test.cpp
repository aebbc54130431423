// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/state_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

UnitState a_unit(const std::string& name, double ratio) {
  UnitState unit;
  unit.name = name;
  unit.samples = 25;
  unit.changes = 24;
  unit.mean_sum = 0.7 * ratio;
  unit.rise_change_sum = 0.01;
  unit.fall_change_sum = 0.02;
  unit.ratios = {ratio, 1.0, 1e30};
  unit.inverses = {1 / ratio, 1.0, 5e-324};
  unit.last_lock_steps = 20;
  unit.was_released = true;
  unit.samples_since_release = 3;
  unit.wait_steps = 7;
  return unit;
}

ControllerState a_state() {
  ControllerState state;
  state.options = Options::preset("paper");
  state.options.tau = 1.75;
  state.decisions = 12345678901;
  state.last_step = -42;
  state.units = {a_unit("layers.0", 0.5), a_unit("h\xC3\xA9", 2), UnitState{}};
  state.units[2].name = "fresh";
  state.units[1].in_recovery = true;
  state.units[1].steps_left = 4;
  state.units[1].steps_in_recovery = 6;
  state.units[1].sampled_in_recovery = true;
  state.units[1].zero_muted = true;
  state.units[1].admitted_for = RiskKind::fall;
  return state;
}

ControllerState a_state_with_errors() {
  ControllerState state = a_state();
  state.sites = 2;
  state.reruns_ago = {0, 7, 98};
  state.doubt = {.value = 4, .decisions_left = 37};
  state.high_bucket = {.size = 280, .level = 31};
  for (std::uint32_t i = 0; i < 6; ++i) {
    state.errors.push_back({.samples = i, .mean_sum = 0.01 * i});
    state.levels.push_back({.samples = i, .age = i, .sum = -0.5 * i});
  }
  state.units[1].admitted_for = RiskKind::error;
  state.options.selector = Selector::trial;
  return state;
}

LoadedState decode(const std::string& bytes) { return decode_state(std::as_bytes(std::span(bytes))); }

std::string decode_error(const std::string& bytes) {
  return error_of<Error>([&] { decode(bytes); });
}

// The file format once more, by hand: what a second implementation would write.
struct HandMadeFile {
  std::string body;
  std::uint32_t sections = 0;

  static void put(std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  static void put_text(std::string& out, const std::string& text) {
    put(out, text.size(), 4);
    out += text;
  }
  static void put_double(std::string& out, double value) { put(out, std::bit_cast<std::uint64_t>(value), 8); }

  HandMadeFile& section(const std::string& name, const std::string& payload) {
    put_text(body, name);
    put(body, payload.size(), 8);
    body += payload;
    ++sections;
    return *this;
  }

  std::string seal(std::uint32_t version = 1) const {
    std::string start = "GNMRSTAT";
    put(start, version, 4);
    put(start, sections, 4);
    put(start, body.size() + 32, 8);
    std::uint64_t remainder = ~std::uint64_t{0};
    for (const char byte : start + body) {
      remainder ^= static_cast<unsigned char>(byte);
      for (int bit = 0; bit < 8; ++bit) {
        remainder = (remainder & 1U) != 0 ? (remainder >> 1U) ^ 0xC96C5795D7870F42U : remainder >> 1U;
      }
    }
    put(start, ~remainder, 8);
    return start + body;
  }
};

// The payloads of a file with one unit "a"; each hostile file changes one of them.
struct Payloads {
  std::string options = std::string(4, '\0');
  std::string progress = std::string(16, '\0');
  std::string names;
  std::string history;
  std::string recovery = std::string(22, '\0');

  Payloads() {
    HandMadeFile::put(names, 1, 4);
    HandMadeFile::put_text(names, "a");
    history = one_history(5, 0.5, {1.0});
  }

  static std::string one_history(std::uint32_t samples, double mean, const std::vector<double>& kept) {
    std::string out;
    HandMadeFile::put(out, samples, 4);
    HandMadeFile::put(out, 0, 4);
    HandMadeFile::put_double(out, mean);
    HandMadeFile::put_double(out, 0);
    HandMadeFile::put_double(out, 0);
    HandMadeFile::put(out, kept.size(), 4);
    for (const double value : kept) HandMadeFile::put_double(out, value);
    for (const double value : kept) HandMadeFile::put_double(out, value);
    return out;
  }

  HandMadeFile file() const {
    HandMadeFile made;
    made.section("options", options).section("progress", progress).section("names", names);
    made.section("history", history).section("recovery", recovery);
    return made;
  }
};

TEST(StateFile, WhatIsEncodedIsDecoded) {
  const ControllerState state = a_state();
  const LoadedState loaded = decode(encode_state(state, {{"trainer", std::string("\0\1\2", 3)}, {"empty", ""}}));
  EXPECT_EQ(loaded.state, state);
  EXPECT_EQ(loaded.state.sites, 0U);
  EXPECT_EQ(loaded.extra_sections, (ExtraSections{{"trainer", std::string("\0\1\2", 3)}, {"empty", ""}}));
  EXPECT_EQ(decode(encode_state(ControllerState{})).state, ControllerState{});
}

TEST(StateFile, ErrorsAndRerunsAreDecodedToo) {
  const ControllerState state = a_state_with_errors();
  const LoadedState loaded = decode(encode_state(state, {{"trainer", "x"}}));
  EXPECT_EQ(loaded.state, state);
  EXPECT_EQ(loaded.extra_sections, (ExtraSections{{"trainer", "x"}}));
  ControllerState without = state;
  without.sites = 0;
  without.errors.clear();
  without.levels.clear();
  EXPECT_EQ(decode(encode_state(without)).state, without);
  without.reruns_ago.clear();
  without.doubt = {};
  without.high_bucket = {};
  without.units[1].admitted_for = RiskKind::fall;
  without.options.selector = a_state().options.selector;
  EXPECT_EQ(encode_state(without), encode_state(a_state()));
}

TEST(StateFile, TheLayoutIsTheDocumentedOne) {
  const LoadedState loaded = decode(Payloads{}.file().seal());
  ASSERT_EQ(loaded.state.units.size(), 1U);
  EXPECT_EQ(loaded.state.units[0].name, "a");
  EXPECT_EQ(loaded.state.units[0].samples, 5U);
  EXPECT_EQ(loaded.state.units[0].mean_sum, 0.5);
  EXPECT_EQ(loaded.state.units[0].ratios, std::vector<double>{1.0});
  EXPECT_EQ(loaded.state.options, Options{}) << "an option that a file does not have is the default";
}

TEST(StateFile, TheLayoutOfErrorsAndRerunsIsTheDocumentedOne) {
  std::string errors;
  HandMadeFile::put(errors, 2, 4);
  HandMadeFile::put(errors, 7, 4);
  HandMadeFile::put_double(errors, 0.25);
  HandMadeFile::put(errors, 0, 4);
  HandMadeFile::put_double(errors, 0);
  std::string reruns;
  HandMadeFile::put(reruns, 2, 4);
  HandMadeFile::put(reruns, 0, 4);
  HandMadeFile::put(reruns, 98, 4);
  std::string doubt;
  HandMadeFile::put(doubt, 8, 4);
  HandMadeFile::put(doubt, 99, 4);
  std::string bucket;
  HandMadeFile::put(bucket, 2800, 8);
  HandMadeFile::put(bucket, 17, 8);
  HandMadeFile file = Payloads{}.file().section("errors", errors).section("reruns", reruns).section("doubt", doubt);
  const LoadedState loaded = decode(file.section("high_bucket", bucket).seal());
  EXPECT_EQ(loaded.state.high_bucket, (HighBucketState{.size = 2800, .level = 17}));
  EXPECT_EQ(loaded.state.doubt, (Doubt{.value = 8, .decisions_left = 99}));
  EXPECT_EQ(loaded.state.sites, 2U);
  EXPECT_EQ(loaded.state.errors, (std::vector<ErrorState>{{.samples = 7, .mean_sum = 0.25}, {}}));
  EXPECT_EQ(loaded.state.reruns_ago, (std::vector<std::uint32_t>{0, 98}));
  EXPECT_TRUE(loaded.extra_sections.empty());
}

TEST(StateFile, DamagedErrorsAndRerunsAreErrors) {
  const auto numbers = [](const std::vector<std::uint32_t>& values) {
    std::string out;
    for (const std::uint32_t value : values) HandMadeFile::put(out, value, 4);
    return out;
  };
  const auto level = [&](double key, std::uint32_t age, double sum) {  // of one unit with one site
    std::string out;
    HandMadeFile::put_double(out, key);
    out += numbers({30, age});
    HandMadeFile::put_double(out, sum);
    return out;
  };
  const auto one_error = [&](double mean) {
    std::string out = numbers({1, 5});
    HandMadeFile::put_double(out, mean);
    return out;
  };
  EXPECT_NO_THROW(decode(Payloads{}.file().section("errors", one_error(0.5)).seal()));
  const std::vector<std::pair<std::string, std::string>> cases{
      {"errors", ""},
      {"errors", numbers({0})},
      {"errors", numbers({17})},
      {"errors", numbers({0xFFFFFFFF})},
      {"errors", numbers({1})},
      {"errors", one_error(0.5) + "x"},
      {"errors", one_error(0.5).substr(0, 15)},
      {"errors", one_error(std::nan(""))},
      {"errors", one_error(-1)},
      {"reruns", ""},
      {"reruns", numbers({1})},
      {"reruns", numbers({0, 1})},
      {"reruns", numbers({1, 99})},
      {"reruns", numbers({2, 5, 5})},
      {"reruns", numbers({2, 5, 4})},
      {"reruns", numbers({0xFFFFFFFF, 1})},
      {"doubt", ""},
      {"doubt", numbers({2})},
      {"doubt", numbers({1, 0})},
      {"doubt", numbers({2, 0})},
      {"doubt", numbers({2, 101})},
      {"doubt", numbers({6, 10})},
      {"doubt", numbers({16, 10})},
      {"doubt", numbers({2, 10, 0})},
      {"high_bucket", ""},
      {"high_bucket", numbers({5, 0})},
      {"high_bucket", numbers({0, 0, 0, 0})},
      {"high_bucket", numbers({5, 0, 6, 0})},
      {"high_bucket", numbers({5, 0, 0xFFFFFFFF, 0xFFFFFFFF})},
      {"high_bucket", numbers({0, 0x7FFFFFFF, 0, 0})},
      {"high_bucket", numbers({5, 0, 4, 0, 0})},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string error = decode_error(Payloads{}.file().section(cases[i].first, cases[i].second).seal());
    EXPECT_TRUE(error.starts_with("[state] section \"" + cases[i].first)) << "case " << i << ": " << error;
  }
  const auto with_levels = [&](const std::string& levels) {
    return Payloads{}.file().section("errors", one_error(0.5)).section("levels", levels).seal();
  };
  EXPECT_NO_THROW(decode(with_levels(level(0.25, 1, -2))));
  for (const std::string& levels : {std::string("x"), level(-1, 1, -2), level(std::nan(""), 1, -2), level(0, 201, -2),
                                    level(0, 1, std::numeric_limits<double>::infinity()), level(0, 1, -2) + "x"}) {
    EXPECT_TRUE(decode_error(with_levels(levels)).starts_with("[state] section \"levels"));
  }
  ControllerState bad = a_state_with_errors();
  bad.errors.pop_back();
  EXPECT_THROW(encode_state(bad), Error);
  bad = a_state_with_errors();
  bad.levels.pop_back();
  EXPECT_THROW(encode_state(bad), Error);
  bad = a_state_with_errors();
  bad.reruns_ago.assign(100, 0);
  EXPECT_THROW(encode_state(bad), Error);
  EXPECT_THROW(encode_state(ControllerState{}, {{"errors", ""}}), Error);
  EXPECT_THROW(encode_state(ControllerState{}, {{"doubt", ""}}), Error);
}

TEST(StateFile, EveryFlippedByteIsFound) {
  const std::string good = encode_state(a_state_with_errors(), {{"more", "bytes"}});
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      std::string bad = good;
      bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ static_cast<unsigned char>(flip));
      ASSERT_THROW(decode(bad), Error) << "byte " << at << " flipped by " << flip;
    }
  }
}

TEST(StateFile, EveryTruncationAndEveryTailIsFound) {
  const std::string good = encode_state(a_state());
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_THROW(decode(good.substr(0, size)), Error) << size;
  }
  EXPECT_THROW(decode(good + '\0'), Error);
  EXPECT_NE(decode_error(good.substr(0, 100)).find("there are 100"), std::string::npos);
}

TEST(StateFile, OtherFilesAndLaterVersionsSaySo) {
  EXPECT_NE(decode_error("step,a,b\n0,1,1\n").find("not a state file"), std::string::npos);
  EXPECT_NE(decode_error(Payloads{}.file().seal(2)).find("version 2"), std::string::npos);
  EXPECT_NE(decode_error(Payloads{}.file().seal(0)).find("version 0"), std::string::npos);
}

TEST(StateFile, UnknownSectionsAndOptionsAreSkipped) {
  Payloads payloads;
  payloads.options.clear();
  HandMadeFile::put(payloads.options, 2, 4);
  HandMadeFile::put_text(payloads.options, "option_of_the_future");
  HandMadeFile::put_double(payloads.options, -3);
  HandMadeFile::put_text(payloads.options, "beta");
  HandMadeFile::put_double(payloads.options, 0.25);
  HandMadeFile made = payloads.file();
  made.section("units.temperature", "warm");
  const LoadedState loaded = decode(made.seal());
  EXPECT_EQ(loaded.state.options.beta, 0.25);
  EXPECT_EQ(loaded.extra_sections.at("units.temperature"), "warm");
}

TEST(StateFile, HostileFilesWithAGoodChecksumAreErrors) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    HandMadeFile::put(out, value, bytes);
    return out;
  };
  const auto option = [](const std::string& name, double value, std::uint32_t count) {
    std::string out;
    HandMadeFile::put(out, count, 4);
    for (std::uint32_t i = 0; i < std::min(count, 2U); ++i) {
      HandMadeFile::put_text(out, name);
      HandMadeFile::put_double(out, value);
    }
    return out;
  };
  const std::string name_a = number(1, 4) + "a";
  const std::vector<std::pair<const char*, std::function<void(Payloads&)>>> cases{
      {"names", [&](Payloads& p) { p.names = number(0xFFFFFFFF, 4) + name_a; }},
      {"names", [&](Payloads& p) { p.names = number(1, 4) + number(0xFFFFFFFF, 4) + "a"; }},
      {"names", [&](Payloads& p) { p.names = number(1, 4) + number(0, 4) + "abc"; }},
      {"names", [&](Payloads& p) { p.names = number(1, 4) + number(2, 4) + "a\xFF"; }},
      {"names", [&](Payloads& p) { p.names = number(1, 4) + name_a + "b"; }},
      {"names", [&](Payloads& p) { p.names = ""; }},
      {"twice",
       [&](Payloads& p) {
         p.names = number(2, 4) + name_a + name_a;
         p.history += p.history;
         p.recovery += p.recovery;
       }},
      {"mean", [](Payloads& p) { p.history = Payloads::one_history(5, std::nan(""), {}); }},
      {"mean", [](Payloads& p) { p.history = Payloads::one_history(5, -1, {}); }},
      {"mean", [](Payloads& p) { p.history = Payloads::one_history(5, -0.0, {}); }},
      {"ratio",
       [](Payloads& p) {
         p.history = Payloads::one_history(5, 1, {1, std::nan("")});
       }},
      {"kept", [](Payloads& p) { p.history = Payloads::one_history(5, 1, std::vector<double>(1025, 1.0)); }},
      {"kept",
       [&](Payloads& p) {
         p.history.resize(32);
         p.history += number(0xFFFFFFFF, 4);
       }},
      {"history", [](Payloads& p) { p.history.pop_back(); }},
      {"history", [](Payloads& p) { p.history += "x"; }},
      {"recovery", [](Payloads& p) { p.recovery += "x"; }},
      {"fit", [](Payloads& p) { p.recovery.pop_back(); }},
      {"flags", [](Payloads& p) { p.recovery[20] = 16; }},
      {"kind", [](Payloads& p) { p.recovery[21] = 7; }},
      {"progress", [](Payloads& p) { p.progress.pop_back(); }},
      {"progress", [](Payloads& p) { p.progress += "x"; }},
      {"beta", [&](Payloads& p) { p.options = option("beta", 2, 1); }},
      {"tau", [&](Payloads& p) { p.options = option("tau", std::nan(""), 1); }},
      {"window", [&](Payloads& p) { p.options = option("window", 1e300, 1); }},
      {"twice", [&](Payloads& p) { p.options = option("tau", 2, 2); }},
      {"options", [&](Payloads& p) { p.options = option("tau", 2, 0xFFFFFFFF); }},
      {"lag",
       [&](Payloads& p) {
         p.options = option("lag", 1, 1);
         p.options[0] = 2;
         HandMadeFile::put_text(p.options, "lock_steps");
         HandMadeFile::put_double(p.options, 1);
       }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Payloads payloads;
    cases[i].second(payloads);
    const std::string error = decode_error(payloads.file().seal());
    EXPECT_NE(error.find(cases[i].first), std::string::npos) << "case " << i << ": " << error;
    EXPECT_TRUE(error.starts_with("[state] ")) << error;
  }
}

// Norms near the largest double may round a mean to infinity: what a controller saves must load.
TEST(StateFile, AnInfiniteMeanIsReadBack) {
  Payloads payloads;
  payloads.history = Payloads::one_history(5, std::numeric_limits<double>::infinity(), {});
  EXPECT_NO_THROW(decode(payloads.file().seal()));
}

TEST(StateFile, SectionsThatAreMissingTwiceOrLyingAreErrors) {
  const Payloads payloads;
  HandMadeFile missing;
  missing.section("options", payloads.options).section("progress", payloads.progress);
  EXPECT_NE(decode_error(missing.seal()).find("\"names\" is missing"), std::string::npos);
  HandMadeFile twice = payloads.file();
  twice.section("names", payloads.names);
  EXPECT_NE(decode_error(twice.seal()).find("twice"), std::string::npos);
  HandMadeFile too_many = payloads.file();
  too_many.sections = 0xFFFFFFFF;
  EXPECT_THROW(decode(too_many.seal()), Error);
  HandMadeFile too_few = payloads.file();
  too_few.sections = 4;
  EXPECT_THROW(decode(too_few.seal()), Error);
  HandMadeFile too_long = payloads.file();
  HandMadeFile::put_text(too_long.body, "x");
  HandMadeFile::put(too_long.body, std::numeric_limits<std::uint64_t>::max(), 8);
  ++too_long.sections;
  EXPECT_THROW(decode(too_long.seal()), Error);
  EXPECT_THROW(decode(payloads.file().section("", "x").seal()), Error);
  EXPECT_THROW(decode(payloads.file().section("\xFF", "x").seal()), Error);
}

TEST(StateFile, WhatNoReaderWouldTakeIsNotWritten) {
  ControllerState state = a_state();
  state.units[2].name = "layers.0";
  EXPECT_NE(error_of<Error>([&] { encode_state(state); }).find("layers.0"), std::string::npos);
  state.units[2].name = "";
  EXPECT_THROW(encode_state(state), Error);
  state.units[2].name = "\xC3";
  EXPECT_THROW(encode_state(state), Error);
  state.units[2].name = "c";
  state.units[2].ratios = {1.0};
  EXPECT_THROW(encode_state(state), Error);
  EXPECT_THROW(encode_state(ControllerState{}, {{"history", ""}}), Error);
  EXPECT_THROW(encode_state(ControllerState{}, {{"", ""}}), Error);
}

TEST(StateFile, SavesAndLoadsFiles) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("state.gnmr");
  save_state(path, ControllerState{});
  save_state(path, a_state(), {{"x", "y"}});
  EXPECT_EQ(load_state(path).state, a_state());
  EXPECT_EQ(load_state(path).extra_sections, (ExtraSections{{"x", "y"}}));
  save_state(path, a_state_with_errors());
  EXPECT_EQ(load_state(path).state, a_state_with_errors());
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(StateFile, LoadErrorsBeginWithThePath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("state.gnmr");
  std::string bytes = encode_state(a_state());
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  for (const std::string& content : {bytes, std::string("text"), std::string("GNMRSTAT"), std::string()}) {
    put_file(path, content);
    const std::string error = error_of<Error>([&] { load_state(path); });
    EXPECT_TRUE(error.starts_with(path + ": [state]")) << error;
  }
  EXPECT_NE(error_of<Error>([&] { load_state(folder.file("none")); }).find("none"), std::string::npos);
  EXPECT_NE(error_of<Error>([] { load_state("/dev/zero"); }).find("not a state file"), std::string::npos);
}

TEST(StateFile, AFullDiskLeavesTheOldState) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("state.gnmr");
  save_state(path, a_state());
  {
    const test::FileSizeLimit limit(64);
    EXPECT_THROW(save_state(path, ControllerState{}), Error);
  }
  EXPECT_EQ(load_state(path).state, a_state());
  EXPECT_EQ(folder.entries(), 1U);
}

}  // namespace
}  // namespace gnmr::io
