// SPDX-License-Identifier: Apache-2.0
// gnmr_abuse: kills training runs and damages files, and looks whether the program keeps the promises of
// docs/reliability.md. `make abuse` runs it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <thread>

#include "abuse/corruptions.h"
#include "abuse/kills.h"
#include "abuse/tally.h"

namespace {

/// Whether the program can train: it looks for the engine in the same place.
bool has_engine(const std::string& program) {
  return std::filesystem::exists(std::filesystem::path(program).parent_path() / "../lib/libgnmr_engine.so");
}

}  // namespace

int main(int argument_count, char** arguments) {
  using namespace gnmr::abuse;
  Settings settings;
  settings.program = GNMR_PROGRAM;
  settings.package = GNMR_PYTHON_PACKAGE_DIR;
  settings.jobs = std::max(1U, std::thread::hardware_concurrency());
  CLI::App app("Kills training runs and damages files: nothing may be lost, nothing may be misread.", "gnmr_abuse");
  app.add_option("--seed", settings.seed, "What is done follows from it")->capture_default_str();
  app.add_option("--kills", settings.kills, "Signals to training runs; needs the engine");
  app.add_option("--corruptions", settings.corruptions, "Damaged files");
  app.add_option("--only", settings.only, "Repeat one case: kill:N or corruption:N")->type_name("CASE");
  app.add_option("--jobs", settings.jobs, "Cases at a time")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--program", settings.program, "The program gnmr")->capture_default_str();
  app.add_option("--python", settings.python, "A Python with torch, for runs of two processes [none: not done]");
  app.add_option("--package", settings.package, "The folder that has the Python package")->capture_default_str();
  app.add_option("--keep", settings.keep, "Keep the folders of failed cases here")->type_name("DIR");
  CLI11_PARSE(app, argument_count, arguments);
  for (std::string* const path : {&settings.program, &settings.python, &settings.package, &settings.keep}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
  settings.with_engine = has_engine(settings.program);
  if (!settings.keep.empty()) std::filesystem::create_directories(settings.keep);
  const bool repeats = !settings.only.empty();
  Tally tally(settings);
  try {
    fmt::print("seed {}, {} at a time, {}\n", settings.seed, settings.jobs, settings.program);
    if (is_wanted(settings, "corruption") && (repeats || settings.corruptions > 0)) run_corruptions(settings, tally);
    if (is_wanted(settings, "kill") && (repeats || settings.kills > 0)) {
      if (settings.with_engine) {
        run_kills(settings, tally);
      } else {
        fmt::print("no kills: this program was built without the training engine\n");
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "gnmr_abuse: {}\n", error.what());
    tally.print();
    return 2;
  }
  return tally.print() ? 0 : 1;
}
