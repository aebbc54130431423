// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/rule_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gnmr/core/error.h"

namespace gnmr::lab {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_rule(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RuleOptions, ANameAloneHasTheDefaults) {
  EXPECT_EQ(parse_rule("zclip"), RuleOptions(ZClipOptions{}));
  EXPECT_EQ(parse_rule("adagc"), RuleOptions(AdaGcOptions{}));
  EXPECT_EQ(parse_rule("stable-spam"), RuleOptions(StableSpamOptions{}));
  EXPECT_EQ(parse_rule("olmo-skip"), RuleOptions(OlmoSkipOptions{}));
}

TEST(RuleOptions, ParametersAreSetByName) {
  EXPECT_EQ(parse_rule("zclip:z=3,alpha=0.9,clip_to=mean,warmup=10,max_norm=0"),
            RuleOptions(ZClipOptions{.alpha = 0.9, .z = 3, .warmup = 10, .max_norm = 0, .clip_to = ZClipTo::mean}));
  EXPECT_EQ(parse_rule("adagc:lambda_rel=1.04,beta=0.99"), RuleOptions(AdaGcOptions{.lambda_rel = 1.04, .beta = 0.99}));
  EXPECT_EQ(parse_rule("stable-spam:gamma1=0.85,gamma2=0.99999"),
            RuleOptions(StableSpamOptions{.gamma1 = 0.85, .gamma2 = 0.99999}));
  EXPECT_EQ(parse_rule("olmo-skip:window=64,sigma=4.5"), RuleOptions(OlmoSkipOptions{.window = 64, .sigma = 4.5}));
}

TEST(RuleOptions, TextReadsBackAsTheSame) {
  for (const char* text :
       {"zclip:z=3.25,clip_to=max", "adagc:warmup=0", "stable-spam:gamma3=0", "olmo-skip:window=7"}) {
    const RuleOptions options = parse_rule(text);
    EXPECT_EQ(parse_rule(rule_text(options)), options);
    EXPECT_NE(options, parse_rule(std::string(text).substr(0, std::string(text).find(':'))));
  }
}

TEST(RuleOptions, ErrorsSayWhatIsWrongAndListEverything) {
  EXPECT_EQ(message_of("zlip"),
            "\"zlip\": there is no rule \"zlip\"; a rule is NAME or NAME:PARAMETER=VALUE,... of"
            " zclip:alpha=0.97,z=2.5,warmup=25,max_norm=1,clip_to=reciprocal;"
            " adagc:lambda_rel=1.05,beta=0.98,warmup=100,lambda_abs=1;"
            " stable-spam:gamma1=0.7,gamma2=0.9,gamma3=0.999;"
            " olmo-skip:window=128,sigma=6; did you mean 'zclip'?");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "there is no rule \"\""},
      {"ZClip", "there is no rule \"ZClip\""},
      {"zclip:", "a parameter is missing at the end"},
      {"zclip:z=3,", "a parameter is missing at the end"},
      {"zclip:z", "expected PARAMETER=VALUE, got \"z\""},
      {"zclip:,z=3", "expected PARAMETER=VALUE, got \"\""},
      {"zclip:beta=1", "zclip has no parameter \"beta\""},
      {"zclip:alpa=0.9", "zclip has no parameter \"alpa\" (did you mean 'alpha'?)"},
      {"zclip:z=3,z=3", "\"z\" is given twice"},
      {"zclip:z=", "z: expected a number from 0, below 1e+06, got \"\""},
      {"zclip:alpha=1", "alpha: expected a number from 0, below 1, got \"1\""},
      {"zclip:alpha=nan", "alpha: expected a number from 0, below 1, got \"nan\""},
      {"zclip:z=inf", "z: expected a number from 0, below"},
      {"zclip:warmup=0", "warmup: expected a whole number from 1, below 1000000000, got \"0\""},
      {"zclip:warmup=2.5", "warmup: expected a whole number"},
      {"zclip:clip_to=min", "clip_to: expected reciprocal, mean or max, got \"min\""},
      {"adagc:lambda_rel=0.9", "lambda_rel: expected a number from 1, below"},
      {"olmo-skip:window=5", "window: expected a whole number from 6, below 1000000, got \"5\""},
  };
  for (const auto& [text, expected] : cases) {
    const std::string message = message_of(text);
    EXPECT_NE(message.find(expected), std::string::npos) << text << ": " << message;
    EXPECT_NE(message.find("olmo-skip:window=128,sigma=6"), std::string::npos) << message;
  }
}

TEST(RuleOptions, DocumentationHasEveryParameter) {
  std::ifstream file(GNMR_DOCS_DIR "/rivals.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const std::string_view name : rule_names()) {
    const std::string table = rule_markdown(name);
    EXPECT_NE(text.str().find(table), std::string::npos) << "docs/rivals.md should have:\n" << table;
  }
}

}  // namespace
}  // namespace gnmr::lab
