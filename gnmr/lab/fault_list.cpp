// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_list.h"

#include <memory>

#include "gnmr/core/error.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/text_error.h"
#include "gnmr/lab/json_values.h"

namespace gnmr::lab {
namespace {

ListedFault fault_of(const Json& object) {
  ListedFault fault{.fault = run::text_of(run::field(object, "fault"), "fault"),
                    .first = run::whole_of(run::field(object, "first"), "first"),
                    .last = run::whole_of(run::field(object, "last"), "last"),
                    .transient = run::truth_of(run::field(object, "transient"), "transient")};
  if (const Json& layer = run::field(object, "layer"); !layer.is_null()) fault.layer = run::text_of(layer, "layer");
  if (fault.last < fault.first) throw Error("`last`: expected a step that is not before `first`");
  return fault;
}

}  // namespace

std::vector<ListedFault> read_fault_list(const std::string& path) {
  const std::unique_ptr<io::ByteSource> source = io::open_byte_source(path);
  io::LineReader lines(*source);
  std::vector<ListedFault> faults;
  std::string_view text;
  while (lines.next(text)) {
    try {
      const Json object = run::parse_object(text);
      if (run::text_of(run::field(object, "kind"), "kind") == "fault") faults.push_back(fault_of(object));
    } catch (const Error& error) {
      throw io::error_at(io::at_line(path, lines.line_number()), error.what());
    }
  }
  return faults;
}

}  // namespace gnmr::lab
