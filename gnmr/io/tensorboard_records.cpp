// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/tensorboard_records.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "gnmr/io/checksum.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kChecksumBytes = 4;

template <typename Unsigned>
Unsigned little_endian(std::string_view bytes) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    value |= static_cast<Unsigned>(static_cast<Unsigned>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  }
  return value;
}

// The format stores checksums rotated and shifted by a constant, so that a checksum of checksums is not trivial.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

// The fields of one protocol-buffer message.
class MessageFields {
 public:
  explicit MessageFields(std::string_view bytes) : bytes_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    unsigned wire_type = 0;
    std::uint64_t integer = 0;    // wire types 0, 1, 5
    std::string_view bytes = {};  // wire type 2
  };

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const std::uint64_t key = take_varint(bytes_);
    field.number = key >> 3;
    field.wire_type = static_cast<unsigned>(key & 7U);
    switch (field.wire_type) {
      case 0:
        field.integer = take_varint(bytes_);
        return true;
      case 1:
        field.integer = little_endian<std::uint64_t>(take(8));
        return true;
      case 2:
        field.bytes = take(take_varint(bytes_));
        return true;
      case 5:
        field.integer = little_endian<std::uint32_t>(take(4));
        return true;
      default:
        throw Error("not an event: a field of unknown kind");
    }
  }

  static std::uint64_t take_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes.empty()) throw Error("not an event: a number is cut short");
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    throw Error("not an event: a number is too long");
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size()) throw Error("not an event: a field is cut short");
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(size));
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view bytes_;
};

double widen_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const double fraction = static_cast<double>(bits & 0x3FF) / 1024.0;
  double value = 0;
  if (exponent == 0x1F) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double widen_float(std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); }

// TensorFlow's numbers for the element types that a scalar may have.
enum class ElementType : std::uint64_t { float32 = 1, float64 = 2, int32 = 3, int64 = 9, bfloat16 = 14, float16 = 19 };

std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::bfloat16:
    case ElementType::float16:
      return 2;
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    case ElementType::float64:
    case ElementType::int64:
      return 8;
  }
  return 0;
}

// The number that `raw` holds; nothing unless it is exactly one of a type that we know.
std::optional<double> raw_scalar(ElementType type, std::string_view raw) {
  if (raw.empty() || raw.size() != bytes_of(type)) return std::nullopt;
  switch (type) {
    case ElementType::float32:
      return widen_float(little_endian<std::uint32_t>(raw));
    case ElementType::float64:
      return std::bit_cast<double>(little_endian<std::uint64_t>(raw));
    case ElementType::int32:
      return static_cast<std::int32_t>(little_endian<std::uint32_t>(raw));
    case ElementType::int64:
      return static_cast<double>(static_cast<std::int64_t>(little_endian<std::uint64_t>(raw)));
    case ElementType::bfloat16:
      return widen_float(static_cast<std::uint32_t>(little_endian<std::uint16_t>(raw)) << 16);
    case ElementType::float16:
      return widen_half(little_endian<std::uint16_t>(raw));
  }
  return std::nullopt;
}

// The number in a list field of a tensor, written packed or not; nothing unless it is the only one.
std::optional<double> listed_scalar(ElementType type, const MessageFields::Field& field) {
  if (type == ElementType::float32 || type == ElementType::float64) {
    if (field.wire_type == 2) return raw_scalar(type, field.bytes);
    if (type == ElementType::float32 && field.wire_type == 5) {
      return widen_float(static_cast<std::uint32_t>(field.integer));
    }
    if (type == ElementType::float64 && field.wire_type == 1) return std::bit_cast<double>(field.integer);
    return std::nullopt;
  }
  std::uint64_t integer = field.integer;
  if (field.wire_type == 2) {
    std::string_view rest = field.bytes;
    if (rest.empty()) return std::nullopt;
    integer = MessageFields::take_varint(rest);
    if (!rest.empty()) return std::nullopt;
  } else if (field.wire_type != 0) {
    return std::nullopt;
  }
  if (type == ElementType::float16) return widen_half(static_cast<std::uint16_t>(integer));
  if (type == ElementType::bfloat16) return widen_float(static_cast<std::uint32_t>(integer & 0xFFFFU) << 16);
  return static_cast<double>(static_cast<std::int64_t>(integer));
}

