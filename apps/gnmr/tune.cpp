// SPDX-License-Identifier: Apache-2.0
// `gnmr tune`: which thresholds suit a recorded run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/commands.h"
#include "gnmr/core/controller.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/html_output.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/option_flags.h"
#include "gnmr/report/sweep_page.h"
#include "gnmr/trace_input.h"
#include "gnmr/tune_table.h"

namespace gnmr::app {
namespace {

constexpr std::int64_t kMostThreads = 4096;

struct TuneArguments {
  TraceRequest input;
  OptionFlags flags;
  std::string evidence_path;
  double expected_error = 0;
  lab::TuneRule rule;
  std::string out_path;
  std::string write_path;
  std::size_t rows = 12;
  unsigned threads = 0;
  bool every_replay = false;
  bool json = false;
  bool quiet = false;
};

/// What is wrong with the flags is said before anything is read.
void check(const TuneArguments& arguments) {
  const auto refuse = [](const std::string& what) { throw CommandError(kUsageError, what); };
  if (arguments.rule.healthy && !arguments.input.truth_path.empty()) {
    refuse("--healthy and --truth: a run whose faults are known is judged by them");
  }
  if (arguments.input.path == "-" && arguments.evidence_path == "-") {
    refuse("--trace and --evidence cannot both be standard input");
  }
  if (arguments.expected_error > 0 && arguments.evidence_path.empty()) refuse("--expected-error needs --evidence");
  for (const auto& [flag, output] : {std::pair("--out", &arguments.out_path), {"--write", &arguments.write_path}}) {
    for (const std::string* input :
         {&arguments.input.path, &arguments.input.truth_path, &arguments.input.units_path, &arguments.evidence_path}) {
      if (is_same_file(*output, *input)) refuse(fmt::format("{} is an input: {}", flag, *output));
    }
  }
  if (is_same_file(arguments.out_path, arguments.write_path)) refuse("--out and --write are the same file");
  if (!arguments.out_path.empty() && arguments.out_path != "-") refuse_to_replace_other_files(arguments.out_path);
  std::error_code ignored;
  if (!arguments.write_path.empty() && std::filesystem::exists(arguments.write_path, ignored)) {
    with_exit_code(kUsageError, [&] {
      try {
        io::read_options_file(arguments.write_path);
      } catch (const Error&) {
        throw Error(arguments.write_path + ": is there and holds no options: name another file for --write");
      }
    });
  }
}

/// A log is replayed by norms, and with --evidence by errors too; nothing is held or run again. What a --config file
/// names besides goes on to the file that --write writes.
void refuse_options_without_effect(const TuneArguments& arguments) {
  Options tried = arguments.flags.options();
  Backend backend = norms_only();
  if (!arguments.evidence_path.empty()) {
    tried.selector = Selector::evidence;
    backend.sites = 1;
    backend.expected_errors = {arguments.expected_error};
  }
  if (tried.noise_factor == 0) tried.noise_factor = 1;  // others are tried too
  with_exit_code(kUsageError, [&] { refuse_without_effect(tried, backend, arguments.flags.named_by_flags()); });
}

/// A file for --config: no run refuses what is in it, since options that would have no effect are left out.
std::string options_file(const Options& options) {
  const Backend measures_all{.can_rerun = true, .sites = 1, .expected_errors = {1}};
  io::JsonText text;
  text.object([&] {
    for (const OptionSpec& spec : option_specs()) {
      if (!why_without_effect(spec.name, options, measures_all).empty()) continue;
      const std::string value = io::option_text(spec, spec.get(options));
      spec.is_word() ? text.key(spec.name).text(value) : text.key(spec.name).plain(value);
    }
  });
  return text.str() + "\n";
}

/// Reads the run in blocks, each replayed under all candidates.
class RunReader {
 public:
  RunReader(const TuneArguments& arguments, const std::vector<Unit>& units) : units_(units.size()) {
    if (!arguments.input.truth_path.empty()) truth_.emplace(arguments.input.truth_path, units);
    if (!arguments.evidence_path.empty()) evidence_.emplace(arguments.evidence_path, units);
    // Some megabytes: enough to keep threads busy, little enough for any machine.
    most_rows_ = std::clamp<std::size_t>((std::size_t{1} << 21U) / std::max<std::size_t>(units_, 1), 1, 4096);
  }

