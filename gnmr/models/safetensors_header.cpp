// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/little_endian.h"
#include "gnmr/io/text_error.h"

namespace gnmr::models {
namespace {

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

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

// Makes a header of the events of a JSON parser: time and memory are linear in the text, and a document in memory,
// which would forget repeated keys, is not needed. Errors are `place: tensor "name": what`.
class HeaderReader : public io::JsonEvents {
 public:
  HeaderReader(std::string_view place, std::uint64_t data_bytes) : place_(place), data_bytes_(data_bytes) {}

  [[noreturn]] void fail(const std::string& message) const { throw io::error_at(place_, message); }

  SafetensorsHeader read(std::string_view text) {
    if (text.empty() || text.front() != '{') fail("the header does not begin with {");
    text_ = text;
    io::Json::sax_parse(text, this);
    check_order();
    return std::move(header_);
  }

  bool start_object(std::size_t) override {
    switch (level_) {
      case Level::outside:
        level_ = Level::header;
        break;
      case Level::header:
        level_ = name_ == kMetadataKey ? Level::metadata : Level::tensor;
        has_type_ = has_shape_ = has_offsets_ = false;
        tensor_ = {};
        break;
      default:
        refuse_value();
    }
    return true;
  }

  bool key(std::string& key) override {
    if (level_ == Level::header) {
      if (!names_.insert(key).second) fail_twice(key);
      name_ = key;
    } else if (level_ == Level::metadata) {
      if (header_.metadata.contains(key)) fail_twice(key);
      key_ = key;
    } else {
      begin_member(key);
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::tensor) finish_tensor();
    level_ = level_ == Level::header ? Level::outside : Level::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::tensor || key_ == kTypeKey) refuse_value();
    level_ = Level::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::tensor;
    key_ == kShapeKey ? take_shape() : take_offsets();
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::metadata) {
      header_.metadata.emplace(key_, text);
    } else if (level_ == Level::tensor && key_ == kTypeKey) {
      take_type(text);
    } else {
      refuse_value();
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (level_ != Level::numbers) refuse_value();
    numbers_.push_back(number);
    return true;
  }

  bool null() override { refuse_value(); }
  bool boolean(bool) override { refuse_value(); }
  bool number_integer(std::int64_t) override { refuse_value(); }
  bool number_float(double, const std::string&) override { refuse_value(); }
  bool binary(io::Json::binary_t&) override { refuse_value(); }

  bool parse_error(std::size_t, const std::string&, const io::Json::exception& error) override {
    fail("the header is " + io::json_error_text(error.what(), text_));
  }

 private:
  enum class Level : std::uint8_t { outside, header, metadata, tensor, numbers };

  static constexpr std::string_view kTypeKey = "dtype";
  static constexpr std::string_view kShapeKey = "shape";
  static constexpr std::string_view kOffsetsKey = "data_offsets";

  [[noreturn]] void fail_tensor(const std::string& message) const {
    fail("tensor " + io::in_quotes(name_) + ": " + message);
  }

  [[noreturn]] void fail_twice(const std::string& key) const {
    fail("the header has " + io::in_quotes(key) + " twice");
  }

  // The value that has just come is not what its place may hold.
  [[noreturn]] void refuse_value() const {
    switch (level_) {
      case Level::metadata:
        fail("`__metadata__`: " + io::in_quotes(key_) + " is not a string");
      case Level::tensor:
        fail_tensor("`" + key_ + "`: expected " + (key_ == kTypeKey ? "a string" : "an array"));
      case Level::numbers:
        fail_tensor("`" + key_ + "`: expected whole numbers, 0 or more");
      default:
        if (name_ == kMetadataKey) fail("`__metadata__`: expected an object");
        fail_tensor("expected an object");
    }
  }

  void begin_member(const std::string& key) {
    bool* const has = key == kTypeKey      ? &has_type_
                      : key == kShapeKey   ? &has_shape_
                      : key == kOffsetsKey ? &has_offsets_
                                           : nullptr;
    if (has == nullptr) fail_tensor("unknown key " + io::in_quotes(key));
    if (std::exchange(*has, true)) fail_twice(key);
    key_ = key;
  }

  void take_type(const std::string& wanted) {
    const auto row =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& type) { return type.name == wanted; });
    if (row == kTypes.end()) fail_tensor("unknown dtype " + io::in_quotes(wanted));
    tensor_.type = static_cast<StoredType>(row - kTypes.begin());
  }

  void take_shape() {
    for (const std::uint64_t size : numbers_) {
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail_tensor("`shape`: too large a size");
      }
      tensor_.shape.push_back(static_cast<std::int64_t>(size));
    }
  }

  void take_offsets() {
    if (numbers_.size() != 2) {
      fail_tensor("`data_offsets`: expected 2 numbers, got " + std::to_string(numbers_.size()));
    }
    tensor_.begin = numbers_[0];
    tensor_.end = numbers_[1];
    if (tensor_.begin > tensor_.end) fail_tensor("its data end before they begin");
    if (tensor_.end > data_bytes_) {
      fail_tensor("its data end at byte " + std::to_string(tensor_.end) + ", the file has " +
                  std::to_string(data_bytes_) + " bytes of data");
    }
  }

  void finish_tensor() {
    for (const auto& [has, key] :
         {std::pair(has_type_, kTypeKey), std::pair(has_shape_, kShapeKey), std::pair(has_offsets_, kOffsetsKey)}) {
      if (!has) fail_tensor("`" + std::string(key) + "` is missing");
    }
    std::uint64_t expected = element_bytes(tensor_.type);
    // Sizes may overflow beside a zero: a tensor with one has no data whatever the others are.
    if (std::find(tensor_.shape.begin(), tensor_.shape.end(), 0) != tensor_.shape.end()) expected = 0;
    for (const std::int64_t size : tensor_.shape) {
      if (expected != 0 && static_cast<std::uint64_t>(size) > kMost / expected) fail_tensor("`shape`: too large");
      expected *= static_cast<std::uint64_t>(size);
    }
    if (tensor_.end - tensor_.begin != expected) {
      fail_tensor("its type and shape are " + std::to_string(expected) + " bytes, its data " +
                  std::to_string(tensor_.end - tensor_.begin));
    }
    tensor_.name = name_;
    header_.tensors.push_back(std::move(tensor_));
  }

  // The data are where the last tensor ended; nothing is left over.
  void check_order() {
    std::vector<StoredTensor>& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t at = 0;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.begin != at) {
        name_ = tensor.name;
        fail_tensor("its data begin at byte " + std::to_string(tensor.begin) + ", those before it end at " +
                    std::to_string(at) + (tensor.begin < at ? ": they overlap" : ": there is a hole"));
      }
      at = tensor.end;
    }
    if (at != data_bytes_) {
      fail("the tensors end at byte " + std::to_string(at) + " of the data, which have " + std::to_string(data_bytes_));
    }
  }

  std::string_view place_;
  std::uint64_t data_bytes_;
  std::string_view text_;  // that is read, for messages
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  Level level_ = Level::outside;
  std::string name_;  // of the tensor that is read
  std::string key_;   // of its member
  bool has_type_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  StoredTensor tensor_;
  std::vector<std::uint64_t> numbers_;
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
  return HeaderReader(place, data_bytes).read(json_text);
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
