// SPDX-License-Identifier: Apache-2.0
// Casts to FP8 against gnmr/formats, byte for byte: every bfloat16, many float32, all shapes, scalings and outputs.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/casts_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using formats::Format;
using formats::Statistics;
using gnmr::testing::Random;

constexpr CastGroups kGroups[] = {CastGroups::tensor, CastGroups::given, CastGroups::row, CastGroups::tile,
                                  CastGroups::block};
constexpr const char* kGroupNames[] = {"tensor", "given", "row", "tile", "block"};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kMargin = 40;  // items behind every output that must stay as they were

/// A matrix and how it is cast. `task` has sizes, type, format and groups; its pointers come later.
struct Case {
  CastTask task;
  std::vector<float> values = {};
  float given_scale = 1;
  bool wants[2] = {true, true};  // rows, columns
  bool counts = false;
  std::size_t offset = 0;  // elements by which everything lies behind a multiple of 256 bytes

  std::string name() const {
    return std::string(kGroupNames[static_cast<int>(task.groups)]) + ", " + std::to_string(task.rows) + " x " +
           std::to_string(task.columns) + (task.type == ElementType::float32 ? " float32" : " bfloat16") + " to " +
           std::string(formats::format_name(task.format)) + (wants[0] ? " rows" : "") + (wants[1] ? " columns" : "") +
           (counts ? " counted" : "") + (offset > 0 ? " not aligned" : "");
  }
};

/// What a cast writes, margins included.
struct Written {
  std::vector<std::uint8_t> codes[2];
  std::vector<float> scales[2];
  std::vector<Statistics> statistics[2];
  std::vector<float> amax;
};

std::vector<std::byte> stored(const Case& one) {
  const std::size_t size = bytes_of(one.task.type);
  std::vector<std::byte> bytes((one.values.size() + one.offset + 16) * size, std::byte{0xff});  // NaN around it
  for (std::size_t i = 0; i < one.values.size(); ++i) {
    store_element(bytes.data(), one.offset + i, one.task.type, static_cast<double>(one.values[i]));
  }
  return bytes;
}

template <class Item>
std::vector<Item> untouched(std::size_t count) {
  std::vector<Item> items(count + kMargin);
  std::memset(static_cast<void*>(items.data()), 0xee, items.size() * sizeof(Item));
  return items;
}

/// Room for everything that the case wants.
Written room_for(const Case& one) {
  Written room;
  for (int side = 0; side < 2; ++side) {
    const CastOutput& output = side == 0 ? one.task.by_rows : one.task.by_columns;
    room.codes[side] = untouched<std::uint8_t>(one.values.size() + one.offset);
    room.scales[side] = untouched<float>(scale_count(one.task, output, side == 1));
    room.statistics[side] = untouched<Statistics>(1);
  }
  room.amax = untouched<float>(1);
  return room;
}

/// The same on the device.
struct WrittenOnDevice {
  explicit WrittenOnDevice(const Written& room)
      : codes{OnDevice(room.codes[0]), OnDevice(room.codes[1])},
        scales{OnDevice(room.scales[0]), OnDevice(room.scales[1])},
        statistics{OnDevice(room.statistics[0]), OnDevice(room.statistics[1])},
        amax(room.amax) {}
  Written get() const {
    return {{codes[0].get(), codes[1].get()},
            {scales[0].get(), scales[1].get()},
            {statistics[0].get(), statistics[1].get()},
            amax.get()};
  }
  OnDevice<std::uint8_t> codes[2];
  OnDevice<float> scales[2];
  OnDevice<Statistics> statistics[2];
  OnDevice<float> amax;
};

/// The task with its outputs in `room`, which is a `Written` or a `WrittenOnDevice`.
template <class Room>
CastTask task_of(const Case& one, const std::byte* matrix, const float* given_scale, Room& room) {
  CastTask task = one.task;
  task.matrix = matrix + one.offset * bytes_of(task.type);
  task.given_scale = given_scale;
  for (int side = 0; side < 2; ++side) {
    if (!one.wants[side]) continue;
    CastOutput& output = side == 0 ? task.by_rows : task.by_columns;
    output.codes = room.codes[side].data() + one.offset;
    output.scales = room.scales[side].data();
    if (one.counts) output.statistics = room.statistics[side].data();
  }
  task.amax = room.amax.data();
  return task;
}

