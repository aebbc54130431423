// SPDX-License-Identifier: Apache-2.0
// Sums, norms, gate and the plain read against their references.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "core/random_run.h"
#include "gnmr/kernels/norms_reference.h"
#include "gnmr/kernels/read_floor.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr ElementType kTypes[] = {ElementType::float32, ElementType::bfloat16, ElementType::float16};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const char* name_of(ElementType type) {
  return type == ElementType::float32 ? "float32" : type == ElementType::bfloat16 ? "bfloat16" : "float16";
}

/// Gradients on the host and the same ones on the device, at addresses that are alike modulo 256.
class Gradients {
 public:
  /// Room for a slice that begins `offset` elements after a multiple of 256; returns its index.
  std::size_t add(ElementType type, std::uint64_t count, std::size_t offset, std::uint32_t unit) {
    bytes_ = (bytes_ + 255) / 256 * 256;
    starts_.push_back(bytes_ + offset * bytes_of(type));
    slices_.push_back({.data = nullptr, .count = count, .type = type, .unit = unit});
    bytes_ = starts_.back() + count * bytes_of(type);
    return slices_.size() - 1;
  }

  /// Fills everything with random numbers.
  void fill(Random& random) {
    host_.resize(bytes_);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      for (std::uint64_t at = 0; at < slices_[i].count; ++at) set(i, at, random_bits(random, slices_[i].type));
    }
  }

  /// Writes the bits of one element.
  void set(std::size_t slice, std::uint64_t at, std::uint32_t bits) {
    std::memcpy(host_.data() + starts_[slice] + at * bytes_of(slices_[slice].type), &bits,
                bytes_of(slices_[slice].type));
  }

  std::vector<Slice> on_host() const { return at(host_.data()); }
  std::vector<Slice> on_device() {
    device_ = std::make_unique<OnDevice<std::byte>>(host_);
    return at(device_->data());
  }

 private:
  static std::uint32_t random_bits(Random& random, ElementType type) {
    const auto value = static_cast<float>(random.normal() * 1e-3);
    if (type == ElementType::bfloat16) return bfloat16_of(value);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (type == ElementType::float32) return bits;
    return static_cast<std::uint32_t>(random.below(2) << 15 | (random.below(24) << 10) | random.below(1024));
  }

  std::vector<Slice> at(const std::byte* base) const {
    std::vector<Slice> slices = slices_;
    for (std::size_t i = 0; i < slices.size(); ++i) slices[i].data = base + starts_[i];
    return slices;
  }

  std::size_t bytes_ = 0;
  std::vector<std::size_t> starts_;
  std::vector<Slice> slices_;
  std::vector<std::byte> host_;
  std::unique_ptr<OnDevice<std::byte>> device_;
};

std::vector<double> sums_of(UnitNorms& norms, const std::vector<Slice>& slices, std::uint32_t units) {
  OnDevice<double> sums(units);
  norms.sum_squares(slices, sums.data(), nullptr);
  must(cudaDeviceSynchronize());
  return sums.get();
}

/// Where sums differ by more than their rounding; `tolerance` is relative. Not finite must be not finite on both sides.
std::string difference(const std::vector<double>& sums, const std::vector<double>& expected, double tolerance) {
  for (std::size_t unit = 0; unit < sums.size(); ++unit) {
    const bool both_odd = !std::isfinite(sums[unit]) && !std::isfinite(expected[unit]);
    if (both_odd || std::abs(sums[unit] - expected[unit]) <= tolerance * expected[unit]) continue;
    return "unit " + std::to_string(unit) + ": " + std::to_string(sums[unit]) + ", expected " +
           std::to_string(expected[unit]) + ", ratio " + std::to_string(sums[unit] / expected[unit]);
  }
  return "";
}

// Eight float additions of exact squares, rounded to nearest; float32 is summed in double.
constexpr double kShortTolerance = 5e-7;
constexpr double kWideTolerance = 1e-12;

void check_shapes(Checks& checks) {
  Random random(1);
  for (const ElementType type : kTypes) {
    Gradients gradients;
    std::uint32_t units = 0;
    for (const std::uint64_t count :
         {0, 1, 2, 7, 8, 9, 31, 255, 256, 2047, 2048, 2049, 4096, 8191, 16384, 16385, 70001, 131072, 140001}) {
      for (const std::size_t offset : {0, 1, 2, 3, 4, 5, 7, 8, 63}) gradients.add(type, count, offset, units++);
    }
    gradients.fill(random);
    UnitNorms norms(units);
    checks.report(std::string("sums of all shapes and alignments, ") + name_of(type),
                  difference(sums_of(norms, gradients.on_device(), units), reference_sums(gradients.on_host(), units),
                             type == ElementType::float32 ? kWideTolerance : kShortTolerance));
  }
}

