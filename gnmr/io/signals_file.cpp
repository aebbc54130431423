// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/signals_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/little_endian.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kSignalsMagic = "GNMRSIGS";
constexpr std::size_t kHeaderBytes = 16;

std::size_t row_bytes(std::size_t unit_count) { return sizeof(std::int64_t) + unit_count * sizeof(float); }

std::string header_bytes(std::size_t unit_count) {
  std::string out(kSignalsMagic);
  append_little_endian(out, kSignalsVersion);
  append_little_endian(out, static_cast<std::uint32_t>(unit_count));
  return out;
}

std::size_t read_header(std::string_view bytes, const std::string& path) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kSignalsMagic)) {
    throw Error(path + ": [signals] byte 0: this is not a file of signals");
  }
  LittleEndianReader reader(bytes.substr(kSignalsMagic.size()), path + ": [signals]", kSignalsMagic.size());
  const auto version = reader.take<std::uint32_t>();
  if (version != kSignalsVersion) {
    throw error_at(path, "[signals] byte 8: version " + std::to_string(version) + ", this program reads " +
                             std::to_string(kSignalsVersion));
  }
  return reader.take<std::uint32_t>();
}

// As much of `into` as the file has.
std::size_t read_fully(const FileDescriptor& file, std::string& into, const std::string& path) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const ssize_t got = ::read(file.get(), into.data() + filled, into.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path, "cannot read it");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

// Checked before the file is opened for writing, so that a file that is something else is not cut.
void check_resumed(const SignalsSettings& settings) {
  struct stat status {};
  if (::stat(settings.path.c_str(), &status) != 0 || status.st_size < static_cast<off_t>(kHeaderBytes)) return;
  const std::size_t found = read_header(read_file_start(settings.path, kHeaderBytes), settings.path);
  if (found != settings.unit_count) {
    throw error_at(settings.path,
                   "expected " + std::to_string(settings.unit_count) + " units, it has " + std::to_string(found));
  }
}

}  // namespace

SignalsWriter::SignalsWriter(const SignalsSettings& settings) : unit_count_(settings.unit_count) {
  const RecordShape shape{.record_bytes = row_bytes(unit_count_), .header_bytes = kHeaderBytes};
  if (unit_count_ > std::numeric_limits<std::uint32_t>::max()) throw Error("[signals] too many units");
  if (settings.existing == ExistingFile::resume) check_resumed(settings);
  RecordFile opened = open_record_file(settings.path, settings.existing, shape);
  if (!opened.had_records) {
    const std::string header = header_bytes(unit_count_);
    if (::write(opened.file.get(), header.data(), header.size()) != static_cast<ssize_t>(header.size())) {
      throw_output_errno(settings.path, "cannot write to it");
    }
  }
  sink_ = settings.in_background
              ? make_background_sink(std::move(opened.file), {.shape = shape, .queue_bytes = settings.queue_bytes})
              : make_direct_sink(std::move(opened.file), settings.path, shape);
  row_.reserve(shape.record_bytes);
}

void SignalsWriter::write(std::int64_t step, const Controller& controller) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  row_.clear();
  append_little_endian(row_, step);
  const std::size_t known = std::min(unit_count_, controller.units().size());
  for (std::size_t unit = 0; unit < unit_count_; ++unit) {
    const double ratio = unit < known ? controller.signals(static_cast<UnitIndex>(unit)).ratio
                                      : std::numeric_limits<double>::quiet_NaN();
    append_little_endian(row_, std::isnan(ratio) ? kNone : static_cast<float>(ratio));
  }
  sink_->append(row_);
}

bool SignalsWriter::flush(std::chrono::milliseconds longest) { return sink_->flush(longest); }

bool SignalsWriter::close(std::chrono::milliseconds longest) { return sink_->close(longest); }

SignalsReader::SignalsReader(const std::string& path) : path_(path) {
  file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0) throw_errno(path, "cannot open it");
  std::string header(kHeaderBytes, '\0');
  header.resize(read_fully(file_, header, path));
  unit_count_ = read_header(header, path);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t rows_size = size > kHeaderBytes ? size - kHeaderBytes : 0;
  row_count_ = rows_size / row_bytes(unit_count_);
  torn_ = rows_size % row_bytes(unit_count_) != 0;
}

bool SignalsReader::next(SignalsRow& row) {
  if (rows_read_ == row_count_) return false;
  bytes_.resize(row_bytes(unit_count_));
  if (read_fully(file_, bytes_, path_) != bytes_.size()) throw Error(path_ + ": [signals] it has become shorter");
  LittleEndianReader reader(bytes_, path_ + ": [signals]");
  row.step = reader.take_signed();
  row.ratios.resize(unit_count_);
  for (float& ratio : row.ratios) ratio = reader.take_float();
  ++rows_read_;
  return true;
}

}  // namespace gnmr::io
