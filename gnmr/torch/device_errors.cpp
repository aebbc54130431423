// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/device_errors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "gnmr/core/error.h"
#include "gnmr/kernels/thin_rows.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/product_error.h"

namespace gnmr::nn {
namespace {

kernels::ElementType element_type(const at::Tensor& tensor) {
  const std::optional<kernels::ElementType> type = kernel_type(tensor);
  if (type == kernels::ElementType::float32 || type == kernels::ElementType::bfloat16) return *type;
  throw Error(std::string("expected float32 or bfloat16 on a CUDA device, got ") + c10::toString(tensor.scalar_type()));
}

kernels::ThinMatrix thin_matrix(const at::Tensor& matrix) {
  return {.data = matrix.const_data_ptr(),
          .type = element_type(matrix),
          .rows = static_cast<std::uint64_t>(matrix.size(0)),
          .columns = static_cast<std::uint64_t>(matrix.size(1))};
}

kernels::ResultView result_view(const at::Tensor& matrix) { return {matrix.const_data_ptr(), element_type(matrix)}; }

std::uint64_t count_of(const at::Tensor& matrix) { return static_cast<std::uint64_t>(matrix.numel()); }

at::Tensor workspace(std::size_t bytes, const at::Tensor& like) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
}

at::Tensor floats(std::initializer_list<std::int64_t> shape, const at::Tensor& like) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

/// Sums of groups of rows; `square` (null: not wanted) becomes the squared norm.
at::Tensor grouped(const at::Tensor& matrix, std::uint64_t seed, double* square) {
  const kernels::ThinMatrix thin = thin_matrix(matrix);
  const at::Tensor sums = floats({static_cast<std::int64_t>(kernels::row_groups(thin.rows)), matrix.size(1)}, matrix);
  const at::Tensor space = workspace(kernels::group_rows_workspace_bytes(thin), matrix);
  kernels::group_rows(thin, seed, sums.mutable_data_ptr<float>(), square, space.mutable_data_ptr(),
                      current_stream(matrix.device()));
  return sums;
}

}  // namespace

at::Tensor sign_vectors(std::int64_t length, std::int64_t vectors, std::uint64_t seed, const at::Tensor& like) {
  const at::Tensor signs = floats({vectors, length}, like);
  kernels::random_signs(static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(vectors), seed,
                        kernels::SignLayout::by_columns, signs.mutable_data_ptr<float>(),
                        current_stream(like.device()));
  return signs;
}

at::Tensor times_vectors(const at::Tensor& matrix, const at::Tensor& vectors) {
  const at::Tensor source = matrix.contiguous();
  const at::Tensor results = floats({vectors.size(0), source.size(0)}, source);
  kernels::multiply_thin(thin_matrix(source), vectors.const_data_ptr<float>(),
                         static_cast<std::uint32_t>(vectors.size(0)), results.mutable_data_ptr<float>(),
                         current_stream(source.device()));
  return results;
}

at::Tensor transposed_times_vectors(const at::Tensor& matrix, const at::Tensor& vectors) {
  const at::Tensor source = matrix.contiguous();
  const kernels::ThinMatrix thin = thin_matrix(source);
  const auto count = static_cast<std::uint32_t>(vectors.size(0));
  const at::Tensor results = floats({vectors.size(0), source.size(1)}, source);
  const at::Tensor space = workspace(kernels::multiply_transposed_workspace_bytes(thin, count), source);
  kernels::multiply_transposed(thin, vectors.const_data_ptr<float>(), count, results.mutable_data_ptr<float>(),
                               space.mutable_data_ptr(), current_stream(source.device()));
  return results;
}

void add_error(const at::Tensor& low, const at::Tensor& high, kernels::ErrorTotals* totals) {
  const at::Tensor low_source = low.contiguous();
  const at::Tensor high_source = high.contiguous();
  const at::Tensor space = workspace(kernels::compare_workspace_bytes(count_of(high)), high);
  kernels::add_error(result_view(low_source), result_view(high_source), count_of(high), totals,
                     space.mutable_data_ptr(), current_stream(high.device()));
}

void add_rows_error(const at::Tensor& low, const at::Tensor& left, const at::Tensor& weight, bool is_transposed,
                    std::uint64_t seed, kernels::ErrorTotals* totals) {
  const std::uint64_t rows_seed = ~seed;
  const at::Tensor size = at::empty({1}, low.options().dtype(at::kDouble));
  const at::Tensor signs = sign_vectors(low.size(1), kProbeVectors, seed, low);
  const at::Tensor low_sums = grouped(low.contiguous(), rows_seed, size.mutable_data_ptr<double>());
  const at::Tensor left_sums = grouped(left.contiguous(), rows_seed, nullptr);
  const at::Tensor right_signs = is_transposed ? transposed_times_vectors(weight, signs) : times_vectors(weight, signs);
  const at::Tensor high_projected = times_vectors(left_sums, right_signs);
  const at::Tensor low_projected = times_vectors(low_sums, signs);
  kernels::add_projections(size.const_data_ptr<double>(), low_projected.const_data_ptr<float>(),
                           high_projected.const_data_ptr<float>(), count_of(low_projected),
                           static_cast<std::uint32_t>(kProbeVectors), totals, current_stream(low.device()));
}

void add_projected_error(const at::Tensor& low, const at::Tensor& signs, const at::Tensor& projected,
                         kernels::ErrorTotals* totals) {
  const at::Tensor size = at::zeros({1}, low.options().dtype(at::kDouble));
  add_square(low, size.mutable_data_ptr<double>());
  const at::Tensor low_projected = times_vectors(low, signs);
  kernels::add_projections(size.const_data_ptr<double>(), low_projected.const_data_ptr<float>(),
                           projected.const_data_ptr<float>(), count_of(projected),
                           static_cast<std::uint32_t>(signs.size(0)), totals, current_stream(low.device()));
}

void add_square(const at::Tensor& matrix, double* sum) {
  const at::Tensor source = matrix.contiguous();
  const at::Tensor space = workspace(kernels::compare_workspace_bytes(count_of(source)), source);
  kernels::add_square(result_view(source), count_of(source), sum, space.mutable_data_ptr(),
                      current_stream(source.device()));
}

}  // namespace gnmr::nn
