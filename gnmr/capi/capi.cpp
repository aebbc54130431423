// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gnmr.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/core/host_gate.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/plan_sections.h"
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

constexpr std::size_t kListCount = 9;

// The caller's own mistakes, apart from what gnmr::Error reports.
struct WrongArgument {
  const char* text;
};

}  // namespace

struct gnmr_controller {
  gnmr_controller(std::vector<gnmr::Unit> units, const gnmr::Options& options, const gnmr::Backend& backend)
      : controller(std::move(units), options, backend), options_json(gnmr::io::write_options(options)) {
    for (auto& list : lists) list.reserve(controller.units().size());
    paths.reserve(controller.units().size());
    gate_flags.reserve(controller.units().size());
    error_limits.reserve(controller.units().size() * controller.backend().sites);
    findings.reserve(controller.units().size());
    clip.reserve(controller.guard() == gnmr::Guard::clip ? controller.units().size() : 0);
  }

  // Views of a plan end with the next call: an early report already plans the step after it.
  void keep(const gnmr::StepPlan& given) {
    keep_list(GNMR_LIST_MEASURE, given.measure);
    paths.assign(given.path.begin(), given.path.end());
    gate_flags.assign(given.gate_flags.begin(), given.gate_flags.end());
    error_limits.assign(given.error_limits.begin(), given.error_limits.end());
    hold = given.hold;
    last_step = given.step;
  }

  // Views of an outcome end with the next call; what a caller may ask for later is kept.
  void keep(const gnmr::Outcome& given) {
    outcome = given;
    findings.assign(given.findings.begin(), given.findings.end());
    clip.assign(given.clip.begin(), given.clip.end());
    keep_list(GNMR_LIST_RISKS, given.alarm.risks);
    if (given.decided_step) keep(given.decision);
  }

  void keep(const gnmr::Decision& given) {
    keep_list(GNMR_LIST_RECOVERED, given.recovered);
    keep_list(GNMR_LIST_ADMITTED, given.admitted);
    keep_list(GNMR_LIST_DENIED, given.denied);
    keep_list(GNMR_LIST_FUTILE, given.futile);
    keep_list(GNMR_LIST_RELEASED, given.released);
    keep_list(GNMR_LIST_STANDING, given.standing);
    keep_list(GNMR_LIST_NEWLY_STANDING, given.newly_standing);
    decision = {.step = given.step, .common = given.common, .recovered_cost = given.recovered_cost};
  }

  // The recoveries of a state that was loaded, as if it had just decided on them.
  void keep_loaded(std::int64_t decided_step) {
    keep(gnmr::Outcome{});
    keep(gnmr::StepPlan{});
    gate.reset();
    gated_step.reset();
    const std::vector<gnmr::UnitState> saved = controller.save().units;
    std::vector<gnmr::UnitIndex> standing;
    gnmr::Decision loaded{.step = decided_step, .recovered = controller.recovered()};
    for (const gnmr::UnitIndex unit : loaded.recovered) {
      loaded.recovered_cost += controller.units()[unit].cost;
      if (gnmr::is_standing(saved[unit].admitted_for)) standing.push_back(unit);
    }
    loaded.standing = standing;
    keep(loaded);
  }

  void keep_list(gnmr_list list, std::span<const gnmr::UnitIndex> units) {
    lists[static_cast<std::size_t>(list)].assign(units.begin(), units.end());
  }

