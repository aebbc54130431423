// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/clipped_norms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bind.h"
#include "gnmr/kernels/device.h"

namespace gnmr::python {
namespace {

using kernels::ElementType;
using kernels::Slice;

/// `kernels::ClippedNorms` of tensors that stay the same but for where their gradients are.
class DeviceNorms {
 public:
  DeviceNorms(std::uint32_t units, const std::vector<std::uint64_t>& counts, const std::vector<std::uint32_t>& unit_of)
      : units_(units), norms_(units + 1) {
    if (counts.size() != unit_of.size()) throw Error("[clipped norms] expected a unit for each tensor");
    for (std::size_t index = 0; index < counts.size(); ++index) {
      if (unit_of[index] > units) {
        throw Error("[clipped norms] expected a unit up to " + std::to_string(units) + " (no unit), got " +
                    std::to_string(unit_of[index]));
      }
      tensors_.push_back({nullptr, counts[index], ElementType::float32, unit_of[index]});
    }
    for (auto& sampled : sampled_) sampled.assign(units, 0);
  }

  void sum(const std::vector<std::uint64_t>& pointers, const std::vector<std::uint8_t>& types, std::uint64_t stream) {
    if (pointers.size() != tensors_.size() || types.size() != tensors_.size()) {
      throw Error("[clipped norms] expected " + std::to_string(tensors_.size()) + " pointers and types, got " +
                  std::to_string(pointers.size()) + " and " + std::to_string(types.size()));
    }
    std::vector<std::uint8_t>& sampled = sampled_[(steps_ + 1) % sampled_.size()];
    std::fill(sampled.begin(), sampled.end(), std::uint8_t{0});
    for (std::size_t index = 0; index < tensors_.size(); ++index) {
      Slice& tensor = tensors_[index];
      tensor.data = address(pointers[index]);
      tensor.type = static_cast<ElementType>(types[index]);
      if (tensor.data != nullptr && tensor.unit < units_) sampled[tensor.unit] = 1;
    }
    norms_.sum(tensors_, address(stream));
  }

  std::uint64_t sums_address() const { return reinterpret_cast<std::uintptr_t>(norms_.sums()); }

  std::uint64_t total_norm_address() const { return reinterpret_cast<std::uintptr_t>(&norms_.gate()->total_norm); }

  std::uint64_t finish(double max_norm, std::uint64_t stream) {
    steps_ = norms_.finish(max_norm, address(stream)).number;
    return steps_;
  }

  void scale(double factor, std::uint64_t stream) { norms_.scale(factor, address(stream)); }

  bool is_there(std::uint64_t ticket) const { return norms_.is_there({ticket}); }

  nb::tuple read(std::uint64_t ticket) {
    kernels::StepNorms numbers;
    {
      const nb::gil_scoped_release released;
      numbers = norms_.read({ticket});
    }
    sums_.assign(numbers.sums.begin(), numbers.sums.end());
    roots_.resize(units_);
    for (std::size_t unit = 0; unit < units_; ++unit) roots_[unit] = std::sqrt(sums_[unit]);
    read_sampled_ = sampled_[ticket % sampled_.size()];
    return nb::make_tuple(numbers.gate.total_norm, numbers.gate.coefficient);
  }

  const std::vector<double>& norms() const { return roots_; }
  const std::vector<double>& sums() const { return sums_; }
  const std::vector<std::uint8_t>& sampled() const { return read_sampled_; }

 private:
  std::uint32_t units_;
  kernels::ClippedNorms norms_;
  std::vector<Slice> tensors_;
  std::uint64_t steps_ = 0;
  std::array<std::vector<std::uint8_t>, 2> sampled_;  // of the two steps that may be under way
  std::vector<double> sums_;
  std::vector<double> roots_;
  std::vector<std::uint8_t> read_sampled_;
};

template <class Number>
View<const Number> norms_view(const std::vector<Number>& values, nb::handle owner) {
  return View<const Number>(values.data(), {values.size()}, owner);
}

}  // namespace

void bind_clipped_norms(nb::module_& module) {
  module.def("kernels_available", &kernels::available,
             "Whether the CUDA kernels were compiled and a CUDA device is there.");
  module.def("compute_capability", &kernels::compute_capability,
             "Ten times the compute capability of the current device, 90 for Hopper; 0 where there is none.");
  nb::class_<DeviceNorms>(module, "ClippedNorms",
                          "Norms of units from gradients on a CUDA device, and clipping in place; addresses are of "
                          "device memory that lives until the stream has passed. Nothing waits for the device but "
                          "`read`.")
      .def(nb::init<std::uint32_t, const std::vector<std::uint64_t>&, const std::vector<std::uint32_t>&>(), "units"_a,
           "counts"_a, "unit_of"_a,
           "Tensors with so many elements each, and the unit that each belongs to; `units`: to none.")
      .def("sum", &DeviceNorms::sum, "pointers"_a, "types"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Queues the sums of squares: addresses (0: there is none) and types (0 float32, 1 bfloat16, 2 float16).")
      .def_prop_ro("sums_address", &DeviceNorms::sums_address,
                   "Where they are on the device, doubles, one per unit and one of all that belongs to none: to be "
                   "reduced over ranks between `sum` and `finish`.")
      .def_prop_ro("total_norm_address", &DeviceNorms::total_norm_address,
                   "Where the norm of all gradients is on the device after `finish`, a double.")
      .def("finish", &DeviceNorms::finish, "max_norm"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Queues the rest: gradients are scaled in place where their norm is above `max_norm` (infinite: never), and "
           "the numbers are sent. A ticket for them.")
      .def("scale", &DeviceNorms::scale, "factor"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Queues a multiplication of the gradients of the last `sum`, in place.")
      .def("is_there", &DeviceNorms::is_there, "ticket"_a, "Whether a step's numbers have come.")
      .def("read", &DeviceNorms::read, "ticket"_a, nb::sig("def read(self, ticket: int) -> tuple[float, float]"),
           "Waits for the numbers of one of the last two steps: the norm of all gradients and what clipping multiplied "
           "them with (0 where the norm is not finite). The views below are of that step then.")
      .def_prop_ro(
          "norms", [](const DeviceNorms& self) { return norms_view(self.norms(), nb::find(self)); },
          "One per unit; valid until the next `read`.")
      .def_prop_ro(
          "sampled", [](const DeviceNorms& self) { return norms_view(self.sampled(), nb::find(self)); },
          "One per unit, 0: no gradient; valid until the next `read`.")
      .def_prop_ro(
          "sums", [](const DeviceNorms& self) { return norms_view(self.sums(), nb::find(self)); },
          "Squared norms, one per unit and one of all that belongs to none; valid until the next `read`.");
}

}  // namespace gnmr::python
