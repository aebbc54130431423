// SPDX-License-Identifier: Apache-2.0
// Layers that share an input against the same layers with a copy of it each, bit for bit. `Device` needs a GPU.
#include "gnmr/torch/shared_input.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gnmr/kernels/device.h"
#include "gnmr/torch/cuda_graph.h"
#include "gnmr/torch/switchable_linear.h"
#include "torch/cutting_hook.h"
#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::normal;

constexpr std::size_t kLayers = 3;
constexpr std::int64_t kTokens = 160;
constexpr std::int64_t kIn = 256;
constexpr std::array<std::int64_t, kLayers> kOut{128, 64, 192};
constexpr OperandUse kForwardAlone{.product = Product::forward, .place = 0};
constexpr OperandUse kBothProducts{.product = Product::forward,
                                   .place = 0,
                                   .shared = true,
                                   .other_product = Product::weight_gradient,
                                   .other_place = 1};

/// Where the layers are, and in which type.
struct Place {
  c10::Device device{at::kCPU};
  at::ScalarType type = at::kFloat;

  at::Tensor put(const at::Tensor& tensor) const { return tensor.to(device, type); }
};

/// Three layers; step and micro-batch are theirs together.
struct Trio {
  explicit Trio(const std::string& recipe, const Place& the_place = {}) : place(the_place) {
    const auto shared_recipe = builtin(recipe);
    for (std::size_t i = 0; i < kLayers; ++i) {
      layers.emplace_back(kIn, kOut[i]);
      const at::NoGradGuard no_gradients;
      layers[i]->weight.copy_(normal({kOut[i], kIn}, 10 + i) * 0.1);
      layers[i]->to(place.device, place.type);
      LinearPaths& paths = layers[i]->paths();
      paths.recipe = shared_recipe;
      paths.clock = clock;
      paths.layer = static_cast<std::uint32_t>(i);
      paths.low.fill(true);
    }
  }

  std::vector<at::Tensor> forward(const at::Tensor& input, bool copies = false) {
    const SharedInput shared(input);
    std::vector<at::Tensor> outputs;
    for (SwitchableLinear& layer : layers) outputs.push_back(layer->forward(copies ? input.clone() : input));
    return outputs;
  }

  std::vector<at::Tensor> gradients(std::uint64_t seed) const {
    std::vector<at::Tensor> made;
    for (std::size_t i = 0; i < kLayers; ++i) made.push_back(place.put(normal({kTokens, kOut[i]}, seed + i) * 1e-3));
    return made;
  }

  at::Tensor input(std::uint64_t seed) const {
    const at::Tensor made = normal({kTokens, kIn}, seed);
    return place.put(made * at::exp2(at::randint(-4, 4, {kIn})));
  }

  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const SwitchableLinear& layer : layers) all.push_back(layer->weight);
    return all;
  }

  Place place;
  std::shared_ptr<StepClock> clock = std::make_shared<StepClock>();
  std::vector<SwitchableLinear> layers;
};

/// Everything that comes out, by name.
using Course = std::vector<std::pair<std::string, at::Tensor>>;

void note(Course& course, const std::string& name, const std::vector<double>& numbers) {
  course.emplace_back(name, at::tensor(numbers, at::kDouble));
}

void note_cast(Course& course, const std::string& name, const formats::Statistics& cast) {
  note(course, name,
       {static_cast<double>(cast.elements), static_cast<double>(cast.non_finite), static_cast<double>(cast.overflowed),
        static_cast<double>(cast.flushed), cast.squared_error, cast.squared_values});
}

