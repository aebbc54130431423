// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_list.h"

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"

namespace gnmr::lab {
namespace {

ListedFault fault_of(const io::JsonObject& line) {
  ListedFault fault{.fault = line.text("fault"),
                    .layer = line.text_if("layer").value_or(""),
                    .first = line.whole("first"),
                    .last = line.whole("last"),
                    .transient = line.truth("transient")};
  if (fault.last < fault.first) throw Error("`last`: expected a step that is not before `first`");
  return fault;
}

}  // namespace

std::vector<ListedFault> read_fault_list(const std::string& path) {
  std::vector<ListedFault> faults;
  io::read_json_lines(path, io::OpenEnd::whole, [&](const io::JsonObject& line) {
    if (line.text("kind") == "fault") faults.push_back(fault_of(line));
  });
  return faults;
}

}  // namespace gnmr::lab
