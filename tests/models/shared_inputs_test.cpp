// SPDX-License-Identifier: Apache-2.0
// Models whose layers share casts of their inputs (gnmr/torch/shared_input.h) against the same models without, bit for
// bit. A hook that does nothing is what keeps layers apart. `Device` needs a GPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/kernels/device.h"
#include "gnmr/models/llama.h"
#include "gnmr/torch/units.h"

namespace gnmr::models {
namespace {

/// Sizes that real FP8 products take.
LlamaConfig small_shared() {
  LlamaConfig config;
  config.vocabulary = 256;
  config.hidden = 128;
  config.intermediate = 256;
  config.layers = 2;
  config.heads = 4;
  config.key_value_heads = 2;
  config.head_dim = 32;
  config.max_positions = 128;
  return config;
}

class IdleHook : public nn::LowPathHook {
 public:
  using Call = nn::LowPathCall;
  at::Tensor before_cast(const Call&, recipes::Operand, const at::Tensor& matrix) override { return matrix; }
  at::Tensor in_cast(const Call&, recipes::Operand, const at::Tensor& matrix) override { return matrix; }
  bool changes_casts(const Call&, recipes::Operand) const override { return false; }
  at::Tensor after_cast(const Call&, recipes::Operand, const at::Tensor& cast) override { return cast; }
  at::Tensor after_product(const Call&, const at::Tensor& result) override { return result; }
};

struct SharedSettings {
  std::string recipe;
  bool recompute = false;
  nn::Granularity granularity = nn::Granularity::layer;
  bool save_in_8_bits = false;
  c10::Device device{at::kCPU};
  at::ScalarType type = at::kFloat;
};

/// Everything that comes out, by name.
using SharedCourse = std::vector<std::pair<std::string, at::Tensor>>;

/// One pass over two micro-batches, then what it has measured.
void run_steps(Llama& model, nn::RecoverableUnits& units, const SharedSettings& settings, const std::string& name,
               SharedCourse& course) {
  for (std::int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    units.begin_micro_batch(micro_batch);
    at::manual_seed(static_cast<std::uint64_t>(micro_batch));
    const at::Tensor tokens = at::randint(256, {2, 64}, at::TensorOptions().dtype(at::kLong)).to(settings.device);
    const at::Tensor loss = model->loss(tokens, tokens.roll(-1, 1));
    loss.backward();
    course.emplace_back(name + " loss", loss.detach().clone());
    const at::NoGradGuard no_gradients;
    course.emplace_back(name + " logits", model->forward(tokens));
  }
  units.finish_errors({});
  const auto sent = units.send_measurements();
  units.take_measurements(sent.get());
  course.emplace_back(name + " errors", at::tensor(units.error_sums(), at::kDouble));
  course.emplace_back(name + " squares", at::tensor(units.product_squares(), at::kDouble));
  course.emplace_back(name + " amaxes", at::tensor(units.step_amaxes()));
  // On a device, evidence of the two directions is summed in another order where a hook keeps their casts apart.
  if (settings.device.is_cpu()) course.emplace_back(name + " evidence", at::tensor(units.cast_errors(), at::kDouble));
  for (const auto& item : model->named_parameters()) {
    course.emplace_back(name + " gradient of " + item.key(), item.value().grad().clone());
  }
}

/// Steps with changing units in recovery, each run again as a trial and as a replay.
SharedCourse train_shared(const SharedSettings& settings, bool shares) {
  Llama model(small_shared());
  model->initialise(3);
  model->to(settings.device, settings.type);
  model->set_recompute(settings.recompute);
  nn::RecoverableUnits units(*model, std::make_shared<const recipes::Recipe>(recipes::load_recipe(settings.recipe)),
                             {.granularity = settings.granularity, .save_in_8_bits = settings.save_in_8_bits});
  IdleHook hook;
  if (!shares) units.set_hook(&hook);
  units.measure_casts(true);
  units.patrol(1.0, 128);
  SharedCourse course;
  const std::vector<std::vector<UnitIndex>> high{{}, {1}, {0, 4, 9}};
  for (std::size_t step = 0; step < high.size(); ++step) {
    units.request(high[step]);
    for (const PassKind pass : {PassKind::step, PassKind::trial, PassKind::replay}) {
      model->zero_grad();
      units.begin_step(static_cast<std::int64_t>(step), pass);
      run_steps(model, units, settings,
                "step " + std::to_string(step) + " pass " + std::to_string(static_cast<int>(pass)), course);
    }
    units.end_step();
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.1);
  }
  for (const auto& [name, memory] : units.memory()) course.emplace_back(name, memory);
  return course;
}

void expect_same_shared(const SharedSettings& settings) {
  const SharedCourse shared = train_shared(settings, true);
  const SharedCourse apart = train_shared(settings, false);
  ASSERT_EQ(shared.size(), apart.size());
  for (std::size_t i = 0; i < shared.size(); ++i) {
    ASSERT_EQ(shared[i].first, apart[i].first);
    ASSERT_TRUE(at::allclose(shared[i].second, apart[i].second, 0, 0, /*equal_nan=*/true))
        << settings.recipe << (settings.recompute ? ", recomputed: " : ": ") << shared[i].first;
  }
}

TEST(SharedInputs, ChangeNothingInAModel) {
  for (const std::string& recipe : recipes::recipe_names()) {
    for (const bool recompute : {false, true}) expect_same_shared({.recipe = recipe, .recompute = recompute});
  }
}

TEST(SharedInputs, ChangeNothingWhereUnitsAreProductsOrSavedInputs) {
  for (const std::string recipe : {"fp8-tensorwise", "fp8-deepseek", "fp8-delayed"}) {
    expect_same_shared({.recipe = recipe, .granularity = nn::Granularity::product});
    expect_same_shared({.recipe = recipe, .save_in_8_bits = true});
  }
}

thread_local std::int64_t allocations = 0;

std::unique_ptr<at::ObserverContext> count_allocation(const at::RecordFunction& function) {
  if (std::string(function.name()) == "aten::empty") ++allocations;
  return nullptr;
}

TEST(SharedInputs, AreCastOnce) {
  Llama model(small_shared());
  model->initialise(3);
  nn::RecoverableUnits units(*model, std::make_shared<const recipes::Recipe>(recipes::load_recipe("fp8-tensorwise")),
                             {});
  units.begin_step(0);
  const at::NoGradGuard no_gradients;
  const at::Tensor tokens = at::zeros({2, 64}, at::kLong);
  const auto allocations_of_a_pass = [&] {
    allocations = 0;
    const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_allocation));
    model->forward(tokens);
    at::removeCallback(handle);
    return allocations;
  };
  allocations_of_a_pass();  // tables are made in the first
  const std::int64_t shared = allocations_of_a_pass();
  IdleHook hook;
  units.set_hook(&hook);
  // A cast takes memory for its result: k, v and up of each block take that of q and gate.
  EXPECT_EQ(allocations_of_a_pass() - shared, 3 * small_shared().layers);
}

