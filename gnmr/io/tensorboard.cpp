// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/tensorboard.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/tensorboard_records.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

class EventCollector {
 public:
  explicit EventCollector(const TraceOptions& options) : pattern_(options.field_pattern), log_(options.allow_restart) {}

  void read(ByteSource& source) {
    RecordReader records(source);
    std::string_view bytes;
    while (records.next(bytes)) {
      try {
        read_event(bytes, event_);
      } catch (const Error& error) {
        throw error_at(records.where(), error.what());
      }
      for (const EventValue& value : event_.values) {
        fields_.add(value.tag);
        if (!value.scalar || !pattern_.matches(value.tag)) continue;
        log_.add(value.tag, event_.step, *value.scalar, records.where());
      }
    }
    if (records.torn()) log_.note(records.where() + " is cut short and left out");
    bytes_ += source.bytes_read();
  }

  std::unique_ptr<TraceReader> finish(const std::string& name) {
    if (log_.empty()) throw no_norms_error(name, "these TensorBoard events", fields_, pattern_);
    return log_.finish(bytes_);
  }

 private:
  FieldPattern pattern_;
  PointLog log_;
  FieldNames fields_;
  Event event_;
  std::uint64_t bytes_ = 0;
};

using FilesByDirectory = std::map<std::filesystem::path, std::vector<std::filesystem::path>>;

FilesByDirectory find_event_files(const std::string& path) {
  namespace fs = std::filesystem;
  FilesByDirectory found;
  std::error_code error;
  fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    const bool is_event_file = at->path().filename().string().find("tfevents") != std::string::npos;
    if (is_event_file && at->is_regular_file(ignored)) found[at->path().parent_path()].push_back(at->path());
  }
  if (error) throw Error(path + ": cannot be read: " + error.message());
  return found;
}

}  // namespace

std::unique_ptr<TraceReader> read_tensorboard(ByteSource& source, const TraceOptions& options) {
  EventCollector collector(options);
  collector.read(source);
  return collector.finish(source.name());
}

std::unique_ptr<TraceReader> read_tensorboard_directory(const std::string& path, const TraceOptions& options) {
  FilesByDirectory found = find_event_files(path);
  if (found.empty()) throw Error(path + ": a directory without TensorBoard event files");
  if (found.size() > 1) {
    FieldNames runs;
    for (const auto& [directory, files] : found) runs.add(directory.string());
    throw Error(path + ": event files of several runs; name one of: " + runs.list());
  }
  EventCollector collector(options);
  std::vector<std::filesystem::path>& files = found.begin()->second;
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) collector.read(*open_byte_source(file.string()));
  return collector.finish(path);
}

}  // namespace gnmr::io
