// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/student_teacher.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/models/model_files.h"
#include "gnmr/torch/units.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::error_of;

StudentTeacherConfig small_student() { return {.hidden = 8, .intermediate = 12, .layers = 2}; }

at::Tensor sample_numbers() { return at::arange(1, 13, at::kLong).view({3, 4}); }

/// The student by torch's own operators, from its parameters.
at::Tensor by_operators(const StudentTeacherImpl& model, const at::Tensor& input) {
  const auto parameters = model.named_parameters();
  at::Tensor hidden = input;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    const at::Tensor mean = hidden.mean(-1, true);
    const at::Tensor variance = (hidden - mean).square().mean(-1, true);
    const at::Tensor normed =
        (hidden - mean) / at::sqrt(variance + 1e-5) * parameters[name + "norm.weight"] + parameters[name + "norm.bias"];
    const at::Tensor inner = at::matmul(normed, parameters[name + "up.weight"].t());
    const at::Tensor activated = 0.5 * inner * (1 + at::erf(inner / std::sqrt(2.0)));
    hidden = hidden + at::matmul(activated, parameters[name + "down.weight"].t());
  }
  return hidden;
}

TEST(StudentTeacher, LossAndGradientsAreThoseOfTorchsOperators) {
  StudentTeacher model(small_student());
  model->initialise(3);
  const at::Tensor samples = sample_numbers();
  const at::Tensor loss = model->loss(samples, samples);
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  model->zero_grad();
  const std::vector<at::Tensor> drawn = model->draw(samples).chunk(2, 1);
  const at::Tensor target = model->teach(drawn[0]) + 1e-3 * drawn[1];
  const at::Tensor expected = (by_operators(*model, drawn[0]) - target).square().mean();
  expected.backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
  ASSERT_EQ(gradients.size(), 8u);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor other = model->parameters()[i].grad();
    EXPECT_LE((gradients[i] - other).abs().max().item<double>(), 1e-5 * other.abs().max().item<double>()) << i;
  }
}

TEST(StudentTeacher, TheTeacherIsFixedAndHasNoNorms) {
  StudentTeacher model(small_student());
  model->initialise(3);
  const at::Tensor input = model->draw(sample_numbers()).narrow(1, 0, 8);
  const at::Tensor before = model->teach(input);
  {
    const at::NoGradGuard no_gradients;
    for (const at::Tensor& parameter : model->parameters()) parameter.add_(1);
  }
  EXPECT_TRUE(at::equal(model->teach(input), before));
  StudentTeacher same(small_student());
  same->initialise(3);
  EXPECT_TRUE(at::equal(same->teach(input), before));
  same->initialise(4);
  EXPECT_FALSE(at::allclose(same->teach(input), before));
  // With norms a block would give the same for three times its input.
  EXPECT_FALSE(at::allclose(model->teach(3 * input) - 3 * input, before - input, 0.1));
}

TEST(StudentTeacher, ATeacherCanBeNarrowAndWithoutResiduals) {
  StudentTeacherConfig config = small_student();
  config.teacher_intermediate = 5;
  config.teacher_residual = false;
  StudentTeacher model(config);
  model->initialise(3);
  const at::Tensor input = model->draw(sample_numbers()).narrow(1, 0, 8);
  const auto weights = model->named_buffers(/*recurse=*/false);
  at::Tensor expected = input;
  for (const std::string name : {"teacher_0_", "teacher_1_"}) {
    ASSERT_EQ(weights[name + "up"].size(0), 5);
    const at::Tensor inner = at::matmul(expected, weights[name + "up"].t());
    expected = at::matmul(0.5 * inner * (1 + at::erf(inner / std::sqrt(2.0))), weights[name + "down"].t());
  }
  EXPECT_LT((model->teach(input) - expected).abs().max().item<double>(), 1e-6);
  const test::TemporaryFolder folder;
  model->save_to(folder.file("saved"));
  EXPECT_EQ(find_student_teacher(folder.file("saved")), config);
  config.teacher_intermediate = -1;
  test::put_file(folder.file("wrong.json"), config_json(config));
  EXPECT_NE(error_of<Error>([&] { find_student_teacher(folder.file("wrong.json")); }).find("teacher_intermediate_size"),
            std::string::npos);
}

TEST(StudentTeacher, SamplesAreAFunctionOfTheirNumbers) {
  const StudentTeacher model(StudentTeacherConfig{.hidden = 32, .intermediate = 32, .layers = 1});
  const at::Tensor numbers = at::arange(1000, at::kLong).view({10, 100});
  const at::Tensor drawn = model->draw(numbers);
  EXPECT_EQ(drawn.sizes(), (std::vector<std::int64_t>{1000, 64}));
  EXPECT_TRUE(at::equal(model->draw(numbers.flatten().flip(0)), drawn.flip(0)));
  EXPECT_NEAR(drawn.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(drawn.std().item<double>(), 1, 0.02);
  EXPECT_NEAR((drawn[1] * drawn[2]).mean().item<double>(), 0, 0.5);
}

TEST(StudentTeacher, NormsAndLinearLayersAreUnits) {
  StudentTeacher model(small_student());
  model->initialise(0);
  const nn::RecoverableUnits units(*model, nullptr, {});
  EXPECT_EQ(units.layer_names(), (std::vector<std::string>{"layers.0.norm", "layers.0.up", "layers.0.down",
                                                           "layers.1.norm", "layers.1.up", "layers.1.down"}));
  EXPECT_EQ(units.units()[0].cost, 3 * 8);
  EXPECT_EQ(units.units()[1].cost, 3 * 8 * 12);
  EXPECT_EQ(units.units()[3].group, "layers.1");
  EXPECT_EQ(model->parameter_count(), 2 * (2 * 8 * 12 + 16));
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  EXPECT_EQ(count, model->parameter_count());
}

TEST(StudentTeacher, ReadsWhatItWrote) {
  StudentTeacherConfig config = small_student();
  config.target_noise = 0;
  StudentTeacher model(config);
  model->initialise(5);
  const test::TemporaryFolder folder;
  model->save_to(folder.file("saved"));
  EXPECT_EQ(find_student_teacher(folder.file("saved")), config);
  StudentTeacher other(config);
  other->initialise(6);
  other->assign(read_model_tensors(folder.file("saved")), "saved");
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(other->parameters()[i], model->parameters()[i]));
  }
  StudentTeacher larger(StudentTeacherConfig{.hidden = 8, .intermediate = 12, .layers = 3});
  const std::string message =
      error_of<Error>([&] { larger->assign(read_model_tensors(folder.file("saved")), "saved"); });
  EXPECT_NE(message.find("4 tensors are missing: layers.2.norm.weight"), std::string::npos) << message;
}

TEST(StudentTeacher, OtherModelsAreNotItsOwnAndWrongSizesAreRefused) {
  EXPECT_EQ(find_student_teacher("student-teacher"), StudentTeacherConfig());
  EXPECT_EQ(find_student_teacher("student-teacher-512")->hidden, 512);
  EXPECT_EQ(find_student_teacher("nano"), std::nullopt);
  const test::TemporaryFolder folder;
  test::put_file(folder.file("llama.json"), config_json(preset_config("nano")));
  EXPECT_EQ(find_student_teacher(folder.file("llama.json")), std::nullopt);
  StudentTeacherConfig config = small_student();
  config.layers = 0;
  test::put_file(folder.file("wrong.json"), config_json(config));
  const std::string message = error_of<Error>([&] { find_student_teacher(folder.file("wrong.json")); });
  EXPECT_NE(message.find("num_hidden_layers: expected 1 to 4096, got 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace gnmr::models
