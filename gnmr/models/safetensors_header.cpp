// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "gnmr/io/json_text.h"
#include "gnmr/io/little_endian.h"
#include "gnmr/io/text_error.h"

namespace gnmr::models {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeRow {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeRow, kStoredTypeCount> kTypes{{{"BOOL", 1},
                                                        {"U8", 1},
                                                        {"F8_E5M2", 1},
                                                        {"F8_E4M3", 1},
                                                        {"F16", 2},
                                                        {"BF16", 2},
                                                        {"I32", 4},
                                                        {"F32", 4},
                                                        {"F64", 8},
                                                        {"I64", 8}}};

// Tells `place: tensor "name": what`.
class HeaderReader {
 public:
  HeaderReader(std::string_view place, std::uint64_t data_bytes) : place_(place), data_bytes_(data_bytes) {}

  [[noreturn]] void fail(const std::string& message) const { throw io::error_at(place_, message); }

  [[noreturn]] void fail(const std::string& name, const std::string& message) const {
    fail("tensor " + io::in_quotes(name) + ": " + message);
  }

  // A document forgets repeated keys, so they are looked for while it is read.
  json parse(std::string_view text) const {
    std::vector<std::set<std::string>> keys;
    const auto look = [&](int, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
        fail("the header has " + io::in_quotes(parsed.get_ref<const std::string&>()) + " twice");
      }
      return true;
    };
    try {
      return json::parse(text, look);
    } catch (const json::exception& error) {
      fail("the header is " + io::json_error_text(error.what(), text));
    }
  }

  std::map<std::string, std::string> metadata(const json& object) const {
    if (!object.is_object()) fail("`__metadata__`: expected an object");
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) fail("`__metadata__`: " + io::in_quotes(key) + " is not a string");
      result.emplace(key, value.get<std::string>());
    }
    return result;
  }

  StoredTensor tensor(const std::string& name, const json& object) const {
    if (!object.is_object()) fail(name, "expected an object");
    for (const auto& [key, value] : object.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") fail(name, "unknown key " + io::in_quotes(key));
    }
    StoredTensor result;
    result.name = name;
    result.type = type(name, member(name, object, "dtype"));
    std::uint64_t expected = element_bytes(result.type);
    for (const json& size : member(name, object, "shape")) {
      const std::uint64_t value = whole_number(name, "shape", size);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(name, "`shape`: too large a size");
      }
      result.shape.push_back(static_cast<std::int64_t>(value));
    }
    // Sizes may overflow beside a zero: a tensor with one has no data whatever the others are.
    if (std::find(result.shape.begin(), result.shape.end(), 0) != result.shape.end()) expected = 0;
    for (const std::int64_t size : result.shape) {
      if (expected != 0 && static_cast<std::uint64_t>(size) > kMost / expected) fail(name, "`shape`: too large");
      expected *= static_cast<std::uint64_t>(size);
    }
    read_offsets(name, member(name, object, "data_offsets"), result);
    if (result.end - result.begin != expected) {
      fail(name, "its type and shape are " + std::to_string(expected) + " bytes, its data " +
                     std::to_string(result.end - result.begin));
    }
    return result;
  }

  // The data are where the last tensor ended; nothing is left over.
  void check_order(std::vector<StoredTensor>& tensors) const {
    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t at = 0;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.begin < at) fail(tensor.name, "its data begin at " + offset(tensor.begin, at) + ": they overlap");
      if (tensor.begin > at) fail(tensor.name, "its data begin at " + offset(tensor.begin, at) + ": there is a hole");
      at = tensor.end;
    }
    if (at != data_bytes_) {
      fail("the tensors end at byte " + std::to_string(at) + " of the data, which have " + std::to_string(data_bytes_));
    }
  }

 private:
  static constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

  static std::string offset(std::uint64_t begin, std::uint64_t at) {
    return "byte " + std::to_string(begin) + ", those before it end at " + std::to_string(at);
  }

  const json& member(const std::string& name, const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(name, "`" + std::string(key) + "` is missing");
    const bool text = std::string_view(key) == "dtype";
    if (text ? !found->is_string() : !found->is_array()) {
      fail(name, "`" + std::string(key) + "`: expected " + (text ? "a string" : "an array"));
    }
    return *found;
  }

  StoredType type(const std::string& name, const json& text) const {
    const auto& wanted = text.get_ref<const std::string&>();
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (kTypes[i].name == wanted) return static_cast<StoredType>(i);
    }
    fail(name, "unknown dtype " + io::in_quotes(wanted));
  }

  std::uint64_t whole_number(const std::string& name, const char* key, const json& value) const {
    if (!value.is_number_unsigned()) fail(name, "`" + std::string(key) + "`: expected whole numbers, 0 or more");
    return value.get<std::uint64_t>();
  }

  void read_offsets(const std::string& name, const json& offsets, StoredTensor& tensor) const {
    if (offsets.size() != 2) {
      fail(name, "`data_offsets`: expected 2 numbers, got " + std::to_string(offsets.size()));
    }
    tensor.begin = whole_number(name, "data_offsets", offsets[0]);
    tensor.end = whole_number(name, "data_offsets", offsets[1]);
    if (tensor.begin > tensor.end) fail(name, "its data end before they begin");
    if (tensor.end > data_bytes_) {
      fail(name, "its data end at byte " + std::to_string(tensor.end) + ", the file has " +
                     std::to_string(data_bytes_) + " bytes of data");
    }
  }

  std::string_view place_;
  std::uint64_t data_bytes_;
};

}  // namespace

