// SPDX-License-Identifier: Apache-2.0
#include "report/sample_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "gnmr/core/controller.h"
#include "gnmr/io/journal_writer.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/signals_file.h"

namespace gnmr::test {
namespace {

namespace fs = std::filesystem;

constexpr int kUnitsPerLayer = 7;
constexpr std::int64_t kBudget = 3;

/// Steps in which a unit's low path goes wrong.
struct Fault {
  std::size_t unit;
  std::int64_t first, last;
  double factor;  // of the norm; infinite: an overflow
  bool helped_by_high = true;
};

std::vector<Fault> sample_faults(std::size_t units) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {{units / 4, 45, 58, 6.0},     {units / 2 + 1, 80, 82, kInfinity}, {units / 2 + 3, 81, 95, 4.0},
          {units / 2 + 5, 82, 95, 9.0}, {units - 6, 83, 96, 5.0},           {units - 3, 84, 94, 3.5},
          {units - 2, 130, 150, 0.15},  {2, 150, 175, 7.0, false},          {units - 1, 192, 200, 5.5}};
}

std::vector<Unit> sample_units(const SampleRun& sample) {
  constexpr std::array<const char*, kUnitsPerLayer> kNames{"attention.q", "attention.k", "attention.v", "attention.out",
                                                           "mlp.gate",    "mlp.up",      "mlp.down"};
  std::vector<Unit> units;
  for (int layer = 0; layer < sample.layers; ++layer) {
    for (const char* const name : kNames) {
      units.push_back({.name = fmt::format("layers.{}.{}", layer, name), .cost = 4096});
    }
  }
  if (!sample.odd_unit_name.empty()) units.front().name = sample.odd_unit_name;
  return units;
}

/// A number as the trainer writes it.
std::string json_number(double value) {
  std::string text;
  io::append_json_number(text, value);
  return text;
}

class SampleWriter {
 public:
  SampleWriter(const std::string& directory, const SampleRun& sample)
      : sample_(sample), directory_(directory), units_(sample_units(sample)), random_(sample.seed + 17) {
    fs::create_directories(directory_);
    if (sample.with_faults) faults_ = sample_faults(units_.size());
  }

  void write() {
    write_info();
    std::ofstream metrics(directory_ / "metrics.jsonl", std::ios::binary);
    Options options;
    options.max_o = kBudget;
    Controller controller(units_, options, norms_only());
    const bool journaled = sample_.controller != "none";
    const auto existing = io::ExistingFile::replace;
    io::SignalsWriter signals({.path = (directory_ / "signals.bin").string(),
                               .unit_count = units_.size(),
                               .existing = existing,
                               .in_background = false});
    std::unique_ptr<io::JournalWriter> journal;
    if (journaled) {
      journal = std::make_unique<io::JournalWriter>(io::JournalSettings{
          .path = (directory_ / "journal.jsonl").string(), .existing = existing, .in_background = false});
      journal->header(units_, options, "2026-03-01T09:00:00Z");
      journal->mode({.mode = sample_.controller == "watch" ? Mode::watch : Mode::armed, .why = "as configured"});
    }
    if (sample_.with_errors) write_errors();
    std::vector<UnitIndex> high;
    for (std::int64_t step = 1; step <= sample_.steps; ++step) {
      const std::vector<double> norms = norms_of(step, high);
      controller.begin(step);
      const Outcome& outcome = controller.report({.step = step, .norms = norms});
      signals.write(step, controller);
      const Decision& decision = outcome.decision;
      const double loss = loss_at(step, norms);
      if (journal && sample_.with_trials) write_trial(*journal, step, loss);
      if (journal) journal->step(controller, outcome.alarm, decision, {.loss = loss, .clip_coefficient = 0.8});
      write_metrics(metrics, step, loss, norms, high.size());
      high.clear();
      if (sample_.controller == "gnmr") high.assign(decision.recovered.begin(), decision.recovered.end());
    }
    if (journal) journal->note("the learning rate was lowered by hand");
    if (sample_.with_faults) write_faults();
  }

 private:
  /// Verdicts as a trial would find them; what is not told of a verdict is left out.
  void write_trial(io::JournalWriter& journal, std::int64_t step, double loss) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto name = [&](std::size_t unit) { return units_[unit].name; };
    io::JournalTrial trial{.step = step, .losses = {loss + 1.5, loss}, .seconds = 0.25, .applied = true};
    if (step == 45) {
      trial.verdict = "numeric";
      trial.units = {name(units_.size() / 4 - 1), name(units_.size() / 4)};
      trial.places = {"input_gradient", "forward"};
      trial.errors = {0.09, 0.3125};
      trial.excesses = {1.2, 4};
      trial.distance = 0.625;
      trial.norms = {2.5, 0.75};
    } else if (step == 80) {
      trial.verdict = "numeric";
      trial.units = {name(units_.size() / 2 + 1)};
      trial.errors = {kInfinity};
      trial.excesses = {kInfinity};
      trial.losses = {kInfinity, loss};
      trial.distance = kInfinity;
    } else if (step == 120) {
      trial.verdict = "common";
      trial.distance = 0.01;
    } else if (step == 130) {
      trial.verdict = "unlocated";
      trial.rank = 3;
      trial.applied = false;
    } else if (step == 192) {
      trial.verdict = "none";
      trial.rerun = "replay";
      trial.distance = 0.05;
    } else {
      return;
    }
    journal.trial(trial);
  }

