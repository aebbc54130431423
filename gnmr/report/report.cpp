// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/report.h"

#include <filesystem>
#include <functional>
#include <utility>

#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/report/html.h"
#include "gnmr/report/page_text.h"
#include "gnmr/report/payload.h"
#include "gnmr/report/run_page.h"
#include "gnmr/report/suite_page.h"

namespace gnmr::report {
namespace {

namespace fs = std::filesystem;

/// What is put into the template.
struct Page {
  std::string title;
  std::string subtitle;
  std::string kind;
  std::string body;
  std::string payload;  // empty: the page is plain
  std::string program;
};

/// Puts `value_of(NAME)` in the place of every @NAME@. What is put in is not looked at again.
std::string filled(std::string_view form, const std::function<std::string(std::string_view)>& value_of) {
  std::string out;
  while (true) {
    const std::size_t begin = form.find('@');
    const std::size_t end = begin == std::string_view::npos ? begin : form.find('@', begin + 1);
    if (end == std::string_view::npos) return out + std::string(form);
    out += form.substr(0, begin);
    out += value_of(form.substr(begin + 1, end - begin - 1));
    form.remove_prefix(end + 1);
  }
}

// Nothing may be loaded from anywhere, and no script runs but the one that was built in.
std::string content_policy(bool interactive) {
  std::string policy =
      "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:";
  if (interactive) policy += "; script-src '" + std::string(page_script().hash) + "'";
  return policy;
}

std::string script_html(const std::string& payload) {
  if (payload.empty()) return {};
  return "<script type=\"application/json\" id=\"report-data\">" + payload + "</script>\n<script>" +
         std::string(page_script().code) + "</script>\n";
}

std::string page_html(const Page& page) {
  return filled(template_text(), [&](std::string_view name) -> std::string {
    if (name == "TITLE") return escaped(page.title);
    if (name == "SUBTITLE") return page.subtitle.empty() ? std::string() : paragraph(page.subtitle, "subtitle");
    if (name == "KIND") return escaped(page.kind);
    if (name == "POLICY") return content_policy(!page.payload.empty());
    if (name == "STYLE") return std::string(style_text());
    if (name == "BODY") return page.body;
    if (name == "PROGRAM") return page.program.empty() ? std::string("gnmr") : escaped(page.program);
    if (name == "SCRIPT") return script_html(page.payload);
    return {};
  });
}

Report run_report(const std::string& directory, bool interactive, const std::string& program) {
  const RunView view = make_run_view(read_run_files(directory, RatioMapLimits{}), ViewLimits{});
  Report report{.kind = ReportKind::run, .interactive = interactive, .html = {}, .remarks = view.remarks};
  report.html = page_html({.title = view.title,
                           .subtitle = view.subtitle,
                           .kind = "Report of a run",
                           .body = run_html(view, 0, {.interactive = interactive, .heading = 2}),
                           .payload = interactive ? run_payload(view) : std::string(),
                           .program = program});
  return report;
}

Report suite_report(const std::string& directory, bool interactive, const std::string& program) {
  const SuiteView view = make_suite_view(read_suite_files(directory));
  Report report{.kind = ReportKind::suite, .interactive = interactive, .html = {}, .remarks = view.remarks};
  report.html = page_html({.title = view.title,
                           .subtitle = {},
                           .kind = "Report of a suite",
                           .body = suite_html(view, {.interactive = interactive, .heading = 2}),
                           .payload = interactive ? suite_payload(view) : std::string(),
                           .program = program});
  return report;
}

}  // namespace

bool has_interactive_charts() { return !page_script().code.empty(); }

Report make_report(const std::string& directory, const ReportSettings& settings) {
  const bool interactive = has_interactive_charts() && !settings.plain;
  std::error_code ignored;
  if (!fs::exists(directory, ignored)) throw io::error_at(directory, "there is no such directory");
  if (!fs::is_directory(directory, ignored)) {
    throw io::error_at(directory, "expected the directory of a run or a suite, not a file");
  }
  if (is_suite_directory(directory)) return suite_report(directory, interactive, settings.program);
  if (is_run_directory(directory)) return run_report(directory, interactive, settings.program);
  throw io::error_at(
      directory, "neither a suite nor a run: looked for suite.json, run.json and journal.jsonl, found none of them");
}

std::string write_report(const std::string& directory, const std::string& path, const ReportSettings& settings) {
  const std::string target = path.empty() ? (fs::path(directory) / kReportName).string() : path;
  io::replace_file(target, make_report(directory, settings).html);
  return target;
}

}  // namespace gnmr::report
