// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/host_squares.h"

#include <algorithm>
#include <cmath>

#include "bind.h"
#include "gnmr/kernels/norms_reference.h"
#include "thread_pool.h"

namespace gnmr::python {
namespace {

using kernels::ElementType;
using kernels::Slice;

constexpr std::size_t kPiecesPerThread = 8;                           // waking one costs as much as two or three
constexpr std::uint64_t kElementsPerThread = std::uint64_t{1} << 19;  // likewise, where pieces are small

/// The threads that are worth waking for so many elements.
std::size_t worth_waking(std::size_t threads, std::uint64_t elements) {
  return std::min<std::size_t>(threads, std::max<std::uint64_t>(1, elements / kElementsPerThread));
}

/// Norms of units from gradients in host memory, one pass over them.
class HostSquares {
 public:
  HostSquares(std::uint32_t units, const std::vector<std::uint64_t>& counts, const std::vector<std::uint32_t>& unit_of)
      : sums_(units + 1, 0.0), norms_(units, 0.0), sampled_(units, 0) {
    if (counts.size() != unit_of.size()) throw Error("[host squares] expected a unit for each tensor");
    for (std::size_t index = 0; index < counts.size(); ++index) {
      if (unit_of[index] > units) {
        throw Error("[host squares] expected a unit up to " + std::to_string(units) + " (no unit), got " +
                    std::to_string(unit_of[index]));
      }
      tensors_.push_back({nullptr, counts[index], ElementType::float32, unit_of[index]});
    }
  }

  void measure(const std::vector<std::uint64_t>& pointers, const std::vector<std::uint8_t>& types,
               const std::vector<double>& others, std::size_t threads) {
    check(pointers, types, others);
    std::fill(sampled_.begin(), sampled_.end(), std::uint8_t{0});
    std::uint64_t elements = 0;
    for (std::size_t index = 0; index < tensors_.size(); ++index) {
      Slice& tensor = tensors_[index];
      tensor.data = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(pointers[index]));
      tensor.type = static_cast<ElementType>(types[index]);
      if (tensor.data != nullptr) elements += tensor.count;
      const bool present = tensor.data != nullptr || is_given(others, index);
      if (present && tensor.unit < sampled_.size()) sampled_[tensor.unit] = 1;
    }
    kernels::sum_squares_on_host(tensors_, sums_, on_threads(worth_waking(threads, elements), kPiecesPerThread));
    for (std::size_t index = 0; index < others.size(); ++index) {
      if (is_given(others, index)) sums_[tensors_[index].unit] += others[index];
    }
    for (std::size_t unit = 0; unit < norms_.size(); ++unit) norms_[unit] = std::sqrt(sums_[unit]);
  }

  void set_unit(std::uint32_t unit, double square) {
    if (unit >= norms_.size()) throw Error("[host squares] expected a unit below " + std::to_string(norms_.size()));
    sampled_[unit] = square < 0 ? 0 : 1;
    norms_[unit] = square < 0 ? 0 : std::sqrt(square);
  }

  void replace(const Doubles& sums, const Bytes& sampled) {
    if (sums.size() != sums_.size() || sampled.size() != sampled_.size()) {
      throw Error("[host squares] expected " + std::to_string(sums_.size()) + " sums and a flag per unit, got " +
                  std::to_string(sums.size()) + " and " + std::to_string(sampled.size()));
    }
    const auto given = span_of(sums);
    std::copy(given.begin(), given.end(), sums_.begin());
    const auto flags = span_of(sampled);
    std::copy(flags.begin(), flags.end(), sampled_.begin());
    for (std::size_t unit = 0; unit < norms_.size(); ++unit) norms_[unit] = std::sqrt(sums_[unit]);
  }

  kernels::Gate gate(double max_norm) const { return kernels::reference_gate(sums_, max_norm); }
  const std::vector<double>& norms() const { return norms_; }
  const std::vector<double>& sums() const { return sums_; }
  const std::vector<std::uint8_t>& sampled() const { return sampled_; }

 private:
  /// A sum of squares, which may be NaN, or something below 0.
  static bool is_given(const std::vector<double>& others, std::size_t index) {
    return !others.empty() && !(others[index] < 0);
  }

