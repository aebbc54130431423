// SPDX-License-Identifier: Apache-2.0
// A report of a run or a suite: one HTML file that needs nothing else.
//
// Goals: what is there is shown, what is missing is reported; text from files is data and does no harm; the same files
// give the same bytes. Non-goals: serving pages, following a run (write the report again), judging decisions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gnmr::report {

/// How to draw.
struct ReportSettings {
  bool plain = false;        // no script: charts in words
  std::string program = {};  // named at the end of the page, such as `gnmr 0.1.0`; may be empty
};

/// What a directory holds.
enum class ReportKind { run, suite };

/// A finished page.
struct Report {
  ReportKind kind = ReportKind::run;
  std::string html;
  std::vector<std::string> remarks;  // what is missing or was skipped; the page says it too
};

/// The default name of a report in its directory.
inline constexpr std::string_view kReportName = "report.html";

/// Reads a directory and makes its page. An `Error` names the file, and where it can the line, that cannot be used, or
/// what was looked for where the directory is neither a run nor a suite.
Report make_report(const std::string& directory, const ReportSettings& settings = {});

/// Whether a page may be put there: nothing is, or an empty file, or a page. A slip must not cost a run its files.
bool may_replace(const std::string& path);

/// Makes a page and puts it in the place of `path`, or of report.html in the directory where that is empty; the path.
std::string write_report(const std::string& directory, const std::string& path = {},
                         const ReportSettings& settings = {});

}  // namespace gnmr::report
