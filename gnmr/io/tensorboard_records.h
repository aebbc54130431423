// SPDX-License-Identifier: Apache-2.0
// The records of a TensorBoard event file and the scalars in them.
//
// A record is its length (8 bytes), a checksum of these, the data, a checksum of that; all little-endian. The data is
// a protocol-buffer Event; of it we read the step and the summary values that are one number.
//
// Goals: nothing in a file can make us read outside it or hold more than it has. Non-goals: images, histograms, graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/io/byte_source.h"

namespace gnmr::io {

/// Bytes of a record's length and its checksum.
inline constexpr std::size_t kRecordHeaderBytes = 12;

/// Whether `bytes` begin with the header of a record whose checksum is right.
bool starts_with_record(std::string_view bytes);

/// Gives the records of a source one after the other.
class RecordReader {
 public:
  /// The source must outlive the reader.
  explicit RecordReader(ByteSource& source) : source_(source) {}

  /// The next record's data, valid until the next call; false at the end. A wrong checksum is an `Error`.
  bool next(std::string_view& data);

  /// Whether the file ended within a record.
  bool torn() const { return torn_; }

  /// `FILE: record N`, counted from 1.
  std::string where() const;

 private:
  std::size_t fill(std::size_t size);

  ByteSource& source_;
  std::string buffer_;
  std::uint64_t record_ = 0;
  bool torn_ = false;
};

/// A value that an event reports; its tag is a view of the event.
struct EventValue {
  std::string_view tag;
  std::optional<double> scalar;  // none where the value is not one number
};

/// What we read of an event.
struct Event {
  std::int64_t step = 0;
  std::vector<EventValue> values;
};

/// Reads an event into `event`, whose memory is used again; an `Error` where the bytes are none.
void read_event(std::string_view bytes, Event& event);

}  // namespace gnmr::io
