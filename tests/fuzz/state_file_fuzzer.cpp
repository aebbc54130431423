// SPDX-License-Identifier: Apache-2.0
// Any bytes are a state or an error, also where size and checksum are right; a state that was read survives writing,
// and controllers with and without errors take it over or refuse it.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/io/state_file.h"
#include "state_seal.h"

namespace {

using gnmr::test::kStateHeaderBytes;
using gnmr::test::sealed_state;

gnmr::io::LoadedState decode(const std::string& bytes) {
  return gnmr::io::decode_state(std::as_bytes(std::span(bytes)));
}

void resume_from(const gnmr::ControllerState& state, const gnmr::Backend& backend) {
  std::vector<gnmr::Unit> units;
  for (const gnmr::UnitState& unit : state.units) units.push_back({.name = unit.name});
  gnmr::Controller controller(units, state.options, backend);
  controller.restore(state);
  const std::vector<double> norms(units.size(), 1.0);
  const std::vector<double> errors(units.size() * backend.sites, 0.1);
  controller.begin(0);
  controller.report({.step = 0, .norms = norms, .errors = errors});
  if (decode(gnmr::io::encode_state(controller.save())).state != controller.save()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    decode(bytes);
  } catch (const gnmr::Error&) {
  }
  if (size < kStateHeaderBytes) return 0;
  gnmr::io::LoadedState loaded;
  try {
    loaded = decode(sealed_state(bytes));
  } catch (const gnmr::Error&) {
    return 0;
  }
  const gnmr::io::LoadedState again = decode(gnmr::io::encode_state(loaded.state, loaded.extra_sections));
  if (again.state != loaded.state || again.extra_sections != loaded.extra_sections) std::abort();
  const std::uint32_t sites = loaded.state.sites == 0 ? 1 : loaded.state.sites;
  for (const gnmr::Backend& backend : {gnmr::norms_only(), gnmr::Backend{.can_rerun = true, .sites = sites}}) {
    try {
      resume_from(loaded.state, backend);
    } catch (const gnmr::Error&) {
    }
  }
  return 0;
}
