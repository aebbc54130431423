// SPDX-License-Identifier: Apache-2.0
// Files that only grow, by whole records: the journal's lines, the signals' rows.
//
// Two ways to write them. In the background: `append` copies into a bounded queue and returns; a thread writes. It
// never waits for the disk and never throws; what does not fit is dropped and counted, and when writing works again the
// count is written as a record of its own. Directly: `append` writes, and an `Error` says what went wrong.
//
// Goals: a training step goes on whatever the disk does; only the last record of a file can ever be torn, and the next
// writer cuts it off. Non-goals: surviving a power cut (nothing is forced to the disk), two writers of one file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gnmr/io/file_descriptor.h"

namespace gnmr::io {

/// Where records end.
struct RecordShape {
  std::size_t record_bytes = 0;  // 0: lines that end with LF
  std::size_t header_bytes = 0;  // before the first record

  /// How many records end in `bytes`, which begin with a record.
  std::uint64_t count(std::string_view bytes) const;

  /// How many bytes of `bytes`, which begin with a record, belong to whole records.
  std::size_t whole(std::string_view bytes) const;
};

/// What becomes of a file that is there already.
enum class ExistingFile : std::uint8_t {
  refuse,   // an `Error`, unless it is empty
  replace,  // it is emptied
  resume,   // a torn last record is cut off, the rest stays
};

/// A file that is ready to grow.
struct RecordFile {
  FileDescriptor file;
  bool had_records = false;  // only where it was resumed
};

/// Opens a file to append to; `-` is standard output, `refuse` and `replace` then being the same. An `Error` has the
/// path.
RecordFile open_record_file(const std::string& path, ExistingFile existing, const RecordShape& shape);

/// Takes whole records for a file. All members are for one thread, but for `dropped`.
class RecordSink {
 public:
  virtual ~RecordSink() = default;

  /// Adds records, all of them or, where they have no place, none.
  virtual void append(std::string_view records) = 0;

  /// Waits until all that was added is written, at most so long; whether it is.
  virtual bool flush(std::chrono::milliseconds longest) = 0;

  /// `flush`, and the end: what is not written then is lost and counted. Later calls do nothing.
  virtual bool close(std::chrono::milliseconds longest) = 0;

  /// Records that were lost so far.
  virtual std::uint64_t dropped() const = 0;
};

/// How a sink in the background works.
struct BackgroundSettings {
  RecordShape shape;
  std::size_t queue_bytes;
  std::string (*drop_note)(std::uint64_t dropped) = nullptr;  // the record that counts dropped ones; null: none
};

/// A sink with a thread of its own.
std::unique_ptr<RecordSink> make_background_sink(FileDescriptor file, const BackgroundSettings& settings);

/// A sink that writes in the caller's thread and throws an `Error` with `path` where it cannot.
std::unique_ptr<RecordSink> make_direct_sink(FileDescriptor file, std::string path, const RecordShape& shape);

}  // namespace gnmr::io
