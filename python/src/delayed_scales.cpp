// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/delayed_scales.h"

#include <array>
#include <optional>

#include "bind.h"
#include "gnmr/recipes/delayed_memory.h"
#include "recipe_places.h"

namespace gnmr::python {
namespace {

using recipes::DelayedMemory;
using recipes::kOperandCount;
using recipes::kProductCount;
using recipes::Recipe;

/// The scales of one layer, in the order of `DelayedMemory::states`.
class LayerScales {
 public:
  explicit LayerScales(const Recipe& recipe) : memory_(recipe), scales_(tensors_of(recipe)) {
    std::uint32_t next = 0;
    recipes::for_delayed(recipe, [&](std::size_t product, std::size_t place, const recipes::CastRule&) {
      casts_.push_back({product, place});
      indices_[product][place] = next++;
    });
    remembered_.assign(casts_.size(), 0);
  }

  std::uint64_t scale_address(std::size_t product, std::size_t place) const {
    if (place >= 2) throw Error("[delayed scales] expected a place 0 or 1");
    const std::optional<std::uint32_t> index = indices_[static_cast<std::size_t>(product_of(product))][place];
    if (!index || remembered_[*index] == 0) return 0;
    return reinterpret_cast<std::uintptr_t>(scales_.scales() + *index);
  }

  void observe(std::uint64_t amaxes, const std::vector<bool>& seen, std::uint64_t stream) {
    if (seen.size() != kOperandCount) throw Error("[delayed scales] expected whether each of 3 operands was seen");
    scales_.observe(address<float>(amaxes), address(stream));
    for (std::size_t index = 0; index < casts_.size(); ++index) {
      const auto operands = recipes::operands_of(product_of(casts_[index].product));
      if (seen[static_cast<std::size_t>(operands[casts_[index].place])]) remembered_[index] = 1;
    }
  }

  std::string save(std::uint64_t stream) {
    memory_.set_states(scales_.save(address(stream)));
    return memory_.save();
  }

  void restore(std::string_view text, std::uint64_t stream) {
    memory_.restore(text);
    const std::vector<formats::DelayedState> states = memory_.states();
    scales_.load(states, address(stream));
    for (std::size_t index = 0; index < states.size(); ++index) {
      remembered_[index] = states[index].observations > 0 ? 1 : 0;
    }
  }

 private:
  struct Place {
    std::size_t product, place;
  };

  static std::vector<kernels::DelayedTensor> tensors_of(const Recipe& recipe) {
    std::vector<kernels::DelayedTensor> tensors;
    recipes::for_delayed(recipe, [&](std::size_t product, std::size_t place, const recipes::CastRule& rule) {
      const recipes::Operand operand = recipes::operands_of(product_of(product))[place];
      tensors.push_back({rule.delayed_scaling(), static_cast<std::uint32_t>(operand)});
    });
    return tensors;
  }

  DelayedMemory memory_;  // what checkpoints hold; it has no other use
  kernels::DelayedScales scales_;
  std::vector<Place> casts_;
  std::array<std::array<std::optional<std::uint32_t>, 2>, kProductCount> indices_{};
  std::vector<std::uint8_t> remembered_;  // whether a scale has had an observation
};

}  // namespace

void bind_delayed_scales(nb::module_& module) {
  module.def(
      "keep_larger",
      [](std::uint64_t found, std::uint64_t amaxes, std::uint64_t count, std::uint64_t stream) {
        kernels::keep_larger(address<float>(found), address<float>(amaxes), count, address(stream));
      },
      "found"_a, "amaxes"_a, "count"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Queues: each number at `amaxes` becomes the larger of itself and that at `found`, float32 in device memory.");
  nb::class_<LayerScales>(module, "DelayedScales",
                          "What the low path of one layer remembers, as DelayedMemory, on the current CUDA device.")
      .def(nb::init<const Recipe&>(), "recipe"_a)
      .def("scale_address", &LayerScales::scale_address, "product"_a, "place"_a,
           "Where the scale of an operand is on the device; 0: nothing is remembered yet.")
      .def("observe", &LayerScales::observe, "amaxes"_a, "seen"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Queues: three amaxes at an address in device memory, one an operand (-1: none was seen) enter the "
           "histories. `seen`: whether there was one.")
      .def("save", &LayerScales::save, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "All that is remembered, as DelayedMemory writes it; waits for the stream.")
      .def("restore", &LayerScales::restore, "text"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Takes over what this or a DelayedMemory saved; waits for the stream.");
}

}  // namespace gnmr::python
