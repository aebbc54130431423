// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: one file binds what one header declares, and module.cpp lists them.
//
// Goals: Python objects own what they show (views of the core are copied where they would end with the next step);
// arrays come as anything with a buffer (array.array, memoryview, NumPy, torch on the CPU); no torch.
// Non-goals: anything that is not in the core already.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::python {

namespace nb = nanobind;
using namespace nb::literals;

/// Arrays in host memory that are only read during the call.
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A view of an array that lives as long as its owner, as a memoryview.
template <class Number>
using View = nb::ndarray<nb::memview, Number, nb::ndim<1>, nb::c_contig>;

inline std::span<const double> span_of(const Doubles& array) { return {array.data(), array.size()}; }
inline std::span<const std::uint8_t> span_of(const Bytes& array) { return {array.data(), array.size()}; }

/// The elements of an array that may be left out.
template <class Array>
auto span_of(const std::optional<Array>& array) {
  return array ? span_of(*array) : decltype(span_of(*array)){};
}

/// Addresses and streams are numbers in Python: the memory is somebody else's, and no torch is needed to name it.
template <class Item = void>
Item* address(std::uint64_t number) {
  return reinterpret_cast<Item*>(static_cast<std::uintptr_t>(number));
}

template <class Number>
std::vector<Number> copied(std::span<const Number> values) {
  return {values.begin(), values.end()};
}

void bind_error(nb::module_& module);
void bind_options(nb::module_& module);
void bind_types(nb::module_& module);
void bind_step(nb::module_& module);
void bind_supervisor(nb::module_& module);
void bind_host_gate(nb::module_& module);
void bind_device_gate(nb::module_& module);
void bind_control(nb::module_& module);
void bind_trace(nb::module_& module);
void bind_formats(nb::module_& module);
void bind_recipe(nb::module_& module);
void bind_host_squares(nb::module_& module);
void bind_clipped_norms(nb::module_& module);
void bind_fp8_product(nb::module_& module);
void bind_low_layer(nb::module_& module);
void bind_patrol(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_report(nb::module_& module);
void bind_program(nb::module_& module);

}  // namespace gnmr::python