  gnmr::Controller controller;
  std::string options_json;
  std::int64_t last_step = 0;            // that has begun
  std::vector<std::uint8_t> paths;       // in it, per unit; empty: none has begun
  std::vector<std::uint8_t> gate_flags;  // likewise; empty: there is no gate
  std::vector<float> error_limits;       // likewise, units x sites; empty: its gate has none
  gnmr::HoldRule hold = gnmr::HoldRule::never;
  std::optional<gnmr::HostGate> gate;      // lag 1, from the first step on; ahead of the controller's histories
  std::optional<std::int64_t> gated_step;  // that it judged last
  gnmr::Outcome outcome;                   // of the last report; what its views showed is below
  std::vector<gnmr::Finding> findings;
  std::vector<double> clip;
  gnmr::Decision decision;  // the last one; its lists are in `lists`
  std::array<std::vector<gnmr::UnitIndex>, kListCount> lists;
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
  require(plain && unit.reserved == 0, "a unit uses members that this version of the library does not know");
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

// A struct of the caller may be of a later version, with members that this one does not know: they must ask for
// nothing.
template <typename Struct>
Struct read_struct(const Struct* given, const char* name) {
  require(given->struct_size >= sizeof(Struct) && given->struct_size <= 4096, name);
  const char* const bytes = reinterpret_cast<const char*>(given);
  const bool plain =
      std::all_of(bytes + sizeof(Struct), bytes + given->struct_size, [](char byte) { return byte == 0; });
  require(plain && given->reserved == 0, "a struct uses members that this version of the library does not know");
  return *given;
}

gnmr::Backend read_backend(const gnmr_backend* given) {
  if (given == nullptr) return {.can_rerun = false, .can_hold = true, .sites = 0};
  const gnmr_backend read = read_struct(given, "struct_size of the backend cannot be right");
  gnmr::Backend backend{.can_rerun = read.can_rerun != 0, .can_hold = read.can_hold != 0, .sites = read.sites};
  if (read.expected_errors != nullptr && read.sites <= gnmr::kMostSites) {
    backend.expected_errors.assign(read.expected_errors, read.expected_errors + read.sites);
  }
  return backend;
}

gnmr::NormSpan norms_of(const gnmr_report& report) {
  require(report.norms_double == nullptr || report.norms_float == nullptr, "norms_double and norms_float are both set");
  if (report.norms_double != nullptr) return std::span<const double>(report.norms_double, report.unit_count);
  if (report.norms_float != nullptr) return std::span<const float>(report.norms_float, report.unit_count);
  require(report.unit_count == 0 || report.done != GNMR_DONE_COMPLETE, "norms_double and norms_float are NULL");
  return {};
}

gnmr::StepReport read_report(const gnmr_report* given) {
  require(given != nullptr, "the report is NULL");
  const gnmr_report report = read_struct(given, "struct_size of the report cannot be right");
  require(report.done >= GNMR_DONE_COMPLETE && report.done <= GNMR_DONE_DROPPED, "there is no such GNMR_DONE value");
  require(report.errors != nullptr || report.error_count == 0, "errors is NULL");
  gnmr::StepReport read{.step = report.step,
                        .norms = norms_of(report),
                        .done = static_cast<gnmr::Completion>(report.done),
                        .may_rerun = report.may_not_rerun == 0,
                        .held = report.held != 0};
  if (report.sampled != nullptr) read.sampled = {report.sampled, report.unit_count};
  if (report.errors != nullptr) read.errors = {report.errors, report.error_count};
  return read;
}

gnmr_outcome written(const gnmr_controller& controller) {
  const gnmr::Outcome& outcome = controller.outcome;
  return {.struct_size = 0,
          .step = outcome.step,
          .in_force_from = outcome.in_force_from,
          .findings = controller.findings.size(),
          .decided = outcome.decided_step ? 1 : 0,
          .action = static_cast<std::int32_t>(outcome.action),
          .rerun = static_cast<std::int32_t>(outcome.rerun),
          .verdict = static_cast<std::int32_t>(outcome.verdict),
          .alarmed = outcome.alarmed ? 1 : 0,
          .dismissed = outcome.dismissed ? 1 : 0,
          .spent = outcome.spent ? 1 : 0,
          .called = outcome.called ? 1 : 0};
}

const std::vector<gnmr::UnitIndex>& list_of(const gnmr_controller* controller, gnmr_list list) {
  require_controller(controller);
  require(list >= 0 && static_cast<std::size_t>(list) < kListCount, "there is no such list");
  return controller->lists[static_cast<std::size_t>(list)];
}

// Memory of the caller that takes one number per unit.
void require_units(const gnmr_controller* controller, const void* memory, std::size_t count) {
  require_controller(controller);
  require(count == controller->controller.units().size(), "count is not the number of units");
  require(memory != nullptr || count == 0, "the memory to fill is NULL");
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

gnmr_status gnmr_create(const gnmr_unit* units, size_t unit_count, const char* options_json,
                        const gnmr_backend* backend, gnmr_controller** out) {
  return guarded(nullptr, GNMR_ERROR_INPUT, [&] {
    require(out != nullptr, "there is no place for the controller");
    *out = nullptr;
    const gnmr::Backend known = read_backend(backend);
    gnmr::Options options;
    if (options_json != nullptr) {
      std::vector<std::string> named;
      options = gnmr::io::read_options(options_json, {}, &named);
      gnmr::refuse_without_effect(options, known, named);
    }
    *out = new gnmr_controller(read_units(units, unit_count), options, known);
  });
}

void gnmr_destroy(gnmr_controller* controller) { delete controller; }

gnmr_status gnmr_begin(gnmr_controller* controller, int64_t step, gnmr_plan* plan) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(plan == nullptr || plan->struct_size >= sizeof(std::size_t), "struct_size is not set");
    const bool has_gate = controller->controller.options().lag == 1 && controller->controller.backend().can_hold;
    if (has_gate && !controller->gate) controller->gate.emplace(controller->controller);
    const gnmr::StepPlan& made = controller->controller.begin(step);
    controller->keep(made);
    if (plan == nullptr) return;
    hand_out<gnmr_plan>({.struct_size = 0,
                         .step = made.step,
                         .batch = made.batch,
                         .recovered = made.recovered.size(),
                         .measure = made.measure.size(),
                         .pass = static_cast<std::int32_t>(made.pass),
                         .again = made.again ? 1 : 0,
                         .hold = static_cast<std::int32_t>(made.hold),
                         .reserved = 0},
                        plan);
  });
}

