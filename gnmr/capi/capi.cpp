// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gnmr.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/state_file.h"

namespace {

// A text that can always be stored: an error about memory must not need any.
class ErrorText {
 public:
  void set(std::string_view text) noexcept {
    std::size_t length = std::min(text.size(), text_.size() - 1);
    // A name that is cut must not end within a character.
    while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
    std::memcpy(text_.data(), text.data(), length);
    text_[length] = '\0';
  }
  const char* get() const noexcept { return text_.data(); }

 private:
  std::array<char, 1024> text_{};
};

thread_local ErrorText thread_error;

constexpr std::size_t kListCount = 6;

// The caller's own mistakes, apart from what gnmr::Error tells.
struct WrongArgument {
  const char* text;
};

}  // namespace

struct gnmr_controller {
  gnmr_controller(std::vector<gnmr::Unit> units, const gnmr::Options& options)
      : controller(std::move(units), options), options_json(gnmr::io::write_options(options)) {
    for (auto& list : lists) list.reserve(controller.units().size());
    candidates.reserve(controller.units().size());
  }

  // The units whose severity is above 1.
  std::span<const gnmr::Candidate> candidates_of(std::span<const double> severities) {
    candidates.clear();
    for (gnmr::UnitIndex unit = 0; unit < severities.size(); ++unit) {
      if (severities[unit] > 1) candidates.push_back({.severity = severities[unit], .unit = unit});
    }
    return candidates;
  }

  void keep(const gnmr::Alarm& given) {
    alarm = given;
    alarm.risks = {};
    keep_list(GNMR_LIST_RISKS, given.risks);
  }

  void keep(const gnmr::Decision& given) {
    decision = {.step = given.step, .common = given.common, .recovered_cost = given.recovered_cost};
    keep_list(GNMR_LIST_RECOVERED, given.recovered);
    keep_list(GNMR_LIST_ADMITTED, given.admitted);
    keep_list(GNMR_LIST_DENIED, given.denied);
    keep_list(GNMR_LIST_FUTILE, given.futile);
    keep_list(GNMR_LIST_RELEASED, given.released);
  }

  // The recoveries of a state that was loaded, as if it had just decided on them.
  void keep_loaded(std::int64_t last_step) {
    keep(gnmr::Alarm{});
    keep(gnmr::Decision{.step = last_step});
    const std::vector<gnmr::Unit>& units = controller.units();
    for (gnmr::UnitIndex unit = 0; unit < units.size(); ++unit) {
      if (controller.steps_left(unit) == 0) continue;
      lists[GNMR_LIST_RECOVERED].push_back(unit);
      decision.recovered_cost += units[unit].cost;
    }
  }

  void keep_list(gnmr_list list, std::span<const gnmr::UnitIndex> units) {
    lists[static_cast<std::size_t>(list)].assign(units.begin(), units.end());
  }

  gnmr::Controller controller;
  std::string options_json;
  gnmr::Alarm alarm;
  gnmr::Decision decision;  // its views are empty; the lists are here, because they must outlive the next observation
  std::array<std::vector<gnmr::UnitIndex>, kListCount> lists;
  std::vector<gnmr::Candidate> candidates;  // reused
  mutable ErrorText error;
};