void check_units_of_many(Checks& checks) {
  Random random(2);
  Gradients gradients;
  const std::uint32_t units = checks.is_small() ? 40 : 3000;
  for (std::uint32_t i = 0; i < units * 4; ++i) {
    gradients.add(kTypes[random.below(3)], random.below(9000), random.below(20),
                  static_cast<std::uint32_t>(random.below(units)));
  }
  gradients.fill(random);
  const std::vector<Slice> slices = gradients.on_device();
  UnitNorms norms(units);
  const std::vector<double> sums = sums_of(norms, slices, units);
  checks.report("several slices a unit, types mixed, some units empty",
                difference(sums, reference_sums(gradients.on_host(), units), kShortTolerance));
  bool same = true;
  for (int run = 0; run < 5; ++run) {
    UnitNorms others(units);
    same = same && same_bits(sums_of(norms, slices, units), sums) && same_bits(sums_of(others, slices, units), sums);
  }
  checks.expect("the same bits in ten more runs", same);
}

void check_large_unit(Checks& checks) {
  Random random(3);
  Gradients gradients;
  gradients.add(ElementType::bfloat16, checks.is_small() ? 9'000'001 : 40'000'001, 0, 1);  // more than 512 chunks
  gradients.add(ElementType::float32, 300'001, 1, 0);
  gradients.fill(random);
  const std::vector<Slice> slices = gradients.on_device();
  UnitNorms norms(3);
  const std::vector<double> sums = sums_of(norms, slices, 3);
  checks.report("a unit of many chunks", difference(sums, reference_sums(gradients.on_host(), 3), kShortTolerance));
  checks.expect("a unit of many chunks, the same bits again", same_bits(sums_of(norms, slices, 3), sums));
}

struct Odd {
  const char* what;
  std::uint32_t bits[3];  // as float32, bfloat16, float16
  bool finite;
};

void check_odd_values(Checks& checks) {
  static constexpr Odd kOdds[] = {
      {"infinity", {0x7f800000, 0x7f80, 0x7c00}, false},
      {"-infinity", {0xff800000, 0xff80, 0xfc00}, false},
      {"NaN", {0x7fc00000, 0x7fc0, 0x7e00}, false},
      {"a negative NaN", {0xffffffff, 0xffff, 0xffff}, false},
      {"the largest number", {0x7f7fffff, 0x7f7f, 0x7bff}, true},
      {"the smallest number", {0x00000001, 0x0001, 0x0001}, true},
      {"a number whose square vanishes in float", {0x19800000, 0x1980, 0x0002}, true},
      {"0", {0, 0, 0}, true},
      {"-0", {0x80000000, 0x8000, 0x8000}, true},
  };
  Random random(4);
  for (const Odd& odd : kOdds) {
    Gradients gradients;
    std::uint32_t unit = 0;
    std::vector<std::pair<std::size_t, std::uint64_t>> places;
    for (std::size_t type = 0; type < 3; ++type) {
      for (const std::size_t offset : {0, 3}) {
        // One odd element among usual ones, at either end and between; then nothing but odd ones.
        for (const std::uint64_t at : {0, 1, 5000, 20010, 20011}) {
          places.emplace_back(gradients.add(kTypes[type], 20012, offset, unit++), at);
        }
        for (std::uint64_t count : {1, 9, 3001})
          places.emplace_back(gradients.add(kTypes[type], count, offset, unit++), count);
      }
    }
    gradients.add(ElementType::bfloat16, 999, 0, unit++);  // a unit with nothing odd
    gradients.fill(random);
    const std::vector<Slice> slices = gradients.on_host();
    for (const auto& [slice, at] : places) {
      const std::uint32_t bits = odd.bits[static_cast<std::size_t>(slices[slice].type)];
      const bool all = at == slices[slice].count;
      for (std::uint64_t i = all ? 0 : at; i < (all ? slices[slice].count : at + 1); ++i) gradients.set(slice, i, bits);
    }
    UnitNorms norms(unit);
    const std::vector<double> sums = sums_of(norms, gradients.on_device(), unit);
    checks.report(std::string("sums with ") + odd.what,
                  difference(sums, reference_sums(gradients.on_host(), unit), kShortTolerance));
    OnDevice<double> device_sums(sums);
    OnDevice<std::uint8_t> flags(unit);
    OnDevice<Gate> gate(1);
    norms.clip(device_sums.data(), 1.0, {.non_finite = flags.data(), .gate = gate.data()}, nullptr);
    must(cudaDeviceSynchronize());
    std::vector<std::uint8_t> expected(unit, odd.finite ? 0 : 1);
    expected.back() = 0;
    checks.expect(std::string("flags of units with ") + odd.what, flags.get() == expected);
    checks.expect(std::string("gate with ") + odd.what, gate.get()[0].apply == (odd.finite ? 1u : 0u));
  }
}

/// Tables that change from call to call, with nothing between them that waits.
void check_moving(Checks& checks) {
  Random random(5);
  constexpr std::uint32_t kUnits = 50;
  constexpr int kRounds = 6;
  Gradients gradients;
  for (std::uint32_t i = 0; i < kUnits * kRounds; ++i) gradients.add(kTypes[i % 3], 100 + i * 37, i % 5, i % kUnits);
  gradients.fill(random);
  const std::vector<Slice> all = gradients.on_device();
  const std::vector<Slice> on_host = gradients.on_host();
  UnitNorms norms(kUnits);
  OnDevice<double> sums(kUnits * kRounds);
  bool moved = true;
  for (int round = 0; round < kRounds; ++round) {
    // Ever more of the slices, so that the table grows while copies are under way.
    const std::span<const Slice> some(all.data(), static_cast<std::size_t>(round + 1) * kUnits);
    moved = moved && norms.sum_squares(some, sums.data() + round * kUnits, nullptr);
    moved = moved && !norms.sum_squares(some, sums.data() + round * kUnits, nullptr);
  }
  must(cudaDeviceSynchronize());
  const std::vector<double> found = sums.get();
  std::string trouble;
  for (int round = 0; round < kRounds && trouble.empty(); ++round) {
    const auto first = found.begin() + round * static_cast<int>(kUnits);
    trouble = difference({first, first + kUnits},
                         reference_sums({on_host.data(), static_cast<std::size_t>(round + 1) * kUnits}, kUnits),
                         kShortTolerance);
  }
  checks.report("tables that change from call to call", trouble);
  checks.expect("a table is made anew only where a slice changed", moved);
}

void check_gate(Checks& checks) {
  Random random(6);
  for (const std::uint32_t units : {0u, 1u, 255u, 256u, 257u, 44544u, 200000u}) {
    std::vector<double> sums(units);
    for (double& sum : sums) sum = std::exp(random.uniform(-20, 5));
    UnitNorms norms(units);
    OnDevice<double> device_sums(sums);
    OnDevice<double> roots(units);
    OnDevice<Gate> gate(2);
    std::string trouble;
    for (const double max_norm : {1.0, 0.0, 1e9, kInfinity}) {
      norms.clip(device_sums.data(), max_norm, {.norms = roots.data(), .gate = gate.data()}, nullptr);
      norms.clip(device_sums.data(), max_norm, {.gate = gate.data() + 1}, nullptr);
      must(cudaDeviceSynchronize());
      const std::vector<Gate> found = gate.get();
      const Gate expected = reference_gate(sums, max_norm);
      if (std::abs(found[0].total_norm - expected.total_norm) > 1e-12 * expected.total_norm) trouble = "total norm";
      if (std::abs(found[0].coefficient - expected.coefficient) > 2e-7f * expected.coefficient) trouble = "coefficient";
      if (found[0].apply != 1) trouble = "apply";
      if (std::memcmp(&found[0], &found[1], sizeof(Gate)) != 0) trouble = "other bits the second time";
    }
    const std::vector<double> found = roots.get();
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      if (found[unit] != std::sqrt(sums[unit])) trouble = "norm of unit " + std::to_string(unit);
    }
    checks.report("norms and gate of " + std::to_string(units) + " units", trouble);
  }
}

void check_read(Checks& checks) {
  Random random(7);
  std::string trouble;
  for (const std::size_t bytes : {0, 15, 16, 4096, 100'000, 262'144, 3'000'001}) {
    std::vector<std::byte> data(bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
    OnDevice<std::byte> device(data);
    OnDevice<std::uint32_t> sink(1);
    for (const ReadOrder order : {ReadOrder::pieces, ReadOrder::strides}) {
      read_floor(device.data(), bytes, order, sink.data(), nullptr);
      must(cudaDeviceSynchronize());
      if (sink.get()[0] != reference_fold(data.data(), bytes)) trouble = std::to_string(bytes) + " bytes";
    }
  }
  checks.report("the plain read reads every byte", trouble);
}

}  // namespace

void check_norms(Checks& checks) {
  check_read(checks);
  check_shapes(checks);
  check_units_of_many(checks);
  check_large_unit(checks);
  check_odd_values(checks);
  check_moving(checks);
  check_gate(checks);
}

}  // namespace gnmr::kernels::testing