gnmr_status gnmr_paths(const gnmr_controller* controller, uint8_t* paths, size_t count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_units(controller, paths, count);
    if (controller->paths.empty() && count > 0) throw gnmr::Error("expected gnmr_begin() before gnmr_paths()");
    std::copy(controller->paths.begin(), controller->paths.end(), paths);
  });
}

gnmr_status gnmr_gate_flags(const gnmr_controller* controller, uint8_t* flags, size_t count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_units(controller, flags, count);
    const std::vector<std::uint8_t>& made = controller->gate_flags;
    if (made.empty() && count > 0) throw gnmr::Error("expected lag 1 and gnmr_begin() before gnmr_gate_flags()");
    std::copy(made.begin(), made.end(), flags);
  });
}

gnmr_status gnmr_error_limits(const gnmr_controller* controller, float* limits, size_t capacity, size_t* count) {
  bool fits = false;
  const gnmr_status status = guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(count != nullptr, "count is NULL");
    require(limits != nullptr || capacity == 0, "limits is NULL");
    const std::vector<float>& made = controller->error_limits;
    *count = made.size();
    fits = made.size() <= capacity;
    if (fits) std::copy(made.begin(), made.end(), limits);
  });
  if (status == GNMR_OK && !fits) return fail(controller, GNMR_ERROR_CAPACITY, "there are more limits than places");
  return status;
}

gnmr_status gnmr_gate_holds(gnmr_controller* controller, const gnmr_report* report, int32_t* held) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(held != nullptr, "held is NULL");
    const gnmr::StepReport read = read_report(report);
    if (controller->gate_flags.empty() || !controller->gate) {
      throw gnmr::Error("expected lag 1, a backend that can hold, and gnmr_begin() before gnmr_gate_holds()");
    }
    if (read.step != controller->last_step) {
      throw gnmr::Error("step " + std::to_string(read.step) + ": the gate judges the step that has begun last, " +
                        std::to_string(controller->last_step));
    }
    if (controller->gated_step == read.step) {
      throw gnmr::Error("step " + std::to_string(read.step) + ": the gate has judged it already");
    }
    const gnmr::StepPlan plan{.step = read.step,
                              .hold = controller->hold,
                              .gate_flags = controller->gate_flags,
                              .error_limits = controller->error_limits};
    *held = controller->gate->holds(plan, read) ? 1 : 0;
    controller->gated_step = read.step;
  });
}

gnmr_status gnmr_report_step(gnmr_controller* controller, const gnmr_report* report, gnmr_outcome* outcome) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(outcome == nullptr || outcome->struct_size >= sizeof(std::size_t), "struct_size is not set");
    controller->keep(controller->controller.report(read_report(report)));
    if (outcome != nullptr) hand_out<gnmr_outcome>(written(*controller), outcome);
  });
}

gnmr_status gnmr_clip(const gnmr_controller* controller, double* coefficients, size_t count) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_units(controller, coefficients, count);
    std::fill_n(coefficients, count, 1.0);
    std::copy(controller->clip.begin(), controller->clip.end(), coefficients);
  });
}

