// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/gzip_source.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kInflatedBytes = std::size_t{1} << 17;
constexpr int kGzipWindowBits = 15 + 16;  // 16: a gzip header and trailer, nothing else

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : ByteSource(compressed->name()), compressed_(std::move(compressed)), buffer_(kInflatedBytes) {
    if (inflateInit2(&stream_, kGzipWindowBits) != Z_OK) throw Error(name() + ": no memory to decompress it");
  }

  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t read(std::span<char> into) override {
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    const auto wanted = static_cast<uInt>(std::min<std::size_t>(into.size(), std::numeric_limits<uInt>::max()));
    stream_.avail_out = wanted;
    while (stream_.avail_out == wanted && !ended_) inflate_some();
    return wanted - stream_.avail_out;
  }

  bool can_rewind() const override { return compressed_->can_rewind(); }

  void rewind() override {
    compressed_->rewind();
    inflateReset(&stream_);
    stream_.avail_in = 0;
    ended_ = false;
    between_members_ = false;
  }

  std::uint64_t bytes_read() const override { return compressed_->bytes_read(); }
  std::uint64_t bytes_total() const override { return compressed_->bytes_total(); }

 private:
  bool refill() {
    const std::size_t count = compressed_->read(buffer_);
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }

  void inflate_some() {
    if (stream_.avail_in == 0 && !refill()) {
      if (!between_members_) throw Error(name() + ": the compressed data ends too early");
      ended_ = true;
      return;
    }
    if (between_members_) {
      // Tapes and block devices pad the end with zeros; anything else must be another member.
      while (stream_.avail_in > 0 && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
      }
      if (stream_.avail_in == 0) return;
      between_members_ = false;
      inflateReset(&stream_);
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      between_members_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const std::string why = stream_.msg == nullptr ? "" : std::string(" (") + stream_.msg + ")";
      throw Error(name() + ": the compressed data is damaged" + why);
    }
  }

  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> buffer_;
  z_stream stream_ = {};
  bool between_members_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> compressed) {
  return std::make_unique<GzipSource>(std::move(compressed));
}

}  // namespace gnmr::io