namespace {

gnmr_status fail(const gnmr_controller* controller, gnmr_status status, std::string_view text) noexcept {
  ErrorText& target = controller != nullptr ? controller->error : thread_error;
  target.set(text);
  return status;
}

// Runs `body` so that nothing but a status leaves it.
template <typename Body>
gnmr_status guarded(const gnmr_controller* controller, gnmr_status status_of_error, Body body) noexcept {
  try {
    body();
    return GNMR_OK;
  } catch (const WrongArgument& wrong) {
    return fail(controller, GNMR_ERROR_ARGUMENT, wrong.text);
  } catch (const gnmr::Error& error) {
    return fail(controller, status_of_error, error.what());
  } catch (const std::bad_alloc&) {
    return fail(controller, GNMR_ERROR_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return fail(controller, GNMR_ERROR_INTERNAL, error.what());
  } catch (...) {
    return fail(controller, GNMR_ERROR_INTERNAL, "unknown exception");
  }
}

void require(bool holds, const char* text) {
  if (!holds) throw WrongArgument{text};
}

void require_controller(const gnmr_controller* controller) { require(controller != nullptr, "the controller is NULL"); }

// Fills a struct of the caller as far as the caller's version of it goes.
template <typename Struct>
void hand_out(const Struct& filled, Struct* out) {
  require(out != nullptr, "the struct to fill is NULL");
  const std::size_t size = out->struct_size;
  require(size >= sizeof(std::size_t), "struct_size is not set");
  std::memcpy(reinterpret_cast<char*>(out) + sizeof(std::size_t),
              reinterpret_cast<const char*>(&filled) + sizeof(std::size_t),
              std::min(size, sizeof(Struct)) - sizeof(std::size_t));
}

std::string checked_text(const char* text, const char* what) {
  std::string copy = text == nullptr ? "" : text;
  if (!gnmr::io::is_utf8(copy))
    throw gnmr::Error(std::string(what) + " " + gnmr::io::in_quotes(copy) + " is not UTF-8");
  return copy;
}

// The caller's units may be of a later version, with members that this one does not know: they must ask for nothing.
gnmr::Unit read_unit(const char* bytes, std::size_t size) {
  gnmr_unit unit;
  std::memcpy(&unit, bytes, sizeof(unit));
  require(unit.struct_size == size, "struct_size is not the same in all units");
  const bool plain = std::all_of(bytes + sizeof(unit), bytes + size, [](char byte) { return byte == 0; });
  require(plain, "a unit uses members that this version of the library does not know");
  require(unit.name != nullptr, "the name of a unit is NULL");
  return {.name = checked_text(unit.name, "unit name"),
          .cost = unit.cost,
          .group = checked_text(unit.group, "group name"),
          .forced = unit.forced != 0};
}

std::vector<gnmr::Unit> read_units(const gnmr_unit* units, std::size_t count) {
  require(units != nullptr || count == 0, "units is NULL");
  std::vector<gnmr::Unit> read;
  if (count == 0) return read;
  const std::size_t size = units->struct_size;
  require(size >= sizeof(gnmr_unit) && size <= 4096, "struct_size of a unit cannot be right");
  read.reserve(count);
  const char* bytes = reinterpret_cast<const char*>(units);
  for (std::size_t i = 0; i < count; ++i) read.push_back(read_unit(bytes + i * size, size));
  return read;
}

template <typename Norm>
gnmr::Observation observation(std::int64_t step, const Norm* norms, const std::uint8_t* sampled, std::size_t count) {
  require(norms != nullptr || count == 0, "norms is NULL");
  gnmr::Observation made{.step = step, .norms = std::span<const Norm>(norms, count)};
  if (sampled != nullptr) made.sampled = {sampled, count};
  return made;
}

template <typename Norm>
gnmr_status observe(gnmr_controller* controller, std::int64_t step, const Norm* norms, const std::uint8_t* sampled,
                    std::size_t count) noexcept {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    controller->keep(controller->controller.observe(observation(step, norms, sampled, count)));
  });
}

template <typename Norm>
gnmr_status step_with(gnmr_controller* controller, std::int64_t step, const Norm* norms, const std::uint8_t* sampled,
                      std::size_t count) noexcept {
  const gnmr_status observed = observe(controller, step, norms, sampled, count);
  if (observed != GNMR_OK) return observed;
  const gnmr_status decided = gnmr_decide(controller, nullptr, 0);
  if (decided != GNMR_OK) controller->controller.withdraw();
  return decided;
}

const std::vector<gnmr::UnitIndex>& list_of(const gnmr_controller* controller, gnmr_list list) {
  require_controller(controller);
  require(list >= 0 && static_cast<std::size_t>(list) < kListCount, "there is no such list");
  return controller->lists[static_cast<std::size_t>(list)];
}

