// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/tensorboard.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/tensorboard_records.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

namespace fs = std::filesystem;

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

bool is_event_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().filename().string().find("tfevents") != std::string::npos && entry.is_regular_file(ignored);
}

// The event files of one folder, by name; none where it cannot be read.
std::vector<std::string> event_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_event_file(*at)) files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::unique_ptr<TraceReader> read_files(const std::string& folder, const std::vector<std::string>& files,
                                        const TraceOptions& options) {
  EventCollector collector(options);
  for (const std::string& file : files) collector.read(*open_byte_source(file));
  return collector.finish(folder);
}

std::string listed(const EventFolders& found) {
  FieldNames names;
  for (const std::string& run : found.runs) names.add(run);
  return names.list() + (found.gave_up ? " (the search ended after " + std::to_string(found.looked_at) + " entries" +
                                             ": name a folder nearer to the run)"
                                       : "");
}

}  // namespace

std::unique_ptr<TraceReader> read_tensorboard(ByteSource& source, const TraceOptions& options) {
  EventCollector collector(options);
  collector.read(source);
  return collector.finish(source.name());
}

EventFolders find_event_folders(const std::string& path, const FolderSearch& search) {
  EventFolders found;
  std::vector<fs::path> level{fs::path()};
  for (std::size_t depth = 0; depth <= search.depth && !level.empty() && !found.gave_up; ++depth) {
    std::vector<fs::path> below;
    for (const fs::path& folder : level) {
      std::vector<fs::path> folders;
      bool is_run = false;
      std::error_code error;
      for (fs::directory_iterator at(path / folder, error), end; !error && at != end; at.increment(error)) {
        found.gave_up = found.looked_at == search.entries;
        if (found.gave_up) break;
        ++found.looked_at;
        std::error_code ignored;
        is_run = is_run || is_event_file(*at);
        if (at->is_directory(ignored)) folders.push_back(folder / at->path().filename());
      }
      if (is_run && depth > 0) {
        found.runs.push_back(folder.generic_string());
      } else {
        below.insert(below.end(), folders.begin(), folders.end());
      }
      if (found.gave_up) break;
    }
    level = std::move(below);
  }
  std::sort(found.runs.begin(), found.runs.end());
  return found;
}

std::vector<std::string> tensorboard_runs(const std::string& path) {
  if (!event_files(path).empty()) return {};
  EventFolders found = find_event_folders(path);
  // Some of the runs would be taken for all of them.
  if (found.gave_up && !found.runs.empty()) {
    throw Error(path + ": too large to be searched for runs; name one with --run: " + listed(found));
  }
  return std::move(found.runs);
}

std::unique_ptr<TraceReader> read_tensorboard_directory(const std::string& path, const TraceOptions& options) {
  const fs::path folder = options.run.empty() ? fs::path(path) : fs::path(path) / options.run;
  const std::vector<std::string> files = event_files(folder);
  if (!files.empty()) return read_files(folder.string(), files, options);
  const EventFolders found = find_event_folders(path);
  if (found.runs.empty()) {
    throw Error(path + ": neither this folder nor one below it has TensorBoard event files (" +
                (found.gave_up ? "the search ended after " + std::to_string(found.looked_at) + " entries"
                               : std::to_string(found.looked_at) + " entries" + " looked at, 4 folders deep") +
                "); name the folder of the run");
  }
  if (!options.run.empty()) {
    throw Error(path + ": no run " + in_quotes(options.run) + "; there are: " + listed(found) +
                did_you_mean(options.run, found.runs));
  }
  if (found.runs.size() > 1 || found.gave_up) {
    throw Error(path + ": has event files of " + counted(found.runs.size(), "run") +
                ", name one with --run: " + listed(found));
  }
  const fs::path only = fs::path(path) / found.runs.front();
  return read_files(only.string(), event_files(only), options);
}

}  // namespace gnmr::io
