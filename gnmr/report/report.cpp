// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/report.h"

#include <filesystem>
#include <utility>

#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/report/page.h"
#include "gnmr/report/payload.h"
#include "gnmr/report/run_page.h"
#include "gnmr/report/suite_page.h"

namespace gnmr::report {
namespace {

namespace fs = std::filesystem;

Report run_report(const std::string& directory, bool plain, const std::string& program) {
  const RunView view = make_run_view(read_run_files(directory, UnitMapLimits{}), ViewLimits{});
  Report report{.kind = ReportKind::run, .html = {}, .remarks = view.remarks};
  report.html = page_html({.title = view.title,
                           .subtitle = view.subtitle,
                           .kind = "Report of a run",
                           .body = run_html(view, 0, 2),
                           .payload = plain ? std::string() : run_payload(view),
                           .program = program});
  return report;
}

Report suite_report(const std::string& directory, bool plain, const std::string& program) {
  const SuiteView view = make_suite_view(read_suite_files(directory));
  Report report{.kind = ReportKind::suite, .html = {}, .remarks = view.remarks};
  report.html = page_html({.title = view.title,
                           .subtitle = {},
                           .kind = "Report of a suite",
                           .body = suite_html(view),
                           .payload = plain ? std::string() : suite_payload(view),
                           .program = program});
  return report;
}

}  // namespace

Report make_report(const std::string& directory, const ReportSettings& settings) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored)) throw io::error_at(directory, "there is no such directory");
  if (!fs::is_directory(directory, ignored)) {
    throw io::error_at(directory, "expected the directory of a run or a suite, not a file");
  }
  if (is_suite_directory(directory)) return suite_report(directory, settings.plain, settings.program);
  if (is_run_directory(directory)) return run_report(directory, settings.plain, settings.program);
  throw io::error_at(
      directory, "neither a suite nor a run: looked for suite.json, run.json and journal.jsonl, found none of them");
}

bool may_replace(const std::string& path) {
  constexpr std::string_view kStart = "<!doctype html>";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) == 0) return true;
  return io::read_file_start(path, kStart.size()) == kStart;
}

std::string write_report(const std::string& directory, const std::string& path, const ReportSettings& settings) {
  const std::string target = path.empty() ? (fs::path(directory) / kReportName).string() : path;
  io::replace_file(target, make_report(directory, settings).html);
  return target;
}

}  // namespace gnmr::report
