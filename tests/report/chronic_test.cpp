// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/chronic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/io/signals_file.h"
#include "io/temporary_folder.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kUnits = 8;
constexpr std::uint32_t kGemms = 3;
constexpr double kUnmeasured = std::numeric_limits<double>::quiet_NaN();

using ErrorOf = std::function<double(std::int64_t step, std::size_t unit, std::uint32_t gemm)>;

class ChronicUnitsOfAFile : public ::testing::Test {
 protected:
  /// Appends steps to the file.
  void write(std::int64_t first, std::int64_t last, const ErrorOf& error_of) {
    io::SignalsWriter writer({.path = path_,
                              .unit_count = kUnits,
                              .sites = kGemms,
                              .existing = io::ExistingFile::resume,
                              .in_background = false});
    for (std::int64_t step = first; step <= last; ++step) {
      std::vector<double> row;
      for (std::size_t unit = 0; unit < kUnits; ++unit) {
        for (std::uint32_t gemm = 0; gemm < kGemms; ++gemm) row.push_back(error_of(step, unit, gemm));
      }
      writer.write(step, row);
    }
  }

  ChronicUnits find(const Options& options = {}) const {
    io::JournalHeader header{.options = options, .sites = sites_};
    for (std::size_t unit = 0; unit < kUnits; ++unit) header.units.push_back({.name = "u" + std::to_string(unit)});
    return find_chronic_units(path_, header);
  }

  static std::vector<std::string> names(const ChronicUnits& chronic) {
    std::vector<std::string> names;
    for (const ChronicUnit& unit : chronic.units) names.push_back(unit.name);
    return names;
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("errors.bin");
  std::vector<std::string> sites_ = {};  // names in the journal; empty: an older one
};

/// Two units are always off, the second one less and in another GEMM.
double two_are_off(std::int64_t /*step*/, std::size_t unit, std::uint32_t gemm) {
  if (unit == 6 && gemm == 2) return 0.5;
  if (unit == 1 && gemm == 0) return 0.25;
  return 0.03125;
}

TEST_F(ChronicUnitsOfAFile, AreFoundWithTheirGemm) {
  write(1, 100, two_are_off);
  const ChronicUnits chronic = find();
  EXPECT_EQ(chronic.reviews, 5U);
  ASSERT_EQ(names(chronic), (std::vector<std::string>{"u6", "u1"}));
  EXPECT_EQ(chronic.units[0].unit, 6U);
  EXPECT_EQ(chronic.units[0].place, "weight_gradient");
  EXPECT_NEAR(chronic.units[0].error, 0.5, 1e-9);
  EXPECT_NEAR(chronic.units[0].above, 16, 1e-6);
  EXPECT_EQ(chronic.units[0].share, 1);
  EXPECT_EQ(chronic.units[1].place, "forward");
  EXPECT_NEAR(chronic.units[1].above, 8, 1e-6);
  EXPECT_EQ(chronic_text(chronic), "u6 (weight_gradient 16 x median), u1 (forward 8 x median)");
}

TEST_F(ChronicUnitsOfAFile, PlacesAreCalledAsTheJournalNamesThem) {
  write(1, 60, two_are_off);
  sites_ = {"y", "dx", "dw"};
  EXPECT_EQ(chronic_text(find()), "u6 (dw 16 x median), u1 (y 8 x median)");
}

TEST_F(ChronicUnitsOfAFile, TroubleThatPassesIsNotChronic) {
  write(1, 200, [](std::int64_t step, std::size_t unit, std::uint32_t gemm) {
    if (unit == 4 && step > 150) return 0.5;                // for a quarter of the run
    if (unit == 5 && step > 40 && step <= 180) return 0.5;  // for most of it
    return two_are_off(step, unit, gemm);
  });
  const ChronicUnits chronic = find();
  EXPECT_EQ(names(chronic), (std::vector<std::string>{"u6", "u5", "u1"}));
  for (const ChronicUnit& unit : chronic.units) EXPECT_GT(unit.share, 0.5);
}

TEST_F(ChronicUnitsOfAFile, ThresholdsAreThoseOfTheRunOrTheDefaults) {
  write(1, 60, two_are_off);
  Options options;
  options.coarse_factor = 12;
  EXPECT_EQ(names(find(options)), std::vector<std::string>{"u6"});
  options.coarse_error = 0;  // no standing recovery
  EXPECT_EQ(names(find(options)), (std::vector<std::string>{"u6", "u1"}));
}

TEST_F(ChronicUnitsOfAFile, StepsThatAResumedRunRepeatsCountOnce) {
  write(1, 100, two_are_off);
  write(1, 60, [](std::int64_t, std::size_t, std::uint32_t) { return 0.03125; });
  const ChronicUnits chronic = find();
  EXPECT_EQ(chronic.reviews, 3U);
  EXPECT_TRUE(chronic.units.empty());
  EXPECT_EQ(chronic_text(chronic), "none");
}

TEST_F(ChronicUnitsOfAFile, TooFewErrorsSayNothing) {
  write(1, 19, two_are_off);
  const ChronicUnits chronic = find();
  EXPECT_EQ(chronic.reviews, 0U);
  EXPECT_TRUE(chronic.units.empty());
  EXPECT_EQ(chronic_text(chronic), "not known: too few errors were measured");
}

TEST_F(ChronicUnitsOfAFile, NumbersThatAreNoErrorsDoNoHarm) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  write(1, 60, [](std::int64_t step, std::size_t unit, std::uint32_t gemm) {
    if (unit == 2) return -1e30;
    if (unit == 3) return step % 2 == 0 ? kUnmeasured : kInfinity;
    return two_are_off(step, unit, gemm);
  });
  const ChronicUnits chronic = find();
  EXPECT_EQ(names(chronic), (std::vector<std::string>{"u3", "u6", "u1"})) << "errors of u3 are infinite";
  for (const ChronicUnit& unit : chronic.units) EXPECT_TRUE(std::isfinite(unit.error)) << unit.name;
}

TEST_F(ChronicUnitsOfAFile, FilesOfSomethingElseAreErrors) {
  write(1, 5, two_are_off);
  const io::JournalHeader one{.units = {{.name = "a"}}};
  EXPECT_THROW(find_chronic_units(path_, one), Error);
  const std::string ratios = folder_.file("ratios");
  io::SignalsWriter({.path = ratios, .unit_count = 1, .in_background = false});
  EXPECT_THROW(find_chronic_units(ratios, one), Error);
  EXPECT_THROW(find_chronic_units(folder_.file("absent"), one), Error);
}

}  // namespace
}  // namespace gnmr::report