/// What a layer has measured and remembers, on the host and on the device.
void note_paths(Course& course, const std::string& layer, const LinearPaths& paths) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const ProductMeasurement& measured = paths.measured[product];
    const std::string name = layer + " product " + std::to_string(product);
    note(course, name, {measured.squared_norm, measured.error.difference, measured.error.reference});
    for (std::size_t place = 0; place < 2; ++place) {
      note_cast(course, name + " evidence " + std::to_string(place), measured.casts[place]);
      note(course, name + " scale " + std::to_string(place), {paths.amax.delayed[product][place].scale});
    }
  }
  note(course, layer + " saved", {paths.saved_error.difference, paths.saved_error.reference});
  note(course, layer + " amax", {paths.amax.step_amax.begin(), paths.amax.step_amax.end()});
  if (paths.numbers == nullptr) return;
  const HostNumbers numbers = numbers_on_host(paths);
  note(course, layer + " squares on the device", numbers.squares);
  note(course, layer + " amax on the device", {numbers.amaxes.begin(), numbers.amaxes.end()});
  for (const formats::DelayedState& state : paths.numbers->save()) note(course, layer + " scale", {state.scale});
  for (const kernels::ErrorTotals& error : numbers.errors) {
    note(course, layer + " error on the device", {error.difference, error.reference, error.measured});
  }
  for (const formats::Statistics& cast : numbers.casts) note_cast(course, layer + " evidence on the device", cast);
}

/// Three steps of two micro-batches.
Course train(Trio& trio, bool copies) {
  Course course;
  for (std::int64_t step = 0; step < 3; ++step) {
    for (SwitchableLinear& layer : trio.layers) {
      layer->paths().begin_step();
      if (layer->paths().numbers) layer->paths().numbers->begin_step();
    }
    for (std::int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      *trio.clock = {.seed = 7, .step = step, .micro_batch = micro_batch};
      const auto seed = static_cast<std::uint64_t>(100 * step + 10 * micro_batch);
      const at::Tensor leaf = trio.input(seed).requires_grad_();
      const std::vector<at::Tensor> outputs = trio.forward(leaf * 1.5, copies);
      std::vector<at::Tensor> wanted = trio.weights();
      wanted.push_back(leaf);
      const auto found = torch::autograd::grad(outputs, wanted, trio.gradients(seed + 1));
      const std::string name = "step " + std::to_string(step) + " micro-batch " + std::to_string(micro_batch);
      for (const at::Tensor& output : outputs) course.emplace_back(name + " output", output.detach());
      for (const at::Tensor& gradient : found) course.emplace_back(name + " gradient", gradient);
    }
    for (std::size_t i = 0; i < kLayers; ++i) {
      LinearPaths& paths = trio.layers[i]->paths();
      note_paths(course, "step " + std::to_string(step) + " layer " + std::to_string(i), paths);
      paths.end_step();
      if (paths.numbers) paths.numbers->end_step();
    }
  }
  return course;
}

/// What may differ from layer to layer, by name.
using Change = std::pair<std::string, std::function<void(Trio&)>>;

template <class Do>
auto for_all(Do change) {
  return [change](Trio& trio) {
    for (SwitchableLinear& layer : trio.layers) change(layer->paths());
  };
}

std::vector<Change> changes() {
  return {
      {"all low", [](Trio&) {}},
      {"one high", [](Trio& trio) { trio.layers[0]->paths().low.fill(false); }},
      {"some products high",
       [](Trio& trio) {
         trio.layers[0]->paths().low = {true, false, false};
         trio.layers[1]->paths().low = {true, true, false};
         trio.layers[2]->paths().low = {false, true, true};
       }},
      {"both ways first",
       [](Trio& trio) {
         trio.layers[1]->paths().low = {true, true, false};
       }},
      {"evidence", for_all([](LinearPaths& paths) { paths.measure_casts = paths.measure_products = true; })},
      {"evidence of one", [](Trio& trio) { trio.layers[1]->paths().measure_casts = true; }},
      {"evidence of a high one",
       [](Trio& trio) {
         for_all([](LinearPaths& paths) { paths.measure_casts = true; })(trio);
         trio.layers[1]->paths().low = {true, true, false};
       }},
      {"patrol", for_all([](LinearPaths& paths) { paths.comparison = Comparison::projected; })},
      {"trial", for_all([](LinearPaths& paths) {
         paths.comparison = Comparison::full;
         paths.low.fill(false);
       })},
      {"8 bits", for_all([](LinearPaths& paths) { paths.save_low = true; })},
      {"8 bits in a patrol", for_all([](LinearPaths& paths) {
         paths.save_low = paths.can_save_low = true;
         paths.comparison = Comparison::projected;
       })},
      {"8 bits of some", [](Trio& trio) { trio.layers[1]->paths().save_low = true; }},
      {"other recipes",
       [](Trio& trio) {
         trio.layers[0]->paths().recipe = builtin("fp8-tensorwise");
         trio.layers[1]->paths().recipe = builtin("int8");
       }},
      {"weights cast again", for_all([](LinearPaths& paths) { paths.keep_low_weight = false; })},
      {"unobserved", for_all([](LinearPaths& paths) {
         paths.observing = false;
         paths.measure_casts = true;
       })},
  };
}