void require_unit(const gnmr_controller* controller, std::uint32_t unit) {
  require_controller(controller);
  require(unit < controller->controller.units().size(), "there is no such unit");
}

}  // namespace

std::uint32_t gnmr_api_version(void) {
  return GNMR_API_VERSION_MAJOR * 1000000U + GNMR_API_VERSION_MINOR * 1000U + GNMR_API_VERSION_PATCH;
}

const char* gnmr_error_text(const gnmr_controller* controller) {
  return controller != nullptr ? controller->error.get() : thread_error.get();
}

gnmr_status gnmr_create(const gnmr_unit* units, size_t unit_count, const char* options_json, gnmr_controller** out) {
  return guarded(nullptr, GNMR_ERROR_INPUT, [&] {
    require(out != nullptr, "there is no place for the controller");
    *out = nullptr;
    const gnmr::Options options = options_json == nullptr ? gnmr::Options{} : gnmr::io::read_options(options_json);
    *out = new gnmr_controller(read_units(units, unit_count), options);
  });
}

void gnmr_destroy(gnmr_controller* controller) { delete controller; }

gnmr_status gnmr_step_double(gnmr_controller* controller, int64_t step, const double* norms, const uint8_t* sampled,
                             size_t count) {
  return step_with(controller, step, norms, sampled, count);
}

gnmr_status gnmr_step_float(gnmr_controller* controller, int64_t step, const float* norms, const uint8_t* sampled,
                            size_t count) {
  return step_with(controller, step, norms, sampled, count);
}

gnmr_status gnmr_observe_double(gnmr_controller* controller, int64_t step, const double* norms, const uint8_t* sampled,
                                size_t count) {
  return observe(controller, step, norms, sampled, count);
}

gnmr_status gnmr_observe_float(gnmr_controller* controller, int64_t step, const float* norms, const uint8_t* sampled,
                               size_t count) {
  return observe(controller, step, norms, sampled, count);
}

gnmr_status gnmr_decide(gnmr_controller* controller, const double* severities, size_t count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(severities != nullptr || count == 0, "severities is NULL");
    if (severities == nullptr) {
      controller->keep(controller->controller.decide());
      return;
    }
    const std::size_t units = controller->controller.units().size();
    if (count != units) {
      throw gnmr::Error("expected severities of " + std::to_string(units) + " units, got " + std::to_string(count));
    }
    controller->keep(controller->controller.decide_among(controller->candidates_of({severities, count}), false));
  });
}

gnmr_status gnmr_withdraw(gnmr_controller* controller) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    controller->controller.withdraw();
  });
}

gnmr_status gnmr_get_alarm(const gnmr_controller* controller, gnmr_alarm* out) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    const gnmr::Alarm& alarm = controller->alarm;
    hand_out<gnmr_alarm>({.struct_size = 0,
                          .step = alarm.step,
                          .sampled = alarm.sampled,
                          .finite = alarm.finite,
                          .risks = controller->lists[GNMR_LIST_RISKS].size(),
                          .centre = alarm.centre,
                          .common = alarm.common ? 1 : 0},
                         out);
  });
}

gnmr_status gnmr_get_decision(const gnmr_controller* controller, gnmr_decision* out) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    const auto& lists = controller->lists;
    hand_out<gnmr_decision>({.struct_size = 0,
                             .step = controller->decision.step,
                             .recovered = lists[GNMR_LIST_RECOVERED].size(),
                             .admitted = lists[GNMR_LIST_ADMITTED].size(),
                             .denied = lists[GNMR_LIST_DENIED].size(),
                             .futile = lists[GNMR_LIST_FUTILE].size(),
                             .released = lists[GNMR_LIST_RELEASED].size(),
                             .recovered_cost = controller->decision.recovered_cost,
                             .common = controller->decision.common ? 1 : 0},
                            out);
  });
}

gnmr_status gnmr_list_count(const gnmr_controller* controller, gnmr_list list, size_t* count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require(count != nullptr, "count is NULL");
    *count = list_of(controller, list).size();
  });
}

