// SPDX-License-Identifier: Apache-2.0
#include "front_end.h"

#include <array>
#include <string>
#include <utility>

#include "gnmr/kernels/device.h"
#include "gnmr/low/quantize.h"
#include "recipe_places.h"
#include "thread_pool.h"

namespace gnmr::python {
namespace {

using low::Matrix;
using low::Place;
using low::Type;
using recipes::Grouping;
using Lock = nb::gil_scoped_acquire;

/// torch's types in the order of low::Type; of all interpreters of a process there is one.
struct TypeObjects {
  std::array<nb::object, 7> objects;
};

const TypeObjects& types() {
  // Never destroyed: an interpreter may have ended before.
  static const TypeObjects* const known = [] {
    auto* const found = new TypeObjects;
    const nb::object torch = nb::module_::import_("torch");
    constexpr std::array kNames = {"float32",     "bfloat16", "float16", "float8_e4m3fn",
                                   "float8_e5m2", "uint8",    "float64"};
    for (std::size_t index = 0; index < kNames.size(); ++index) found->objects[index] = torch.attr(kNames[index]);
    return found;
  }();
  return *known;
}

nb::object object_of(Type type) {
  const auto index = static_cast<std::size_t>(type);
  if (index >= types().objects.size()) throw Error("expected a type of elements that low paths know");
  return types().objects[index];
}

/// Where a new matrix comes: beside a tensor, or on the host (None).
nb::object place_of(const Matrix& like) { return like.place == Place::host ? nb::none() : tensor_of(like); }

}  // namespace

Type type_of(nb::handle dtype) {
  const auto& objects = types().objects;
  for (std::size_t index = 0; index < objects.size(); ++index) {
    if (objects[index].is(dtype)) return static_cast<Type>(index);
  }
  return Type::other;
}

Matrix matrix_of(nb::handle tensor) {
  if (tensor.is_none()) return {};
  const auto shape = nb::cast<nb::tuple>(tensor.attr("shape"));
  const auto strides = nb::cast<nb::tuple>(tensor.attr("stride")());
  if (shape.size() < 1 || shape.size() > 2) {
    throw Error("expected a matrix, got " + std::to_string(shape.size()) + " dimensions");
  }
  const bool is_matrix = shape.size() == 2;
  const bool is_on_host = nb::cast<bool>(tensor.attr("is_cpu"));
  const bool is_on_device = !is_on_host && nb::cast<bool>(tensor.attr("is_cuda")) && kernels::available();
  Matrix matrix{.data = address(nb::cast<std::uint64_t>(tensor.attr("data_ptr")())),
                .type = type_of(tensor.attr("dtype")),
                .place = is_on_host     ? Place::host
                         : is_on_device ? Place::device
                                        : Place::other,
                .rows = nb::cast<std::int64_t>(shape[0]),
                .columns = is_matrix ? nb::cast<std::int64_t>(shape[1]) : 1,
                .row_stride = nb::cast<std::int64_t>(strides[0]),
                .column_stride = is_matrix ? nb::cast<std::int64_t>(strides[1]) : 1};
  if (is_on_device) matrix.device = nb::cast<std::int8_t>(tensor.attr("get_device")());
  // It may go where nobody has the lock.
  matrix.owner = std::shared_ptr<const void>(nb::borrow(tensor).release().ptr(), [](const void* held) {
    const Lock lock;
    nb::handle(static_cast<PyObject*>(const_cast<void*>(held))).dec_ref();
  });
  return matrix;
}

nb::object tensor_of(const Matrix& matrix) {
  if (!matrix.defined()) return nb::none();
  const nb::handle tensor(static_cast<PyObject*>(const_cast<void*>(matrix.owner.get())));
  return matrix.is_transposed ? tensor.attr("t")() : nb::borrow(tensor);
}

int PythonFrontEnd::exchange_device(int device) const {
  const Lock lock;
  return nb::cast<int>(functions_.attr("exchange_device")(device));
}

Matrix PythonFrontEnd::empty(const Matrix& like, Type type, std::int64_t rows, std::int64_t columns) const {
  const Lock lock;
  return matrix_of(functions_.attr("empty")(place_of(like), object_of(type), rows, columns));
}

Matrix PythonFrontEnd::empty_vector(const Matrix& like, Type type, std::int64_t count) const {
  const Lock lock;
  return matrix_of(functions_.attr("empty_vector")(place_of(like), object_of(type), count));
}

void PythonFrontEnd::zero(const Matrix& matrix) const {
  const Lock lock;
  tensor_of(matrix).attr("zero_")();
}

Matrix PythonFrontEnd::to_type(const Matrix& matrix, Type type) const {
  if (matrix.type == type) return matrix;
  const Lock lock;
  return matrix_of(tensor_of(matrix).attr("to")(object_of(type)));
}

Matrix PythonFrontEnd::contiguous(const Matrix& matrix) const {
  if (matrix.has_plain_rows() && (matrix.rows <= 1 || matrix.row_stride == matrix.columns)) return matrix;
  const Lock lock;
  return matrix_of(tensor_of(matrix).attr("contiguous")());
}

Matrix PythonFrontEnd::copy(const Matrix& matrix) const {
  const Lock lock;
  return matrix_of(functions_.attr("copy")(tensor_of(matrix)));
}

Matrix PythonFrontEnd::part(const Matrix& matrix, std::int64_t first, std::int64_t rows, std::int64_t columns) const {
  const Lock lock;
  const nb::object tensor = tensor_of(matrix);
  const auto offset = nb::cast<std::int64_t>(tensor.attr("storage_offset")());
  return matrix_of(
      tensor.attr("as_strided")(nb::make_tuple(rows, columns), nb::make_tuple(columns, 1), offset + first));
}

void PythonFrontEnd::copy_into(const Matrix& from, const Matrix& to) const {
  const Lock lock;
  tensor_of(to).attr("copy_")(tensor_of(from));
}

Matrix PythonFrontEnd::some_rows(const Matrix& matrix, std::int64_t stride) const {
  const Lock lock;
  return matrix_of(functions_.attr("some_rows")(tensor_of(matrix), stride));
}

Matrix PythonFrontEnd::on_host(const Matrix& matrix) const {
  const Lock lock;
  return matrix_of(functions_.attr("on_host")(tensor_of(matrix), object_of(Type::float32)));
}

Matrix PythonFrontEnd::bytes_on_host(const Matrix& matrix) const {
  const Lock lock;
  return matrix_of(functions_.attr("on_host")(tensor_of(matrix), object_of(matrix.type)));
}

Matrix PythonFrontEnd::beside(const Matrix& matrix, const Matrix& like) const {
  if (like.place == Place::host) return matrix;
  const Lock lock;
  return matrix_of(functions_.attr("beside")(tensor_of(matrix), tensor_of(like)));
}

Matrix PythonFrontEnd::multiply(const Matrix& left, const Matrix& right) const {
  const Lock lock;
  return matrix_of(functions_.attr("multiply")(tensor_of(left), tensor_of(right)));
}

Matrix PythonFrontEnd::multiply_high(recipes::Product product, const Matrix& left, const Matrix& right) const {
  const Lock lock;
  return matrix_of(functions_.attr("multiply_high")(static_cast<int>(product), tensor_of(left), tensor_of(right)));
}

Matrix PythonFrontEnd::multiply_codes(const low::Fp8Side& left, const low::Fp8Side& right, Grouping right_grouping,
                                      Type type, const kernels::Fp8Plan& plan) const {
  const Lock lock;
  return matrix_of(functions_.attr("multiply_codes")(nb::make_tuple(tensor_of(left.codes), tensor_of(left.scales)),
                                                     nb::make_tuple(tensor_of(right.codes), tensor_of(right.scales)),
                                                     group_name(right_grouping), object_of(type), plan.may_sum_fast,
                                                     plan.spreads_blocks));
}

Matrix PythonFrontEnd::values_of(const low::Fp8Side& side, Grouping grouping) const {
  const Lock lock;
  return matrix_of(functions_.attr("values_of")(tensor_of(side.codes), tensor_of(side.scales), group_name(grouping)));
}

Matrix PythonFrontEnd::subtract(const Matrix& left, const Matrix& right) const {
  const Lock lock;
  return matrix_of(functions_.attr("subtract")(tensor_of(left), tensor_of(right)));
}

std::uint64_t PythonFrontEnd::count_differences(const Matrix& left, const Matrix& right) const {
  const Lock lock;
  return nb::cast<std::uint64_t>(functions_.attr("count_differences")(tensor_of(left), tensor_of(right)));
}

Matrix PythonFrontEnd::sum_parts(const Matrix& matrix, std::int64_t rows) const {
  const Lock lock;
  return matrix_of(functions_.attr("sum_parts")(tensor_of(matrix), rows));
}

Matrix PythonFrontEnd::multiply_stretches(const Matrix& matrix, const std::vector<float>& entries,
                                          std::int64_t size) const {
  const Lock lock;
  const nb::bytes bytes(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(float));
  return matrix_of(functions_.attr("multiply_stretches")(tensor_of(matrix), bytes, size));
}

ParallelFor PythonFrontEnd::threads(std::int64_t grain) const {
  const Lock lock;
  return on_threads(nb::cast<std::size_t>(functions_.attr("threads")()), static_cast<std::size_t>(grain));
}

void* PythonFrontEnd::stream(const Matrix& on) const {
  const Lock lock;
  return address(nb::cast<std::uint64_t>(functions_.attr("stream")(static_cast<int>(on.device))));
}

/// A device for which there is no kernel: the host quantizes.
Matrix PythonFrontEnd::quantize_by_operators(const Matrix& matrix, const low::NumberCast& cast) const {
  return beside(low::quantize_to_numbers(*this, on_host(matrix), cast), matrix);
}

float PythonFrontEnd::amax_by_operators(const Matrix& matrix) const { return low::finite_amax(*this, on_host(matrix)); }

double PythonFrontEnd::square_by_operators(const Matrix& matrix) const {
  const Lock lock;
  return nb::cast<double>(functions_.attr("square")(tensor_of(matrix)));
}

OnDeviceOf::OnDeviceOf(const PythonFrontEnd& front_end, const Matrix& matrix) : front_end_(front_end) {
  if (matrix.place != Place::device) return;
  const int before = front_end.exchange_device(matrix.device);
  if (before != matrix.device) before_ = before;
}

OnDeviceOf::~OnDeviceOf() {
  if (before_ < 0) return;
  const Lock lock;
  try {
    front_end_.exchange_device(before_);
  } catch (nb::python_error& failure) {
    failure.discard_as_unraisable("OnDeviceOf");
  }
}

}  // namespace gnmr::python