void expect_same_bits(const Course& shared, const Course& apart, const std::string& what) {
  ASSERT_EQ(shared.size(), apart.size()) << what;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    ASSERT_EQ(shared[i].first, apart[i].first) << what;
    ASSERT_TRUE(at::equal(shared[i].second, apart[i].second)) << what << ", " << shared[i].first;
  }
}

void expect_sharing_changes_nothing(const Place& place, const std::vector<std::string>& names) {
  for (const std::string& recipe : names) {
    for (const auto& [name, change] : changes()) {
      Trio together(recipe, place);
      Trio apart(recipe, place);
      change(together);
      change(apart);
      expect_same_bits(train(together, false), train(apart, true), recipe + ", " + name);
    }
  }
}

TEST(SharedInput, GivesTheBitsOfLayersApart) { expect_sharing_changes_nothing({}, recipes::recipe_names()); }

TEST(SharedInput, IsCastOnceForRulesOfNoLayer) {
  const at::Tensor input = normal({kTokens, kIn}, 1);
  for (const std::string& recipe : recipes::recipe_names()) {
    Trio trio(recipe);
    SharedInput shared(input);
    const auto cast = [&](std::size_t layer, const OperandUse& use) {
      return shared_values(shared, trio.layers[layer]->paths(), use, input);
    };
    const bool is_shared = recipe != "fp8-delayed";
    for (const OperandUse& use : {kForwardAlone, kBothProducts}) {
      EXPECT_EQ(cast(0, use).is_same(cast(1, use)), is_shared) << recipe;
      EXPECT_EQ(cast(2, use).is_same(cast(0, use)), is_shared) << recipe;
    }
  }
}

TEST(SharedInput, IsNotSharedWhereLayersWouldDiffer) {
  const at::Tensor input = normal({kTokens, kIn}, 1);
  Trio trio("fp8-tensorwise");
  LinearPaths& first = trio.layers[0]->paths();
  LinearPaths& second = trio.layers[1]->paths();
  SharedInput shared(input);
  const auto is_shared = [&] {
    const at::Tensor of_first = shared_values(shared, first, kForwardAlone, input);
    return shared_values(shared, second, kForwardAlone, input).is_same(of_first);
  };
  EXPECT_TRUE(is_shared());
  testing::CuttingHook hook(testing::Site::in_cast, 1);
  second.hook = &hook;
  EXPECT_FALSE(is_shared());
  EXPECT_EQ(hook.calls.size(), 1u);
  second.hook = nullptr;
  auto stochastic = std::make_shared<Recipe>(*builtin("fp8-tensorwise"));
  stochastic->rules[0][0]->rounding = formats::Rounding::stochastic;
  first.recipe = second.recipe = stochastic;
  EXPECT_FALSE(is_shared());
  auto spread = std::make_shared<Recipe>(*builtin("fp8-tensorwise"));
  spread->rules[0][0]->hadamard = 16;
  first.recipe = second.recipe = spread;
  EXPECT_FALSE(is_shared());
  first.recipe = builtin("fp8-tensorwise");
  second.recipe = builtin("int8");
  EXPECT_FALSE(is_shared());
  second.recipe = builtin("fp8-tensorwise");
  EXPECT_TRUE(is_shared()) << "equal rules of two recipes";
}

