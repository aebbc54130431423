// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/student_teacher.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/model_files.h"

namespace gnmr::models {
namespace {

constexpr std::string_view kStudentTeacher = "student-teacher";
constexpr std::string_view kWideStudent = "student-teacher-512";
constexpr std::int64_t kMostChannels = std::int64_t{1} << 16;
constexpr std::int64_t kMostBlocks = 4096;

/// One of those in which divergence was seen, by the authors' code (docs/models.md).
StudentTeacherConfig wide_student() {
  return {.hidden = 512,
          .intermediate = 2048,
          .layers = 4,
          .target_noise = 5e-3,
          .teacher_intermediate = 512,
          .teacher_residual = false};
}

// Holds the blocks under their numbers.
class StudentBlocksImpl : public torch::nn::Module {
 public:
  explicit StudentBlocksImpl(const std::vector<StudentBlock>& blocks) {
    for (std::size_t i = 0; i < blocks.size(); ++i) register_module(std::to_string(i), blocks[i]);
  }
};

void expect_between(std::string_view what, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return;
  throw Error("[model] " + std::string(what) + ": expected 1 to " + std::to_string(most) + ", got " +
              std::to_string(value));
}

void expect_not_negative(std::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw Error("[model] " + std::string(what) + ": expected a number >= 0, got " + std::to_string(value));
}

const StudentTeacherConfig& checked(const StudentTeacherConfig& config) {
  expect_between("hidden_size", config.hidden, kMostChannels);
  expect_between("intermediate_size", config.intermediate, kMostChannels);
  expect_between("num_hidden_layers", config.layers, kMostBlocks);
  expect_not_negative("layer_norm_eps", config.norm_eps);
  expect_not_negative("target_noise", config.target_noise);
  if (config.teacher_intermediate != 0) {
    expect_between("teacher_intermediate_size", config.teacher_intermediate, kMostChannels);
  }
  return config;
}

std::vector<StudentBlock> make_student_blocks(const StudentTeacherConfig& config) {
  std::vector<StudentBlock> blocks;
  for (std::int64_t i = 0; i < config.layers; ++i) blocks.emplace_back(config);
  return blocks;
}

std::string teacher_name(std::int64_t layer, std::string_view part) {
  return "teacher_" + std::to_string(layer) + "_" + std::string(part);
}

}  // namespace

std::optional<StudentTeacherConfig> find_student_teacher(const std::string& name_or_path) {
  constexpr std::size_t kLargestFile = std::size_t{1} << 20;
  if (name_or_path == kStudentTeacher) return StudentTeacherConfig();
  if (name_or_path == kWideStudent) return wide_student();
  std::error_code ignored;
  std::filesystem::path file(name_or_path);
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  if (file.extension() != ".json" || !std::filesystem::exists(file, ignored)) return std::nullopt;
  const std::string content = io::read_whole_file(file.string(), kLargestFile);
  return io::read_json_object(
      content, file.string(),
      [](const io::JsonObject& object) -> std::optional<StudentTeacherConfig> {
        if (object.text_if("model_type") != std::string(kStudentTeacher)) return std::nullopt;
        StudentTeacherConfig config;
        config.hidden = object.whole("hidden_size");
        config.intermediate = object.whole("intermediate_size");
        config.layers = object.whole("num_hidden_layers");
        config.norm_eps = object.number_if("layer_norm_eps").value_or(config.norm_eps);
        config.target_noise = object.number_if("target_noise").value_or(config.target_noise);
        config.teacher_intermediate = object.whole_if("teacher_intermediate_size").value_or(0);
        config.teacher_residual = object.truth_if("teacher_residual").value_or(true);
        return checked(config);
      },
      io::RepeatedKeys::accept);
}

std::string config_json(const StudentTeacherConfig& config) {
  io::OrderedJson document;
  document["model_type"] = kStudentTeacher;
  document["hidden_size"] = config.hidden;
  document["intermediate_size"] = config.intermediate;
  document["num_hidden_layers"] = config.layers;
  document["layer_norm_eps"] = config.norm_eps;
  document["target_noise"] = config.target_noise;
  document["teacher_intermediate_size"] = config.teacher_intermediate;
  document["teacher_residual"] = config.teacher_residual;
  return document.dump(2) + "\n";
}

std::int64_t parameter_count(const StudentTeacherConfig& config) {
  return config.layers * (2 * config.hidden * config.intermediate + 2 * config.hidden);
}

StudentBlockImpl::StudentBlockImpl(const StudentTeacherConfig& config)
    : norm(config.hidden),
      up(config.hidden, config.intermediate),
      down(config.intermediate, config.hidden),
      eps_(config.norm_eps) {
  register_module("norm", norm);
  register_module("up", up);
  register_module("down", down);
}

at::Tensor StudentBlockImpl::forward(const at::Tensor& input) {
  const at::Tensor normed = norm->forward(at::layer_norm(input, {input.size(-1)}, {}, {}, eps_));
  return input + down->forward(at::gelu(up->forward(normed)));
}

StudentTeacherImpl::StudentTeacherImpl(const StudentTeacherConfig& config)
    : layers(make_student_blocks(checked(config))), config_(config) {
  register_module("layers", std::make_shared<StudentBlocksImpl>(layers));
  const std::int64_t inner = config.teacher_intermediate > 0 ? config.teacher_intermediate : config.intermediate;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    register_buffer(teacher_name(layer, "up"), at::empty({inner, config.hidden}));
    register_buffer(teacher_name(layer, "down"), at::empty({config.hidden, inner}));
  }
}

