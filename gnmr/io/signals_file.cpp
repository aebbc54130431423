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
constexpr std::size_t kShortestHeader = 16;
constexpr std::size_t kLongestHeader = 20;

std::size_t row_bytes(const SignalsHeader& header) {
  return sizeof(std::int64_t) + header.row_values() * sizeof(float);
}

std::string header_bytes(const SignalsHeader& header) {
  std::string out(kSignalsMagic);
  append_little_endian(out, header.sites == 0 ? kSignalsVersion : kSitesVersion);
  append_little_endian(out, static_cast<std::uint32_t>(header.unit_count));
  if (header.sites > 0) append_little_endian(out, header.sites);
  return out;
}

/// Of the first bytes of a file: all of them where it is shorter than the longest header.
SignalsHeader read_header(std::string_view bytes, const std::string& path) {
  if (bytes.size() < kShortestHeader || !bytes.starts_with(kSignalsMagic)) {
    throw Error(path + ": [signals] byte 0: this is not a file of signals");
  }
  LittleEndianReader reader(bytes.substr(kSignalsMagic.size()), path + ": [signals]", kSignalsMagic.size());
  const auto version = reader.take<std::uint32_t>();
  if (version != kSignalsVersion && version != kSitesVersion) {
    throw error_at(path, "[signals] byte 8: version " + std::to_string(version) + ", this program reads " +
                             std::to_string(kSignalsVersion) + " and " + std::to_string(kSitesVersion));
  }
  SignalsHeader header{.unit_count = reader.take<std::uint32_t>()};
  if (version == kSignalsVersion) return header;
  header.sites = reader.take<std::uint32_t>();
  if (header.sites == 0 || header.sites > kMostSites) {
    throw error_at(path, "[signals] byte 16: expected 1 to " + std::to_string(kMostSites) + " sites, it has " +
                             std::to_string(header.sites));
  }
  return header;
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
void check_resumed(const std::string& path, const SignalsHeader& expected) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_size < static_cast<off_t>(expected.bytes())) return;
  const SignalsHeader found = read_header(read_file_start(path, kLongestHeader), path);
  if (found == expected) return;
  const auto text = [](const SignalsHeader& header) {
    return std::to_string(header.unit_count) + " units" +
           (header.sites > 0 ? " with " + std::to_string(header.sites) + " sites" : "");
  };
  throw error_at(path, "expected " + text(expected) + ", it has " + text(found));
}

}  // namespace

SignalsWriter::SignalsWriter(const SignalsSettings& settings) : unit_count_(settings.unit_count) {
  const SignalsHeader header{.unit_count = unit_count_, .sites = settings.sites};
  row_values_ = header.row_values();
  const RecordShape shape{.record_bytes = row_bytes(header), .header_bytes = header.bytes()};
  if (unit_count_ > std::numeric_limits<std::uint32_t>::max()) throw Error("[signals] too many units");
  if (settings.sites > kMostSites) throw Error("[signals] too many sites");
  if (settings.existing == ExistingFile::resume) check_resumed(settings.path, header);
  RecordFile opened = open_record_file(settings.path, settings.existing, shape);
  if (!opened.had_records) {
    const std::string bytes = header_bytes(header);
    if (::write(opened.file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      throw_output_errno(settings.path, "cannot write to it");
    }
  }
  sink_ = settings.in_background
              ? make_background_sink(std::move(opened.file), {.shape = shape, .queue_bytes = settings.queue_bytes})
              : make_direct_sink(std::move(opened.file), settings.path, shape);
  row_.reserve(shape.record_bytes);
}

void SignalsWriter::write(std::int64_t step, const Controller& controller) {
  ratios_.clear();
  const std::size_t known = std::min(unit_count_, controller.units().size());
  for (std::size_t unit = 0; unit < known; ++unit) {
    ratios_.push_back(controller.signals(static_cast<UnitIndex>(unit)).ratio);
  }
  write(step, ratios_);
}

void SignalsWriter::write(std::int64_t step, std::span<const double> values) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  row_.clear();
  append_little_endian(row_, step);
  for (std::size_t i = 0; i < row_values_; ++i) {
    const bool is_known = i < values.size() && !std::isnan(values[i]);
    append_little_endian(row_, is_known ? static_cast<float>(values[i]) : kNone);
  }
  sink_->append(row_);
}

bool SignalsWriter::flush(std::chrono::milliseconds longest) { return sink_->flush(longest); }

bool SignalsWriter::close(std::chrono::milliseconds longest) { return sink_->close(longest); }

SignalsReader::SignalsReader(const std::string& path) : path_(path) {
  file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0) throw_errno(path, "cannot open it");
  std::string header(kLongestHeader, '\0');
  header.resize(read_fully(file_, header, path));
  header_ = read_header(header, path);
  if (::lseek(file_.get(), static_cast<off_t>(header_.bytes()), SEEK_SET) < 0) throw_errno(path, "cannot read it");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t rows_size = size > header_.bytes() ? size - header_.bytes() : 0;
  row_count_ = rows_size / row_bytes(header_);
  torn_ = rows_size % row_bytes(header_) != 0;
}

bool SignalsReader::next(SignalsRow& row) {
  if (rows_read_ == row_count_) return false;
  bytes_.resize(row_bytes(header_));
  if (read_fully(file_, bytes_, path_) != bytes_.size()) throw Error(path_ + ": [signals] it has become shorter");
  LittleEndianReader reader(bytes_, path_ + ": [signals]");
  row.step = reader.take_signed();
  row.values.resize(header_.row_values());
  for (float& value : row.values) value = reader.take_float();
  ++rows_read_;
  return true;
}

}  // namespace gnmr::io
