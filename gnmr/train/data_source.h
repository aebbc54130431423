// SPDX-License-Identifier: Apache-2.0
// A stream of tokens over files that stay where they are: mapped into memory, never copied as a whole.
//
// Text is read as bytes (256 different tokens), with a line end between two files; files named .bin hold 16-bit
// little-endian tokens and follow each other directly.
//
// Goals: any number of files as one stream; errors that name the file and the position. Non-goals: tokenizing, files
// that change while they are read (one that shrinks ends the process).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnmr::train {

/// Files as one stream of tokens. Reading is for any number of threads.
class TokenStream {
 public:
  /// Maps the files; an `Error` where one cannot be read, is empty, holds half a token, or where kinds are mixed.
  explicit TokenStream(const std::vector<std::string>& files);

  /// Tokens in all.
  std::int64_t size() const { return size_; }

  /// How many different tokens there can be: 256 for text, 65536 for .bin files.
  std::int64_t largest_vocabulary() const { return token_bytes_ == 1 ? 256 : 65536; }

  /// Copies the tokens from `position` on.
  void read(std::int64_t position, std::span<std::int64_t> tokens) const;

  /// Where a position is, for messages: `FILE: token 12`.
  std::string place(std::int64_t position) const;

  /// The first position with a token that is `vocabulary` or more; -1 where there is none.
  std::int64_t first_outside(std::int64_t vocabulary) const;

  /// Tells content apart, wherever the files are: sizes and a checksum, over all bytes up to 64 MB, else over samples.
  std::string fingerprint() const;

  /// How many files there are.
  std::size_t file_count() const { return files_.size(); }

 private:
  struct MappedFile {
    std::string path;
    std::shared_ptr<const unsigned char> bytes;
    std::int64_t tokens = 0;
    std::int64_t first_position = 0;
  };

  const MappedFile& file_of(std::int64_t position) const;
  std::int64_t token_at(const MappedFile& file, std::int64_t index) const;

  std::vector<MappedFile> files_;
  std::int64_t token_bytes_ = 1;
  std::int64_t size_ = 0;
};

/// Text that most machines have: the sources of Python's standard library, without its tests.
struct StandardText {
  std::string folder;
  std::vector<std::string> files;  // sorted, at most 32 MB together
};

/// Finds it; an `Error` that says what to do where there is none. Asks `python3` where its library is, then looks in
/// the usual places.
StandardText find_standard_text();

/// The same in a given folder; no files where there are none.
StandardText standard_text_in(const std::string& folder);

}  // namespace gnmr::train
