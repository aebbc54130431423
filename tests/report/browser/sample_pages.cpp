// SPDX-License-Identifier: Apache-2.0
// Writes sample directories under a folder, and reports of them: `gnmr_report_sample_pages FOLDER`.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "gnmr/report/report.h"
#include "gnmr/report/sweep_page.h"
#include "report/sample_run.h"
#include "report/sample_sweep.h"

namespace {

void write_pages(const std::filesystem::path& folder, const std::string& name) {
  const std::string directory = (folder / name).string();
  gnmr::report::write_report(directory, (folder / (name + ".html")).string(), {.program = "gnmr 0.1.0"});
  gnmr::report::write_report(directory, (folder / (name + "_plain.html")).string(),
                             {.plain = true, .program = "gnmr 0.1.0"});
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fputs("usage: gnmr_report_sample_pages FOLDER\n", stderr);
    return 2;
  }
  try {
    const std::filesystem::path folder(arguments[1]);
    gnmr::test::write_sample_run((folder / "run").string(), {.with_trials = true});
    gnmr::test::write_sample_suite((folder / "suite").string(), {0, 1});
    // A name that would do harm if it were read as HTML, a killed run, and more units than there are rows.
    gnmr::test::write_sample_run((folder / "odd").string(),
                                 {.label = "</script><script>document.title='harm'</script>",
                                  .steps = 120,
                                  .layers = 40,
                                  .odd_unit_name = "</script><b onmouseover=\"x\">&amp;{value}"});
    std::filesystem::resize_file(folder / "odd" / "metrics.jsonl",
                                 std::filesystem::file_size(folder / "odd" / "metrics.jsonl") - 20);
    // Nothing but a few steps of a run without a controller.
    gnmr::test::write_sample_run((folder / "bare").string(), {.controller = "none", .steps = 3, .with_faults = false});
    for (const char* const name : {"run", "suite", "odd", "bare"}) write_pages(folder, name);
    std::ofstream(folder / "sweep.html", std::ios::binary) << gnmr::report::sweep_html(gnmr::test::sample_sweep());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gnmr_report_sample_pages: %s\n", error.what());
    return 1;
  }
  return 0;
}