gnmr_status gnmr_list_copy(const gnmr_controller* controller, gnmr_list list, uint32_t* indices, size_t capacity,
                           size_t* count) {
  bool fits = false;
  const gnmr_status status = guarded(controller, GNMR_ERROR_INPUT, [&] {
    const std::vector<gnmr::UnitIndex>& found = list_of(controller, list);
    require(count != nullptr, "count is NULL");
    require(indices != nullptr || capacity == 0, "indices is NULL");
    *count = found.size();
    fits = found.size() <= capacity;
    if (fits) std::copy(found.begin(), found.end(), indices);
  });
  if (status == GNMR_OK && !fits) return fail(controller, GNMR_ERROR_CAPACITY, "the list is longer than its place");
  return status;
}

gnmr_status gnmr_recovered_mask(const gnmr_controller* controller, uint8_t* mask, size_t count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    const std::vector<gnmr::UnitIndex>& recovered = list_of(controller, GNMR_LIST_RECOVERED);
    require(count == controller->controller.units().size(), "count is not the number of units");
    require(mask != nullptr || count == 0, "mask is NULL");
    std::fill_n(mask, count, std::uint8_t{0});
    for (const gnmr::UnitIndex unit : recovered) mask[unit] = 1;
  });
}

gnmr_status gnmr_get_signals(const gnmr_controller* controller, uint32_t unit, gnmr_signals* out) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_unit(controller, unit);
    const gnmr::Signals signals = controller->controller.signals(unit);
    hand_out<gnmr_signals>({.struct_size = 0,
                            .ratio = signals.ratio,
                            .delta = signals.delta,
                            .fall = signals.fall,
                            .severity = signals.severity,
                            .sampled = signals.sampled ? 1 : 0,
                            .risk = static_cast<std::int32_t>(signals.risk)},
                           out);
  });
}

gnmr_status gnmr_steps_left(const gnmr_controller* controller, uint32_t unit, uint32_t* out) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_unit(controller, unit);
    require(out != nullptr, "there is no place for the number");
    *out = controller->controller.steps_left(unit);
  });
}

size_t gnmr_unit_count(const gnmr_controller* controller) {
  return controller == nullptr ? 0 : controller->controller.units().size();
}

const char* gnmr_unit_name(const gnmr_controller* controller, uint32_t unit) {
  if (unit >= gnmr_unit_count(controller)) return nullptr;
  return controller->controller.units()[unit].name.c_str();
}

const char* gnmr_options_json(const gnmr_controller* controller) {
  return controller == nullptr ? nullptr : controller->options_json.c_str();
}

uint64_t gnmr_decision_count(const gnmr_controller* controller) {
  return controller == nullptr ? 0 : controller->controller.decisions();
}

gnmr_status gnmr_save(gnmr_controller* controller, const char* path) {
  return guarded(controller, GNMR_ERROR_FILE, [&] {
    require_controller(controller);
    require(path != nullptr, "the path is NULL");
    gnmr::io::save_state(path, controller->controller.save());
  });
}

gnmr_status gnmr_load(gnmr_controller* controller, const char* path, gnmr_load_report* report) {
  return guarded(controller, GNMR_ERROR_FILE, [&] {
    require_controller(controller);
    require(path != nullptr, "the path is NULL");
    require(report == nullptr || report->struct_size >= sizeof(std::size_t), "struct_size is not set");
    const gnmr::io::LoadedState loaded = gnmr::io::load_state(path);
    const gnmr::RestoreReport found = controller->controller.restore(loaded.state.controller);
    controller->keep_loaded(loaded.state.controller.last_step);
    if (report == nullptr) return;
    hand_out<gnmr_load_report>({.struct_size = 0,
                                .unknown_units = found.unknown_units.size(),
                                .new_units = found.new_units.size(),
                                .released_units = found.released_units.size(),
                                .beta_changed = found.beta_changed ? 1 : 0,
                                .noise_beta_changed = found.noise_beta_changed ? 1 : 0,
                                .window_changed = found.window_changed ? 1 : 0},
                               report);
  });
}
