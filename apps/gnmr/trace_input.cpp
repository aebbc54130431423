// SPDX-License-Identifier: Apache-2.0
#include "gnmr/trace_input.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "gnmr/core/message_text.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/units_json.h"

namespace gnmr::app {
namespace {

/// Counts bytes for the progress line, also while a log is read ahead, before its first row.
class WatchedSource : public io::ByteSource {
 public:
  WatchedSource(std::unique_ptr<io::ByteSource> inner, ProgressLine& progress)
      : ByteSource(inner->name()), inner_(std::move(inner)), progress_(progress) {}

  std::size_t read(std::span<char> into) override {
    const std::size_t count = inner_->read(into);
    progress_.update(inner_->bytes_read(), inner_->bytes_total());
    return count;
  }
  bool can_rewind() const override { return inner_->can_rewind(); }
  void rewind() override { inner_->rewind(); }
  std::uint64_t bytes_read() const override { return inner_->bytes_read(); }
  std::uint64_t bytes_total() const override { return inner_->bytes_total(); }

 private:
  std::unique_ptr<io::ByteSource> inner_;
  ProgressLine& progress_;
};

std::string format_help() {
  std::string help = "What the trace is written as:";
  const char* separator = " ";
  for (const io::TraceFormatInfo& info : io::trace_format_names()) {
    help += fmt::format("{}{}", separator, info.name);
    separator = ", ";
  }
  return help + " (recognised by content where not given)";
}

}  // namespace

void add_trace_flags(CLI::App& command, TraceRequest& request) {
  constexpr const char* kGroup = "Input";
  command
      .add_option("--trace,trace", request.path,
                  "Gradient norms: our CSV, a training log, plain or .gz, or a TensorBoard folder; - is standard input")
      ->required()
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--format", request.format, format_help())->type_name("NAME")->group(kGroup);
  command
      .add_option("--fields", request.options.field_pattern,
                  "Which fields of a log are norms: globs such as 'grad_norm*,!*clip*'")
      ->type_name("GLOBS")
      ->group(kGroup);
  command.add_option("--step-field", request.options.step_field, "The field of a log that holds the step")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--run", request.options.run,
                  "Which run of an export of Weights & Biases, or of a folder of TensorBoard runs (its folder)")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_flag("--allow-restart", request.options.allow_restart,
                "Accept step numbers that go back, as in logs of resumed runs; the later rows count")
      ->group(kGroup);
  command.add_option("--units", request.units_path, "Costs and groups of the units (JSON)")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--truth", request.truth_path,
                  "Known faults (CSV like a trace, cells 0 or 1): adds recall, precision and delay")
      ->type_name("FILE")
      ->group(kGroup);
}

void check_trace_flags(TraceRequest& request) {
  request.options.format = with_exit_code(kUsageError, [&] { return io::trace_format_by_name(request.format); });
  if (request.path == "-" && request.truth_path == "-") {
    throw CommandError(kUsageError, "--trace and --truth cannot both be standard input");
  }
}

std::vector<std::string> runs_to_read(const TraceRequest& request) {
  std::error_code ignored;
  // What can be read only once, such as a pipe, is left for the reader; it says where there are several.
  const bool again =
      std::filesystem::is_regular_file(request.path, ignored) || std::filesystem::is_directory(request.path, ignored);
  if (!request.options.run.empty() || !again) return {};
  return io::runs_of_trace(request.path, request.options);
}

std::unique_ptr<io::TraceReader> open_watched_trace(const TraceRequest& request, ProgressLine& progress) {
  std::error_code ignored;
  // A directory is many files; it is small, as event files go.
  if (std::filesystem::is_directory(request.path, ignored)) return io::open_trace(request.path, request.options);
  return io::open_trace(std::make_unique<WatchedSource>(io::open_byte_source(request.path), progress), request.options);
}