  void check(const std::vector<std::uint64_t>& pointers, const std::vector<std::uint8_t>& types,
             const std::vector<double>& others) const {
    const std::size_t count = tensors_.size();
    if (pointers.size() != count || types.size() != count || (!others.empty() && others.size() != count)) {
      throw Error("[host squares] expected " + std::to_string(count) + " pointers and types, got " +
                  std::to_string(pointers.size()) + " and " + std::to_string(types.size()));
    }
  }

  std::vector<Slice> tensors_;
  std::vector<double> sums_;  // the last: what belongs to no unit
  std::vector<double> norms_;
  std::vector<std::uint8_t> sampled_;
};

double one_sum(std::uint64_t pointer, std::uint64_t count, std::uint8_t type, std::size_t threads) {
  const Slice slice{reinterpret_cast<const void*>(static_cast<std::uintptr_t>(pointer)), count,
                    static_cast<ElementType>(type), 0};
  double sum = 0;
  kernels::sum_squares_on_host(std::span(&slice, 1), std::span(&sum, 1),
                               on_threads(worth_waking(threads, count), kPiecesPerThread));
  return sum;
}

template <class Number>
View<const Number> squares_view(const std::vector<Number>& values, nb::handle owner) {
  return View<const Number>(values.data(), {values.size()}, owner);
}

}  // namespace

void bind_host_squares(nb::module_& module) {
  nb::class_<HostSquares>(module, "HostSquares",
                          "Norms of units from gradients in host memory: one pass, sums in double, the same bits "
                          "whatever the number of threads.")
      .def(nb::init<std::uint32_t, const std::vector<std::uint64_t>&, const std::vector<std::uint32_t>&>(), "units"_a,
           "counts"_a, "unit_of"_a,
           "Tensors with so many elements each, and the unit that each belongs to; `units`: to none.")
      .def("measure", &HostSquares::measure, "pointers"_a, "types"_a, "others"_a = std::vector<double>{}, nb::kw_only(),
           "threads"_a = 1, nb::call_guard<nb::gil_scoped_release>(),
           "Reads the gradients: addresses (0: there is none) and types (0 float32, 1 bfloat16, 2 float16). `others`, "
           "where given, are sums of squares that were made elsewhere, below 0 for tensors with an address or none.")
      .def_prop_ro(
          "norms", [](const HostSquares& self) { return squares_view(self.norms(), nb::find(self)); },
          nb::sig("def norms(self) -> memoryview"), "One per unit; valid until the next measurement.")
      .def_prop_ro(
          "sampled", [](const HostSquares& self) { return squares_view(self.sampled(), nb::find(self)); },
          nb::sig("def sampled(self) -> memoryview"), "One per unit, 0: no gradient; valid until the next measurement.")
      .def_prop_ro(
          "sums", [](const HostSquares& self) { return squares_view(self.sums(), nb::find(self)); },
          nb::sig("def sums(self) -> memoryview"),
          "Squared norms, one per unit and one of all that belongs to none; valid until the next measurement.")
      .def("set_unit", &HostSquares::set_unit, "unit"_a, "square"_a,
           "The squared norm of a unit that is not made from tensors' gradients, below 0: it has none. Clipping does "
           "not "
           "see it.")
      .def("replace", &HostSquares::replace, "sums"_a, "sampled"_a,
           nb::sig("def replace(self, sums: typing_extensions.Buffer, sampled: typing_extensions.Buffer) -> None"),
           "Sums and samples that were made elsewhere, as those of all ranks, take the place of the measured ones.")
      .def(
          "clip",
          [](const HostSquares& self, double max_norm) {
            const kernels::Gate gate = self.gate(max_norm);
            if (std::isinf(max_norm)) return nb::make_tuple(gate.total_norm, 1.0);
            return nb::make_tuple(gate.total_norm, std::isnan(gate.total_norm) ? gate.total_norm : gate.coefficient);
          },
          nb::sig("def clip(self, max_norm: float) -> tuple[float, float]"), "max_norm"_a,
          "The norm of all gradients, and what clipping to `max_norm` multiplies them with: 1 where that is infinite, "
          "else 0 where the norm is, and NaN where the norm is.");
  module.def("sum_squares", one_sum, "pointer"_a, "count"_a, "type"_a, nb::kw_only(), "threads"_a = 1,
             nb::call_guard<nb::gil_scoped_release>(), "The sum of squares of one array in host memory.");
}

}  // namespace gnmr::python
