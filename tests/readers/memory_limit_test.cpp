// SPDX-License-Identifier: Apache-2.0
// Every reader of files on damaged ones, with little memory: it reads them or throws an `Error`; it never asks for the
// memory that a damaged length promises, and never crashes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "corruption.h"
#include "gnmr/core/error.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/checksum_manifest.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/io/state_file.h"
#include "gnmr/io/tensorboard_records.h"
#include "gnmr/io/trace.h"
#include "gnmr/io/truth.h"
#include "gnmr/io/units_json.h"
#include "gnmr/lab/cell.h"
#include "gnmr/lab/fault_cells.h"
#include "gnmr/lab/fault_list.h"
#include "gnmr/lab/progress.h"
#include "gnmr/lab/regimes.h"
#include "gnmr/lab/suite.h"
#include "gnmr/models/llama_config.h"
#include "gnmr/models/safetensors_header.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/report/report.h"
#include "gnmr/run/evidence.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/run/train_settings.h"
#include "io/temporary_folder.h"
#include "lab/fake_run.h"
#include "report/sample_run.h"
#include "state_seal.h"

namespace gnmr {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::corrupted;
using test::put_file;

constexpr std::uint64_t kMemory = std::uint64_t{128} << 20U;  // beyond what the test itself has
constexpr std::uint64_t kSeeds = 200;                         // damaged forms of each file

/// From now on no more memory than `kMemory` can be had.
void limit_memory() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  ASSERT_GT(pages, 0U);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + kMemory;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

/// Reads a file whole, as programs do; `path` is where it lies.
using Reader = std::function<void(const std::string& path)>;

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override { limit_memory(); }

  /// Undamaged, the file is read; damaged, it is read or refused.
  void check(const std::string& path, const Reader& read, std::uint64_t seeds = kSeeds) {
    const std::string content = content_of(path);
    ASSERT_NO_THROW(read(path)) << path;
    std::uint64_t refused = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      fs::remove(path);  // a file that is emptied and written again is forced to the disk by some file systems
      put_file(path, corrupted(content, seed));
      try {
        read(path);
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << path << ", seed " << seed << ": " << error.what();
      }
    }
    put_file(path, content);
    EXPECT_GT(refused, 0U) << path << ": no damage was seen, is it read at all?";
  }

  /// The seeds of a fuzzer, copied to where they may be damaged.
  std::vector<std::string> seeds_of(const std::string& subject) const {
    std::vector<std::string> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(std::string(GNMR_FUZZ_CORPUS_DIR) + "/" + subject)) {
      const std::string name = subject + "." + entry.path().filename().string();
      put_file(folder_.file(name), content_of(entry.path().string()));
      paths.push_back(folder_.file(name));
    }
    EXPECT_FALSE(paths.empty());
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  /// Where a seed is itself damaged (fuzzers have such), only that it is refused is asked for.
  void check_seeds(const std::string& subject, const Reader& read) {
    std::size_t checked = 0;
    for (const std::string& path : seeds_of(subject)) {
      try {
        read(path);
      } catch (const Error&) {
        continue;
      }
      check(path, read);
      ++checked;
    }
    EXPECT_GT(checked, 0U) << subject;
  }

  std::string at(const std::string& name) const { return folder_.file(name); }

  test::TemporaryFolder folder_;
};

Reader trace_reader(io::TraceFormat format) {
  return [format](const std::string& path) {
    const auto reader = io::open_trace(path, {.format = format, .allow_restart = true});
    io::TraceRow row;
    while (reader->next(row)) continue;
    static_cast<void>(reader->notes());
  };
}

TEST_F(MemoryLimit, TracesAndLogs) {
  const std::vector<std::pair<std::string, io::TraceFormat>> formats{
      {"trace_csv", io::TraceFormat::csv},           {"log_llmc", io::TraceFormat::llmc},
      {"log_jsonl", io::TraceFormat::jsonl},         {"log_trainer_state", io::TraceFormat::trainer_state},
      {"log_megatron", io::TraceFormat::megatron},   {"log_tensorboard", io::TraceFormat::tensorboard},
      {"log_wandb_csv", io::TraceFormat::wandb_csv}, {"log_nvdlfw", io::TraceFormat::nvdlfw},
      {"log_console", io::TraceFormat::automatic},   {"log_lightning_csv", io::TraceFormat::lightning_csv}};
  for (const auto& [subject, format] : formats) check_seeds(subject, trace_reader(format));
  check_seeds("trace_auto", trace_reader(io::TraceFormat::automatic));
}

