// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/report.h"

#include "bind.h"
#include "gnmr/io/printable.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/report/explanation.h"

namespace gnmr::python {
namespace {

std::string explain(const std::string& path, std::size_t limit, const std::string& unit,
                    std::optional<std::int64_t> from_step, std::optional<std::int64_t> to_step, bool json) {
  if (from_step && to_step && *from_step > *to_step) {
    throw Error("explain: expected from_step at or before to_step, got " + std::to_string(*from_step) + " and " +
                std::to_string(*to_step));
  }
  const report::StorySettings settings{.limit = limit, .unit_glob = unit, .from_step = from_step, .to_step = to_step};
  const report::Story story = report::make_story(report::read_run_to_explain(path), settings);
  return json ? report::story_json(story) + "\n" : report::explanation_text(story, settings);
}

}  // namespace

void bind_report(nb::module_& module) {
  module.def("explain", explain, "path"_a, "limit"_a = report::StorySettings{}.limit, "unit"_a = "",
             "from_step"_a = nb::none(), "to_step"_a = nb::none(), "json"_a = false,
             nb::call_guard<nb::gil_scoped_release>(),
             "What happened in a run, from its folder or its journal: the text that `gnmr explain` prints.");
  nb::class_<report::Report>(module, "Report", "A finished page.")
      .def_ro("html", &report::Report::html)
      .def_prop_ro(
          "remarks",
          [](const report::Report& self) {
            std::vector<std::string> lines;
            for (const std::string& remark : self.remarks) lines.push_back(io::printable(remark));
            return lines;
          },
          "what is missing or was skipped; the page has it too");
  module.def(
      "make_report",
      [](const std::string& directory, bool plain) {
        return report::make_report(directory, {.plain = plain, .program = "gnmr " GNMR_VERSION});
      },
      "directory"_a, "plain"_a = false, nb::call_guard<nb::gil_scoped_release>(), "A run or a suite as one HTML page.");
  module.def(
      "write_page",
      [](const std::string& path, const std::string& html) {
        if (!report::may_replace(path)) throw Error(path + ": is there and is no report: name another file");
        io::replace_file(path, html);
      },
      "path"_a, "html"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Puts a page there, in the place of an earlier one; any other file stays, and is an error.");
  module.attr("REPORT_NAME") = std::string(report::kReportName);
}

}  // namespace gnmr::python
