// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/data_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/text_error.h"

namespace gnmr::train {
namespace {

constexpr std::int64_t kSeparator = '\n';
constexpr std::int64_t kFingerprintAll = std::int64_t{64} << 20;
constexpr std::int64_t kFingerprintSample = 4096;

bool holds_tokens(const std::string& path) { return path.ends_with(".bin"); }

std::shared_ptr<const unsigned char> map_file(const std::string& path, std::int64_t& size) {
  const io::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) io::throw_errno(path, "cannot open it");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) io::throw_errno(path, "cannot look at it");
  if (!S_ISREG(status.st_mode)) throw io::error_at(path, "not a regular file");
  size = static_cast<std::int64_t>(status.st_size);
  if (size == 0) throw io::error_at(path, "it is empty");
  const auto bytes = static_cast<std::size_t>(size);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) io::throw_errno(path, "cannot map it");
  return {static_cast<const unsigned char*>(mapped),
          [bytes](const unsigned char* data) { ::munmap(const_cast<unsigned char*>(data), bytes); }};
}

std::string_view view(const unsigned char* bytes, std::int64_t size) {
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
}

}  // namespace

TokenStream::TokenStream(const std::vector<std::string>& files) {
  if (files.empty()) throw Error("[data] there are no files");
  token_bytes_ = holds_tokens(files[0]) ? 2 : 1;
  for (const std::string& path : files) {
    if (holds_tokens(path) != (token_bytes_ == 2)) {
      throw io::error_at(path, "text and .bin files cannot be mixed");
    }
    MappedFile file{.path = path, .bytes = {}, .tokens = 0, .first_position = size_};
    std::int64_t bytes = 0;
    file.bytes = map_file(path, bytes);
    if (bytes % token_bytes_ != 0) {
      throw io::error_at(path, std::to_string(bytes) + " bytes are no whole number of 16-bit tokens");
    }
    file.tokens = bytes / token_bytes_;
    size_ += file.tokens + (token_bytes_ == 1 ? 1 : 0);
    files_.push_back(std::move(file));
  }
  if (token_bytes_ == 1) --size_;  // nothing separates the last file from anything
}

const TokenStream::MappedFile& TokenStream::file_of(std::int64_t position) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), position,
                                      [](std::int64_t at, const MappedFile& file) { return at < file.first_position; });
  return *(after - 1);
}

std::int64_t TokenStream::token_at(const MappedFile& file, std::int64_t index) const {
  const unsigned char* const bytes = file.bytes.get();
  if (token_bytes_ == 1) return bytes[index];
  return bytes[2 * index] | (bytes[2 * index + 1] << 8);
}

void TokenStream::read(std::int64_t position, std::span<std::int64_t> tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (position < 0 || count > size_ - position) {
    throw Error("[data] expected positions below " + std::to_string(size_) + ", got " + std::to_string(position) +
                " to " + std::to_string(position + count));
  }
  auto target = tokens.begin();
  const MappedFile* file = &file_of(position);
  while (target != tokens.end()) {
    const std::int64_t from = position - file->first_position;
    const std::int64_t here = std::min<std::int64_t>(tokens.end() - target, file->tokens - from);
    for (std::int64_t i = 0; i < here; ++i) *target++ = token_at(*file, from + i);
    position += here;
    if (target == tokens.end()) break;
    ++file;
    if (position < file->first_position) {
      *target++ = kSeparator;
      ++position;
    }
  }
}

std::string TokenStream::place(std::int64_t position) const {
  const MappedFile& file = file_of(position);
  return file.path + ": token " + std::to_string(position - file.first_position);
}

std::int64_t TokenStream::first_outside(std::int64_t vocabulary) const {
  if (vocabulary >= largest_vocabulary()) return -1;
  for (const MappedFile& file : files_) {
    for (std::int64_t i = 0; i < file.tokens; ++i) {
      if (token_at(file, i) >= vocabulary) return file.first_position + i;
    }
  }
  return -1;
}

std::string TokenStream::fingerprint() const {
  std::uint64_t checksum = 0;
  const bool whole = size_ * token_bytes_ <= kFingerprintAll;
  for (const MappedFile& file : files_) {
    const std::int64_t bytes = file.tokens * token_bytes_;
    checksum = io::crc64(std::to_string(bytes) + ",", checksum);
    // Of much data a thousand samples a file, the first and the last bytes among them.
    const std::int64_t stride = whole ? kFingerprintSample : std::max(kFingerprintSample, bytes / 1000);
    for (std::int64_t at = 0; at < bytes; at += stride) {
      checksum = io::crc64(view(file.bytes.get() + at, std::min(kFingerprintSample, bytes - at)), checksum);
    }
    const std::int64_t tail = std::min(kFingerprintSample, bytes);
    checksum = io::crc64(view(file.bytes.get() + bytes - tail, tail), checksum);
  }
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(checksum));
  return std::to_string(size_) + (token_bytes_ == 1 ? " bytes " : " tokens ") + text.data();
}

}  // namespace gnmr::train
