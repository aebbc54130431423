// SPDX-License-Identifier: Apache-2.0
// A student that learns to compute what a fixed teacher computes: residual blocks `x + down(gelu(up(norm(x))))` with
// layer norms, on normal random inputs. The teacher has the same blocks without norms, or plain layers
// `down(gelu(up))`; it is no part of the module's parameters, and a function of the seed alone.
//
// Modules in forward order: layers.N.{norm, up, down}. The norms' weights are switchable too (nn::SwitchableScale):
// they stay close to 1, so in a block format a whole block of them can round to one value.
//
// A batch is [batch, positions] of sample numbers. A sample's input, and the noise of its target, are a function of its
// number, so nothing is read from files.
//
// Goals: a model small enough to study how a number format changes training, with data without end.
// Non-goals: language.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/models/language_model.h"
#include "gnmr/torch/switchable_linear.h"
#include "gnmr/torch/switchable_scale.h"

namespace gnmr::models {

/// Its sizes.
struct StudentTeacherConfig {
  std::int64_t hidden = 64;
  std::int64_t intermediate = 256;
  std::int64_t layers = 4;
  double norm_eps = 1e-5;
  double target_noise = 1e-3;             // deviation
  std::int64_t teacher_intermediate = 0;  // 0: as the student's
  bool teacher_residual = true;           // without, the student must undo what its own blocks pass on

  bool operator==(const StudentTeacherConfig&) const = default;
};

/// The sizes that `name_or_path` stands for: the presets `student-teacher` and `student-teacher-512`, or a config.json
/// with the `model_type` of the first; nothing where it is something else.
std::optional<StudentTeacherConfig> find_student_teacher(const std::string& name_or_path);

/// The text of its config.json.
std::string config_json(const StudentTeacherConfig& config);

/// How many numbers the student learns.
std::int64_t parameter_count(const StudentTeacherConfig& config);

/// A block of the student.
class StudentBlockImpl : public torch::nn::Module {
 public:
  explicit StudentBlockImpl(const StudentTeacherConfig& config);
  at::Tensor forward(const at::Tensor& input);

  nn::SwitchableScale norm;
  nn::SwitchableLinear up;
  nn::SwitchableLinear down;

 private:
  double eps_;
};
TORCH_MODULE(StudentBlock);

/// Student and teacher.
class StudentTeacherImpl : public LanguageModel {
 public:
  explicit StudentTeacherImpl(const StudentTeacherConfig& config);

  /// What the student makes of inputs [..., hidden], and what the teacher does.
  at::Tensor forward(const at::Tensor& input);
  at::Tensor teach(const at::Tensor& input) const;

  /// Mean squared error to the teacher's output and noise, for the samples of these numbers, which are int64; targets
  /// are not looked at.
  at::Tensor loss(const at::Tensor& samples, const at::Tensor& targets) override;
  std::int64_t parameter_count() const override { return models::parameter_count(config_); }
  std::string config_text() const override { return config_json(config_); }
  void assign(const TensorFile& weights, const std::string& place) override;
  io::FolderSums save_to(const std::string& folder) const override;

  /// Both get weights of their own, even in [-1/sqrt(n), 1/sqrt(n)] for n inputs. Norms begin as 1 and 0.
  void initialise(std::uint64_t seed);

  /// The input of each sample and the noise of its target: [samples, 2 * hidden] of float32, normal numbers.
  at::Tensor draw(const at::Tensor& samples) const;

  std::vector<StudentBlock> layers;

 private:
  StudentTeacherConfig config_;
};
TORCH_MODULE(StudentTeacher);

}  // namespace gnmr::models
