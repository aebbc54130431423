// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/injection_experiment.h"

#include <gtest/gtest.h>

#include "gnmr/core/error.h"
#include "gnmr/lab/injection/fault_truth.h"

namespace gnmr::lab {
namespace {

const std::vector<std::string> kLayerNames{"layers.0.q", "layers.0.k", "layers.0.up"};
const std::vector<Unit> kUnits{{.name = "layers.0.q"}, {.name = "layers.0.k"}, {.name = "layers.0.up"}};

run::TrainSettings settings_with(std::vector<std::string> faults) {
  run::TrainSettings settings;
  settings.experiment.faults = std::move(faults);
  settings.experiment.fault_every = 6;
  settings.experiment.fault_from = 10;
  return settings;
}

train::Batch some_batch(std::int64_t first = 0) {
  const at::Tensor tokens = (at::arange(4 * 17, at::kLong) + first).remainder(50).reshape({4, 17});
  return {.tokens = tokens.narrow(1, 0, 16).contiguous(), .targets = tokens.narrow(1, 1, 16).contiguous()};
}

bool equal(const train::Batch& a, const train::Batch& b) {
  return at::equal(a.tokens, b.tokens) && at::equal(a.targets, b.targets);
}

class NoRule : public train::GradientRule {
 public:
  train::GradientAction act(const train::GradientView&) override { return {}; }
  std::string save() const override { return ""; }
  void restore(const std::string&) override {}
};

TEST(InjectionExperiment, IsThereWhereItIsWanted) {
  EXPECT_EQ(make_experiment(run::TrainSettings{}, kLayerNames), nullptr);
  const auto with_rule = make_experiment(run::TrainSettings{}, kLayerNames, std::make_unique<NoRule>());
  ASSERT_NE(with_rule, nullptr);
  EXPECT_NE(with_rule->gradient_rule(), nullptr);
  EXPECT_EQ(with_rule->hook(), nullptr);
  EXPECT_EQ(with_rule->fault_count(), 0U);
  EXPECT_EQ(with_rule->truth_text(), "");
  EXPECT_EQ(with_rule->fault_list_text(), "");
  EXPECT_EQ(with_rule->save(), (std::map<std::string, std::string>{{"gradient_rule", ""}, {"laboratory", ""}}));
  const auto with_faults = make_experiment(settings_with({"saturate"}), kLayerNames);
  ASSERT_NE(with_faults, nullptr);
  EXPECT_EQ(with_faults->gradient_rule(), nullptr);
  EXPECT_NE(with_faults->hook(), nullptr);
  EXPECT_THROW(make_experiment(settings_with({"melt"}), kLayerNames), Error);
}

TEST(InjectionExperiment, KnowsItsPlan) {
  const run::TrainSettings settings = settings_with({"saturate", "bit-flip:once", "bad-batch"});
  const auto experiment = make_experiment(settings, kLayerNames);
  const std::vector<PlannedFault> faults =
      plan_faults({.layer_count = 3,
                   .kinds = {{FaultKind::saturate}, {FaultKind::bit_flip, true}, {FaultKind::bad_batch}},
                   .every = 6,
                   .steps = 5,
                   .from = 10,
                   .seed = 1,
                   .run_steps = 200});
  EXPECT_EQ(experiment->fault_count(), faults.size());
  EXPECT_EQ(experiment->truth_text(), truth_text(kLayerNames, faults, 200));
  EXPECT_EQ(experiment->fault_list_text(), fault_list_text(kLayerNames, faults, 64));
  for (std::int64_t step = 1; step <= 200; ++step) {
    EXPECT_EQ(faulty_layers(experiment->faults(), step), faulty_layers(faults, step));
    EXPECT_EQ(experiment->chosen_units(step, {.lock_steps = 20, .most = 2}, kUnits),
              oracle_layers(faults, {.lock_steps = 20, .most = 2}, step));
  }
}

TEST(InjectionExperiment, BadBatchesAreThoseOfThePlan) {
  const auto experiment = make_experiment(settings_with({"bad-batch"}), kLayerNames);
  EXPECT_EQ(experiment->hook(), nullptr) << "there is nothing for it to do";
  std::uint64_t bad_steps = 0;
  for (std::int64_t step = 1; step <= 200; ++step) {
    train::Batch batch = some_batch();
    train::Batch again = some_batch();
    experiment->change_batch(step, 0, batch);
    experiment->change_batch(step, 0, again);
    EXPECT_TRUE(equal(batch, again)) << "a rerun has another batch";
    EXPECT_TRUE(faulty_layers(experiment->faults(), step).empty());
    if (!equal(batch, some_batch())) ++bad_steps;
  }
  EXPECT_EQ(bad_steps, experiment->fault_count());
  EXPECT_GT(bad_steps, 10U);
}

TEST(InjectionExperiment, ARandomBatchIsUniform) {
  const train::Batch given = some_batch();
  std::vector<int> counts(50, 0);
  for (std::int64_t step = 0; step < 400; ++step) {
    const train::Batch batch = random_batch(given, 1, step, 0);
    ASSERT_EQ(batch.tokens.sizes(), given.tokens.sizes());
    ASSERT_EQ(batch.targets.sizes(), given.targets.sizes());
    EXPECT_TRUE(at::equal(batch.tokens.narrow(1, 1, 15), batch.targets.narrow(1, 0, 15)))
        << "a target follows its token";
    const std::int64_t* const tokens = batch.tokens.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < batch.tokens.numel(); ++i) {
      ASSERT_GE(tokens[i], 0);
      ASSERT_LT(tokens[i], 50);
      ++counts[static_cast<std::size_t>(tokens[i])];
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, 512, 130);
  EXPECT_TRUE(equal(given, some_batch())) << "it was changed in place";
  const train::Batch one = random_batch(given, 1, 5, 0);
  EXPECT_TRUE(equal(one, random_batch(given, 1, 5, 0)));
  EXPECT_FALSE(equal(one, random_batch(given, 2, 5, 0)));
  EXPECT_FALSE(equal(one, random_batch(given, 1, 6, 0)));
  EXPECT_FALSE(equal(one, random_batch(given, 1, 5, 1)));
  EXPECT_FALSE(equal(one, random_batch(some_batch(1), 1, 5, 0))) << "ranks have other batches";
}

}  // namespace
}  // namespace gnmr::lab
