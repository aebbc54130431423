// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/unit_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::report {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A signals file as docs/files.md describes it, written without the library.
class SignalsBytes {
 public:
  explicit SignalsBytes(std::uint32_t units, std::uint32_t sites = 0) : bytes_("GNMRSIGS") {
    add(std::uint32_t{sites == 0 ? 1U : 2U});
    add(units);
    if (sites > 0) add(sites);
  }
  SignalsBytes& row(std::int64_t step, const std::vector<float>& ratios) {
    add(step);
    for (const float ratio : ratios) add(ratio);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename Value>
  void add(Value value) {
    char raw[sizeof(Value)];
    std::memcpy(raw, &value, sizeof(Value));
    bytes_.append(raw, sizeof(Value));
  }
  std::string bytes_;
};

class UnitMapFile : public ::testing::Test {
 protected:
  UnitMap read(const std::string& bytes, const UnitMapLimits& limits = {},
               const std::vector<std::uint64_t>& events = {}, MapKind kind = MapKind::ratios) {
    test::put_file(folder_.file("signals.bin"), bytes);
    return read_unit_map(folder_.file("signals.bin"), kind, events, limits);
  }
  test::TemporaryFolder folder_;
};

TEST_F(UnitMapFile, EachStepIsAColumnWhereThereIsRoom) {
  const UnitMap map = read(SignalsBytes(2).row(1, {1, 2}).row(2, {kNone, 4}).row(3, {kInfinity, 8}).bytes());
  EXPECT_EQ(map.columns, 3U);
  EXPECT_EQ(map.first_step, 1);
  EXPECT_EQ(map.column_steps, 1);
  EXPECT_EQ(map.at(1, 2), 8.0F);
  EXPECT_TRUE(std::isnan(map.at(0, 1)));
  EXPECT_TRUE(std::isinf(map.at(0, 2)));
}

TEST_F(UnitMapFile, TheFarthestFromOneStandsForAColumn) {
  SignalsBytes bytes(1);
  for (std::int64_t step = 1; step <= 1000; ++step) {
    bytes.row(step, {step == 505 ? 0.125F : step == 777 ? kInfinity : step == 506 ? 4.0F : 1.1F});
  }
  const UnitMap map = read(bytes.bytes(), {.columns = 10, .rows = 10});
  EXPECT_EQ(map.columns, 10U);
  EXPECT_EQ(map.column_steps, 100);
  EXPECT_EQ(map.at(0, 5), 0.125F);
  EXPECT_EQ(map.at(0, 0), 1.1F);
  EXPECT_TRUE(std::isinf(map.at(0, 7)));
}

TEST_F(UnitMapFile, StepsFarApartMakeWiderColumns) {
  const UnitMap map = read(SignalsBytes(1).row(10, {1}).row(20, {2}).row(30, {3}).row(40, {4}).bytes());
  EXPECT_EQ(map.columns, 4U);
  EXPECT_EQ(map.column_steps, 10);
  EXPECT_EQ(map.at(0, 3), 4.0F);
}

TEST_F(UnitMapFile, AStepThatGoesBackSupersedesLaterOnes) {
  const UnitMap map = read(SignalsBytes(1).row(1, {9}).row(2, {9}).row(3, {9}).row(4, {9}).row(2, {1}).bytes());
  EXPECT_EQ(map.columns, 2U);
  EXPECT_EQ(map.at(0, 0), 9.0F);
  EXPECT_EQ(map.at(0, 1), 1.0F);
}

TEST_F(UnitMapFile, TheMostEventfulUnitsAreTakenInTheirOrder) {
  const std::string bytes = SignalsBytes(4).row(1, {1, 2, 1, 8}).bytes();
  EXPECT_EQ(read(bytes, {.columns = 10, .rows = 2}, {0, 0, 5, 0}).units, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(read(bytes, {.columns = 10, .rows = 2}).units, (std::vector<std::size_t>{1, 3}));
}

TEST_F(UnitMapFile, OfErrorsTheLargestOfAUnitsSitesIsShown) {
  const std::string bytes = SignalsBytes(2, 3)
                                .row(1, {0.1F, 0.3F, 0.2F, kNone, kNone, kNone})
                                .row(2, {kNone, 0.01F, kNone, 0.5F, kNone, kInfinity})
                                .bytes();
  const UnitMap map = read(bytes, {}, {}, MapKind::errors);
  EXPECT_EQ(map.columns, 2U);
  EXPECT_EQ(map.at(0, 0), 0.3F);
  EXPECT_TRUE(std::isnan(map.at(1, 0)));
  EXPECT_EQ(map.at(0, 1), 0.01F);
  EXPECT_TRUE(std::isinf(map.at(1, 1)));
}

TEST_F(UnitMapFile, OfErrorsTheLargestStandsForAColumn) {
  SignalsBytes bytes(2, 1);
  for (std::int64_t step = 1; step <= 100; ++step) {
    // Small errors are as far from 1 as can be: that is not what counts.
    bytes.row(step, {step == 15 ? 0.9F : 0.0001F, step == 35 ? 0.2F : 0.1F});
  }
  const UnitMap map = read(bytes.bytes(), {.columns = 10, .rows = 10}, {}, MapKind::errors);
  EXPECT_EQ(map.columns, 10U);
  EXPECT_EQ(map.at(0, 0), 0.0001F);
  EXPECT_EQ(map.at(0, 1), 0.9F);
  EXPECT_EQ(map.at(1, 3), 0.2F);
  EXPECT_EQ(read(bytes.bytes(), {.columns = 10, .rows = 1}, {}, MapKind::errors).units, std::vector<std::size_t>{0});
}

TEST_F(UnitMapFile, AFileOfTheOtherKindIsAnError) {
  const auto message = [&](const std::string& bytes, MapKind kind) {
    return test::error_of<Error>([&] { read(bytes, {}, {}, kind); });
  };
  EXPECT_NE(message(SignalsBytes(1, 1).row(1, {1}).bytes(), MapKind::ratios).find("expected ratios"),
            std::string::npos);
  EXPECT_NE(message(SignalsBytes(1).row(1, {1}).bytes(), MapKind::errors).find("expected errors"), std::string::npos);
}

TEST_F(UnitMapFile, TornAndEmptyAndForeignFiles) {
  const std::string bytes = SignalsBytes(2).row(1, {1, 2}).bytes();
  const UnitMap torn = read(bytes + "abc");
  EXPECT_TRUE(torn.torn);
  EXPECT_EQ(torn.columns, 1U);
  EXPECT_EQ(read(SignalsBytes(2).bytes()).columns, 0U);
  const std::string message = test::error_of<Error>([&] { read("something else entirely"); });
  EXPECT_NE(message.find("signals.bin"), std::string::npos) << message;
}

TEST_F(UnitMapFile, ADamagedUnitCountTakesNoMemory) {
  std::string bytes = SignalsBytes(2).row(1, {1, 2}).row(2, {1, 2}).bytes();
  bytes[15] = '\x20';  // the highest byte of the count: half a billion units, 4 GB of numbers
  const UnitMap map = read(bytes);
  EXPECT_EQ(map.unit_count, (std::size_t{1} << 29U) + 2);
  EXPECT_EQ(map.columns, 0U);
  EXPECT_TRUE(map.units.empty());
  EXPECT_EQ(map.units.capacity(), 0U);
}

TEST_F(UnitMapFile, StepsAsFarApartAsNumbersCanBe) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();
  const UnitMap map = read(SignalsBytes(1).row(kLow, {1}).row(0, {2}).row(kHigh, {3}).bytes());
  EXPECT_LE(map.columns, 1001U);
  EXPECT_EQ(map.at(0, 0), 1.0F);
  EXPECT_EQ(map.at(0, map.columns - 1), 3.0F);
}

}  // namespace
}  // namespace gnmr::report