  /// In each step a third of the units is measured. One unit has ten steps of trouble, one is chronic in one GEMM.
  void write_errors() const {
    constexpr std::size_t kGemms = 3;
    io::SignalsWriter errors({.path = (directory_ / "errors.bin").string(),
                              .unit_count = units_.size(),
                              .sites = kGemms,
                              .existing = io::ExistingFile::replace,
                              .in_background = false});
    for (std::int64_t step = 1; step <= sample_.steps; ++step) {
      std::vector<double> row(kGemms * units_.size(), std::numeric_limits<double>::quiet_NaN());
      for (auto unit = static_cast<std::size_t>(step) % 3; unit < units_.size(); unit += 3) {
        for (std::size_t gemm = 0; gemm < kGemms; ++gemm) {
          double& error = row[kGemms * unit + gemm];
          error = 0.02 + 0.01 * static_cast<double>(gemm) + 0.001 * static_cast<double>((unit * 7 + gemm) % 5);
          if (unit == kChronicUnit && gemm == 1) error = 0.3;
          if (unit == 5 && step >= 100 && step < 110) error = 0.8;
        }
      }
      errors.write(step, row);
    }
  }

  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

  void write_info() {
    std::string text = "{\"version\":1,\"label\":";
    io::append_json_string(text, sample_.label);
    text += fmt::format(
        ",\"program\":\"gnmr 0.1.0\",\"model\":{{\"name\":\"nano\",\"parameters\":1234567,\"layers\":{}}},"
        "\"recipe\":\"fp8-delayed\",\"controller\":\"{}\",\"preset\":\"default\",\"granularity\":\"layer\","
        "\"steps\":{},\"seed\":{},\"batch_tokens\":2048,\"units\":{},\"budget\":{},\"started\":\"2026-03-01T09:00:"
        "00Z\","
        "\"weather\":\"sunny\"",
        sample_.layers, sample_.controller, sample_.planned_steps, sample_.seed, units_.size(), kBudget);
    if (sample_.with_faults) text += ",\"faults\":\"saturate+overflow, injected\"";
    std::ofstream(directory_ / "run.json", std::ios::binary) << text << "}\n";
  }

  std::vector<double> norms_of(std::int64_t step, const std::vector<UnitIndex>& high) {
    std::vector<double> norms(units_.size());
    for (std::size_t unit = 0; unit < norms.size(); ++unit) {
      const double usual = 0.1 + 0.02 * static_cast<double>(unit % kUnitsPerLayer);
      norms[unit] = usual * (1 + 3 / static_cast<double>(step)) * (0.85 + 0.3 * uniform());
    }
    for (const Fault& fault : faults_) {
      const bool is_high = std::find(high.begin(), high.end(), static_cast<UnitIndex>(fault.unit)) != high.end();
      if (step >= fault.first && step <= fault.last && !(is_high && fault.helped_by_high)) {
        norms[fault.unit] *= fault.factor;
      }
    }
    return norms;
  }

  double loss_at(std::int64_t step, const std::vector<double>& norms) {
    double hurt = 0;
    for (const double norm : norms) hurt += std::isfinite(norm) ? std::max(0.0, norm - 0.5) * 0.15 : 0.0;
    const double done = static_cast<double>(step) / 200.0;
    return 2.2 + 3.3 * std::exp(-5 * done) + sample_.loss_penalty * done + hurt + 0.08 * (uniform() - 0.5);
  }

  void write_metrics(std::ofstream& out, std::int64_t step, double loss, const std::vector<double>& norms,
                     std::size_t recovered) {
    double squares = 0;
    for (const double norm : norms) squares += norm * norm;
    const double norm = std::sqrt(squares);
    const bool applied = std::isfinite(norm);
    out << fmt::format(
        "{{\"kind\":\"train\",\"step\":{},\"loss\":{},\"lr\":0.001,\"grad_norm\":{},\"clip\":0.8,\"applied\":{},"
        "\"tokens\":2048,\"seconds\":0.11,\"recovered\":{},\"high\":{},\"standing\":0,\"rerun_high\":{}}}\n",
        step, applied ? json_number(loss) : "\"nan\"", json_number(norm), applied, recovered, recovered,
        sample_.with_trials && step == 45 ? units_.size() : 0);
    if (step % 25 != 0) return;
    const double base = 2.25 + 3.2 * std::exp(-5 * static_cast<double>(step) / 200.0) +
                        sample_.loss_penalty * static_cast<double>(step) / 200.0;
    out << fmt::format("{{\"kind\":\"eval\",\"step\":{},\"loss_high\":{:.4f},\"loss_low\":{:.4f}}}\n", step, base,
                       base + 0.06);
  }

