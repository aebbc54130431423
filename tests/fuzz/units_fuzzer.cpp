// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/units_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto units =
        gnmr::io::parse_units(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz", {"a", "b", "c"});
    if (units.size() != 3) std::abort();
    for (const gnmr::Unit& unit : units) {
      if (unit.cost < 1 || unit.name.size() != 1) std::abort();
    }
  } catch (const gnmr::Error&) {
  }
  return 0;
}
