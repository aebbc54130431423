// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_faults.h"

#include <fmt/format.h>

#include <filesystem>

#include "gnmr/core/message_text.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/fault_cells.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/fault_tables.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

namespace fs = std::filesystem;

// What the table of arms and the suite decide.
const std::vector<std::string>& own_settings() {
  static const std::vector<std::string> names{"faults",   "fault_seed",    "oracle", "rival",
                                              "selector", "evidence_from", "preset"};
  return names;
}

std::string out_of(const FaultsArguments& arguments) {
  return arguments.common.out.empty() ? "runs/faults" : arguments.common.out;
}

/// The cells under folders and in files, merged.
std::vector<lab::FaultCell> cells_from(const std::vector<std::string>& sources) {
  std::vector<lab::FaultCell> cells;
  for (const std::string& source : sources) {
    std::error_code ignored;
    for (lab::FaultCell& cell :
         fs::is_directory(source, ignored) ? lab::cells_in_folder(source) : lab::cells_in_file(source)) {
      cells.push_back(std::move(cell));
    }
  }
  return lab::merge_cells(std::move(cells));
}

/// Writes what is asked for: summary.md into a folder, all cells into a file; empty: not.
void write_results(const std::vector<lab::FaultCell>& cells, const std::string& folder, const std::string& collect) {
  with_exit_code(kOutputError, [&] {
    if (!folder.empty()) {
      std::error_code failed;
      fs::create_directories(folder, failed);
      const std::string path = folder + "/summary.md";
      io::replace_file(path, lab::fault_tables_markdown(lab::fault_tables(cells)));
      put(stdout, "tables: " + printable(path) + "\n");
    }
    if (!collect.empty()) {
      io::replace_file(collect, lab::cell_lines(cells));
      put(stdout, fmt::format("results: {}, {}\n", printable(collect), counted(cells.size(), "cell")));
    }
  });
}

/// The gap closed under all faults, where there is more than one.
void print_overview(const std::vector<lab::FaultTable>& tables) {
  if (tables.size() < 2) return;
  const lab::Summary swept = lab::sweep(tables, "gap_closed");
  put(stdout, "\ngap closed, (none - arm) / (none - high)\n" +
                  columns_text(swept.rows.empty() ? lab::overview(tables) : swept));
  if (swept.rows.empty()) return;
  put(stdout, "\ndifference to high precision, in nats\n" + columns_text(lab::sweep(tables, "high_change")));
}

int print_results(const FaultsArguments& arguments) {
  const std::vector<lab::FaultCell> cells = cells_from(arguments.from);
  const std::vector<lab::FaultTable> tables = lab::fault_tables(cells);
  for (const lab::FaultTable& table : tables) {
    put(stdout, "\n" + lab::subject_title(table.subject) + "\n" + columns_text(table.summary));
  }
  print_overview(tables);
  write_results(cells, arguments.common.out, arguments.collect);
  return kOk;
}

lab::SuiteRequest request_for(const FaultsArguments& arguments, const lab::FaultSubject& subject,
                              const std::vector<lab::Arm>& arms) {
  std::vector<std::string> texts = lab::fault_texts();
  texts.insert(texts.end(), subject.texts.begin(), subject.texts.end());
  lab::SuiteRequest request =
      request_from(arguments.common, out_of(arguments) + "/" + subject.folder, std::move(texts));
  request.title = subject.site.empty() ? "A healthy run, watched" : lab::subject_title(subject) + ", INJECTED";
  request.notes = notes_for(request, arguments.common);
  request.seeds = arguments.seeds;
  request.arms = arms;
  request.fault = subject.name;
  request.option_texts = lab::fault_option_texts();
  if (arguments.options.empty()) return request;
  for (std::string& text : with_exit_code(kInputError, [&] { return lab::option_texts(arguments.options); })) {
    request.option_texts.push_back(std::move(text));
  }
  request.notes.push_back("The controller's options are those of " + arguments.options + ".");
  return request;
}

}  // namespace

int run_faults(const FaultsArguments& arguments) {
  if (!arguments.from.empty()) return print_results(arguments);
  if (arguments.faults.empty())
    throw CommandError(kUsageError, "either --fault (what to inject) or --from (what to read) is needed");
  std::vector<lab::SuiteRequest> requests;
  with_exit_code(kUsageError, [&] {
    check_train_texts(arguments.common.train, own_settings());
    const std::vector<lab::Arm> arms = lab::choose_fault_arms(arguments.arms);
    for (const lab::FaultSubject& subject :
         lab::fault_subjects(lab::swept_faults(arguments.faults, arguments.strengths, arguments.at_once))) {
      requests.push_back(request_for(arguments, subject, arms));
    }
  });
  int status = kOk;
  for (const lab::SuiteRequest& request : requests) {
    const SuiteRun run = run_suite(request, arguments.common);
    print_end(run);
    if (status == kOk) status = status_of(run);
    if (run.outcome.stopped) break;
  }
  const std::vector<lab::FaultCell> cells = cells_from({out_of(arguments)});
  print_overview(lab::fault_tables(cells));
  write_results(cells, out_of(arguments), arguments.collect);
  return status;
}

}  // namespace gnmr::app
