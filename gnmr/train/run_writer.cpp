// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/run_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gnmr/core/error.h"

namespace gnmr::train {

RunWriter::RunWriter(const run::TrainSettings& settings, run::TrainObserver& observer, bool writes)
    : settings_(settings), observer_(observer), writes_(writes), folder_(settings.out) {
  if (writes_) locks_.emplace_back(folder_, settings_.resume);
  info_.id = run::new_run_id();
}

void RunWriter::continue_run() {
  const run::RunInfo earlier = run::load_run_info(folder_);
  info_.id = earlier.id;
  std::string changed;
  for (const std::string& name : run::changed_on_resume(earlier.settings, settings_)) {
    changed += (changed.empty() ? "" : ", ") + name;
  }
  if (!changed.empty()) {
    throw Error(folder_.run_json() + ": the run was begun with other settings (" + changed +
                "); go on with the same ones, or begin another run with another --out");
  }
}

void RunWriter::begin(run::RunInfo info) {
  info.id = info_.id;
  info_ = std::move(info);
  if (writes_) run::save_run_info(folder_, info_);
}

void RunWriter::open(const WriterColumns& columns) {
  if (!writes_) return;
  std::vector<std::string> places;
  for (const Unit& unit : columns.units) {
    unit_names_.push_back(unit.name);
    for (std::size_t product = 0; product < nn::kProductCount; ++product) {
      places.push_back(unit.name + "/" + std::string(to_string(static_cast<nn::Product>(product))));
    }
  }
  const std::int64_t first = columns.first_step;
  metrics_.emplace(run::MetricsSettings{.path = folder_.metrics(), .existing = existing(), .resume_step = first});
  if (settings_.evidence) evidence_.emplace(folder_.evidence(), existing());
  if (columns.norms) norms_.emplace(folder_.trace("norms", first), unit_names_);
  if (columns.errors) errors_.emplace(folder_.trace("errors", first), places);
}

CheckpointStore RunWriter::checkpoints() const {
  return CheckpointStore(folder_.checkpoints(), settings_.keep_checkpoints, info_.id);
}

void RunWriter::write(const run::TrainLine& line) {
  if (metrics_) metrics_->write(line);
}

void RunWriter::write(const run::EvalLine& line) {
  if (metrics_) metrics_->write(line);
}

void RunWriter::write_norms(std::int64_t step, std::span<const double> norms, std::span<const std::uint8_t> sampled) {
  if (norms_) norms_->write(step, norms, sampled);
}

void RunWriter::write_errors(std::int64_t step, std::span<const double> errors) {
  if (!errors_ || errors.empty()) return;
  std::vector<std::uint8_t> measured;
  for (const double error : errors) measured.push_back(std::isnan(error) ? 0 : 1);
  errors_->write(step, errors, measured);
}

void RunWriter::write_evidence(std::int64_t step, std::span<const UnitIndex> units,
                               std::span<const nn::CastEvidence> casts) {
  if (!evidence_ || casts.empty()) return;
  for (const UnitIndex unit : units) {
    if (!casts[unit].measured) continue;
    evidence_->write({.step = step,
                      .unit = unit_names_[unit],
                      .relative_error = casts[unit].relative_error,
                      .saturated = casts[unit].saturated,
                      .flushed = casts[unit].flushed});
  }
}

void RunWriter::check_folder(std::int64_t step) {
  if (!writes_ || !locks_.back().is_gone()) return;
  if (lost_folder_.empty()) {
    lost_folder_ = folder_.path() + " was removed, renamed or replaced during the run (noticed at step " +
                   std::to_string(step) + "): journal, metrics and older checkpoints are not there any more";
    observer_.noted("WARNING: " + lost_folder_);
  }
  make_folder_again();
}

void RunWriter::make_folder_again() {
  try {
    locks_.emplace_back(folder_, false);
    run::save_run_info(folder_, info_);
  } catch (const Error& error) {
    lost_why_ = error.what();
  }
}

void RunWriter::flush() {
  if (metrics_) metrics_->flush(kLongestWait);
  if (evidence_) evidence_->flush(kLongestWait);
  if (errors_) errors_->flush();
  if (norms_) norms_->flush();
}

std::string RunWriter::save(const CheckpointParts& parts, bool is_last,
                            const std::function<void(const std::string&)>& warn) {
  if (!writes_) return {};
  // The run's files hold at least what the checkpoint has seen: a run that is resumed supersedes the rest.
  flush();
  const CheckpointStore store = checkpoints();
  const std::chrono::seconds longest{is_last ? settings_.checkpoint_retry
                                             : std::min<std::int64_t>(settings_.checkpoint_retry, 1)};
  const auto obstacle = [&]() -> std::string {
    check_folder(parts.info.step);
    return locks_.back().is_gone() ? folder_.path() + " is no longer this run's: " + lost_why_ : "";
  };
  const std::string failure = save_patiently(store, parts, longest, warn, obstacle);
  if (failure.empty()) return {};
  const std::string newest = locks_.back().is_gone() ? "" : store.newest_text();
  const std::string stake =
      newest.empty() ? "no step of this run is saved" : "the newest good checkpoint is that of " + newest;
  if (!is_last) {
    warn(failure + "; training continues, but " + stake + ": what came after it is lost if the run ends before the " +
         "next checkpoint is written");
  }
  return failure + "; " + stake + (newest.empty() ? "" : "; make room, then continue with --resume");
}

void RunWriter::undo_start() {
  // What the next start would take for a run.
  if (writes_ && !settings_.resume) folder_.remove_start();
}

std::uint64_t RunWriter::close() {
  std::uint64_t dropped = 0;
  if (evidence_) {
    evidence_->close();
    dropped += evidence_->dropped();
  }
  if (metrics_) {
    metrics_->close();
    dropped += metrics_->dropped();
  }
  return dropped;
}

std::string RunWriter::lost_folder_text() const {
  if (lost_folder_.empty()) return {};
  const std::string newest = CheckpointStore(folder_.checkpoints(), 0, info_.id).newest_text();
  return lost_folder_ + (newest.empty() ? "" : "; --resume continues from " + newest);
}

}  // namespace gnmr::train
