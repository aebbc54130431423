// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/fused_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gnmr/models/fused_kernels.h"

namespace gnmr::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Below this many elements a second thread costs more than it does.
constexpr std::int64_t kElementsPerThread = 16384;

// Rows that share a partial sum of the weight's gradient; fixed, so that the sum is the same for any number of threads.
constexpr std::int64_t kRowsPerSum = 64;

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided;
}

std::int64_t row_grain(std::int64_t width) { return std::max<std::int64_t>(1, kElementsPerThread / width); }

const float* floats(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }
float* mutable_floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

struct Normalised {
  at::Tensor sum;  // undefined without an addend
  at::Tensor output;
  at::Tensor inverse_rms;
};

Normalised normalise(const at::Tensor& input, const at::Tensor& addend, const at::Tensor& weight, double eps) {
  Normalised result;
  result.output = at::empty(input.sizes(), input.options());
  const std::int64_t width = input.size(-1);
  const std::int64_t rows = input.numel() / width;
  result.inverse_rms = at::empty({rows}, input.options());
  if (addend.defined()) result.sum = at::empty(input.sizes(), input.options());
  const RmsNormForward arrays{.input = floats(input),
                              .addend = floats(addend),
                              .weight = floats(weight),
                              .sum = mutable_floats(result.sum),
                              .output = mutable_floats(result.output),
                              .inverse_rms = mutable_floats(result.inverse_rms),
                              .eps = static_cast<float>(eps)};
  at::parallel_for(0, rows, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
    rms_norm_forward(arrays, {begin, end, width});
  });
  return result;
}

// The gradients of what was normalised and of the weight.
std::pair<at::Tensor, at::Tensor> normalise_backward(const at::Tensor& output_gradient, const at::Tensor& sum_gradient,
                                                     const variable_list& saved, bool weight_wanted) {
  const at::Tensor& normalised = saved[0];
  const at::Tensor& weight = saved[1];
  const std::int64_t width = normalised.size(-1);
  const std::int64_t rows = normalised.numel() / width;
  const std::int64_t sums = (rows + kRowsPerSum - 1) / kRowsPerSum;
  const at::Tensor input_gradient = at::empty(normalised.sizes(), normalised.options());
  const at::Tensor partial = weight_wanted ? at::empty({sums, width}, weight.options()) : at::Tensor();
  const at::Tensor gradient = output_gradient.contiguous();
  const at::Tensor passed = sum_gradient.defined() ? sum_gradient.contiguous() : sum_gradient;
  RmsNormBackward arrays{.output_gradient = floats(gradient),
                         .sum_gradient = floats(passed),
                         .normalised = floats(normalised),
                         .weight = floats(weight),
                         .inverse_rms = floats(saved[2]),
                         .input_gradient = mutable_floats(input_gradient),
                         .weight_gradient = nullptr};
  float* const partial_data = mutable_floats(partial);
  const std::int64_t grain = std::max<std::int64_t>(1, row_grain(width) / kRowsPerSum);
  at::parallel_for(0, sums, grain, [&](std::int64_t begin, std::int64_t end) {
    RmsNormBackward part = arrays;
    for (std::int64_t i = begin; i < end; ++i) {
      if (partial_data != nullptr) part.weight_gradient = partial_data + i * width;
      rms_norm_backward(part, {i * kRowsPerSum, std::min(rows, (i + 1) * kRowsPerSum), width});
    }
  });
  return {input_gradient, weight_wanted ? partial.sum(0) : at::Tensor()};
}

class RmsNormFunction : public Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight, double eps) {
    const at::Tensor rows = input.contiguous();
    const Normalised result = normalise(rows, {}, weight, eps);
    context->save_for_backward({rows, weight, result.inverse_rms});
    return result.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto [input, weight] =
        normalise_backward(gradients[0], {}, context->get_saved_variables(), context->needs_input_grad(1));
    return {input, weight, {}};
  }
};

class AddRmsNormFunction : public Function<AddRmsNormFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& addend,
                               const at::Tensor& weight, double eps) {
    const Normalised result = normalise(input.contiguous(), addend.contiguous(), weight, eps);
    context->save_for_backward({result.sum, weight, result.inverse_rms});
    return {result.sum, result.output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto [sum, weight] =
        normalise_backward(gradients[1], gradients[0], context->get_saved_variables(), context->needs_input_grad(2));
    return {sum, sum, weight, {}};
  }
};