/// Attention as plain products: backward of the fused kernels adds in no fixed order.
class SharedInputsOnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::available()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
    fuse_attention(false);
  }
  void TearDown() override { fuse_attention(true); }

 private:
  static void fuse_attention(bool fused) {
    at::globalContext().setSDPUseFlash(fused);
    at::globalContext().setSDPUseMemEfficient(fused);
    at::globalContext().setSDPUseCuDNN(fused);
  }
};

TEST_F(SharedInputsOnTheDevice, ChangeNothingInAModel) {
  const c10::Device device(at::kCUDA, 0);
  for (const std::string recipe : {"fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek", "mxfp8"}) {
    for (const bool recompute : {false, true}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        expect_same_shared({.recipe = recipe, .recompute = recompute, .device = device, .type = type});
      }
    }
  }
}

TEST_F(SharedInputsOnTheDevice, ChangeNothingWhereUnitsAreProductsOrSavedInputs) {
  const c10::Device device(at::kCUDA, 0);
  for (const std::string recipe : {"fp8-tensorwise", "fp8-deepseek", "fp8-delayed"}) {
    expect_same_shared(
        {.recipe = recipe, .granularity = nn::Granularity::product, .device = device, .type = at::kBFloat16});
    expect_same_shared({.recipe = recipe, .save_in_8_bits = true, .device = device, .type = at::kBFloat16});
  }
}

}  // namespace
}  // namespace gnmr::models
