// SPDX-License-Identifier: Apache-2.0
// Any bytes are a state or an error, also where size and checksum are right; a state that was read survives writing,
// and a controller and a judge take it over or refuse it.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/judge.h"
#include "gnmr/io/state_file.h"
#include "state_seal.h"

namespace {

using gnmr::test::kStateHeaderBytes;
using gnmr::test::sealed_state;

gnmr::io::LoadedState decode(const std::string& bytes) {
  return gnmr::io::decode_state(std::as_bytes(std::span(bytes)));
}

void resume_from(const gnmr::ControllerState& state) {
  std::vector<gnmr::Unit> units;
  for (const gnmr::UnitState& unit : state.units) units.push_back({.name = unit.name});
  gnmr::Controller controller(units, state.options);
  controller.restore(state);
  controller.step({.step = 0, .norms = std::vector<double>(units.size(), 1.0)});
  const std::string saved = gnmr::io::encode_state(controller.save());
  if (decode(saved).state.controller != controller.save()) std::abort();
}

void resume_from(const gnmr::JudgeState& state) {
  std::vector<gnmr::Unit> units;
  for (const gnmr::UnitState& unit : state.controller.units) units.push_back({.name = unit.name});
  const gnmr::JudgeSettings settings{.places = state.places == 0 ? 1 : state.places, .expected = {}, .can_rerun = true};
  gnmr::Judge judge(units, state.controller.options, settings);
  judge.restore(state);
  const std::vector<double> errors(units.size() * settings.places, 0.1);
  judge.hear({.step = 0, .norms = std::vector<double>(units.size(), 1.0)}, errors);
  judge.decide();
  if (decode(gnmr::io::encode_state(judge.save())).state != judge.save()) std::abort();
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
  try {
    resume_from(loaded.state.controller);
  } catch (const gnmr::Error&) {
  }
  try {
    resume_from(loaded.state);
  } catch (const gnmr::Error&) {
  }
  return 0;
}