TEST(SharedInput, IsKnownByTensorVersionAndThread) {
  at::Tensor input = normal({4, 8}, 1);
  EXPECT_EQ(SharedInput::of(input), nullptr);
  {
    SharedInput outer(input);
    EXPECT_EQ(SharedInput::of(input), &outer);
    EXPECT_EQ(SharedInput::of(input.clone()), nullptr);
    EXPECT_EQ(SharedInput::of(input.view({4, 8})), nullptr) << "the same memory is not the same tensor";
    SharedInput* elsewhere = &outer;
    std::thread([&] { elsewhere = SharedInput::of(input); }).join();
    EXPECT_EQ(elsewhere, nullptr);
    const at::Tensor other = normal({4, 8}, 2);
    {
      const SharedInput inner(other);
      EXPECT_EQ(SharedInput::of(other), &inner);
      EXPECT_EQ(SharedInput::of(input), nullptr);
    }
    EXPECT_EQ(SharedInput::of(input), &outer);
    input.view({32})[3] = 5;
    EXPECT_EQ(SharedInput::of(input), nullptr) << "changed in place, through a view";
  }
  EXPECT_EQ(SharedInput::of(input), nullptr);
  const c10::InferenceMode inference;
  const at::Tensor unknown = normal({4, 8}, 1);
  const SharedInput shared(unknown);
  EXPECT_EQ(SharedInput::of(unknown), nullptr);
}

TEST(SharedInput, ChangedInPlaceIsCastAgain) {
  Trio trio("fp8-tensorwise");
  const at::NoGradGuard no_gradients;
  const at::Tensor input = normal({kTokens, kIn}, 1);
  const SharedInput shared(input);
  trio.layers[0]->forward(input);
  input.mul_(3.0).add_(1.0);
  EXPECT_TRUE(at::equal(trio.layers[1]->forward(input), trio.layers[1]->forward(input.clone())));
}

/// Of an operand that several layers keep: the tensor that backward needs.
at::Tensor kept_of(const LowOperand& operand) {
  return tensor_of(operand.values.defined() ? operand.values : operand.codes.by_columns.codes);
}

/// Layers keep one cast among them, the input is let go, and backward lets go of the cast.
void expect_one_cast_until_backward(const Place& place, const std::string& recipe) {
  Trio trio(recipe, place);
  const at::Tensor leaf = trio.input(1).requires_grad_();
  at::Tensor kept;
  c10::weak_intrusive_ptr<c10::TensorImpl> weak_input(leaf.getIntrusivePtr());
  std::vector<at::Tensor> outputs;
  {
    const at::Tensor input = leaf * 1.5;
    weak_input = c10::weak_intrusive_ptr<c10::TensorImpl>(input.getIntrusivePtr());
    SharedInput shared(input);
    for (SwitchableLinear& layer : trio.layers) outputs.push_back(layer->forward(input));
    kept = kept_of(shared.operands().operand(front_end(), trio.layers[0]->paths(), kBothProducts, matrix_of(input)));
    EXPECT_EQ(kept.use_count(), kLayers + 2) << recipe << ": of the layers, the scope and this function";
  }
  EXPECT_EQ(kept.use_count(), kLayers + 1) << recipe;
  EXPECT_TRUE(weak_input.expired()) << recipe;
  const std::vector<at::Tensor> gradients = trio.gradients(2);
  for (std::size_t i = 0; i < kLayers; ++i) {
    outputs[i].backward(gradients[i]);
    EXPECT_EQ(kept.use_count(), kLayers - i) << recipe << ": a backward lets go of what it has used";
  }
}

TEST(SharedInput, IsKeptOnceAndNoLongerThanBackwardNeedsIt) {
  // Others keep the input itself here: their casts depend on the direction.
  for (const std::string recipe : {"fp8-tensorwise", "int4-act", "bf16"}) expect_one_cast_until_backward({}, recipe);
}