std::vector<Unit> units_of_trace(const TraceRequest& request, const std::vector<std::string>& names) {
  if (!request.units_path.empty()) return io::read_units(request.units_path, names);
  std::vector<Unit> units;
  for (const std::string& name : names) units.push_back({.name = name});
  return units;
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "-" || b == "-") return false;
  std::error_code ignored;
  if (std::filesystem::equivalent(a, b, ignored)) return std::filesystem::is_regular_file(a, ignored);
  const auto plain = [&ignored](const std::string& path) { return std::filesystem::weakly_canonical(path, ignored); };
  return !std::filesystem::exists(a, ignored) && plain(a) == plain(b);
}

TruthBeside::TruthBeside(const std::string& path, const std::vector<Unit>& units)
    : reader_(io::open_truth(path)), faulty_(units.size(), 0) {
  std::unordered_map<std::string, std::size_t> column_of;
  for (std::size_t column = 0; column < reader_.units().size(); ++column) column_of[reader_.units()[column]] = column;
  for (const Unit& unit : units) {
    const auto found = column_of.find(unit.name);
    if (found == column_of.end()) throw Error(path + ": expected a column for unit `" + unit.name + "`");
    columns_.push_back(found->second);
    column_of.erase(found);
  }
  if (!column_of.empty()) throw Error(path + ": unit `" + column_of.begin()->first + "` is not in the trace");
  more_ = reader_.next(row_);
}

std::span<const std::uint8_t> TruthBeside::at(std::int64_t step) {
  while (more_ && row_.step < step) {
    ++unmatched_;
    more_ = reader_.next(row_);
  }
  const bool known = more_ && row_.step == step;
  unknown_ += known ? 0 : 1;
  for (std::size_t unit = 0; unit < columns_.size(); ++unit) {
    faulty_[unit] = known ? row_.faulty[columns_[unit]] : std::uint8_t{0};
  }
  if (known) more_ = reader_.next(row_);
  return faulty_;
}

void TruthBeside::finish() {
  for (; more_; more_ = reader_.next(row_)) ++unmatched_;
}

std::vector<std::string> TruthBeside::notes() const {
  std::vector<std::string> notes;
  if (unmatched_ > 0) {
    notes.push_back(counted(unmatched_, "step of the truth is", "steps of the truth are") + " not in the trace");
  }
  if (unknown_ > 0) {
    notes.push_back(counted(unknown_, "step of the trace is", "steps of the trace are") +
                    " not in the truth: free of faults");
  }
  return notes;
}

EvidenceBeside::EvidenceBeside(const std::string& path, const std::vector<Unit>& units)
    : reader_(io::open_trace(path, {.format = io::TraceFormat::csv})), errors_(units.size()) {
  std::unordered_map<std::string, std::size_t> index_of;
  for (std::size_t unit = 0; unit < units.size(); ++unit) index_of[units[unit].name] = unit;
  for (const std::string& name : reader_->units()) {
    // `layers.0.q/forward`: one place of a unit, as `gnmr train --errors` writes it.
    auto found = index_of.find(name);
    if (found == index_of.end()) found = index_of.find(name.substr(0, name.rfind('/')));
    if (found == index_of.end()) throw Error(path + ": unit `" + name + "` is not in the trace");
    units_.push_back(found->second);
  }
  more_ = reader_->next(row_);
}

std::span<const double> EvidenceBeside::at(std::int64_t step) {
  constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
  std::fill(errors_.begin(), errors_.end(), kNotMeasured);
  while (more_ && row_.step < step) more_ = reader_->next(row_);
  if (!more_ || row_.step != step) return errors_;
  for (std::size_t column = 0; column < units_.size(); ++column) {
    if (row_.sampled[column] == 0) continue;
    const double error = row_.norms[column];
    if (std::isnan(error)) continue;
    // Of several places of a unit the worst counts.
    double& worst = errors_[units_[column]];
    measured_ += std::isnan(worst) ? 1U : 0U;
    worst = std::isnan(worst) ? error : std::max(worst, error);
  }
  more_ = reader_->next(row_);
  return errors_;
}

}  // namespace gnmr::app