at::Tensor StudentTeacherImpl::forward(const at::Tensor& input) {
  at::Tensor hidden = input;
  for (StudentBlock& block : layers) hidden = block->forward(hidden);
  return hidden;
}

at::Tensor StudentTeacherImpl::teach(const at::Tensor& input) const {
  const at::NoGradGuard no_gradients;
  const torch::OrderedDict<std::string, at::Tensor> weights = named_buffers(/*recurse=*/false);
  at::Tensor hidden = input;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const at::Tensor inner = at::gelu(at::linear(hidden, weights[teacher_name(layer, "up")]));
    const at::Tensor made = at::linear(inner, weights[teacher_name(layer, "down")]);
    hidden = config_.teacher_residual ? hidden + made : made;
  }
  return hidden;
}

at::Tensor StudentTeacherImpl::draw(const at::Tensor& samples) const {
  const at::Tensor numbers = samples.to(at::kCPU).contiguous().flatten();
  const auto* const number = numbers.const_data_ptr<std::int64_t>();
  at::Tensor drawn = at::empty({numbers.numel(), 2 * config_.hidden}, at::TensorOptions().dtype(at::kFloat));
  // A row has a generator of its own, so threads change nothing.
  at::parallel_for(0, numbers.numel(), /*grain_size=*/16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(number[row]));
      drawn[row].normal_(0.0, 1.0, generator);
    }
  });
  return drawn;
}

at::Tensor StudentTeacherImpl::loss(const at::Tensor& samples, const at::Tensor& /*targets*/) {
  const at::Tensor& weight = layers.front()->up->weight;
  const std::vector<at::Tensor> drawn = draw(samples).to(weight.device()).chunk(2, /*dim=*/1);
  const at::Tensor input = drawn[0].to(weight.scalar_type());
  const at::Tensor target = teach(input).to(at::kFloat) + config_.target_noise * drawn[1];
  return at::mse_loss(forward(input).to(at::kFloat), target);
}

void StudentTeacherImpl::assign(const TensorFile& weights, const std::string& place) {
  assign_tensors(parameters_by_name(*this), weights, place);
}

io::FolderSums StudentTeacherImpl::save_to(const std::string& folder) const {
  return save_tensors(parameters_by_name(*this), config_json(config_), folder);
}

void StudentTeacherImpl::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_gradients;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto fill = [&](const at::Tensor& weight) {
    const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
    weight.copy_(at::empty(weight.sizes(), at::TensorOptions().dtype(at::kFloat)).uniform_(-bound, bound, generator));
  };
  for (const auto& weight : named_buffers(/*recurse=*/false)) fill(weight.value());
  for (StudentBlock& block : layers) {
    block->norm->reset();
    fill(block->up->weight);
    fill(block->down->weight);
  }
}

}  // namespace gnmr::models