gnmr_status gnmr_findings(const gnmr_controller* controller, gnmr_finding* findings, size_t capacity, size_t* count) {
  bool fits = false;
  const gnmr_status status = guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(count != nullptr, "count is NULL");
    require(findings != nullptr || capacity == 0, "findings is NULL");
    const std::vector<gnmr::Finding>& found = controller->findings;
    *count = found.size();
    fits = found.size() <= capacity;
    for (std::size_t index = 0; fits && index < found.size(); ++index) {
      const gnmr::Finding& one = found[index];
      findings[index] = {.unit = one.unit,
                         .site = one.site,
                         .error = one.error,
                         .excess = one.excess,
                         .kind = GNMR_FINDING_ACUTE,
                         .reserved = 0};
    }
  });
  if (status == GNMR_OK && !fits) return fail(controller, GNMR_ERROR_CAPACITY, "there are more findings than places");
  return status;
}

gnmr_status gnmr_set_mode(gnmr_controller* controller, int32_t mode) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    require(mode >= GNMR_MODE_ARMED && mode <= GNMR_MODE_HIGH, "there is no such mode");
    controller->controller.set_mode(static_cast<gnmr::Mode>(mode));
  });
}

gnmr_status gnmr_get_alarm(const gnmr_controller* controller, gnmr_alarm* out) {
  return guarded(controller, GNMR_ERROR_INPUT, [&] {
    require_controller(controller);
    const gnmr::Alarm& alarm = controller->outcome.alarm;
    hand_out<gnmr_alarm>({.struct_size = 0,
                          .step = alarm.step,
                          .sampled = alarm.sampled,
                          .finite = alarm.finite,
                          .risks = controller->lists[GNMR_LIST_RISKS].size(),
                          .centre = alarm.centre,
                          .common = alarm.common ? 1 : 0,
                          .reserved = 0},
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
                             .standing = lists[GNMR_LIST_STANDING].size(),
                             .newly_standing = lists[GNMR_LIST_NEWLY_STANDING].size(),
                             .recovered_cost = controller->decision.recovered_cost,
                             .common = controller->decision.common ? 1 : 0,
                             .reserved = 0},
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
    require_units(controller, mask, count);
    std::fill_n(mask, count, std::uint8_t{0});
    for (const gnmr::UnitIndex unit : list_of(controller, GNMR_LIST_RECOVERED)) mask[unit] = 1;
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
    gnmr::io::ExtraSections sections;
    // With lag 0 batches have the numbers of their steps, unless steps were left out or an earlier run left some
    // waiting.
    const gnmr::PlanState& plan = controller->controller.plan_state();
    const bool with_batches = plan.next_batch != 0 && plan.next_batch != controller->last_step + 1;
    if (controller->controller.options().lag == 1 || with_batches || !plan.waiting.empty()) {
      gnmr::io::add_plan(controller->controller, with_batches, {}, sections);
    }
    gnmr::io::save_state(path, controller->controller.save(), sections);
  });
}

gnmr_status gnmr_load(gnmr_controller* controller, const char* path, gnmr_load_report* report) {
  return guarded(controller, GNMR_ERROR_FILE, [&] {
    require_controller(controller);
    require(path != nullptr, "the path is NULL");
    require(report == nullptr || report->struct_size >= sizeof(std::size_t), "struct_size is not set");
    const gnmr::io::LoadedState loaded = gnmr::io::load_state(path);
    const gnmr::io::LoadedPlan plan = gnmr::io::read_plan(loaded.extra_sections, controller->controller.units());
    const gnmr::RestoreReport found = controller->controller.restore(loaded.state, plan.plan);
    controller->keep_loaded(loaded.state.last_step);
    if (report == nullptr) return;
    hand_out<gnmr_load_report>({.struct_size = 0,
                                .unknown_units = found.unknown_units.size(),
                                .new_units = found.new_units.size(),
                                .released_units = found.released_units.size(),
                                .beta_changed = found.beta_changed ? 1 : 0,
                                .noise_beta_changed = found.noise_beta_changed ? 1 : 0,
                                .window_changed = found.window_changed ? 1 : 0,
                                .error_beta_changed = found.error_beta_changed ? 1 : 0,
                                .sites_changed = found.sites_changed ? 1 : 0,
                                .reserved = 0},
                               report);
  });
}
