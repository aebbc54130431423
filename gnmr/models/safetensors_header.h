// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: which tensor lies where.
//
//   8 bytes: length of the header, little-endian | the header, JSON | the data
//   {"__metadata__": {"format": "pt"}, "model.norm.weight": {"dtype": "F32", "shape": [96], "data_offsets": [0, 384]}}
//
// Goals: a header that is accepted describes data that is there, all of it, once; an `Error` begins with the place.
// Non-goals: tensors (safetensors.h), files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gnmr::models {

/// The bytes before the header.
inline constexpr std::size_t kHeaderLengthBytes = 8;

/// The reference library reads no longer ones.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;

/// The element types that are read and written, in the reference library's order of alignment.
enum class StoredType : std::uint8_t { boolean, u8, f8_e5m2, f8_e4m3, f16, bf16, i32, f32, f64, i64 };
inline constexpr std::size_t kStoredTypeCount = 10;

/// Its name in a header, for example `F8_E4M3`.
std::string_view to_string(StoredType type);

/// The bytes of an element.
std::uint64_t element_bytes(StoredType type);

/// One tensor; `begin` and `end` count from the first byte of the data.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const StoredTensor&) const = default;
};

/// A header; tensors in the order of their data, without holes or overlaps.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

/// The length of the header that begins a file of `file_bytes`, from its first bytes; checked against both limits.
std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, std::string_view place);

/// Reads the JSON of a header before `data_bytes` of data.
SafetensorsHeader parse_safetensors_header(std::string_view json_text, std::uint64_t data_bytes,
                                           std::string_view place);

/// The first bytes of a file: length and JSON, padded with spaces so that the data begin at a multiple of 8.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

}  // namespace gnmr::models