  /// Fills `block`; false where there was nothing left.
  bool next(io::TraceReader& trace, lab::TuneBlock& block) {
    block.clear();
    io::TraceRow row;
    while (block.steps.size() < most_rows_ && trace.next(row)) {
      block.steps.push_back(row.step);
      block.norms.insert(block.norms.end(), row.norms.begin(), row.norms.end());
      block.sampled.insert(block.sampled.end(), row.sampled.begin(), row.sampled.end());
      if (evidence_) append(block.evidence, evidence_->at(row.step));
      if (truth_) append(block.faulty, truth_->at(row.step));
    }
    return !block.steps.empty();
  }

  /// What a user should know, when all has been read. An `Error` where the evidence says nothing at all.
  std::vector<std::string> finish(const std::string& evidence_path) {
    if (evidence_ && evidence_->measured() == 0) throw Error(evidence_path + ": nothing was measured in these steps");
    if (!truth_) return {};
    truth_->finish();
    return truth_->notes();
  }

 private:
  template <typename Value>
  static void append(std::vector<Value>& to, std::span<const Value> values) {
    to.insert(to.end(), values.begin(), values.end());
  }

  std::size_t units_;
  std::size_t most_rows_ = 1;
  std::optional<TruthBeside> truth_;
  std::optional<EvidenceBeside> evidence_;
};

std::string run_name(const std::string& path) {
  return path == "-" ? std::string("standard input") : std::filesystem::path(path).filename().string();
}

TuneOutcome sweep(const TuneArguments& arguments, ProgressLine& progress, std::vector<std::string>& notes) {
  TuneOutcome outcome{
      .run = run_name(arguments.input.path), .given = arguments.flags.options(), .rule = arguments.rule};
  outcome.rule.truth = !arguments.input.truth_path.empty();
  const auto reading = [](auto body) { return with_exit_code(kInputError, body); };
  const auto trace = reading([&] { return open_watched_trace(arguments.input, progress); });
  const std::vector<Unit> units = reading([&] { return units_of_trace(arguments.input, trace->units()); });
  outcome.units = units.size();
  const auto forced = std::count_if(units.begin(), units.end(), [](const Unit& unit) { return unit.forced; });
  const ExitCode blame = arguments.input.units_path.empty() ? kUsageError : kInputError;
  std::optional<lab::Tuner> tuner;
  with_exit_code(blame, [&] {
    const lab::TuneGridSettings grid{
        .budget = Controller(units, outcome.given, norms_only()).max_recovered(),
        .units = static_cast<std::uint32_t>(units.size() - static_cast<std::size_t>(forced)),
        .evidence = !arguments.evidence_path.empty(),
        .expected_error = arguments.expected_error};
    tuner.emplace(
        units, lab::tune_grid(outcome.given, grid),
        lab::TunerSettings{
            .truth = outcome.rule.truth, .expected_error = arguments.expected_error, .threads = arguments.threads});
  });
  RunReader reader = reading([&] { return RunReader(arguments, units); });
  lab::TuneBlock block;
  while (reading([&] { return reader.next(*trace, block); })) {
    tuner->add(block);
    outcome.steps += block.steps.size();
    progress.set_steps(outcome.steps);
  }
  notes = reading([&] { return reader.finish(arguments.evidence_path); });
  for (const std::string& note : trace->notes()) notes.push_back(note);
  if (outcome.steps == 0) throw CommandError(kInputError, arguments.input.path + ": has no steps");
  outcome.results = tuner->results();
  lab::mark_best(outcome.results, outcome.rule.truth);
  outcome.choice = lab::choose_options(outcome.results, outcome.given, outcome.rule);
  return outcome;
}

int tune(TuneArguments& arguments) {
  check_trace_flags(arguments.input);
  check(arguments);
  refuse_options_without_effect(arguments);
  ProgressLine progress(stderr, !arguments.quiet);
  std::vector<std::string> notes;
  const TuneOutcome outcome = sweep(arguments, progress, notes);
  progress.clear();
  if (!arguments.quiet) {
    for (const std::string& note : notes) say("note: " + printable(note));
  }
  with_exit_code(kOutputError, [&] {
    if (!arguments.write_path.empty()) {
      io::replace_file(arguments.write_path, options_file(outcome.choice.options));
    }
    if (arguments.out_path.empty()) return;
    const std::string page = report::sweep_html(tune_page(outcome, "gnmr " GNMR_VERSION));
    if (arguments.out_path == "-") {
      put(stdout, page);
    } else {
      io::replace_file(arguments.out_path, page);
    }
  });
  if (arguments.out_path == "-") return kOk;
  put(stdout, arguments.json ? tune_json(outcome) : tune_text(outcome, arguments.rows, arguments.every_replay));
  return kOk;
}

constexpr const char* kTuneFooter =
    "The run is replayed under a grid round the given options: tau - 1, delta_tau and fall_tau times 0.5 to 2.8,\n"
    "noise_factor halved and doubled, lock_steps, max_o; with --evidence also error_factor, and with\n"
    "--expected-error also error_ceiling. At most 200 replays, in one pass over the file. A recorded run does not\n"
    "answer to recovery, so futile recoveries are an upper bound.\n\n"
    "How it chooses:\n"
    "  --truth    the highest F-score of precision and recall; ties: fewer recoveries, smaller share, fewer\n"
    "             changes\n"
    "  --healthy  the most sensitive (columns `sees`) whose risks outside common steps (column `own`) stay within\n"
    "             --rate a thousand unit-steps: in a healthy run each is a false alarm. lock_steps and max_o stay\n"
    "             as given\n"
    "  neither    the same, but the rate is that of the calmest nine tenths of the run (column `calm`), since some\n"
    "             risks may be right\n"
    "Where nothing stays within the rate: the lowest rate. The selector is never chosen. Thresholds of norms come\n"
    "from replays by norms, those of errors from replays by evidence.\n\n"
    "Examples:\n"
    "  gnmr tune norms.csv --healthy --write options.json      then: gnmr train --config options.json\n"
    "  gnmr tune norms.csv --truth faults.csv --out tune.html\n"
    "  gnmr tune norms.csv --evidence errors.csv --expected-error 0.026 --truth faults.csv\n"
    "  gnmr tune train.log.gz --rate 0.1 --all\n\n";

void add_output_flags(CLI::App& command, TuneArguments& arguments) {
  constexpr const char* kGroup = "Output";
  command.add_option("-o,--out", arguments.out_path, "Write a page with charts and all replays; - is standard output")
      ->type_name("FILE.html")
      ->group(kGroup);
  command.add_option("--write", arguments.write_path, "Write the chosen options, as a file for --config")
      ->type_name("FILE.json")
      ->group(kGroup);
  add_whole(command, "--rows", [&arguments](std::int64_t rows) { arguments.rows = static_cast<std::size_t>(rows); },
            "Best replays in the table, of each selector [12]; 0: all of them", {.low = 0})
      ->group(kGroup);
  command.add_flag("--all", arguments.every_replay, "All replays in the table")->group(kGroup);
  command.add_flag("--json", arguments.json, "Print everything as one line of JSON")->group(kGroup);
  command.add_flag("-q,--quiet", arguments.quiet, "Print no notes or progress")->group(kGroup);
}

}  // namespace

void add_tune_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("tune", "Which thresholds suit my run? Replays it under many");
  const auto arguments = std::make_shared<TuneArguments>();
  add_trace_flags(*command, arguments->input);
  command
      ->add_option("--evidence", arguments->evidence_path,
                   "Errors of low paths (CSV like a trace, one number per unit and step; empty or nan: not measured)")
      ->type_name("FILE")
      ->group("Input");
  add_amount(*command, "--expected-error", arguments->expected_error,
             "What the format does to data that fits it, of the same kind as the evidence [0: not known]")
      ->group("Input");
  command->add_flag("--healthy", arguments->rule.healthy, "Nothing was wrong with this run")->group("Choice");
  add_amount(*command, "--rate", arguments->rule.rate, "Risks per thousand unit-steps that are few enough [0.5]")
      ->group("Choice");
  add_whole(*command, "--threads", [arguments](std::int64_t n) { arguments->threads = static_cast<unsigned>(n); },
            "Replays at a time [as many as cores]", {.low = 1, .high = kMostThreads})
      ->group("Choice");
  add_output_flags(*command, *arguments);
  arguments->flags.add_to(*command);
  command->footer(std::string(kTuneFooter) + kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return tune(*arguments); }; });
}

}  // namespace gnmr::app