Written expected_of(const Case& one) {
  const std::vector<std::byte> matrix = stored(one);
  Written room = room_for(one);
  reference_cast(task_of(one, matrix.data(), &one.given_scale, room));
  return room;
}

Written found_of(const Case& one) {
  const OnDevice<std::byte> matrix(stored(one));
  const OnDevice<float> given(std::vector<float>{one.given_scale});
  WrittenOnDevice room(room_for(one));
  const CastTask task = task_of(one, matrix.data(), given.data(), room);
  const OnDevice<std::byte> workspace(cast_workspace_bytes(task));
  cast_to_fp8(task, workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  return room.get();
}

bool is_near(double found, double expected, double besides) {
  return std::abs(found - expected) <= 2e-6 * expected + besides;
}

std::string difference(const Case& one, const Written& found, const Written& expected) {
  for (int side = 0; side < 2; ++side) {
    const std::string where = side == 0 ? "rows: " : "columns: ";
    for (std::size_t i = 0; i < found.codes[side].size(); ++i) {
      if (found.codes[side][i] == expected.codes[side][i]) continue;
      return where + "code " + std::to_string(i) + " is " + std::to_string(found.codes[side][i]) + ", expected " +
             std::to_string(expected.codes[side][i]);
    }
    if (!same_bits(found.scales[side], expected.scales[side])) return where + "scales";
    if (!one.counts || !one.wants[side]) {
      if (!same_bits(found.statistics[side], expected.statistics[side])) return where + "statistics nobody wanted";
      continue;
    }
    const Statistics& a = found.statistics[side][0];
    const Statistics& b = expected.statistics[side][0];
    if (a.elements != b.elements || a.non_finite != b.non_finite) return where + "elements or not finite";
    if (a.overflowed != b.overflowed) return where + "overflowed " + std::to_string(a.overflowed);
    if (a.flushed != b.flushed) return where + "flushed " + std::to_string(a.flushed);
    if (!is_near(a.squared_error, b.squared_error, 0x1p-60 * b.squared_values)) return where + "squared error";
    if (!is_near(a.squared_values, b.squared_values, 0)) return where + "squared values";
  }
  return same_bits(found.amax, expected.amax) ? "" : "amax " + std::to_string(found.amax[0]);
}

std::string check_case(const Case& one) {
  const std::string trouble = difference(one, found_of(one), expected_of(one));
  return trouble.empty() ? "" : one.name() + ": " + trouble;
}

float float_of(std::uint32_t bits) { return formats::as_float(bits); }

/// Every bfloat16, as a given scale and as the other scalings see it.
void check_every_bfloat16(Checks& checks) {
  Case one{.task = {.type = ElementType::bfloat16, .rows = 256, .columns = 256}, .counts = true};
  for (std::uint32_t bits = 0; bits < 65536; ++bits) one.values.push_back(float_of(bits << 16));
  std::string trouble;
  for (const Format format : {Format::e4m3, Format::e5m2}) {
    one.task.format = format;
    for (const CastGroups groups : kGroups) {
      one.task.groups = groups;
      if (groups != CastGroups::given && trouble.empty()) trouble = check_case(one);
    }
    one.task.groups = CastGroups::given;
    for (int exponent = -148; exponent < 128 && trouble.empty(); exponent += checks.is_small() ? 40 : 7) {
      for (const float factor : {1.0f, 1.1f, 1.9999999f}) {
        one.given_scale = std::ldexp(factor, exponent);
        if (trouble.empty() && std::isfinite(one.given_scale)) trouble = check_case(one);
      }
    }
  }
  checks.report("every bfloat16, under scales from 2^-148 to 2^127", trouble);
}

/// Float32 whose quotients fill the format's range, with many at and beside ties.
void check_many_float32(Checks& checks) {
  Random random(21);
  std::string trouble;
  const std::uint64_t side = checks.is_small() ? 256 : 1024;
  for (int round = 0; round < (checks.is_small() ? 2 : 8) && trouble.empty(); ++round) {
    Case one{.task = {.type = ElementType::float32,
                      .rows = side,
                      .columns = side,
                      .format = round % 2 == 0 ? Format::e4m3 : Format::e5m2,
                      .groups = CastGroups::given}};
    one.given_scale = static_cast<float>(std::exp2(random.uniform(-59, 59)));
    for (std::uint64_t i = 0; i < side * side; ++i) {
      const int exponent = static_cast<int>(random.below(38)) - 20;
      const double mantissa =
          random.chance(0.5) ? 1 + random.uniform() : 1 + static_cast<double>(random.below(32)) / 32;
      const auto value = static_cast<float>(std::ldexp(mantissa, exponent) * static_cast<double>(one.given_scale));
      const std::uint32_t bits = formats::as_bits(value) + static_cast<std::uint32_t>(random.below(5)) - 2;
      one.values.push_back(float_of(bits | static_cast<std::uint32_t>(random.below(2)) << 31));
    }
    trouble = check_case(one);
    if (!trouble.empty()) break;
    // All bits by chance: NaN and infinities everywhere.
    for (float& value : one.values) value = float_of(static_cast<std::uint32_t>(random.next()));
    trouble = check_case(one);
  }
  checks.report("many float32, ties and all bits", trouble);
}

enum class Content { usual, odd, zero, tiny, huge };

float element(Random& random, Content content) {
  switch (content) {
    case Content::usual:
      return static_cast<float>(random.normal() * 1e-3);
    case Content::odd:
      if (random.chance(0.97)) return static_cast<float>(random.normal());
      return random.pick({kInfinity, -kInfinity, float_of(0x7fc00000), float_of(0xffff0000), -0.0f, 1e-42f, 3.3e38f,
                          -3.3e38f, 0.0f, 1e-30f});
    case Content::zero:
      return random.chance(0.999) ? random.pick({0.0f, -0.0f}) : 1e-3f;
    case Content::tiny:
      return static_cast<float>(random.normal() * 1e-41);
    case Content::huge:
      return std::clamp(static_cast<float>(random.normal() * 1e38), -3.3e38f, 3.3e38f);
  }
  return 0;
}

/// Elements whose sizes differ from row to row and from column to column; some rows and columns are 0.
std::vector<float> matrix_of(Random& random, const CastTask& task, Content content) {
  std::vector<double> columns(task.columns);
  for (double& factor : columns) factor = random.chance(0.05) ? 0 : std::exp2(random.uniform(-3, 3));
  std::vector<float> values;
  for (std::uint64_t row = 0; row < task.rows; ++row) {
    const double factor = random.chance(0.05) ? 0 : std::exp2(random.uniform(-3, 3));
    for (std::uint64_t column = 0; column < task.columns; ++column) {
      const float value = element(random, content);
      values.push_back(content == Content::usual || content == Content::tiny
                           ? static_cast<float>(static_cast<double>(value) * factor * columns[column])
                           : value);
    }
  }
  return values;
}

void check_shapes(Checks& checks) {
  Random random(22);
  struct Shape {
    std::uint64_t rows, columns;
  };
  constexpr Shape kShapes[] = {{1, 1},     {1, 128},  {128, 1},   {3, 5},     {128, 128},
                               {129, 127}, {16, 272}, {272, 16},  {130, 260}, {256, 384},
                               {260, 132}, {77, 333}, {300, 300}, {0, 5},     {5, 0}};
  for (const CastGroups groups : kGroups) {
    std::string trouble;
    for (const Shape& shape : kShapes) {
      for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
        for (const Content content : {Content::usual, Content::odd, Content::zero, Content::tiny, Content::huge}) {
          if (!trouble.empty() || (checks.is_small() && random.chance(0.9))) continue;
          Case one{.task = {.type = type,
                            .rows = shape.rows,
                            .columns = shape.columns,
                            .format = random.pick({Format::e4m3, Format::e5m2}),
                            .groups = groups},
                   .given_scale = random.pick({1.0f, 3e-6f, 1e-3f}),
                   .counts = random.chance(0.5),
                   .offset = random.pick<std::size_t>({0, 0, 1, 8})};
          one.values = matrix_of(random, one.task, content);
          if (groups == CastGroups::block && random.chance(0.5)) {
            one.task.by_rows.scale_stride = (shape.columns + 127) / 128 + 3;
            one.task.by_columns.scale_stride = (shape.rows + 127) / 128 + 3;
          }
          trouble = check_case(one);
          one.wants[random.below(2)] = false;
          if (trouble.empty()) trouble = check_case(one);
        }
      }
    }
    checks.report(std::string("all shapes and contents, ") + kGroupNames[static_cast<int>(groups)], trouble);
  }
}