std::string_view to_string(StoredType type) { return kTypes[static_cast<std::size_t>(type)].name; }

std::uint64_t element_bytes(StoredType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, std::string_view place) {
  const HeaderReader reader(place, 0);
  if (file_bytes < kHeaderLengthBytes || first_bytes.size() < kHeaderLengthBytes) {
    reader.fail("not a safetensors file: it has " + std::to_string(file_bytes) + " bytes");
  }
  const auto length =
      io::LittleEndianReader(first_bytes.substr(0, kHeaderLengthBytes), std::string(place)).take<std::uint64_t>();
  if (length > kLargestHeader) {
    reader.fail("not a safetensors file: its header would be " + std::to_string(length) + " bytes, at most " +
                std::to_string(kLargestHeader) + " are read");
  }
  if (length > file_bytes - kHeaderLengthBytes) {
    reader.fail("it is cut off: its header has " + std::to_string(length) + " bytes, after its length come " +
                std::to_string(file_bytes - kHeaderLengthBytes));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json_text, std::uint64_t data_bytes,
                                           std::string_view place) {
  const HeaderReader reader(place, data_bytes);
  if (json_text.empty() || json_text.front() != '{') reader.fail("the header does not begin with {");
  const json document = reader.parse(json_text);
  SafetensorsHeader header;
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadataKey) {
      header.metadata = reader.metadata(value);
    } else {
      header.tensors.push_back(reader.tensor(name, value));
    }
  }
  reader.check_order(header.tensors);
  return header;
}

std::string safetensors_header_bytes(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto comma = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!header.metadata.empty()) {
    io::append_json_string(text, kMetadataKey);
    text += ":{";
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      if (!std::exchange(first, false)) text += ',';
      io::append_json_string(text, key);
      text += ':';
      io::append_json_string(text, value);
    }
    text += '}';
  }
  for (const StoredTensor& tensor : header.tensors) {
    comma();
    io::append_json_string(text, tensor.name);
    text += ":{\"dtype\":\"" + std::string(to_string(tensor.type)) + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) text += ',';
      io::append_json_number(text, tensor.shape[i]);
    }
    text += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  io::append_little_endian(bytes, static_cast<std::uint64_t>(text.size()));
  return bytes + text;
}

}  // namespace gnmr::models
