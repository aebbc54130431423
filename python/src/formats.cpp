// SPDX-License-Identifier: Apache-2.0
#include "bind.h"
#include "gnmr/formats/cast.h"

namespace gnmr::python {
namespace {

using formats::Format;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Format format_of(std::string_view name) {
  if (const std::optional<Format> format = formats::find_format(name)) return *format;
  throw Error("format: expected e4m3, e5m2, e3m2, e2m3, e2m1, e8m0, bfloat16, int8, int4 or int3, got `" +
              std::string(name) + "`");
}

void round_values(std::string_view format, const Floats& values, const FloatsOut& rounded, bool stochastic,
                  bool saturate, std::uint64_t seed) {
  if (values.size() != rounded.size()) {
    throw Error("[round_values] expected as many places as values (" + std::to_string(values.size()) + "), got " +
                std::to_string(rounded.size()));
  }
  const formats::Cast cast{.format = format_of(format),
                           .rounding = stochastic ? formats::Rounding::stochastic : formats::Rounding::nearest_even,
                           .overflow = saturate ? formats::Overflow::saturate : formats::Overflow::non_finite,
                           .seed = seed};
  const nb::gil_scoped_release released;
  formats::round_values(cast, {values.data(), values.size()}, {rounded.data(), rounded.size()});
}

}  // namespace

void bind_formats(nb::module_& module) {
  module.def(
      "round_values", round_values, "format"_a, "values"_a, "rounded"_a, nb::kw_only(), "stochastic"_a = false,
      "saturate"_a = true, "seed"_a = 0,
      nb::sig("def round_values(format: str, values: typing_extensions.Buffer, rounded: typing_extensions.Buffer, "
              "*, stochastic: bool = False, saturate: bool = True, seed: int = 0) -> None"),
      "Writes each value as the format would hold it, without a scale; `rounded` may be `values`.");
}

}  // namespace gnmr::python