TEST(SharedInput, IsKeptOnceIn8Bits) {
  const at::Tensor input = normal({kTokens, kIn}, 1);
  SharedInput shared(input);
  const SavedMatrix first = as_tensors(shared.operands().in_8_bits(front_end(), matrix_of(input)));
  const SavedMatrix second = as_tensors(shared.operands().in_8_bits(front_end(), matrix_of(input)));
  EXPECT_TRUE(first.codes.is_same(second.codes));
  EXPECT_TRUE(first.scales.is_same(second.scales));
  EXPECT_TRUE(at::equal(restore_from_8_bits(first), restore_from_8_bits(save_in_8_bits(input))));
  Trio trio("fp8-rowwise");
  for (SwitchableLinear& layer : trio.layers) layer->paths().save_low = true;
  const at::Tensor leaf = input.detach().clone().requires_grad_();
  const SharedInput of_leaf(leaf);
  const at::Tensor a = trio.layers[0]->forward(leaf);
  const at::Tensor b = trio.layers[1]->forward(leaf);
  const low::SavedMatrix bits = SharedInput::of(leaf)->operands().in_8_bits(front_end(), matrix_of(leaf));
  EXPECT_EQ(tensor_of(bits.codes).use_count(), 4u) << "two layers, the scope, this function";
}

class SharedInputOnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::available()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
  }
  const c10::Device device_{at::kCUDA, 0};
};

TEST_F(SharedInputOnTheDevice, GivesTheBitsOfLayersApart) {
  std::vector<std::string> names = recipes::recipe_names();
  std::erase(names, "nvfp4-hadamard");  // stochastic rounding is the CPU's
  expect_sharing_changes_nothing({device_, at::kFloat}, names);
  expect_sharing_changes_nothing({device_, at::kBFloat16},
                                 {"fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek"});
}

TEST_F(SharedInputOnTheDevice, IsKeptOnceAndNoLongerThanBackwardNeedsIt) {
  for (const std::string recipe : {"fp8-tensorwise", "fp8-rowwise", "fp8-deepseek"}) {
    expect_one_cast_until_backward({device_, at::kBFloat16}, recipe);
  }
}

TEST_F(SharedInputOnTheDevice, TakesABytePerElementWhateverTheNumberOfLayers) {
  if (device_memory(device_).reserved == 0) GTEST_SKIP() << "a build that cannot see the device's memory";
  Trio trio("fp8-tensorwise", {device_, at::kBFloat16});
  for (SwitchableLinear& layer : trio.layers) layer->paths().keep_low_weight = false;
  const at::Tensor leaf = trio.input(1).requires_grad_();
  const auto kept_bytes = [&](bool copies) {
    std::int64_t outputs = 0;
    const std::int64_t before = device_memory(device_).allocated;
    const std::vector<at::Tensor> made = trio.forward(leaf * 1.5, copies);
    for (const at::Tensor& output : made) outputs += static_cast<std::int64_t>(output.nbytes());
    return device_memory(device_).allocated - before - outputs;
  };
  kept_bytes(false);  // what is set up at the first use
  const std::int64_t bytes = kTokens * kIn;
  const std::int64_t scales = 512 * kLayers;  // the least that is allocated
  EXPECT_LE(kept_bytes(false), bytes + scales);
  EXPECT_GE(kept_bytes(true), static_cast<std::int64_t>(kLayers) * bytes);
}

TEST_F(SharedInputOnTheDevice, IsNotTakenIntoACapture) {
  if (!can_capture(device_)) GTEST_SKIP() << "a build that cannot capture";
  Trio trio("fp8-tensorwise", {device_, at::kBFloat16});
  const at::NoGradGuard no_gradients;
  const at::Tensor input = trio.input(1);
  trio.forward(input);  // whatever is set up at its first use
  const at::Tensor result = at::empty({kTokens, kOut[1]}, input.options());
  const SharedInput shared(input);
  trio.layers[0]->forward(input);
  const GraphPool pool;
  const CudaGraph graph(device_, pool, [&] { result.copy_(trio.layers[1]->forward(input)); });
  input.copy_(trio.input(2) * 4);
  graph.replay();
  EXPECT_TRUE(at::equal(result, trio.layers[1]->forward(input.clone())));
}

}  // namespace
}  // namespace gnmr::nn
