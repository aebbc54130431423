// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/front_end.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <memory>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/kernels/device.h"
#include "gnmr/torch/cast_operators.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/torch/torch_threads.h"

namespace gnmr::nn {
namespace {

using low::Fp8Side;
using low::Matrix;
using low::Place;
using low::Type;
using recipes::Grouping;
using recipes::Product;

constexpr std::int64_t kGroup = kernels::kFp8Group;

Type type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Type::float32;
    case at::kBFloat16:
      return Type::bfloat16;
    case at::kHalf:
      return Type::float16;
    case at::kFloat8_e4m3fn:
      return Type::e4m3;
    case at::kFloat8_e5m2:
      return Type::e5m2;
    case at::kByte:
      return Type::byte;
    case at::kDouble:
      return Type::float64;
    default:
      return Type::other;
  }
}

at::ScalarType scalar_type(Type type) {
  switch (type) {
    case Type::float32:
      return at::kFloat;
    case Type::bfloat16:
      return at::kBFloat16;
    case Type::float16:
      return at::kHalf;
    case Type::e4m3:
      return at::kFloat8_e4m3fn;
    case Type::e5m2:
      return at::kFloat8_e5m2;
    case Type::byte:
      return at::kByte;
    case Type::float64:
      return at::kDouble;
    case Type::other:
      break;
  }
  throw Error("expected a type of elements that low paths know");
}

Place place_of(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return Place::host;
  return has_device_numbers(tensor) ? Place::device : Place::other;
}

c10::Device device_of(const Matrix& matrix) {
  if (matrix.place == Place::host) return c10::kCPU;
  if (matrix.place == Place::device) return {c10::kCUDA, matrix.device};
  return tensor_of(matrix).device();
}

at::TensorOptions options_of(const Matrix& like, Type type) {
  return at::TensorOptions().dtype(scalar_type(type)).device(device_of(like));
}

/// Scales of 128 x 128 as those of 1 x 128: [tiles, n].
at::Tensor as_tiles(const at::Tensor& block_scales, std::int64_t n) {
  return block_scales.t().repeat_interleave(kGroup, 1).narrow(1, 0, n).contiguous();
}

at::Tensor numbers_of_codes(const at::Tensor& fp8, const at::Tensor& scales, Grouping grouping) {
  const at::Tensor codes = fp8.to(at::kFloat);
  const std::int64_t m = codes.size(0);
  const std::int64_t k = codes.size(1);
  switch (grouping) {
    case Grouping::row:
      return codes * scales.view({-1, 1});
    case Grouping::tile:
      return codes * scales.t().repeat_interleave(kGroup, 1).narrow(1, 0, k);
    case Grouping::block:
      return codes * scales.repeat_interleave(kGroup, 0).narrow(0, 0, m).repeat_interleave(kGroup, 1).narrow(1, 0, k);
    default:
      return codes * scales;
  }
}

/// While it lives, GEMMs of float32 matrices on a GPU may round their operands to TF32.
class Tf32Allowed {
 public:
  Tf32Allowed() : before_(at::globalContext().allowTF32CuBLAS()) { at::globalContext().setAllowTF32CuBLAS(true); }
  ~Tf32Allowed() { at::globalContext().setAllowTF32CuBLAS(before_); }
  Tf32Allowed(const Tf32Allowed&) = delete;
  Tf32Allowed& operator=(const Tf32Allowed&) = delete;

 private:
  bool before_;
};

class TorchFrontEnd final : public low::FrontEnd {
 public:
  Matrix empty(const Matrix& like, Type type, std::int64_t rows, std::int64_t columns) const override {
    return matrix_of(at::empty({rows, columns}, options_of(like, type)));
  }
  Matrix empty_vector(const Matrix& like, Type type, std::int64_t count) const override {
    return matrix_of(at::empty({count}, options_of(like, type)));
  }
  Matrix host_like() const override { return {}; }
  void zero(const Matrix& matrix) const override { tensor_of(matrix).zero_(); }

  Matrix to_type(const Matrix& matrix, Type type) const override {
    return matrix.type == type ? matrix : matrix_of(tensor_of(matrix).to(scalar_type(type)));
  }
  Matrix contiguous(const Matrix& matrix) const override {
    const at::Tensor tensor = tensor_of(matrix);
    return tensor.is_contiguous() ? matrix : matrix_of(tensor.contiguous());
  }
  Matrix copy(const Matrix& matrix) const override {
    return matrix_of(tensor_of(matrix).clone(at::MemoryFormat::Contiguous));
  }
  Matrix part(const Matrix& matrix, std::int64_t first, std::int64_t rows, std::int64_t columns) const override {
    const at::Tensor tensor = tensor_of(matrix);
    return matrix_of(tensor.as_strided({rows, columns}, {columns, 1}, tensor.storage_offset() + first));
  }
  void copy_into(const Matrix& from, const Matrix& to) const override { tensor_of(to).copy_(tensor_of(from)); }
  Matrix some_rows(const Matrix& matrix, std::int64_t stride) const override {
    return matrix_of(tensor_of(matrix).slice(0, 0, matrix.rows, stride).contiguous());
  }
  Matrix on_host(const Matrix& matrix) const override {
    return matrix_of(tensor_of(matrix).to(at::kCPU, at::kFloat).contiguous());
  }
  Matrix bytes_on_host(const Matrix& matrix) const override {
    return matrix_of(tensor_of(matrix).to(at::kCPU).contiguous());
  }
  Matrix beside(const Matrix& matrix, const Matrix& like) const override {
    return like.place == Place::host ? matrix : matrix_of(tensor_of(matrix).to(device_of(like)));
  }