TEST_F(MemoryLimit, EventsBehindTheirChecksums) {
  check_seeds("log_tensorboard_event", [](const std::string& path) {
    io::Event event;
    io::read_event(content_of(path), event);
  });
}

TEST_F(MemoryLimit, OptionsAndUnits) {
  check_seeds("options", [](const std::string& path) { io::read_options_file(path); });
  put_file(at("units.json"), R"({"units":[{"name":"a","cost":3,"group":"block0"},{"name":"b","cost":5}]})");
  check(at("units.json"), [](const std::string& path) { io::read_units(path, {"a", "b", "c"}); });
}

TEST_F(MemoryLimit, StateFiles) {
  check_seeds("state_file", [](const std::string& path) { io::load_state(path); });
  check_seeds("state_file", [](const std::string& path) {
    const std::string bytes = content_of(path);
    if (bytes.size() < test::kStateHeaderBytes) throw Error("too short to be sealed");
    const std::string sealed = test::sealed_state(bytes);
    io::decode_state(std::as_bytes(std::span(sealed)));
  });
}

/// What a run keeps beside the controller's own state is in sections of the same file.
TEST_F(MemoryLimit, StatesOfRuns) {
  const std::vector<Unit> units{{.name = "a"}, {.name = "b"}};
  for (const int lag : {0, 1}) {
    run::SupervisorSettings settings;
    settings.options.lag = lag;
    run::Supervisor supervisor(units, settings, {});
    const std::vector<double> norms{1.0, 2.0};
    for (std::int64_t step = 1; step < 6; ++step) {
      supervisor.begin(step);
      const std::int64_t reported = step - lag;
      if (reported > 0) supervisor.report({.step = reported, .norms = norms}, {});
    }
    put_file(at("controller.gnmr"), supervisor.save());
    check(at("controller.gnmr"), [&](const std::string& path) {
      const std::string bytes = content_of(path);
      if (bytes.size() < test::kStateHeaderBytes) throw Error("too short to be sealed");
      run::Supervisor(units, settings, {}).restore(test::sealed_state(bytes));
    });
  }
}

TEST_F(MemoryLimit, Checksums) {
  io::save_checksums(at(""), {{"a.json", io::sums_of("content")}, {"b.json", io::sums_of("")}});
  check(at(std::string(io::kChecksumFile)), [this](const std::string&) { io::load_checksums(at("")); });
}

TEST_F(MemoryLimit, JournalsAndTruth) {
  check_seeds("journal", [](const std::string& path) { io::read_journal(path); });
  put_file(at("faults.csv"), "step,a,b\n1,0,1\n2,1,0\n3,0,0\n");
  check(at("faults.csv"), [](const std::string& path) {
    io::TruthReader reader = io::open_truth(path);
    io::TruthRow row;
    while (reader.next(row)) continue;
  });
}

TEST_F(MemoryLimit, Signals) {
  test::write_sample_run(at("run"), {.steps = 40});
  check(at("run/signals.bin"), [](const std::string& path) {
    io::SignalsReader reader(path);
    io::SignalsRow row;
    while (reader.next(row)) continue;
  });
}

TEST_F(MemoryLimit, Errors) {
  {
    io::SignalsWriter writer({.path = at("errors.bin"), .unit_count = 28, .sites = 3, .in_background = false});
    const std::vector<double> errors(28 * 3, 0.03);
    for (std::int64_t step = 1; step <= 40; ++step) writer.write(step, errors);
  }
  check(at("errors.bin"), [](const std::string& path) {
    io::SignalsReader reader(path);
    io::SignalsRow row;
    while (reader.next(row)) continue;
  });
}

TEST_F(MemoryLimit, FilesOfARun) {
  test::FakeRun fake{.steps_done = 12, .burst_step = 5, .fault_last = 7};
  fake.settings.out = at("run");
  fake.settings.steps = 12;
  fake.settings.experiment.harm = true;
  fake.harm = {{.step = 5, .layer = "layers.0.q", .distance = 0.5}, {.step = 6, .layer = "layers.0.q", .distance = 1}};
  test::write_fake_run(fake);
  const run::RunFolder folder(at("run"));
  check(at("run/run.json"), [](const std::string& path) { run::parse_run_info(content_of(path), path); });
  check(folder.metrics(), [](const std::string& path) { run::read_metrics(path); });
  check(folder.harm(), [](const std::string& path) { run::read_harm(path); });
  check(folder.fault_list(), [](const std::string& path) { lab::read_fault_list(path); });
  put_file(at("settings.json"), run::write_settings(fake.settings));
  check(at("settings.json"), [](const std::string& path) { run::read_settings(content_of(path)); });
  run::EvidenceWriter evidence(at("evidence.jsonl"), io::ExistingFile::refuse);
  for (std::int64_t step = 1; step < 4; ++step) evidence.write({.step = step, .unit = "a", .relative_error = 0.1});
  ASSERT_TRUE(evidence.close());
  check(at("evidence.jsonl"), [](const std::string& path) { run::read_evidence(path); });
}