std::uint64_t list_field_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return 5;
    case ElementType::float64:
      return 6;
    case ElementType::int32:
      return 7;
    case ElementType::int64:
      return 10;
    case ElementType::bfloat16:
    case ElementType::float16:
      return 13;
  }
  return 0;
}

std::optional<double> tensor_scalar(std::string_view tensor) {
  MessageFields::Field field;
  auto type = ElementType::float32;
  for (MessageFields fields(tensor); fields.next(field);) {
    if (field.number == 1 && field.wire_type == 0) type = static_cast<ElementType>(field.integer);
  }
  std::optional<double> value;
  for (MessageFields fields(tensor); fields.next(field);) {
    if (field.number == 4 && field.wire_type == 2) {
      value = raw_scalar(type, field.bytes);
    } else if (field.number == list_field_of(type)) {
      if (value) return std::nullopt;  // more than one number
      value = listed_scalar(type, field);
    }
  }
  return value;
}

EventValue read_summary_value(std::string_view bytes) {
  MessageFields::Field field;
  EventValue value;
  for (MessageFields fields(bytes); fields.next(field);) {
    if (field.number == 1 && field.wire_type == 2) value.tag = field.bytes;
    if (field.number == 2 && field.wire_type == 5)
      value.scalar = widen_float(static_cast<std::uint32_t>(field.integer));
    if (field.number == 8 && field.wire_type == 2) value.scalar = tensor_scalar(field.bytes);
  }
  return value;
}

}  // namespace

bool starts_with_record(std::string_view bytes) {
  if (bytes.size() < kRecordHeaderBytes) return false;
  return masked(crc32c(bytes.substr(0, 8))) == little_endian<std::uint32_t>(bytes.substr(8));
}

// The data is fetched piece by piece: a length that is wrong, but has a right checksum, costs no more than the file.
std::size_t RecordReader::fill(std::size_t size) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  buffer_.clear();
  while (buffer_.size() < size) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + std::min(kPiece, size - before));
    const std::size_t count = source_.read(std::span(buffer_).subspan(before));
    buffer_.resize(before + count);
    if (count == 0) break;
  }
  return buffer_.size();
}

bool RecordReader::next(std::string_view& data) {
  ++record_;
  const std::size_t header = fill(kRecordHeaderBytes);
  torn_ = header > 0 && header < kRecordHeaderBytes;
  if (header < kRecordHeaderBytes) return false;
  if (!starts_with_record(buffer_)) throw error_at(where(), "damaged: the checksum of its length is wrong");
  const auto size = little_endian<std::uint64_t>(buffer_);
  if (size > kMaxLineBytes) throw error_at(where(), "too large");
  const std::size_t wanted = static_cast<std::size_t>(size) + kChecksumBytes;
  torn_ = fill(wanted) < wanted;
  if (torn_) return false;
  data = std::string_view(buffer_).substr(0, static_cast<std::size_t>(size));
  if (masked(crc32c(data)) != little_endian<std::uint32_t>(std::string_view(buffer_).substr(data.size()))) {
    throw error_at(where(), "damaged: the checksum of its data is wrong");
  }
  return true;
}

std::string RecordReader::where() const { return source_.name() + ": record " + std::to_string(record_); }

void read_event(std::string_view bytes, Event& event) {
  event.step = 0;
  event.values.clear();
  MessageFields::Field field;
  for (MessageFields fields(bytes); fields.next(field);) {
    if (field.number == 2 && field.wire_type == 0) event.step = static_cast<std::int64_t>(field.integer);
    if (field.number != 5 || field.wire_type != 2) continue;
    MessageFields::Field value;
    for (MessageFields values(field.bytes); values.next(value);) {
      if (value.number == 1 && value.wire_type == 2) event.values.push_back(read_summary_value(value.bytes));
    }
  }
}

}  // namespace gnmr::io
