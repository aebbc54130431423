// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <random>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::run {
namespace {

constexpr std::int64_t kRunVersion = 1;

void append_text(std::string& out, std::string_view key, std::string_view value) {
  out += fmt::format(",\n  \"{}\": ", key);
  io::append_json_string(out, value);
}

void append_whole(std::string& out, std::string_view key, std::int64_t value) {
  out += fmt::format(",\n  \"{}\": {}", key, value);
}

void append_model(std::string& out, const RunInfo& info) {
  out += ",\n  \"model\": {\"name\": ";
  io::append_json_string(out, info.model);
  out += fmt::format(", \"parameters\": {}}}", info.parameters);
}

RunInfo info_of(const io::JsonObject& object) {
  object.check_version(kRunVersion);
  const auto text = [&](const char* key) { return object.text_if(key).value_or(""); };
  const auto whole = [&](const char* key) { return object.whole_if(key).value_or(0); };
  const auto model = object.object_if("model");
  return {.id = text("id"),
          .label = text("label"),
          .program = text("program"),
          .model = model ? model->text_if("name").value_or("") : "",
          .parameters = model ? model->whole_if("parameters").value_or(0) : 0,
          .recipe = text("recipe"),
          .controller = text("controller"),
          .preset = text("preset"),
          .batch_tokens = whole("batch_tokens"),
          .units = whole("units"),
          .budget = whole("budget"),
          .data = text("data"),
          .faults = text("faults"),
          .started = text("started"),
          .commit = text("commit"),
          .torch = text("torch"),
          .threads = whole("threads"),
          .steps = object.whole_if("steps"),
          .seed = object.whole_if("seed")};
}

RunInfo own_info_of(const io::JsonObject& object) {
  RunInfo info = info_of(object);
  info.settings = read_settings(object.object("settings"));
  return info;
}

/// All that a new run writes, but for its checkpoints.
std::vector<std::string> files_of(const RunFolder& folder) {
  return {folder.run_json(), folder.metrics(),         folder.journal(),         folder.signals(),
          folder.errors(),   folder.evidence(),        folder.faults(),          folder.fault_list(),
          folder.harm(),     folder.trace("norms", 1), folder.trace("errors", 1)};
}

// Who holds the lock, as the holder has written it.
std::string holder(const io::FileDescriptor& file) {
  std::array<char, 32> text;
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  if (got <= 0) return "";
  const std::string_view digits(text.data(), static_cast<std::size_t>(got));
  return fmt::format(" (process {})", digits.substr(0, digits.find_first_not_of("0123456789")));
}

}  // namespace

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
}

bool RunFolder::holds_run() const {
  std::error_code ignored;
  return std::filesystem::exists(run_json(), ignored);
}

std::string RunFolder::find_foreign_file() const {
  // The type says so, not the error's code: a process with two C++ run-times has two categories of errors.
  std::error_code failed;
  const auto is_absent = [&failed](const std::string& path) {
    return std::filesystem::status(path, failed).type() == std::filesystem::file_type::not_found;
  };
  for (const std::string& file : files_of(*this)) {
    if (is_absent(file)) continue;
    const auto size = std::filesystem::file_size(file, failed);
    if (failed || size > 0) return file;
  }
  // What is no folder cannot be listed, and no checkpoint can be written there.
  if (is_absent(checkpoints())) return "";
  const bool is_empty = std::filesystem::is_empty(checkpoints(), failed);
  return !failed && is_empty && std::filesystem::is_directory(checkpoints(), failed) ? "" : checkpoints();
}

void RunFolder::remove_start() const {
  for (const std::string& file : files_of(*this)) ::unlink(file.c_str());
}

RunLock::RunLock(const RunFolder& folder, bool resume) : path_(folder.lock()) {
  if (folder.path().empty()) throw Error("the run's folder has no name");
  std::error_code failed;
  std::filesystem::create_directories(folder.path(), failed);
  if (failed) throw OutputError(folder.path() + ": cannot make the folder: " + failed.message());
  file_ = io::FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) io::throw_output_errno(path_, "cannot open it");
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) io::throw_output_errno(path_, "cannot lock it");
    throw io::error_at(folder.path(), "another process is writing this run" + holder(file_));
  }
  found_run_ = folder.holds_run();
  if (!resume && found_run_) {
    throw io::error_at(folder.path(), "it holds a run already; --resume continues it, another --out starts a new one");
  }
  if (const std::string foreign = found_run_ ? "" : folder.find_foreign_file(); !foreign.empty()) {
    throw io::error_at(foreign, "it is there already, but " + folder.run_json() +
                                    " is not: this is no run that could be continued, and nothing of it is "
                                    "overwritten; choose another --out");
  }
  const std::string process = fmt::format("{}\n", ::getpid());
  // The number only helps a message: a disk without room for it is no reason to stop.
  if (::ftruncate(file_.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(file_.get(), process.data(), process.size(), 0);
  }
}

bool RunLock::is_gone() const {
  struct stat held {};
  struct stat found {};
  if (::fstat(file_.get(), &held) != 0) return false;
  if (::stat(path_.c_str(), &found) != 0) return errno == ENOENT || errno == ENOTDIR;
  return held.st_dev != found.st_dev || held.st_ino != found.st_ino;
}

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string write_run_info(const RunInfo& info) {
  std::string out = fmt::format("{{\n  \"version\": {}", kRunVersion);
  if (!info.id.empty()) append_text(out, "id", info.id);
  append_text(out, "label", info.label);
  append_text(out, "program", info.program);
  append_model(out, info);
  append_text(out, "recipe", info.recipe);
  append_text(out, "controller", info.controller);
  if (!info.preset.empty()) append_text(out, "preset", info.preset);
  append_text(out, "granularity", info.settings.granularity);
  append_whole(out, "steps", info.settings.steps);
  append_whole(out, "seed", info.settings.seed);
  append_whole(out, "batch_tokens", info.batch_tokens);
  append_whole(out, "units", info.units);
  append_whole(out, "budget", info.budget);
  append_text(out, "data", info.data);
  append_text(out, "faults", info.faults);
  append_text(out, "started", info.started);
  if (!info.commit.empty()) append_text(out, "commit", info.commit);
  if (!info.torch.empty()) append_text(out, "torch", info.torch);
  if (info.threads > 0) append_whole(out, "threads", info.threads);
  return out + ",\n  \"settings\": " + write_settings(info.settings) + "\n}\n";
}

RunInfo parse_run_info(std::string_view text, const std::string& file) {
  return io::read_json_object(text, file, own_info_of);
}

RunInfo parse_any_run_info(std::string_view text, const std::string& file) {
  return io::read_json_object(text, file, info_of);
}

void save_run_info(const RunFolder& folder, const RunInfo& info) {
  io::replace_file(folder.run_json(), write_run_info(info));
}

RunInfo load_run_info(const RunFolder& folder) {
  return parse_run_info(io::read_whole_file(folder.run_json(), kLargestRunJson), folder.run_json());
}

}  // namespace gnmr::run
