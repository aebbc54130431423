// SPDX-License-Identifier: Apache-2.0
// Where bytes come from: a file, standard input, memory; compressed or not.
//
// Goals: a stream of any length in constant memory; .gz recognised by its first bytes, also on standard input; a second
// pass where the source can give one.
// Non-goals: lines and numbers (line_reader.h), writing.
// A source is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace gnmr::io {

/// A stream of bytes.
class ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Fills the front of `into` and returns how many bytes that were; 0 at the end. An `Error` where reading fails.
  virtual std::size_t read(std::span<char> into) = 0;

  /// Whether `rewind` works.
  virtual bool can_rewind() const = 0;

  /// Starts again at the first byte; an `Error` where the source cannot.
  virtual void rewind() = 0;

  /// Bytes taken so far from the file itself, compressed where it is compressed.
  virtual std::uint64_t bytes_read() const = 0;

  /// Bytes of the file itself; 0 where that is not known.
  virtual std::uint64_t bytes_total() const = 0;

  /// What messages call it: the path, or `standard input`.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// A source whose first bytes can be looked at before they are read.
class PeekableSource : public ByteSource {
 public:
  explicit PeekableSource(std::unique_ptr<ByteSource> inner);

  /// What has been looked at so far and not been read.
  std::string_view peeked() const { return std::string_view(head_).substr(head_at_); }

  /// Looks at up to `count` bytes more; false at the end. It asks the inner source once, so it does not wait for more
  /// than a pipe has to give.
  bool peek_more(std::size_t count);

  std::size_t read(std::span<char> into) override;
  bool can_rewind() const override { return inner_->can_rewind(); }
  void rewind() override;
  std::uint64_t bytes_read() const override { return inner_->bytes_read(); }
  std::uint64_t bytes_total() const override { return inner_->bytes_total(); }

 private:
  std::unique_ptr<ByteSource> inner_;
  std::string head_;
  std::size_t head_at_ = 0;
};

/// The path that means standard input.
inline constexpr std::string_view kStandardInput = "-";

/// Opens a file, or standard input for `-`; what is compressed with gzip is read as what it holds.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

/// A source over `bytes`, decompressed like a file; `name` is for messages.
std::unique_ptr<ByteSource> memory_byte_source(std::string name, std::string bytes);

/// A source with the same bytes that can be rewound: the given one where it can, else a temporary file with its bytes.
std::unique_ptr<ByteSource> make_rewindable(std::unique_ptr<ByteSource> source);

}  // namespace gnmr::io
