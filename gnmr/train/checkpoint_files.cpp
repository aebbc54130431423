// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/checkpoint_files.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCheckpointVersion = 1;

void append_text(std::string& out, std::string_view key, std::string_view value) {
  io::append_json_string(out, key);
  out += ": ";
  io::append_json_string(out, value);
}

}  // namespace

FileSizes sizes_in(const std::string& folder) {
  FileSizes sizes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) sizes[entry.path().filename().string()] = entry.file_size();
  }
  return sizes;
}

void force_to_disk(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    const io::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open() || ::fsync(file.get()) != 0) io::throw_output_errno(path, "cannot force it to the disk");
  }
  force_entries_to_disk(folder);
}

void force_entries_to_disk(const std::string& folder) {
  const io::FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems do not know how, which is no reason to fail.
  if (handle.is_open() && ::fsync(handle.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF) {
    io::throw_output_errno(folder, "cannot force it to the disk");
  }
}

bool remove_folder(const std::string& folder) {
  constexpr int kOpenFolders = 16;
  const auto remove_entry = [](const char* path, const struct stat*, int, struct FTW*) { return ::remove(path); };
  return ::nftw(folder.c_str(), remove_entry, kOpenFolders, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}

void exchange_folders(const std::string& from, const std::string& to) {
  if (!fs::exists(to)) {
    if (::rename(from.c_str(), to.c_str()) != 0)
      io::throw_output_errno(to, "cannot put the new checkpoint in its place");
    return;
  }
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
#endif
  const std::string aside = from + ".old";
  if (::rename(to.c_str(), aside.c_str()) != 0) io::throw_output_errno(to, "cannot put the old checkpoint aside");
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    [[maybe_unused]] const int back = ::rename(aside.c_str(), to.c_str());
    errno = error;
    io::throw_output_errno(to, "cannot put the new checkpoint in its place");
  }
  if (::rename(aside.c_str(), from.c_str()) != 0) io::throw_output_errno(from, "cannot put the old checkpoint aside");
}

std::string write_trainer_json(const TrainerJson& content) {
  std::string out = "{\n  \"version\": " + std::to_string(kCheckpointVersion) +
                    ",\n  \"step\": " + std::to_string(content.info.step) + ",\n  ";
  append_text(out, "run", content.info.run);
  out += ",\n  ";
  append_text(out, "program", content.info.program);
  out += ",\n  ";
  append_text(out, "torch", content.torch_version);
  out += ",\n  ";
  append_text(out, "data", content.info.data);
  if (!content.checksums.empty()) {
    out += ",\n  ";
    append_text(out, "checksums", content.checksums);
  }
  out += ",\n  \"files\": {";
  std::string_view separator = "";
  for (const auto& [name, size] : content.files) {
    out += separator;
    io::append_json_string(out, name);
    out += ": " + std::to_string(size);
    separator = ", ";
  }
  out += "},\n  \"extra\": {";
  separator = "";
  for (const auto& [key, value] : content.info.extra) {
    out += separator;
    append_text(out, key, value);
    separator = ", ";
  }
  return out + "},\n  \"settings\": " + run::write_settings(content.info.settings) + "\n}\n";
}

TrainerJson parse_trainer_json(std::string_view text) {
  const io::Json document = io::parse_json(text);
  const io::JsonObject object(document);
  object.check_version(kCheckpointVersion);
  TrainerJson content;
  content.info.step = object.whole("step");
  // Absent in checkpoints of older versions.
  content.info.run = object.text_if("run").value_or("");
  content.info.program = object.text("program");
  content.torch_version = object.text("torch");
  content.info.data = object.text("data");
  content.checksums = object.text_if("checksums").value_or("");
  const io::JsonObject files = object.object("files");
  for (const auto& [name, size] : files.json().items()) content.files[name] = files.count(name);
  const io::JsonObject extra = object.object("extra");
  for (const auto& [key, value] : extra.json().items()) content.info.extra[key] = extra.text(key);
  content.info.settings = run::read_settings(object.object("settings"));
  return content;
}

}  // namespace gnmr::train