/// What is counted of elements of all sizes, from those whose squares vanish in float32 to those whose overflow; of
/// zeros; and of elements that lose nothing.
void check_statistics(Checks& checks) {
  Random random(25);
  std::string trouble;
  const auto check = [&](ElementType type, CastGroups groups, float given_scale, const auto& draw) {
    if (!trouble.empty() || (checks.is_small() && random.chance(0.8))) return;
    Case one{.task = {.type = type,
                      .rows = 150,
                      .columns = 272,
                      .format = random.pick({Format::e4m3, Format::e5m2}),
                      .groups = groups},
             .given_scale = given_scale,
             .counts = true};
    for (std::size_t i = 0; i < one.task.rows * one.task.columns; ++i) one.values.push_back(static_cast<float>(draw()));
    trouble = check_case(one);
  };
  for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
    for (const CastGroups groups : kGroups) {
      for (const int exponent : {-120, -60, -44, -42, -41, -40, -39, -38, -20, 0, 30, 47, 49, 51, 60, 100}) {
        // A given scale is such that some overflow.
        check(type, groups, std::ldexp(1.0f / 300, exponent), [&] { return std::ldexp(random.normal(), exponent); });
      }
      check(type, groups, 1e-3f, [&] { return std::ldexp(random.normal(), -static_cast<int>(random.below(60))); });
      check(type, groups, 1e-3f, [&] { return random.chance(0.6) ? random.pick({0.0, -0.0}) : random.normal(); });
      check(type, groups, 0.5f, [&] { return random.pick({0.0, 448.0, 224.0, -96.0, 2.0}); });
    }
  }
  checks.report("statistics of elements of all sizes", trouble);
}

