// SPDX-License-Identifier: Apache-2.0
// `gnmr report`: a run or a suite as one HTML file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/html_output.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/messages.h"
#include "gnmr/report/report.h"

namespace gnmr::app {
namespace {

struct ReportArguments {
  std::string directory;
  std::string out_path;
  bool plain = false;
  bool quiet = false;
};

int make_report(const ReportArguments& arguments) {
  const bool to_standard_output = arguments.out_path == "-";
  const std::string path = arguments.out_path.empty()
                               ? (std::filesystem::path(arguments.directory) / report::kReportName).string()
                               : arguments.out_path;
  if (!to_standard_output) refuse_to_replace_other_files(path);
  const report::Report made = with_exit_code(kInputError, [&] {
    return report::make_report(arguments.directory, {.plain = arguments.plain, .program = "gnmr " GNMR_VERSION});
  });
  if (to_standard_output) {
    put(stdout, made.html);
  } else {
    with_exit_code(kOutputError, [&] { io::replace_file(path, made.html); });
  }
  if (arguments.quiet) return kOk;
  for (const std::string& remark : made.remarks) say(printable(remark));
  if (!to_standard_output) {
    put(stdout, fmt::format("{} ({} kB)\n", printable(path), (made.html.size() + 999) / 1000));
  }
  return kOk;
}

}  // namespace

void add_report_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("report", "Show a run or a suite of runs as one HTML file");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("run", arguments->directory,
                   "Directory of a run (with run.json or journal.jsonl) or of a suite (with suite.json); it may be of "
                   "a run that was killed or still goes on")
      ->required()
      ->type_name("DIRECTORY");
  command
      ->add_option("-o,--out", arguments->out_path,
                   "File to write [report.html in the directory]; - is standard output")
      ->type_name("FILE");
  command->add_flag("--plain", arguments->plain,
                    "No script in the page: charts are given in words, and the file is small");
  command->add_flag("-q,--quiet", arguments->quiet, "Print nothing but errors");
  command->footer(std::string("The file needs nothing else: no network, no other files. Open it in any browser.\n\n"
                              "Examples:\n"
                              "  gnmr report runs/fp8                      writes runs/fp8/report.html\n"
                              "  gnmr report suites/demo --out demo.html   arms side by side, and every run\n"
                              "  gnmr report runs/fp8 --plain --out - | gzip > report.html.gz\n\n"
                              "A replay can be looked at too:\n"
                              "  mkdir r && gnmr replay norms.csv --journal r/journal.jsonl --signals r/signals.bin\n"
                              "  gnmr report r\n\n") +
                  kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return make_report(*arguments); }; });
}

}  // namespace gnmr::app