  void write_faults() {
    std::ofstream out(directory_ / "faults.csv", std::ios::binary);
    out << "step";
    for (const Unit& unit : units_) {
      std::string name = unit.name;
      for (std::size_t at = 0; (at = name.find('"', at)) != std::string::npos; at += 2) name.insert(at, 1, '"');
      out << ",\"" << name << '"';
    }
    out << '\n';
    for (std::int64_t step = 1; step <= sample_.steps; ++step) {
      out << step;
      for (std::size_t unit = 0; unit < units_.size(); ++unit) {
        const bool faulty = std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
          return fault.unit == unit && step >= fault.first && step <= fault.last;
        });
        out << (faulty ? ",1" : ",0");
      }
      out << '\n';
    }
  }

  SampleRun sample_;
  fs::path directory_;
  std::vector<Unit> units_;
  std::vector<Fault> faults_;
  std::mt19937 random_;
};

constexpr const char* kSuite = R"json({"version":1,"title":"Nano model with injected faults",
"notes":["Faults were injected into the low path of nine units.","Held-out text: 64 thousand tokens."],"seeds":[SEEDS],
"arms":[{"name":"high","label":"high precision","about":"every unit in bfloat16: what low precision is compared with"},
{"name":"fp8","label":"fp8","about":"every unit in FP8, nothing watches"},
{"name":"watch","label":"fp8, watched","about":"the controller decides, but nothing is carried out"},
{"name":"gnmr","label":"fp8 + gnmr","about":"units at risk are sent to high precision, three at a time at most"}]}
)json";

constexpr const char* kSummary = R"json({"version":1,"columns":[
{"key":"loss","title":"held-out loss","help":"mean over seeds, with its standard error"},
{"key":"gap_closed","title":"gap closed","help":"0: as bad as plain fp8; 1: as good as high precision"},
{"key":"skipped","title":"skipped updates","help":"updates that were not applied, of all steps"},
{"key":"time","title":"time","help":"seconds a step, relative to high precision"}],
"rows":[{"arm":"high","cells":{"loss":{"text":"2.273 ± 0.004","value":2.273},"skipped":{"text":"0","value":0},
"time":{"text":"1.00"}}},
{"arm":"fp8","cells":{"loss":{"text":"2.671 ± 0.021","value":2.671},
"gap_closed":{"text":"0% [-4, 4]","value":0,"low":-0.04,"high":0.04},
"skipped":{"text":"1.5 %"},"time":{"text":"0.71"}}},
{"arm":"watch","cells":{"loss":{"text":"2.669 ± 0.020","value":2.669},
"gap_closed":{"text":"1% [-5, 6]","value":0.01,"low":-0.05,"high":0.06},"time":{"text":"0.72"}}},
{"arm":"gnmr","cells":{"loss":{"text":"2.301 ± 0.006","value":2.301},
"gap_closed":{"text":"93% [88, 97]","value":0.93,"low":0.88,"high":0.97},"skipped":{"text":"0.5 %"},
"time":{"text":"0.74"}}}],
"notes":["The gap is that of two seeds."]}
)json";

}  // namespace

void write_sample_run(const std::string& directory, const SampleRun& sample) {
  SampleWriter(directory, sample).write();
}

void write_sample_suite(const std::string& directory, const std::vector<std::uint32_t>& seeds) {
  const fs::path root(directory);
  fs::create_directories(root / "cells");
  std::string seed_list;
  for (const std::uint32_t seed : seeds) seed_list += (seed_list.empty() ? "" : ",") + std::to_string(seed);
  std::string suite = kSuite;
  suite.replace(suite.find("SEEDS"), 5, seed_list);
  std::ofstream(root / "suite.json", std::ios::binary) << suite;
  std::ofstream(root / "summary.json", std::ios::binary) << kSummary;
  struct Arm {
    const char *name, *controller;
    bool with_faults;
    double penalty;
  };
  for (const Arm& arm : {Arm{"high", "none", false, 0.0}, Arm{"fp8", "none", true, 0.4},
                         Arm{"watch", "watch", true, 0.4}, Arm{"gnmr", "gnmr", true, 0.03}}) {
    for (const std::uint32_t seed : seeds) {
      const bool finished = std::string(arm.name) != "gnmr" || seed != seeds.back();
      const std::string name = fmt::format("{}-seed{}", arm.name, seed);
      write_sample_run((root / "runs" / name).string(), {.label = arm.name,
                                                         .controller = arm.controller,
                                                         .seed = seed,
                                                         .steps = finished ? 200 : 160,
                                                         .with_faults = arm.with_faults,
                                                         .loss_penalty = arm.penalty + 0.01 * seed});
      if (!finished) continue;
      std::ofstream(root / "cells" / (name + ".json"), std::ios::binary) << fmt::format(
          "{{\"version\":1,\"arm\":\"{}\",\"seed\":{},\"run\":\"runs/{}\",\"loss\":2.3}}\n", arm.name, seed, name);
    }
  }
}

}  // namespace gnmr::test
