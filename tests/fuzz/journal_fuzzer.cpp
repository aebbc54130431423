// SPDX-License-Identifier: Apache-2.0
// Any bytes are a journal or an error; records that were read survive writing.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_format.h"
#include "gnmr/io/journal_reader.h"

namespace {

void write_and_read(const gnmr::io::JournalRecord& record) {
  std::string line;
  std::visit(
      [&](const auto& value) {
        using Record = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Record, gnmr::io::JournalHeader>) {
          gnmr::io::append_header_line(line, value.units, value.options, value.started, value.sites);
        } else if constexpr (!std::is_same_v<Record, gnmr::io::JournalEvent>) {
          gnmr::io::append_line(line, value);
        }
      },
      record);
  if (line.empty()) return;
  line.pop_back();
  const auto again = gnmr::io::parse_journal_line(line);
  if (!again || again->index() != record.index()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    gnmr::io::JournalReader reader(gnmr::io::memory_byte_source("journal", bytes));
    gnmr::io::JournalRecord record;
    while (reader.next(record)) write_and_read(record);
    gnmr::io::JournalReader whole(gnmr::io::memory_byte_source("journal", bytes));
    gnmr::io::read_journal(whole);
  } catch (const gnmr::Error&) {
  }
  return 0;
}