void check_large(Checks& checks) {
  if (checks.is_small()) return;
  Random random(23);
  for (const CastGroups groups : kGroups) {
    Case one{.task = {.rows = 1024, .columns = 5120, .groups = groups}, .given_scale = 1e-5f, .counts = true};
    one.values = matrix_of(random, one.task, Content::usual);
    checks.report(std::string("a large matrix, ") + kGroupNames[static_cast<int>(groups)], check_case(one));
    const Written first = found_of(one);
    const Written second = found_of(one);
    checks.expect(
        std::string("the same bits again, ") + kGroupNames[static_cast<int>(groups)],
        same_bits(first.statistics[0], second.statistics[0]) && same_bits(first.statistics[1], second.statistics[1]));
  }
}

/// Only the largest magnitude, as for a delayed scale of a layer that runs high.
void check_amax_alone(Checks& checks) {
  Random random(24);
  std::string trouble;
  for (const CastGroups groups : kGroups) {
    for (const Content content : {Content::usual, Content::odd}) {
      Case one{.task = {.rows = 100, .columns = 301, .groups = groups}, .wants = {false, false}, .offset = 3};
      one.values = matrix_of(random, one.task, content);
      if (trouble.empty()) trouble = check_case(one);
    }
  }
  checks.report("the largest magnitude alone", trouble);
}

}  // namespace

void check_casts(Checks& checks) {
  check_every_bfloat16(checks);
  check_many_float32(checks);
  check_shapes(checks);
  check_statistics(checks);
  check_large(checks);
  check_amax_alone(checks);
}

}  // namespace gnmr::kernels::testing
