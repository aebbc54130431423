// SPDX-License-Identifier: Apache-2.0
// The part of llama_config.h that looks at files.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/checksum_manifest.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/llama2c.h"
#include "gnmr/models/llama_config.h"

namespace gnmr::models {

LlamaConfig load_config(const std::string& name_or_path) {
  constexpr std::size_t kLargestConfigFile = std::size_t{1} << 20;
  const std::vector<std::string> presets = preset_names();
  if (std::find(presets.begin(), presets.end(), name_or_path) != presets.end()) return preset_config(name_or_path);
  std::error_code ignored;
  const std::filesystem::path path(name_or_path);
  if (!std::filesystem::exists(path, ignored)) {
    std::string list;
    for (const std::string& preset : presets) list += (list.empty() ? "" : ", ") + preset;
    throw Error("[model] " + io::in_quotes(name_or_path) + " is neither a preset (" + list + ") nor a file or folder" +
                did_you_mean(name_or_path, presets));
  }
  if (path.extension() == kLlama2cExtension) return read_llama2c_config(name_or_path);
  const std::string file =
      std::filesystem::is_directory(path, ignored) ? (path / "config.json").string() : name_or_path;
  const std::string content = io::read_whole_file(file, kLargestConfigFile);
  if (const auto expected = io::load_checksums_of(file)) io::check_content(content, *expected, file);
  return parse_config(content, file);
}

}  // namespace gnmr::models