  Matrix multiply(const Matrix& left, const Matrix& right) const override {
    return matrix_of(at::mm(tensor_of(left), tensor_of(right)));
  }
  Matrix multiply_numbers(const Matrix& left, const Matrix& right, Type type) const override {
    const bool by_tf32 = type == Type::bfloat16 && left.place != Place::host;
    std::optional<Tf32Allowed> allowed;
    if (by_tf32) allowed.emplace();
    return to_type(multiply(left, right), type);
  }
  Matrix multiply_high(Product product, const Matrix& left, const Matrix& right) const override {
    return multiply(product == Product::weight_gradient ? left.transposed() : left,
                    product == Product::forward ? right.transposed() : right);
  }
  Matrix multiply_codes(const Fp8Side& left, const Fp8Side& right, Grouping right_grouping, Type type,
                        const kernels::Fp8Plan& plan) const override {
    at::Tensor left_scales = tensor_of(left.scales);
    at::Tensor right_scales = tensor_of(right.scales);
    switch (right_grouping) {
      case Grouping::row:
        left_scales = left_scales.view({-1, 1});
        right_scales = right_scales.view({1, -1});
        break;
      case Grouping::tile:
        left_scales = left_scales.t();
        break;
      case Grouping::block:
        left_scales = left_scales.t();
        right_scales = plan.spreads_blocks ? as_tiles(right_scales, right.codes.rows) : right_scales.t();
        break;
      default:
        break;
    }
    return matrix_of(at::_scaled_mm(tensor_of(left.codes), tensor_of(right.codes).t(), left_scales, right_scales, {},
                                    {}, scalar_type(type), plan.may_sum_fast));
  }
  Matrix values_of(const Fp8Side& side, Grouping grouping) const override {
    return matrix_of(numbers_of_codes(tensor_of(side.codes), tensor_of(side.scales), grouping));
  }
  Matrix subtract(const Matrix& left, const Matrix& right) const override {
    return matrix_of(tensor_of(left) - tensor_of(right));
  }
  std::uint64_t count_differences(const Matrix& left, const Matrix& right) const override {
    return static_cast<std::uint64_t>((tensor_of(left) != tensor_of(right)).sum().item<std::int64_t>());
  }
  Matrix sum_parts(const Matrix& matrix, std::int64_t rows) const override {
    const at::Tensor parts =
        tensor_of(matrix).view({matrix.rows, rows, matrix.columns / std::max<std::int64_t>(rows, 1)});
    return matrix_of(matrix.rows == 1 ? parts[0] : parts.sum(0));
  }
  Matrix multiply_stretches(const Matrix& matrix, const std::vector<float>& entries, std::int64_t size) const override {
    return matrix_of(nn::multiply_stretches(tensor_of(matrix), entries, size));
  }

  ParallelFor threads(std::int64_t grain) const override { return on_torch_threads(grain); }
  void* stream(const Matrix& on) const override { return current_stream(device_of(on)); }

  Matrix quantize_by_operators(const Matrix& matrix, const low::NumberCast& cast) const override {
    return matrix_of(cast_operand_with_operators(tensor_of(matrix), cast));
  }
  float amax_by_operators(const Matrix& matrix) const override {
    const at::Tensor magnitude = tensor_of(matrix).abs();
    return magnitude.masked_fill(magnitude.isfinite().logical_not(), 0).max().item<float>();
  }
  double square_by_operators(const Matrix& matrix) const override { return squared_norm(tensor_of(matrix)); }
};

}  // namespace

Matrix matrix_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.dim() < 1 || tensor.dim() > 2) {
    throw Error("expected a matrix, got " + std::to_string(tensor.dim()) + " dimensions");
  }
  const bool is_matrix = tensor.dim() == 2;
  return {.data = const_cast<void*>(tensor.const_data_ptr()),
          .type = type_of(tensor.scalar_type()),
          .place = place_of(tensor),
          .device = tensor.device().index(),
          .rows = tensor.size(0),
          .columns = is_matrix ? tensor.size(1) : 1,
          .row_stride = tensor.stride(0),
          .column_stride = is_matrix ? tensor.stride(1) : 1,
          .owner = std::make_shared<const at::Tensor>(tensor)};
}

at::Tensor tensor_of(const Matrix& matrix) {
  if (!matrix.defined()) return {};
  const at::Tensor& tensor = *static_cast<const at::Tensor*>(matrix.owner.get());
  return matrix.is_transposed ? tensor.t() : tensor;
}

const low::FrontEnd& front_end() {
  static const TorchFrontEnd only;
  return only;
}

bool has_device_numbers(const at::Tensor& tensor) { return tensor.is_cuda() && kernels::available(); }

}  // namespace gnmr::nn