TEST_F(MemoryLimit, RecipesAndModels) {
  put_file(at("recipe.json"), std::string(recipes::recipe_json("fp8-delayed")));
  check(at("recipe.json"), [](const std::string& path) { recipes::load_recipe(path); });
  check_seeds("model_config", [](const std::string& path) { models::parse_config(content_of(path), path); });
  check_seeds("safetensors_header", [](const std::string& path) {
    const std::string bytes = content_of(path);
    const std::uint64_t length = models::header_length(bytes, bytes.size(), path);
    models::parse_safetensors_header(std::string_view(bytes).substr(models::kHeaderLengthBytes, length),
                                     bytes.size() - models::kHeaderLengthBytes - length, path);
  });
}

TEST_F(MemoryLimit, SuitesAndCells) {
  const lab::SuiteRequest request{
      .folder = at("suite"), .title = "t", .seeds = {0, 1}, .arms = lab::stress_arms(), .texts = {"steps=4"}};
  lab::Suite::open(request);
  check(at("suite/suite.json"), [this](const std::string&) { lab::Suite::load(at("suite")); });
  lab::FaultCell cell;
  cell.fault = "saturate";
  cell.result.arm = "trial";
  put_file(at("cell.json"), lab::write_cell(cell.result));
  check(at("cell.json"), [](const std::string& path) { lab::parse_cell(content_of(path), path); });
  put_file(at("cells.jsonl"), lab::cell_lines({cell}));
  check(at("cells.jsonl"), [](const std::string& path) { lab::cells_in_file(path); });
}

TEST_F(MemoryLimit, ReportsOfRuns) {
  test::write_sample_run(at("run"), {.steps = 30, .layers = 1});
  for (const char* const name : {"run.json", "metrics.jsonl", "journal.jsonl", "faults.csv"}) {
    check(
        at("run/") + name, [this](const std::string&) { report::make_report(at("run"), {.plain = true}); }, 40);
  }
  // What is left out with a remark counts as refused.
  for (const char* const name : {"run/signals.bin", "run/errors.bin"}) {
    check(
        at(name),
        [this](const std::string&) {
          for (const std::string& remark : report::make_report(at("run"), {.plain = true}).remarks) {
            if (remark.find("left out: ") != std::string::npos) throw Error(remark);
          }
        },
        80);
  }
}

TEST_F(MemoryLimit, DeepNestingEndsNoProgram) {
  constexpr std::size_t kLevels = 200000;
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  const auto with = [&deep](const std::string& start) { return start + deep + "}"; };
  test::write_sample_run(at("run"), {.steps = 5, .layers = 1});
  put_file(at("run/run.json"), with(R"({"version":)"));
  EXPECT_THROW(report::make_report(at("run")), Error);
  EXPECT_THROW(recipes::parse_recipe(with(R"({"name":)")), Error);
  EXPECT_THROW(io::read_options(with(R"({"tau":)")), Error);
  EXPECT_THROW(run::read_settings(with(R"({"options":)")), Error);
  EXPECT_THROW(run::parse_run_info(with(R"({"settings":)"), "run.json"), Error);
  EXPECT_THROW(io::parse_units(with(R"({"units":)"), "units.json", {"a"}), Error);
  EXPECT_THROW(models::parse_config(with(R"({"model_type":)"), "config.json"), Error);
  EXPECT_THROW(models::parse_safetensors_header(with(R"({"a":)"), 0, "a.safetensors"), Error);
  EXPECT_THROW(lab::parse_cell(with(R"({"arm":)"), "cell.json"), Error);
  for (const char* const start : {R"({"kind":"header","units":)", R"({"kind":"header","options":{"tau":)"}) {
    put_file(at("journal.jsonl"), with(start) + "}\n{}\n");
    EXPECT_THROW(io::read_journal(at("journal.jsonl")), Error);
  }
}

TEST_F(MemoryLimit, ReportsOfSuites) {
  test::write_sample_suite(at("suite"), {0});
  for (const char* const name : {"suite.json", "summary.json"}) {
    check(
        at("suite/") + name, [this](const std::string&) { report::make_report(at("suite"), {.plain = true}); }, 10);
  }
}

}  // namespace
}  // namespace gnmr
