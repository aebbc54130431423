// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/sharded_files.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iomanip>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::models {
namespace {

namespace files = std::filesystem;

constexpr std::size_t kLargestIndexFile = std::size_t{100} << 20;

// Which tensors each file has.
using WeightMap = std::map<std::string, std::set<std::string>>;

const io::FileSums* sums_for(const std::string& name, const io::FolderSums& sums) {
  const auto found = sums.find(name);
  return found == sums.end() ? nullptr : &found->second;
}

WeightMap read_index(const std::string& path, const io::FileSums* expected) {
  const std::string content = io::read_whole_file(path, kLargestIndexFile);
  if (expected != nullptr) io::check_content(content, *expected, path);
  return io::read_json_object(content, path, [](const io::JsonObject& index) {
    WeightMap result;
    const io::JsonObject map = index.object("weight_map");
    for (const auto& item : map.json().items()) {
      const auto* const file = item.value().get_ptr<const std::string*>();
      // Files are beside the index, nowhere else.
      if (file == nullptr || file->empty() || *file == "." || *file == ".." || file->find('/') != std::string::npos) {
        index.fail("weight_map", "the file of " + io::in_quotes(item.key()) + " is not the name of a file");
      }
      result[*file].insert(item.key());
    }
    return result;
  });
}

std::string shard_name(std::size_t number, std::size_t count) {
  std::ostringstream text;
  text << "model-" << std::setfill('0') << std::setw(5) << number << "-of-" << std::setw(5) << count << ".safetensors";
  return text.str();
}

std::vector<NamedTensors> cut(const NamedTensors& tensors, std::int64_t largest_file_bytes) {
  std::vector<NamedTensors> shards(1);
  std::int64_t bytes = 0;
  for (const auto& one : tensors) {
    const std::int64_t more = stored_bytes(one.second);
    if (!shards.back().empty() && bytes + more > largest_file_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(one);
    bytes += more;
  }
  return shards;
}

// What would be loaded instead of, or lie beside, the files that were written.
void remove_leftovers(const files::path& directory, const io::FolderSums& written) {
  static const std::regex kShard("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  std::vector<files::path> leftovers;
  std::error_code error;
  for (const auto& entry : files::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool of_a_model = name == kWholeModelFile || name == kModelIndexFile || std::regex_match(name, kShard);
    if (of_a_model && !written.contains(name)) leftovers.push_back(entry.path());
  }
  for (const files::path& path : leftovers) {
    if (!files::remove(path, error) && error) {
      throw io::error_at(path.string(), "of an earlier save, cannot be removed: " + error.message());
    }
  }
}

}  // namespace

TensorFile read_sharded(const std::string& index_path, const io::FolderSums& sums) {
  const files::path index(index_path);
  TensorFile result;
  for (const auto& [file_name, names] : read_index(index_path, sums_for(index.filename().string(), sums))) {
    const std::string path = (index.parent_path() / file_name).string();
    const TensorFile shard = read_safetensors(path, sums_for(file_name, sums));
    std::set<std::string> absent = names;
    for (const auto& [name, tensor] : shard.tensors) {
      if (absent.erase(name) == 0) {
        throw io::error_at(path, "tensor " + io::in_quotes(name) + " is not in the index, or in another file there");
      }
      result.tensors.emplace_back(name, tensor);
    }
    if (!absent.empty()) {
      throw io::error_at(path, "the index has tensor " + io::in_quotes(*absent.begin()) + " here; it is missing");
    }
    result.metadata.insert(shard.metadata.begin(), shard.metadata.end());
  }
  return result;
}

io::FolderSums write_model_files(const std::string& directory, const NamedTensors& tensors,
                                 std::int64_t largest_file_bytes) {
  const files::path folder(directory);
  const std::vector<NamedTensors> shards = cut(tensors, largest_file_bytes);
  io::FolderSums written;
  const auto write = [&](const std::string& name, const NamedTensors& content) {
    written.emplace(name, write_safetensors((folder / name).string(), content, pytorch_metadata()));
  };
  if (shards.size() == 1) {
    write(std::string(kWholeModelFile), tensors);
  } else {
    io::OrderedJson index;
    std::int64_t total = 0;
    std::map<std::string, std::string> weight_map;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shard_name(i + 1, shards.size());
      write(name, shards[i]);
      for (const auto& [tensor_name, tensor] : shards[i]) {
        weight_map.emplace(tensor_name, name);
        total += stored_bytes(tensor);
      }
    }
    index["metadata"]["total_size"] = total;
    index["weight_map"] = weight_map;
    const std::string content = index.dump(2) + "\n";
    io::replace_file((folder / kModelIndexFile).string(), content);
    written.emplace(kModelIndexFile, io::sums_of(content));
  }
  remove_leftovers(folder, written);
  return written;
}

}  // namespace gnmr::models