class SwigluFunction : public Function<SwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor plain_gate = gate.contiguous();
    const at::Tensor plain_up = up.contiguous();
    const at::Tensor output = at::empty(gate.sizes(), gate.options());
    const float* const gate_data = floats(plain_gate);
    const float* const up_data = floats(plain_up);
    float* const output_data = mutable_floats(output);
    at::parallel_for(0, output.numel(), kElementsPerThread, [&](std::int64_t begin, std::int64_t end) {
      swiglu_forward(gate_data, up_data, output_data, begin, end);
    });
    context->save_for_backward({plain_gate, plain_up});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor gate_gradient = at::empty(gradient.sizes(), gradient.options());
    const at::Tensor up_gradient = at::empty(gradient.sizes(), gradient.options());
    const SwigluBackward arrays{.output_gradient = floats(gradient),
                                .gate = floats(saved[0]),
                                .up = floats(saved[1]),
                                .gate_gradient = mutable_floats(gate_gradient),
                                .up_gradient = mutable_floats(up_gradient)};
    at::parallel_for(0, gradient.numel(), kElementsPerThread,
                     [&](std::int64_t begin, std::int64_t end) { swiglu_backward(arrays, begin, end); });
    return {gate_gradient, up_gradient};
  }
};

at::Tensor rotated(const at::Tensor& input, const RotaryTable& table, bool backwards) {
  const at::Tensor plain = input.contiguous();
  const at::Tensor output = at::empty(plain.sizes(), plain.options());
  const Rotation arrays{.input = floats(plain),
                        .output = mutable_floats(output),
                        .cosine = floats(table.cosine),
                        .sine = floats(table.sine),
                        .positions = plain.size(1),
                        .heads = plain.size(2),
                        .head_dim = plain.size(3),
                        .backwards = backwards};
  at::parallel_for(0, plain.size(0) * plain.size(1), row_grain(plain.size(2) * plain.size(3)),
                   [&](std::int64_t begin, std::int64_t end) { rotate(arrays, begin, end); });
  return output;
}

class RotateFunction : public Function<RotateFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cosine,
                            const at::Tensor& sine, std::int64_t heads) {
    context->save_for_backward({cosine, sine});
    const std::int64_t head_dim = input.size(2) / heads;
    return rotated(input.view({input.size(0), input.size(1), heads, head_dim}), {cosine, sine}, false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {rotated(gradients[0], {saved[0], saved[1]}, true).flatten(2), {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps) {
  if (is_plain(input) && is_plain(weight)) return RmsNormFunction::apply(input, weight, eps);
  return at::rms_norm(input, weight.sizes(), weight, eps);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input, const at::Tensor& addend,
                                               const at::Tensor& weight, double eps) {
  if (is_plain(input) && is_plain(addend) && is_plain(weight)) {
    const variable_list results = AddRmsNormFunction::apply(input, addend, weight, eps);
    return {results[0], results[1]};
  }
  const at::Tensor sum = input + addend;
  return {sum, at::rms_norm(sum, weight.sizes(), weight, eps)};
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (is_plain(gate) && is_plain(up)) return SwigluFunction::apply(gate, up);
  return at::silu(gate) * up;
}

RotaryTable make_rotary_table(std::int64_t positions, std::int64_t head_dim, double theta) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  // In float32 step by step, as transformers has it.
  const at::Tensor exponents = at::arange(0, head_dim, 2, options) / static_cast<double>(head_dim);
  const at::Tensor frequencies = 1.0 / at::pow(at::Scalar(theta), exponents);
  const at::Tensor angles = at::outer(at::arange(positions, options), frequencies);
  return {angles.cos(), angles.sin()};
}

at::Tensor rotate_positions(const at::Tensor& input, const RotaryTable& table, std::int64_t heads) {
  if (is_plain(input) && is_plain(table.cosine)) {
    return RotateFunction::apply(input.contiguous(), table.cosine, table.sine, heads);
  }
  const at::Tensor pairs = input.view({input.size(0), input.size(1), heads, 2, -1});
  const at::Tensor x = pairs.select(3, 0);
  const at::Tensor y = pairs.select(3, 1);
  const at::Tensor cosine = table.cosine.to(input.options()).unsqueeze(1);
  const at::Tensor sine = table.sine.to(input.options()).unsqueeze(1);
  return at::cat({x * cosine - y * sine, y * cosine + x * sine}, -1);
}

}  // namespace gnmr::models
