// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/supervisor.h"

#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bind.h"
#include "gnmr/io/state_file.h"
#include "values.h"

namespace gnmr::python {
namespace {

using run::RerunContext;
using run::Supervisor;
using Names = std::vector<std::string>;

io::ExistingFile existing_file(std::string_view word) {
  if (word == "refuse") return io::ExistingFile::refuse;
  if (word == "replace") return io::ExistingFile::replace;
  if (word == "resume") return io::ExistingFile::resume;
  throw Error("existing: expected refuse, replace or resume, got `" + std::string(word) + "`");
}

Mode mode_of(std::string_view word) {
  if (const auto mode = io::mode_kind(word)) return *mode;
  throw Error("mode: expected armed, watch or high, got `" + std::string(word) + "`");
}

Completion completion_of(std::string_view word) {
  if (word == "complete") return Completion::complete;
  if (word == "rerun_failed") return Completion::rerun_failed;
  if (word == "dropped") return Completion::dropped;
  throw Error("done: expected complete, rerun_failed or dropped, got `" + std::string(word) + "`");
}

struct Parts {  // the arguments that are neither units nor options
  std::int64_t watch_steps, disarm_after, signals_every, next_step;
  bool watch, can_rerun;
  Names rules, places;
  std::vector<double> expected;
  std::string journal, signals, errors, existing;
};

std::unique_ptr<Supervisor> make(std::vector<Unit> units, const Options& options, const Parts& parts) {
  run::SupervisorSettings settings{.options = options,
                                   .switches = !parts.watch,
                                   .watch_steps = parts.watch_steps,
                                   .rules = run::parse_switch_rules(parts.rules),
                                   .sites = parts.places,
                                   .disarm_after = parts.disarm_after};
  settings.backend = {.can_rerun = parts.can_rerun,
                      .sites = static_cast<std::uint32_t>(std::max<std::size_t>(parts.places.size(), 1)),
                      .expected_errors = parts.expected};
  const run::SupervisorFiles files{.journal = parts.journal,
                                   .signals = parts.signals,
                                   .errors = parts.errors,
                                   .signals_every = parts.signals_every,
                                   .existing = existing_file(parts.existing),
                                   .next_step = parts.next_step};
  return std::make_unique<Supervisor>(std::move(units), settings, files);
}

nb::dict report_of(const RestoreReport& report) {
  nb::dict all;
  all["exact"] = report.exact();
  all["unknown_units"] = report.unknown_units;
  all["new_units"] = report.new_units;
  all["released_units"] = report.released_units;
  Names changed;
  if (report.beta_changed) changed.emplace_back("beta");
  if (report.noise_beta_changed) changed.emplace_back("noise_beta");
  if (report.window_changed) changed.emplace_back("window");
  if (report.error_beta_changed) changed.emplace_back("error_beta");
  if (report.sites_changed) changed.emplace_back("places");
  all["changed"] = changed;
  return all;
}

void bind_rerun_context(nb::module_& module) {
  nb::class_<RerunContext>(module, "RerunContext", "What a step that ran again came to, for the journal.")
      .def(
          "__init__",
          [](RerunContext* self, double loss, double norm, double seconds, bool applied,
             std::optional<double> loss_before, std::optional<double> norm_before, std::optional<double> distance,
             std::optional<std::int64_t> rank) {
            new (self) RerunContext{.loss_before = loss_before,
                                    .loss = loss,
                                    .norm_before = norm_before,
                                    .norm = norm,
                                    .distance = distance,
                                    .seconds = seconds,
                                    .applied = applied,
                                    .rank = rank};
          },
          nb::kw_only(), "loss"_a, "norm"_a, "seconds"_a, "applied"_a, "loss_before"_a = nb::none(),
          "norm_before"_a = nb::none(), "distance"_a = nb::none(), "rank"_a = nb::none());
}

using Class = nb::class_<Supervisor>;

/// What a step needs, in its order.
void bind_steps(Class& supervisor) {
  supervisor
      .def(
          "begin", [](Supervisor& self, std::int64_t step) { return PlanValue(self.begin(step)); }, "step"_a,
          "The step begins, or its rerun where the last report asked for one.")
      .def_prop_ro(
          "high", [](const Supervisor& self) { return copied(self.high()); },
          "The units that run high in the step that has begun, ascending.")
      .def_prop_ro(
          "in_recovery", [](const Supervisor& self) { return copied(self.in_recovery()); },
          "Of these, the ones that nobody but the controller switched; they run what their recipe recovers to.")
      .def(
          "report",
          [](Supervisor& self, std::int64_t step, const std::optional<Doubles>& norms,
             const std::optional<Bytes>& sampled, const std::optional<Doubles>& errors, std::string_view done,
             bool may_rerun, bool held, std::optional<double> loss, std::optional<double> clip,
             const std::optional<RerunContext>& rerun) {
            const StepReport report{.step = step,
                                    .norms = span_of(norms),
                                    .sampled = span_of(sampled),
                                    .errors = span_of(errors),
                                    .done = completion_of(done),
                                    .may_rerun = may_rerun,
                                    .held = held};
            const nb::gil_scoped_release released;
            return OutcomeValue(self.report(report, {.loss = loss, .clip_coefficient = clip, .rerun = rerun}));
          },
          "step"_a, "norms"_a.none(), "sampled"_a = nb::none(), "errors"_a = nb::none(), nb::kw_only(),
          "done"_a = "complete", "may_rerun"_a = true, "held"_a = false, "loss"_a = nb::none(),
          "clip_coefficient"_a = nb::none(), "rerun"_a = nb::none(),
          nb::sig("def report(self, step: int, norms: typing_extensions.Buffer | None, "
                  "sampled: typing_extensions.Buffer | None = None, errors: typing_extensions.Buffer | None = None, *, "
                  "done: str = 'complete', may_rerun: bool = True, held: bool = False, loss: float | None = None, "
                  "clip_coefficient: float | None = None, rerun: RerunContext | None = None) -> Outcome"),
          "Takes what a run of a step measured: what to do with its update, and the decision.");
}

void bind_rest(Class& supervisor) {
  supervisor
      .def(
          "set_mode",
          [](Supervisor& self, std::string_view mode, const std::string& why) { self.set_mode(mode_of(mode), why); },
          "mode"_a, "why"_a, "The kill switch: armed, watch or high, from the next `begin` on.")
      .def_prop_ro("mode", [](const Supervisor& self) { return to_string(self.mode()); })
      .def(
          "set_rules", [](Supervisor& self, const Names& rules) { self.set_rules(run::parse_switch_rules(rules)); },
          "rules"_a,
          "The switchboard, at once for a step that is not reported yet: `GLOB=high@A:B`, steps A to B, both included.")
      .def("is_in_force", &Supervisor::is_in_force, "step"_a,
           "Whether what a step decides is carried out: not in watch, nor in the first steps that are only watched.")
      .def("note", &Supervisor::note, "text"_a, "A remark for the journal.")
      .def("checksum", &Supervisor::checksum,
           "Of what all ranks must have in common before a report: the last decision, what is high, mode and "
           "rules.")
      .def(
          "signals", [](const Supervisor& self, UnitIndex unit) { return self.controller().signals(unit); }, "unit"_a,
          "The signals of one unit in the last report.")
      .def(
          "risks", [](const Supervisor& self) { return copied(self.alarm().risks); },
          "The units at risk by the norms of the last step.")
      .def(
          "mean_norm", [](const Supervisor& self, UnitIndex unit) { return self.controller().mean_norm(unit); },
          "unit"_a, "The mean of the unit's norms so far.")
      .def_prop_ro("units", [](const Supervisor& self) { return self.controller().units(); })
      .def_prop_ro("options", [](const Supervisor& self) { return self.controller().options(); })
      .def_prop_ro(
          "max_recovered", [](const Supervisor& self) { return self.controller().max_recovered(); },
          "At most this many units are in recovery at one time.")
      .def_prop_ro("recovered_count", &Supervisor::recovered_count)
      .def_prop_ro(
          "recovered", [](const Supervisor& self) { return copied(self.controller().recovered()); },
          "The units in recovery by the last decision.")
      .def_prop_ro(
          "standing",
          [](const Supervisor& self) {
            std::vector<UnitIndex> standing;
            const ControllerState state = self.controller().save();
            for (UnitIndex unit = 0; unit < state.units.size(); ++unit) {
              if (state.units[unit].standing_key > 0) standing.push_back(unit);
            }
            return standing;
          },
          "Of these, the units in standing recovery; not for every step, since it copies the state.")
      .def_prop_ro("has_gate", &Supervisor::has_gate, "Steps are settled late: the option `lag` is 1.")
      .def_prop_ro("dropped", &Supervisor::dropped, "Journal lines and signal rows that the disk did not take.")
      .def(
          "save",
          [](const Supervisor& self) {
            const std::string bytes = self.save();
            return nb::bytes(bytes.data(), bytes.size());
          },
          "Everything that the next decisions depend on.")
      .def(
          "restore",
          [](Supervisor& self, const nb::bytes& state) {
            return report_of(self.restore(std::string(state.c_str(), state.size())));
          },
          nb::sig("def restore(self, state: bytes) -> dict[str, object]"), "state"_a,
          "Takes it over; the report says what changed.")
      .def_static(
          "options_in",
          [](const nb::bytes& state) {
            const std::string_view bytes(state.c_str(), state.size());
            return io::decode_state(std::as_bytes(std::span(bytes))).state.options;
          },
          "state"_a, "The options that a saved state was made with.")
      .def(
          "flush",
          [](Supervisor& self, double seconds) {
            return self.flush(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
          },
          "seconds"_a = 2.0, nb::call_guard<nb::gil_scoped_release>(),
          "Waits until all that was reported is with the operating system; whether it is.")
      .def("close", &Supervisor::close, nb::call_guard<nb::gil_scoped_release>(),
           "Ends the files; whether all was written.");
}

}  // namespace

void bind_supervisor(nb::module_& module) {
  bind_rerun_context(module);
  Class supervisor(module, "Supervisor",
                   "The controller in a training loop: who runs high in the next step, and why. It belongs to one "
                   "thread at a time.");
  supervisor.def(nb::new_([](std::vector<Unit> units, const Options& options, bool watch, std::int64_t watch_steps,
                             Names rules, Names places, std::vector<double> expected, bool can_rerun,
                             std::int64_t disarm_after, std::string journal, std::string signals, std::string errors,
                             std::int64_t signals_every, std::string existing, std::int64_t next_step) {
                   return make(std::move(units), options,
                               {.watch_steps = watch_steps,
                                .disarm_after = disarm_after,
                                .signals_every = signals_every,
                                .next_step = next_step,
                                .watch = watch,
                                .can_rerun = can_rerun,
                                .rules = std::move(rules),
                                .places = std::move(places),
                                .expected = std::move(expected),
                                .journal = std::move(journal),
                                .signals = std::move(signals),
                                .errors = std::move(errors),
                                .existing = std::move(existing)});
                 }),
                 "units"_a, "options"_a = Options{}, nb::kw_only(), "watch"_a = false, "watch_steps"_a = 0,
                 "rules"_a = Names{}, "places"_a = Names{}, "expected"_a = std::vector<double>{}, "can_rerun"_a = false,
                 "disarm_after"_a = 0, "journal"_a = "", "signals"_a = "", "errors"_a = "", "signals_every"_a = 1,
                 "existing"_a = "refuse", "next_step"_a = 1,
                 "Units in forward order. `places` names the errors that a trial measures of each unit.");
  bind_steps(supervisor);
  bind_rest(supervisor);
}

}  // namespace gnmr::python
