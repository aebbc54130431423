// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/message_text.h"

#include <gtest/gtest.h>

#include <array>

#include "gnmr/core/error.h"
#include "gnmr/core/options.h"

namespace gnmr {
namespace {

constexpr std::array<std::string_view, 6> kNames{"train", "steps", "tune", "fp8-delayed", "fp8-deepseek", "X"};

TEST(MessageText, ASlipFindsItsName) {
  for (const std::string_view slip : {"tran", "trian", "ttrain", "Train", "trani"}) {
    EXPECT_EQ(near_match(slip, kNames), "train") << slip;
  }
  EXPECT_EQ(near_match("stpes", kNames), "steps");
  EXPECT_EQ(near_match("step", kNames), "steps");
  EXPECT_EQ(near_match("fp8-delay", kNames), "fp8-delayed");
  EXPECT_EQ(near_match("fp8_deepseek", kNames), "fp8-deepseek");
  EXPECT_EQ(near_match("train", kNames), "train");
}

TEST(MessageText, AnotherWordFindsNothing) {
  for (const std::string_view word : {"", "y", "recover", "brain-wave", "st", "0"}) {
    EXPECT_EQ(near_match(word, kNames), "") << word;
  }
  EXPECT_EQ(near_match(std::string(100000, 't'), kNames), "") << "long texts cost nothing";
  EXPECT_EQ(near_match("train", {}), "");
}

TEST(MessageText, TheNearestWinsAndTheFirstOfEqualOnes) {
  const std::vector<std::string_view> names{"beta", "beta1", "beta2"};
  EXPECT_EQ(near_match("beta3", names), "beta");
  EXPECT_EQ(near_match("bta2", names), "beta2");
}

TEST(MessageText, MessagesEndWithTheOffer) {
  EXPECT_EQ(did_you_mean("tran", kNames), "; did you mean 'train'?");
  EXPECT_EQ(did_you_mean("recover", kNames), "");
  const auto message = [](auto body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Options options;
  EXPECT_EQ(message([&] { set_option(options, "lock_step", 3.0); }),
            "unknown option `lock_step`; did you mean 'lock_steps'?");
  EXPECT_EQ(message([&] { Options::preset("papper"); }),
            "preset: expected `default` or `paper`, got `papper`; did you mean 'paper'?");
  EXPECT_NE(message([&] { set_option(options, "guard", std::string_view("skpi")); }).find("did you mean 'skip'?"),
            std::string::npos);
}

TEST(MessageText, CountsHaveTheirNouns) {
  EXPECT_EQ(counted(0, "unit"), "0 units");
  EXPECT_EQ(counted(1, "unit"), "1 unit");
  EXPECT_EQ(counted(2, "unit"), "2 units");
  EXPECT_EQ(counted(1, "recovery", "recoveries"), "1 recovery");
  EXPECT_EQ(counted(12, "recovery", "recoveries"), "12 recoveries");
}

}  // namespace
}  // namespace gnmr
